"""Stints that end before their time: nothing of them is committed, their steps are stopped, their code is let go."""

from types import SimpleNamespace

import pytest
from stintkit import Clockwork, Code, HandCrew, stint

from holdfast.workers.workflow_turns.abandon import Parting, let_go
from holdfast.workers.workflow_turns.turn_state import BROKEN_S
from holdfast.workflows.runtime.execution_cache import Residents


@pytest.fixture
def works():
    works = Clockwork()
    works.crew, works.residents = HandCrew(), Residents()
    works.parting = Parting(works.ledger, works.crew, works.residents)
    return works


def test_an_instance_is_given_back_once_and_one_that_is_not_under_way_never(works):
    one = works.begin(stint())
    works.parting.give_back(one, None, counted=False)
    assert works.sent == ["abandon"]
    works.ledger.end(one)
    works.parting.give_back(one, None, counted=False)
    assert works.sent == ["abandon"]


def test_what_cannot_be_kept_is_given_back_and_counts_and_says_why(works, caplog):
    works.parting.cannot_keep(works.begin(stint()), "too long")
    (errand,) = works.ledger.outbox
    assert (errand.command.reason, errand.command.given_back, errand.command.delay_s) == ("too long", False, BROKEN_S)
    assert [record.message for record in caplog.records] == ["turn.refused"]


def test_a_turn_that_is_anothers_is_thrown_away_and_nothing_is_sent(works, caplog):
    code = Code()
    one = works.begin(stint(execution=code))
    works.parting.lose(one, "it is another's")
    works.crew.do()
    assert (works.sent, works.ledger.stints, works.parting.lost) == ([], {}, 1)
    assert code.closed == [False]
    assert [record.message for record in caplog.records] == ["turn.lost"]


def test_steps_of_what_is_dropped_are_stopped_and_the_code_is_closed_without_clean_up_by_another_thread(works):
    code, stopped = Code(), []
    one = stint(execution=code)
    one.steps = {number: SimpleNamespace(stop=lambda number=number: stopped.append(number)) for number in (1, 2)}
    works.parting.drop(one)
    assert (stopped, one.steps, one.is_gone, code.closed) == ([1, 2], {}, True, [])
    works.crew.do()
    assert code.closed == [False]


def test_code_that_a_thread_is_inside_is_left_for_that_thread_to_close(works):
    code = Code()
    one = stint(execution=code)
    one.is_taken = True
    works.parting.drop(one)
    works.crew.do()
    assert (code.closed, one.is_dropped) == ([], True)


def test_an_execution_that_was_kept_for_the_instance_goes_too_and_the_turns_own_is_closed_once(works):
    kept, code = Code(), Code()
    works.residents.keep(kept)
    works.parting.drop(stint(execution=code))
    works.crew.do()
    assert (kept.closed, code.closed, len(works.residents)) == ([True], [False], 0)
    works.residents.keep(code)
    works.parting.drop(stint(execution=code))
    works.crew.do()
    assert code.closed == [False, False]
    works.residents.keep(kept)
    works.parting.drop(stint())  # it has not begun
    works.crew.do()
    assert kept.closed == [True, True]


def test_code_that_will_not_be_closed_is_let_go_all_the_same(caplog):
    let_go(stint(execution=Code(problem=ValueError("no"))))
    assert [record.message for record in caplog.records] == ["turn.not_closed"]
    let_go(stint())
