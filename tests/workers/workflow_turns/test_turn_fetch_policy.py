"""What a worker expects of its store: room for turns, a hope of some, and when something is due."""

import pytest

from holdfast.model.times import later
from holdfast.rules.state import Lane
from holdfast.workers.workflow_turns import NEVER
from holdfast.workers.workflow_turns.fetch_policy import AHEAD, LOOK_AGAIN_S, MOST, Outlook
from holdfast.workers.workflow_turns.turn_state import IDLE_S

AT = "2026-01-01T00:00:00.000000Z"
NOW = 100.0


class View:
    """A store in which something is due at a time, and some instances can be had."""

    def __init__(self, seq=1, due=None, candidates=()):
        self.seq = seq
        self._due = due
        self._candidates = candidates

    def next_due(self, lane):
        assert lane is Lane.MAIL
        return self._due

    def candidates(self, at):
        assert at == AT
        return iter(self._candidates)


def test_short_turns_are_fetched_ahead_and_long_ones_only_as_many_as_run_at_once():
    outlook = Outlook(4)
    assert outlook.room(0) == 4 * AHEAD
    assert outlook.room(4 * AHEAD - 1) == 1
    assert outlook.room(4 * AHEAD + 3) == 0
    outlook.took(8 * IDLE_S)
    assert (outlook.room(0), outlook.room(3), outlook.room(5)) == (4, 1, 0)


def test_a_worker_that_is_tired_recovers_by_short_turns():
    outlook = Outlook(2)
    outlook.tire()
    assert outlook.room(0) == 2
    for _ in range(100):
        outlook.took(0.0)
    assert outlook.room(0) == 2 * AHEAD


def test_no_more_are_fetched_than_one_cycle_takes_and_none_by_a_worker_that_ends():
    outlook = Outlook(MOST)
    assert outlook.room(0) == MOST
    outlook.is_draining = True
    assert outlook.room(0) == 0


@pytest.mark.parametrize(("found", "hope"), [(3, True), (2, False), (0, False)])
def test_there_is_hope_of_more_where_as_many_came_as_were_asked_for(found, hope):
    outlook = Outlook(4)
    outlook.fetched(found, 3)
    assert outlook.hope is hope


def test_what_was_there_and_could_not_be_had_gives_no_hope_before_something_happens():
    outlook = Outlook(4)
    view = View(seq=5, candidates=["i"])
    outlook.look(view, AT, NOW)
    outlook.fetched(0, 4)
    outlook.look(view, AT, NOW)
    outlook.hope_again(view, AT)
    assert not outlook.hope
    after = View(seq=6, candidates=["i"])
    outlook.look(after, AT, NOW)
    outlook.hope_again(after, AT)
    assert outlook.hope


@pytest.mark.parametrize(
    ("view", "hope"),
    [(View(), False), (View(candidates=["i"]), True), (View(due=AT), True), (View(due=later(AT, 1)), False)],
)
def test_there_is_hope_again_where_something_is_there_or_due(view, hope):
    outlook = Outlook(4)
    outlook.fetched(1, 4)
    outlook.look(view, AT, NOW)
    outlook.hope_again(view, AT)
    assert outlook.hope is hope


@pytest.mark.parametrize(
    ("due", "mail_at"),
    [(None, NEVER), (later(AT, 7), NOW + 7), (AT, NOW + LOOK_AGAIN_S), (later(AT, -7), NOW + LOOK_AGAIN_S)],
)
def test_what_is_due_later_is_waited_for_and_behind_what_is_due_now_the_look_is_repeated(due, mail_at):
    outlook = Outlook(4)
    outlook.look(View(due=due), AT, NOW)
    assert outlook.mail_at == mail_at


def test_mail_that_came_is_told_once_and_gives_hope():
    outlook = Outlook(4)
    outlook.fetched(0, 4)
    outlook.look(View(due=later(AT, 7)), AT, NOW)
    assert not outlook.mail_came(NOW + 6.9)
    assert not outlook.hope
    assert outlook.mail_came(NOW + 7)
    assert outlook.hope
    assert not outlook.mail_came(NOW + 8)
