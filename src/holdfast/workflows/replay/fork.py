"""A new execution from a copy of an old history: of another instance for `fork`, of the same one for `reset`.

Pure, and without the workflow's code: what is copied, up to where, and what is to be delivered again. What is open at
the end of a copy is sent off by its first turn, which has the code; a ResumeInstance among its messages says so.

A fork has work of its own. A reset goes on with the old: an event that asked for something keeps the execution it was
written in, and with it the idempotency key. Questions and children are asked for anew by both, for the old ones ended
with the execution that asked; only a child whose id the code gave stays the one it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from holdfast.errors import InvalidValue
from holdfast.model.error_details import CANCELLED, NONDETERMINISM, Category, ErrorDetails
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.block_reasons import Blockage
from holdfast.model.workflows.decisions import ANSWERS, Answer
from holdfast.model.workflows.history import REPAIR_EVENT_ID, Event
from holdfast.model.workflows.work_items import (
    ActivityCompleted,
    ActivityFailed,
    CancelInstance,
    ExternalRaised,
    QueueMessage,
    SubOrchCompleted,
    SubOrchFailed,
    WorkItem,
)
from holdfast.workflows.api.operations import child_id
from holdfast.workflows.determinism.history_match import (
    CHILD_MARK,
    UNAWAITED,
    UNREAD,
    is_command,
    is_own_timeout,
    nondeterminism_of,
)
from holdfast.workflows.runtime.completion import asked_in

replace = msgspec.structs.replace

#: What is delivered again of the messages that an end kept; the others are made anew.
_AGAIN = (
    QueueMessage,
    ExternalRaised,
    ActivityCompleted,
    ActivityFailed,
    SubOrchCompleted,
    SubOrchFailed,
    CancelInstance,
)
#: Who closed a question that nobody answered.
_NOBODY = (None, "expiry", UNAWAITED)


# --- up to where ------------------------------------------------------------------------------------------------------


def demand_event(history: Sequence[Event], event_id: int) -> int:
    """Give the number of events up to this one. Raises InvalidValue if there is no such event."""
    for count, event in enumerate(history, 1):
        if event.event_id == event_id:
            return count - isinstance(event.kind, event_kinds.TERMINAL)
    last = sum(not isinstance(event.kind, event_kinds.TERMINAL) for event in history)
    raise InvalidValue(f"event {event_id}: the history has events 1-{last}. Nothing was changed.", field="to")


def before_failure(history: Sequence[Event], blocked: Blockage | None) -> int:
    """Give the number of events before the turn that failed: all but what came in last, and what it led to.

    Of an execution that was ended from outside, nothing failed and all is kept; of one that its code no longer
    follows, what comes before the difference; of a cancelled one, what came before the request.
    """
    last = history[-1].kind
    if blocked is not None:
        return _before_difference(history, blocked.kind, blocked.text)
    if not isinstance(last, event_kinds.TERMINAL):
        return len(history)
    if isinstance(last, event_kinds.OrchestrationFailed):
        details = last.details
        if details.kind == NONDETERMINISM:
            return _before_difference(history[:-1], details.kind, details.message)
        asked = _request(history) if details.kind == CANCELLED else None
        if asked is not None:
            return max(1, asked - 1)
        if _is_from_outside(history[-1], details):
            return len(history) - 1
    came_in = (count for count in range(len(history) - 1, 0, -1) if is_delivery(history[count - 1]))
    return max(1, next(came_in, 1) - 1)


def _before_difference(history: Sequence[Event], kind: str, text: str) -> int:
    differs = nondeterminism_of(text, "").facts.get("event_id") if kind == NONDETERMINISM else None
    return len(history) if differs is None else max(1, min(len(history), int(str(differs)) - 1))


def _request(history: Sequence[Event]) -> int | None:
    """Give the place of the cancellation that an execution was asked for, or of the timeout that led to it."""
    own = next((event.event_id for event in history if is_own_timeout(event)), None)
    for at, event in enumerate(history, 1):
        is_timeout = own is not None and isinstance(event.kind, event_kinds.TimerFired) and event.source_event_id == own
        if is_timeout or isinstance(event.kind, event_kinds.OrchestrationCancelRequested):
            return at
    return None


def _is_from_outside(event: Event, details: ErrorDetails) -> bool:
    return event.event_id == REPAIR_EVENT_ID or details.category is Category.POISON or details.kind == CANCELLED


def is_delivery(event: Event) -> bool:
    """Tell whether an event is something that came in, as against what the code asked for."""
    return not is_command(event) and not is_own_timeout(event) and not isinstance(event.kind, UNREAD)


# --- what is copied ---------------------------------------------------------------------------------------------------


def copied_for_reset(history: Sequence[Event], execution_id: int, now_ms: int) -> list[Event]:
    """Give the first events of an instance's next execution."""
    opened = asked_in(history)
    return [
        _asked_anew(event, event.instance, execution_id) if event.event_id in opened else event
        for event in _renewed(history, now_ms)
    ]


def copied_for_fork(history: Sequence[Event], instance: str, now_ms: int) -> list[Event]:
    """Give the first events of another instance. It has no parent, and all its work is its own."""
    opened = asked_in(history)
    copied = []
    for event in _renewed(history, now_ms):
        kind = event.kind
        if isinstance(kind, event_kinds.OrchestrationStarted):
            kind = replace(kind, parent_instance=None, parent_id=None, parent_execution_id=None)
        moved = replace(event, instance=instance, execution_id=1, kind=kind)
        copied.append(_asked_anew(moved, instance, 1) if event.event_id in opened else moved)
    return copied


def begun_anew(first: Event, instance: str, given: str, seed: int, now_ms: int) -> list[Event]:
    """Give the first event of another instance of the same workflow, with other input."""
    begun = first.kind
    assert isinstance(begun, event_kinds.OrchestrationStarted)
    kind = event_kinds.OrchestrationStarted(
        name=begun.name, version=begun.version, input=given, seed=seed, code_hash=begun.code_hash
    )
    return [replace(first, instance=instance, execution_id=1, kind=kind, timestamp_ms=now_ms)]


def _renewed(history: Sequence[Event], now_ms: int) -> Iterator[Event]:
    """Walk a history whose own timeout, if it has not come, counts from now on: nobody resets what is out of time."""
    opened = asked_in(history)
    for event in history:
        kind = event.kind
        if isinstance(kind, event_kinds.TimerCreated) and is_own_timeout(event) and event.event_id in opened:
            span = kind.fire_at_ms - event.timestamp_ms
            yield replace(event, kind=event_kinds.TimerCreated(fire_at_ms=now_ms + span))
        else:
            yield event


def _asked_anew(event: Event, instance: str, execution_id: int) -> Event:
    """Give an open question or child to the execution that goes on."""
    match event.kind:
        case event_kinds.DecisionRequested():
            return replace(event, execution_id=execution_id)
        case event_kinds.SubOrchestrationScheduled() if CHILD_MARK in event.kind.instance:
            kind = replace(event.kind, instance=child_id(instance, execution_id, event.event_id))
            return replace(event, execution_id=execution_id, kind=kind)
        case _:
            return event


# --- what is delivered again ------------------------------------------------------------------------------------------


def delivered_again(copied: Sequence[Event], later: Sequence[Event]) -> Iterator[tuple[WorkItem, int]]:
    """Walk what came in after a point and is not made anew: signals, answers, and what an end kept; each with its time.

    `copied` are the events that are kept, `later` those that are given up.
    """
    opened = asked_in(copied)
    for event in later:
        instance = event.instance
        match event.kind:
            case event_kinds.QueueEventDelivered(name=name, data=data):
                yield QueueMessage(instance=instance, name=name, data=data), event.timestamp_ms
            case event_kinds.ExternalEvent(name=name, data=data):
                yield ExternalRaised(instance=instance, name=name, data=data), event.timestamp_ms
            case event_kinds.DecisionResolved() if event.source_event_id in opened and event.kind.by not in _NOBODY:
                answer = Answer(chosen=event.kind.chosen, message=event.kind.message, by=event.kind.by)
                data = msgspec.json.encode(answer).decode()
                name = f"{ANSWERS}{event.source_event_id}"
                yield QueueMessage(instance=instance, name=name, data=data), event.timestamp_ms
            case event_kinds.OrchestrationFailed():
                for item in kept_messages(event.kind.details):
                    yield item, event.timestamp_ms
            case _:
                pass


class _Kept(msgspec.Struct):
    messages: list[WorkItem] = []


def kept_messages(details: ErrorDetails) -> list[WorkItem]:
    """Give the messages that an end from outside kept."""
    try:
        kept = msgspec.json.decode(details.data or "{}", type=_Kept)
    except msgspec.MsgspecError:  # other facts
        return []
    return [item for item in kept.messages if isinstance(item, _AGAIN)]


def children_left(history: Sequence[Event], copied: Sequence[Event]) -> list[CancelInstance]:
    """Ask the children to stop that an execution given up has, and that the next one does not wait for."""
    awaited = {
        event.kind.instance
        for event in asked_in(copied).values()
        if isinstance(event.kind, event_kinds.SubOrchestrationScheduled)
    }
    return [
        CancelInstance(instance=event.kind.instance, reason="its parent was reset")
        for event in asked_in(history).values()
        if isinstance(event.kind, event_kinds.SubOrchestrationScheduled) and event.kind.instance not in awaited
    ]
