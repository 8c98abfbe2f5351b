"""Acks: what becomes of the lock, and of records that a commit says nothing of."""

import pytest
from flowworld import FlowWorld, event, first, raw

from holdfast.model.events import MessageDropped
from holdfast.model.workflows import commands as f
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.history import HandledMessage
from holdfast.model.workflows.instances import Turn
from holdfast.model.workflows.work_items import QueueMessage


def step(number):
    return event(number, event_kinds.StepCompleted(step_no=number, name="s", result="1"))


def begun():
    """A world in which a turn has made its first commit, and the token it goes on with."""
    w = FlowWorld()
    w.begin()
    token = w.fetch().token
    w.ack(token, first(), hold_s=30.0)
    return w, token


def test_a_lock_that_is_kept_has_the_end_it_had():
    w, token = begun()
    before = w.tables.get(Turn, "i")
    w.wait(5)
    w.ack(token, step(2), keep=True)
    assert w.tables.get(Turn, "i") == before


def test_a_lock_that_is_kept_lets_the_messages_go():
    w = FlowWorld()
    w.begin()
    turn = w.fetch()
    w.ack(turn.token, first(), keep=True)
    kept = w.tables.get(Turn, "i")
    assert (kept.token, kept.messages) == (turn.token, ())
    assert not w.tables.mail("i")


def test_a_lock_with_a_new_end_has_that_one():
    w, token = begun()
    before = w.tables.get(Turn, "i")
    w.wait(5)
    w.ack(token, step(2), hold_s=30.0, keep=True)
    assert w.tables.get(Turn, "i").locked_until > before.locked_until


def test_the_commit_of_a_step_says_nothing_of_an_execution_but_how_long_it_is():
    w, token = begun()
    before = w.tables.executions("i")[0]
    w.ack(token, step(2), keep=True)
    after = w.tables.executions("i")[0]
    assert (after.event_count, after.last_event_id) == (before.event_count + 1, 2)
    assert (after.status, after.output, after.started_at) == (before.status, before.output, before.started_at)


# --- messages of the lock ---------------------------------------------------------------------------------------------


def signalled():
    """A world in which a turn of a begun instance holds two signals; its token and their numbers."""
    w, token = begun()
    for data in ("1", "2"):
        w.send(QueueMessage(instance="i", name="s", data=data))
    numbers = [message.seq for message in w.do(f.FetchMore(token=token)).messages]
    return w, token, numbers


def delivered(number):
    return event(number, event_kinds.QueueEventDelivered(name="s", data="1"))


def refused(w, token, *events, handled):
    delta = f.Delta(events=tuple(f.NewEvent(event=raw(event)) for event in events))
    outcome = w.tell(f.AckTurn(token=token, execution_id=1, delta=delta, handled=handled))
    assert outcome.code == "invalid_operation"
    return outcome.message


def waiting(w):
    return [message.seq for message in w.tables.mail("i")]


def test_ack_removes_only_the_messages_it_has_handled():
    w, token, (one, other) = signalled()
    w.ack(token, delivered(2), handled=(HandledMessage(message=one, event_id=2),), keep=True)
    assert waiting(w) == [other] == list(w.tables.get(Turn, "i").messages)


def test_message_that_a_last_ack_has_not_handled_is_free_for_the_next_turn():
    w, token, (one, other) = signalled()
    w.ack(token, delivered(2), handled=(HandledMessage(message=one, event_id=2),))
    assert w.tables.get(Turn, "i") is None
    assert [message.seq for message in w.fetch().messages] == [other]


@pytest.mark.parametrize("lost", [{}, {"event_id": 3}, {"event_id": 1}, {"reason": ""}], ids=str)
def test_ack_that_would_lose_a_message_is_refused(lost):
    w, token, (one, other) = signalled()
    before = waiting(w)
    assert "would be lost" in refused(w, token, delivered(2), handled=(HandledMessage(message=one, **lost),))
    assert waiting(w) == before == [one, other]


def test_ack_is_refused_for_a_message_of_another_lock_and_for_one_handled_before():
    w, token, (one, _) = signalled()
    twice = (HandledMessage(message=one, event_id=2), HandledMessage(message=one, event_id=2))
    for handled in (twice, (HandledMessage(message=10_000, event_id=2),)):
        assert "not, or no longer, held" in refused(w, token, delivered(2), handled=handled)
    w.ack(token, delivered(2), handled=twice[:1], keep=True)
    late = (HandledMessage(message=one, event_id=3),)
    assert "not, or no longer, held" in refused(w, token, delivered(3), handled=late)


def test_message_that_no_event_records_is_named_in_the_feed_with_the_reason():
    w, token, (one, other) = signalled()
    w.ack(token, handled=(HandledMessage(message=one, reason="nothing waits for it"),), keep=True)
    (dropped,) = [event for _, _, events in w.groups for event in events if isinstance(event, MessageDropped)]
    assert (dropped.message, dropped.reason) == (one, "nothing waits for it")
    assert waiting(w) == [other] == list(w.tables.get(Turn, "i").messages)


def test_fetch_of_more_messages_repeats_what_the_holder_does_not_have():
    w, token, (one, other) = signalled()
    assert not w.do(f.FetchMore(token=token)).messages
    again = w.do(f.FetchMore(token=token, having=(one,))).messages
    assert [message.seq for message in again] == [other]
    assert list(w.tables.get(Turn, "i").messages) == [one, other]
