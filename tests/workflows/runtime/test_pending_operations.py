"""What is open: how each kind of it is withdrawn, and what of a copy is sent off again."""

from types import SimpleNamespace

import pytest

from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.history import Event, ExecutionMetadata
from holdfast.model.workflows.work_items import CancelInstance
from holdfast.workflows.determinism.history_match import UNAWAITED
from holdfast.workflows.runtime.outbox import Outbox
from holdfast.workflows.runtime.pending_operations import Open, dispatch_again


def event(event_id, kind, execution_id=2):
    return Event(event_id=event_id, instance="i", execution_id=execution_id, timestamp_ms=0, kind=kind)


def opened(event_id, kind, dispatch=None, **options):
    return Open(event(event_id, kind, **options), None, dispatch or (lambda _: None))


def withdrawn(one):
    """Withdraw it, and give the command and what is committed with that."""
    outbox = Outbox("i", 2)
    command, dispatch = one.withdrawal("why", outbox)
    assert outbox.is_empty  # until the command is recorded
    dispatch(event(9, command))
    return command, outbox.take(ExecutionMetadata())


def test_an_activity_is_revoked_by_the_execution_that_asked_for_it():
    one = opened(5, event_kinds.ActivityScheduled(name="a", input="{}"), execution_id=1)
    command, commit = withdrawn(one)
    assert command == event_kinds.ActivityCancelRequested(reason="why")
    (revoked,) = commit.cancelled_activities
    assert (revoked.instance, revoked.execution_id, revoked.activity_id) == ("i", 1, 5)


def test_a_child_is_asked_to_stop():
    command, commit = withdrawn(opened(5, event_kinds.SubOrchestrationScheduled(name="c", instance="i::5", input="{}")))
    assert command == event_kinds.SubOrchestrationCancelRequested(reason="why")
    assert commit.orchestrator_items == (CancelInstance(instance="i::5", reason="why"),)


def test_a_decision_is_closed_and_its_deadline_taken_back():
    command, commit = withdrawn(opened(5, event_kinds.DecisionRequested(prompt="?", expires_at_ms=1)))
    assert command == event_kinds.DecisionResolved(by=UNAWAITED)
    assert commit.cancelled_timers == (5,)


@pytest.fixture
def execution():
    """An execution with something of each kind open, in the order of its events; and what was sent off."""
    made = SimpleNamespace(outbox=Outbox("i", 2), sent=[])
    activity = event_kinds.ActivityScheduled(name="a", input="{}")
    made.open = {number: opened(number, activity, made.sent.append) for number in (2, 7)}
    made.timers = {number: SimpleNamespace(fire_at_ms=1000 + number) for number in (3, 8)}
    made.own_timeout = event(4, event_kinds.TimerCreated(fire_at_ms=1004))
    made.cancel_event = event(5, event_kinds.OrchestrationCancelRequested(reason="", deadline_ms=1005))
    return made


def sent_again(execution, until):
    dispatch_again(execution, until)
    woken = execution.outbox.take(ExecutionMetadata()).orchestrator_items
    assert all(timer.fire_at_ms == 1000 + timer.id for timer in woken)
    return sorted([asked.event_id for asked in execution.sent] + [timer.id for timer in woken])


@pytest.mark.parametrize("until", range(1, 10))
def test_what_a_copy_asked_for_and_is_open_is_sent_off_again_and_nothing_behind_it(execution, until):
    assert sent_again(execution, until) == [number for number in (2, 3, 4, 5, 7, 8) if number <= until]


def test_an_execution_without_timeout_or_deadline_has_none_sent(execution):
    execution.own_timeout = None
    execution.cancel_event = event(5, event_kinds.OrchestrationCancelRequested(reason=""))
    assert sent_again(execution, 9) == [2, 3, 7, 8]
    execution.sent.clear()
    execution.cancel_event = None
    assert sent_again(execution, 9) == [2, 3, 7, 8]
