"""When the pump of a worker with turns wakes: for the first call, and for whoever has something due earlier."""

from hypothesis import given
from hypothesis import strategies as st
from stintkit import Clockwork

from holdfast.workers.workflow_turns import NEVER


def test_whoever_is_due_before_the_pump_wakes_of_itself_wakes_it_and_nobody_else_does():
    works = Clockwork()
    works.sleep(110.0)
    works.alarm.ring(110.0)
    works.alarm.ring(111.0)
    assert works.pokes == 0
    works.alarm.ring(109.9)
    assert works.pokes == 1


def test_a_pump_that_has_not_slept_yet_needs_no_waking():
    works = Clockwork()
    works.alarm.later(50.0, lambda: None)
    assert works.pokes == 0
    assert works.sleep() == 50.0


def test_a_call_is_noted_before_the_pump_is_woken_for_it():
    works = Clockwork()
    works.sleep()
    found = []
    works.alarm.poke = lambda: found.extend(works.alarm.due(105.0))
    work = object()
    works.alarm.later(105.0, work)
    assert found == [work]


def test_the_pump_sleeps_until_the_first_call_or_until_it_is_told_to_wake():
    works = Clockwork()
    assert works.sleep(NEVER) == NEVER
    works.alarm.later(120.0, lambda: None)
    assert works.sleep(NEVER) == 120.0
    assert works.sleep(110.0) == 110.0


@given(st.lists(st.integers(0, 5)), st.lists(st.integers(0, 6)))
def test_every_call_is_given_once_in_its_order_and_never_too_early(times, looks):
    works = Clockwork()
    for number, at in enumerate(times):
        works.alarm.later(float(at), (at, number))
    given_out, now = [], 0
    for look in looks:
        now = max(now, look)
        given_out += works.alarm.due(float(now))
        assert given_out == sorted((at, number) for number, at in enumerate(times) if at <= now)
