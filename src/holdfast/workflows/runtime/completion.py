"""How an execution ends: what is still open goes with it, the parent is told, or the next execution is sent for.

One rule for ends that the code came to and for ends from outside, where only the history is known: a forced cancel, an
instance nobody can run, poison. The terminal event is the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from holdfast.model.error_details import CANCELLED, DEAD, ERROR, EXISTS, Category, ErrorDetails
from holdfast.model.retention import FOR_EVER_S
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.event_kinds import AnyKind, Carried
from holdfast.model.workflows.history import (
    REPAIR_EVENT_ID,
    Event,
    ExecutionMetadata,
    OrchestrationItem,
    Status,
    TurnCommit,
)
from holdfast.model.workflows.work_items import (
    CancelInstance,
    ContinueAsNew,
    ExternalRaised,
    QueueMessage,
    StartOrchestration,
    SubOrchCompleted,
    SubOrchFailed,
    WorkItem,
    start_digest,
)
from holdfast.workflows.api.definitions import Definition
from holdfast.workflows.runtime.execution import Continuation, Execution
from holdfast.workflows.runtime.outbox import Outbox
from holdfast.workflows.runtime.start import began_as, beginning, first_kind


class OpenWork(msgspec.Struct, frozen=True, kw_only=True):
    """What ends with an execution."""

    #: Each with the execution that asked for it.
    activities: tuple[tuple[int, int], ...] = ()
    #: Timers and deadlines, by the event that asked for them.
    timers: tuple[int, ...] = ()
    #: Instances.
    children: tuple[str, ...] = ()


def open_of(execution: Execution) -> OpenWork:
    """Give what a live execution has open."""
    deadlines = [event_id for event_id, found in execution.open.items() if _has_deadline(found.kind)]
    own = [] if execution.own_timeout is None else [execution.own_timeout.event_id]
    cancel = execution.cancel_event
    if cancel is not None and _has_deadline(cancel.kind):
        own.append(cancel.event_id)
    return OpenWork(
        activities=tuple(
            (found.event.execution_id, event_id)
            for event_id, found in execution.open.items()
            if isinstance(found.kind, event_kinds.ActivityScheduled)
        ),
        timers=(*execution.timers, *deadlines, *own),
        children=tuple(
            found.kind.instance
            for found in execution.open.values()
            if isinstance(found.kind, event_kinds.SubOrchestrationScheduled) and not found.leave
        ),
    )


def open_in(history: Iterable[Event]) -> OpenWork:
    """Give what a history shows as open. Children meant to stay cannot be told from others, and are cancelled too."""
    asked = asked_in(history)
    return OpenWork(
        activities=tuple(
            (event.execution_id, found)
            for found, event in asked.items()
            if isinstance(event.kind, event_kinds.ActivityScheduled)
        ),
        timers=tuple(
            found
            for found, event in asked.items()
            if isinstance(event.kind, event_kinds.TimerCreated) or _has_deadline(event.kind)
        ),
        children=tuple(
            event.kind.instance
            for event in asked.values()
            if isinstance(event.kind, event_kinds.SubOrchestrationScheduled)
        ),
    )


def asked_in(history: Iterable[Event]) -> dict[int, Event]:
    """Give the events that asked for something whose end a history does not show, by their ids."""
    asked: dict[int, Event] = {}
    for event in history:
        match event.kind:
            case (
                event_kinds.ActivityScheduled()
                | event_kinds.TimerCreated()
                | event_kinds.SubOrchestrationScheduled()
                | event_kinds.DecisionRequested()
                | event_kinds.OrchestrationCancelRequested()
            ):
                asked[event.event_id] = event
            case _:
                asked.pop(event.source_event_id or 0, None)
    return asked


def _has_deadline(kind: AnyKind) -> bool:
    match kind:
        case event_kinds.DecisionRequested():
            return kind.expires_at_ms is not None
        case event_kinds.OrchestrationCancelRequested():
            return kind.deadline_ms is not None
        case _:
            return False


def conclude(outbox: Outbox, started: Event, terminal: AnyKind, work: OpenWork) -> ExecutionMetadata:
    """Send off all that follows from an end, and say what the execution has come to."""
    for execution_id, event_id in work.activities:
        outbox.revoke(execution_id, event_id)
    for event_id in work.timers:
        outbox.let_sleep(event_id)
    for child in work.children:
        outbox.send(CancelInstance(instance=child, reason="its parent has ended"))
    told = _tell_parent(started, terminal)
    if told is not None:
        outbox.send(told)
    match terminal:
        case event_kinds.OrchestrationCompleted():
            return ExecutionMetadata(status=Status.COMPLETED, output=terminal.output, waiting_on=())
        case event_kinds.OrchestrationFailed():
            is_cancelled = terminal.details.kind == CANCELLED
            return ExecutionMetadata(
                status=Status.CANCELLED if is_cancelled else Status.FAILED,
                output=terminal.details.message,
                waiting_on=(),
            )
        case _:
            return ExecutionMetadata(status=Status.CONTINUED_AS_NEW, waiting_on=())


def keeping(metadata: ExecutionMetadata, definition: Definition | None) -> ExecutionMetadata:
    """Say how long an instance that ends is kept, if its workflow says so."""
    over = metadata.status in (Status.COMPLETED, Status.FAILED, Status.CANCELLED)
    if definition is None or not over or definition.retention_s is msgspec.UNSET:
        return metadata
    kept_s = FOR_EVER_S if definition.retention_s is None else definition.retention_s
    return msgspec.structs.replace(metadata, retention_s=kept_s)


def _tell_parent(started: Event, terminal: AnyKind) -> WorkItem | None:
    begun = started.kind
    assert isinstance(begun, event_kinds.OrchestrationStarted)
    link = parent_of(begun)
    return None if link is None else _outcome(link, terminal)


class ParentLink(NamedTuple):
    """Who waits for a child: the event of the parent's execution that asked for it."""

    instance: str
    execution_id: int
    event_id: int


def parent_of(begin: StartOrchestration | event_kinds.OrchestrationStarted) -> ParentLink | None:
    """Give who waits for the instance that is begun so; None: nobody."""
    if begin.parent_instance is None or begin.parent_id is None:
        return None
    return ParentLink(begin.parent_instance, begin.parent_execution_id or 1, begin.parent_id)


def _outcome(link: ParentLink, terminal: AnyKind) -> WorkItem | None:
    match terminal:
        case event_kinds.OrchestrationCompleted():
            return SubOrchCompleted(
                parent_instance=link.instance,
                parent_execution_id=link.execution_id,
                parent_id=link.event_id,
                result=terminal.output,
            )
        case event_kinds.OrchestrationFailed():
            return _failed(link, terminal.details)
        case _:
            return None


def _failed(link: ParentLink, details: ErrorDetails) -> SubOrchFailed:
    return SubOrchFailed(
        parent_instance=link.instance, parent_execution_id=link.execution_id, parent_id=link.event_id, details=details
    )


def begun_by(first: Event) -> event_kinds.OrchestrationStarted | None:
    """Give what the first event of a history says; None: it is damaged."""
    return first.kind if isinstance(first.kind, event_kinds.OrchestrationStarted) else None


def answer_again(
    start: StartOrchestration,
    begun: event_kinds.OrchestrationStarted | None,
    terminal: AnyKind | None,
    digest: str | None = None,
) -> WorkItem | None:
    """Answer a parent that asks for an instance that is there, so that it does not wait for ever.

    The same parent that asks for the same once more hears how it ended: it may have been reset since. Every other one
    hears that the id is taken. `digest` is that of the instance's first start, where it is known: it may have continued
    with other input. While it runs, its own parent needs no answer: it will hear of the end.
    """
    link = parent_of(start)
    own = None if begun is None else parent_of(begun)
    if link is None or (link == own and terminal is None):
        return None
    if begun is not None and own is not None and terminal is not None:
        recorded = digest or start_digest(begun.name, begun.input)
        is_equal = start_digest(start.orchestration, start.input) == recorded
        if link == own or (link.instance == own.instance and is_equal):
            return _outcome(link, terminal)
    message = f"instance {start.instance!r} already exists"
    return _failed(link, ErrorDetails(category=Category.APPLICATION, kind=EXISTS, message=message))


def next_execution(execution: Execution, asked: Continuation, late: Sequence[WorkItem]) -> list[WorkItem]:
    """Give the message that begins the next execution, and what must come after it.

    `late` are messages that go on: signals travel behind those nobody read, a cancel or start is sent again.
    """
    begun = execution.started.kind
    assert isinstance(begun, event_kinds.OrchestrationStarted)
    signals: list[Carried] = [
        (item.name, item.data) for item in late if isinstance(item, QueueMessage | ExternalRaised)
    ]
    following = ContinueAsNew(
        instance=execution.instance,
        orchestration=begun.name,
        input=asked.input,
        version=asked.version,
        parent_instance=begun.parent_instance,
        parent_id=begun.parent_id,
        parent_execution_id=begun.parent_execution_id,
        carry_forward_events=(*execution.mailboxes.unread(), *signals),
        initial_custom_status=execution.published.status,
    )
    return [following, *(item for item in late if isinstance(item, CancelInstance | StartOrchestration))]


def end_from_history(item: OrchestrationItem, details: ErrorDetails, now_ms: int) -> TurnCommit:
    """End an instance without its code: what is open is read from its history."""
    terminal = event_kinds.OrchestrationFailed(details=details)
    history, execution_id = item.history, item.execution_id
    begun = _not_begun(item, now_ms)
    if begun is not None:
        history, execution_id = (begun,), begun.execution_id
    outbox = Outbox(item.instance, execution_id)
    outbox.events.extend(() if begun is None else (begun,))
    is_readable = item.history_error is None and bool(history)
    last = history[-1] if history else None
    event = Event(
        event_id=last.event_id + 1 if is_readable and last is not None else REPAIR_EVENT_ID,
        instance=item.instance,
        execution_id=execution_id,
        timestamp_ms=max(now_ms, 0 if last is None else last.timestamp_ms),
        kind=terminal,
    )
    outbox.events.append(event)
    begin = begun_by(history[0]) if history else None
    for message in item.messages:
        # Its own parent is told by the end itself.
        if isinstance(message, StartOrchestration) and (begin is None or parent_of(message) != parent_of(begin)):
            told = answer_again(message, begin, terminal, item.digest)
            if told is not None:
                outbox.send(told)
    if not is_readable:
        return outbox.take(
            ExecutionMetadata(
                status=Status.CANCELLED if details.kind == CANCELLED else Status.FAILED,
                output=details.message,
                waiting_on=(),
            )
        )
    return outbox.take(conclude(outbox, history[0], terminal, open_in(history)))


def _not_begun(item: OrchestrationItem, now_ms: int) -> Event | None:
    """Give the first event of an execution whose start is still among the messages; without it no parent is told."""
    begin = beginning(item)
    if begin is None:
        return None
    return Event(
        event_id=1,
        instance=item.instance,
        execution_id=began_as(item),
        timestamp_ms=now_ms,
        kind=first_kind(begin, begin.version or item.version),
    )


def end_by_hand(item: OrchestrationItem, reason: str, now_ms: int) -> TurnCommit:
    """End an instance that no code can end; what was to be delivered stays in the details, for a reset.

    The event has the id that no other has, for the last id may not be known.
    """
    details = ErrorDetails(category=Category.CONFIGURATION, kind=ERROR, message=reason, data=undelivered(item.messages))
    commit = end_from_history(item, details, now_ms)
    *before, last = commit.history_delta
    ended = msgspec.structs.replace(last, event_id=REPAIR_EVENT_ID)
    return msgspec.structs.replace(commit, history_delta=(*before, ended))


def undelivered(messages: Sequence[WorkItem]) -> str:
    """Word what was to be delivered for the details of an end that no code came to; a reset reads it there."""
    return msgspec.json.encode({"messages": [msgspec.to_builtins(message) for message in messages]}).decode()


def goes_on(item: WorkItem) -> bool:
    """Tell whether a message that met the end of an execution is meant for the next as well.

    An answer to a decision, or a completion, belongs to the execution that asked.
    """
    match item:
        case QueueMessage():
            return not item.name.startswith("@")
        case ExternalRaised() | CancelInstance() | StartOrchestration():
            return True
        case _:
            return False


def poison(item: OrchestrationItem, attempts: int, now_ms: int) -> TurnCommit:
    """End an instance that was delivered too often without an answer; what was to be delivered stays in the details."""
    details = ErrorDetails(
        category=Category.POISON,
        kind=DEAD,
        message=f"delivered {attempts} times, and no turn came to its end: it kills its worker, or takes too long",
        attempt_count=attempts,
        data=undelivered(item.messages),
    )
    return end_from_history(item, details, now_ms)
