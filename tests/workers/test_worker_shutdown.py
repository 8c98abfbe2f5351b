"""The way out of a worker, by its times alone."""

from __future__ import annotations

from math import inf, nan

import pytest

from holdfast.workers.shutdown import FAREWELL_S, LEAVE_NOW_S, LEAVE_S, Ending, Step


def test_nothing_is_due_before_someone_asks():
    ending = Ending()
    assert not ending.is_asked
    assert ending.step(1000.0) == Step()
    assert ending.due_at == inf


def test_what_waits_is_given_back_once_then_handlers_are_asked_to_stop_then_released():
    ending = Ending()
    ending.ask(10)
    assert ending.step(100.0) == Step(gives_back=True)
    assert ending.due_at == 110.0
    assert ending.step(109.9) == Step()
    assert ending.step(110.0) == Step(stops=True)
    assert ending.due_at == 110.0 + FAREWELL_S
    assert ending.step(110.0 + FAREWELL_S) == Step(stops=True, releases=True)


def test_the_first_who_asks_decides_on_the_grace():
    ending = Ending()
    ending.ask(10)
    ending.ask(0)
    assert not ending.step(0.0).stops


@pytest.mark.parametrize("grace_s", [0, -1, nan])
def test_no_grace_stops_handlers_at_once(grace_s):
    ending = Ending()
    ending.ask(grace_s)
    assert ending.step(5.0) == Step(gives_back=True, stops=True)


def test_who_is_in_a_hurry_waits_neither_for_the_grace_nor_for_a_farewell():
    ending = Ending()
    ending.ask(1000)
    ending.step(0.0)
    ending.hurry()
    assert ending.step(1.0) == Step(stops=True, releases=True)


@pytest.mark.parametrize(("is_hurried", "left_s"), [(False, LEAVE_S), (True, LEAVE_NOW_S)])
def test_a_store_that_does_not_answer_is_waited_for_a_moment_once_nothing_runs(is_hurried, left_s):
    ending = Ending()
    ending.ask(10)
    if is_hurried:
        ending.hurry()
    assert not ending.is_unheard(0.0, is_quiet=False)
    assert not ending.is_unheard(20.0, is_quiet=True)
    assert not ending.is_unheard(20.0 + left_s - 0.1, is_quiet=True)
    assert ending.is_unheard(20.0 + left_s, is_quiet=True)


def test_who_waits_for_ever_does_not_leave_a_report_unheard():
    ending = Ending()
    ending.ask(inf)
    assert ending.step(0.0) == Step(gives_back=True)
    assert not ending.is_unheard(0.0, is_quiet=True)
    assert not ending.is_unheard(1e9, is_quiet=True)
