"""Acks: what becomes of the lock, and of records that a commit says nothing of."""

from flowworld import FlowWorld, event, first

from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.instances import Turn


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
