"""Which event a message becomes, if any. What comes too late, twice, or for another execution becomes none."""

from __future__ import annotations

import re

import msgspec

from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.decisions import ANSWERS, Answer
from holdfast.model.workflows.event_kinds import AnyKind
from holdfast.model.workflows.work_items import (
    ActivityCompleted,
    ActivityExecute,
    ActivityFailed,
    CancelInstance,
    ContinueAsNew,
    ExternalRaised,
    QueueMessage,
    ResumeInstance,
    StartOrchestration,
    SubOrchCompleted,
    SubOrchFailed,
    TimerFired,
    WorkItem,
)
from holdfast.workflows.runtime.execution import Execution

#: Kind, the event it answers, and its time.
Found = tuple[AnyKind, int | None, int]
_NUMBER = re.compile(r"[1-9]\d{0,18}", re.ASCII)


def event_for(execution: Execution, message: WorkItem, now_ms: int) -> Found | str:
    """Give the event a message becomes; or, in words, why it becomes none."""
    match message:
        case ActivityCompleted():
            return _completion(
                execution,
                message.execution_id,
                message.id,
                event_kinds.ActivityCompleted(result=message.result),
                now_ms,
            )
        case ActivityFailed():
            return _completion(
                execution, message.execution_id, message.id, event_kinds.ActivityFailed(details=message.details), now_ms
            )
        case SubOrchCompleted():
            child = event_kinds.SubOrchestrationCompleted(result=message.result)
            return _completion(execution, message.parent_execution_id, message.parent_id, child, now_ms)
        case SubOrchFailed():
            failed = event_kinds.SubOrchestrationFailed(details=message.details)
            return _completion(execution, message.parent_execution_id, message.parent_id, failed, now_ms)
        case TimerFired():
            return _timer(execution, message, now_ms)
        case QueueMessage() if message.name.startswith(ANSWERS):
            return _answer(execution, message, now_ms)
        case QueueMessage():
            return event_kinds.QueueEventDelivered(name=message.name, data=message.data), None, now_ms
        case ExternalRaised():
            return event_kinds.ExternalEvent(name=message.name, data=message.data), None, now_ms
        case CancelInstance():
            if execution.cancel_event is not None:
                return "a cancellation is under way"
            deadline = max(now_ms, execution.now_ms) + round(execution.definition.cancel_grace_s * 1000)
            return event_kinds.OrchestrationCancelRequested(reason=message.reason, deadline_ms=deadline), None, now_ms
        case StartOrchestration() | ContinueAsNew():
            return "the execution has begun already"
        case ResumeInstance():
            return "the execution has gone on already"
        case ActivityExecute():
            return "it belongs to the worker queue"


_ANSWERS: dict[type, type] = {
    event_kinds.ActivityCompleted: event_kinds.ActivityScheduled,
    event_kinds.ActivityFailed: event_kinds.ActivityScheduled,
    event_kinds.SubOrchestrationCompleted: event_kinds.SubOrchestrationScheduled,
    event_kinds.SubOrchestrationFailed: event_kinds.SubOrchestrationScheduled,
    event_kinds.DecisionResolved: event_kinds.DecisionRequested,
}


def _completion(
    execution: Execution, execution_id: int | None, event_id: int, kind: AnyKind, now_ms: int
) -> Found | str:
    """Find what a message completes. `execution_id` is that of the event that asked; None: of whichever."""
    opened = execution.open.get(event_id)
    asked_by = execution.execution_id if opened is None else opened.event.execution_id
    if execution_id not in (None, asked_by):
        return "it belongs to another execution"
    if opened is None or not isinstance(opened.kind, _ANSWERS[type(kind)]):
        return "nothing waits for it"
    return kind, event_id, now_ms


def _timer(execution: Execution, message: TimerFired, now_ms: int) -> Found | str:
    if message.execution_id != execution.execution_id:
        return "it belongs to another execution"
    # Never before its time, whatever clocks say: who has slept for an hour finds that an hour has passed.
    at_ms = max(now_ms, message.fire_at_ms)
    own = execution.own_timeout
    if message.id in execution.timers or (own is not None and message.id == own.event_id):
        return event_kinds.TimerFired(fire_at_ms=message.fire_at_ms), message.id, at_ms
    opened = execution.open.get(message.id)
    if opened is not None and isinstance(opened.kind, event_kinds.DecisionRequested):
        default = opened.kind.on_expire
        is_label = opened.kind.options is not None
        resolved = event_kinds.DecisionResolved(
            chosen=default if is_label else None, message=None if is_label else default, by="expiry"
        )
        return resolved, message.id, at_ms
    return "it was cancelled, or has fired"


def _answer(execution: Execution, message: QueueMessage, now_ms: int) -> Found | str:
    number = message.name.removeprefix(ANSWERS)
    if _NUMBER.fullmatch(number) is None:
        return "it answers no decision"
    try:
        answer = msgspec.json.decode(message.data, type=Answer)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return "it is no answer"
    if answer.chosen is None and answer.message is None:
        return "it is no answer"
    resolved = event_kinds.DecisionResolved(chosen=answer.chosen, message=answer.message, by=answer.by)
    return _completion(execution, None, int(number), resolved, now_ms)
