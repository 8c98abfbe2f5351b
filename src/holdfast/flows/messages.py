"""Which event a message becomes, if any. What comes too late, twice, or for another execution becomes none."""

from __future__ import annotations

import re

import msgspec

from holdfast.flows.execution import Execution
from holdfast.model import kinds
from holdfast.model.decisions import ANSWERS, Answer
from holdfast.model.kinds import AnyKind
from holdfast.model.workitems import (
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

#: Kind, the event it answers, and its time.
Found = tuple[AnyKind, int | None, int]
_NUMBER = re.compile(r"[1-9]\d{0,18}", re.ASCII)


def event_for(execution: Execution, message: WorkItem, now_ms: int) -> Found | str:
    """Give the event a message becomes; or, in words, why it becomes none."""
    match message:
        case ActivityCompleted():
            return _completion(
                execution, message.execution_id, message.id, kinds.ActivityCompleted(result=message.result), now_ms
            )
        case ActivityFailed():
            return _completion(
                execution, message.execution_id, message.id, kinds.ActivityFailed(details=message.details), now_ms
            )
        case SubOrchCompleted():
            child = kinds.SubOrchestrationCompleted(result=message.result)
            return _completion(execution, message.parent_execution_id, message.parent_id, child, now_ms)
        case SubOrchFailed():
            failed = kinds.SubOrchestrationFailed(details=message.details)
            return _completion(execution, message.parent_execution_id, message.parent_id, failed, now_ms)
        case TimerFired():
            return _timer(execution, message, now_ms)
        case QueueMessage() if message.name.startswith(ANSWERS):
            return _answer(execution, message, now_ms)
        case QueueMessage():
            return kinds.QueueEventDelivered(name=message.name, data=message.data), None, now_ms
        case ExternalRaised():
            return kinds.ExternalEvent(name=message.name, data=message.data), None, now_ms
        case CancelInstance():
            if execution.cancel_event is not None:
                return "a cancellation is under way"
            deadline = max(now_ms, execution.now_ms) + round(execution.definition.cancel_grace_s * 1000)
            return kinds.OrchestrationCancelRequested(reason=message.reason, deadline_ms=deadline), None, now_ms
        case StartOrchestration() | ContinueAsNew():
            return "the execution has begun already"
        case ResumeInstance():
            return "the execution has gone on already"
        case ActivityExecute():
            return "it belongs to the worker queue"


_ANSWERS: dict[type, type] = {
    kinds.ActivityCompleted: kinds.ActivityScheduled,
    kinds.ActivityFailed: kinds.ActivityScheduled,
    kinds.SubOrchestrationCompleted: kinds.SubOrchestrationScheduled,
    kinds.SubOrchestrationFailed: kinds.SubOrchestrationScheduled,
    kinds.DecisionResolved: kinds.DecisionRequested,
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
        return kinds.TimerFired(fire_at_ms=message.fire_at_ms), message.id, at_ms
    opened = execution.open.get(message.id)
    if opened is not None and isinstance(opened.kind, kinds.DecisionRequested):
        default = opened.kind.on_expire
        is_label = opened.kind.options is not None
        resolved = kinds.DecisionResolved(
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
    resolved = kinds.DecisionResolved(chosen=answer.chosen, message=answer.message, by=answer.by)
    return _completion(execution, None, int(number), resolved, now_ms)
