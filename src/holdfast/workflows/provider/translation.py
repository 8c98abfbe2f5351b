"""Between turns and commands: what a turn decided as a command, and what was locked as a turn reads it.

Used by whoever asks for turns: the provider's face one at a time, workers many in one commit. Asks nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from holdfast.errors import HistoryCorrupt
from holdfast.model.ids import JobId, Token
from holdfast.model.outcomes import Delivered, LockedTurn
from holdfast.model.payloads import NULL
from holdfast.model.workflows.commands import AckTurn, Delta, Metadata, NewActivity, NewEvent, NewMessage
from holdfast.model.workflows.history import (
    REPAIR_EVENT_ID,
    UNKNOWN_VERSION,
    Event,
    ExecutionMetadata,
    KvEntry,
    OrchestrationItem,
    ScheduledActivityIdentifier,
    Status,
    TurnCommit,
)
from holdfast.model.workflows.instances import UNNAMED, HistoryRow, InstanceStatus, owner_of
from holdfast.model.workflows.work_items import ContinueAsNew, StartOrchestration, WorkItem
from holdfast.stores.sidecar.protocol import Blobs
from holdfast.workflows.provider.calls import each, maybe_seconds, refuse, struct_of, typed, written
from holdfast.workflows.provider.payloads import events_of, item_of, text_of

# --- what was locked --------------------------------------------------------------------------------------------------


def readable(blobs: Blobs, messages: Sequence[Delivered]) -> tuple[list[WorkItem], tuple[int, ...]]:
    """Give the items that can be read, and the numbers of those that cannot and must be set aside."""
    items: list[WorkItem] = []
    unreadable: list[int] = []
    for message in messages:
        try:
            items.append(item_of(blobs, message.item))
        except HistoryCorrupt:
            unreadable.append(message.seq)
    return items, tuple(unreadable)


def orchestration_item(
    blobs: Blobs, turn: LockedTurn, messages: Sequence[WorkItem], rows: Sequence[HistoryRow]
) -> OrchestrationItem:
    """Give a locked instance as its turn reads it, with these rows of its history."""
    start = next((item for item in messages if isinstance(item, StartOrchestration | ContinueAsNew)), None)
    name, version = turn.orchestration_name, turn.orchestration_version
    if name is None:
        name, version = (UNNAMED, None) if start is None else (start.orchestration, start.version)
    history: tuple[Event, ...] = ()
    problem: str | None = None
    try:
        history = tuple(events_of(blobs, rows, turn.execution_id))
    except HistoryCorrupt as found:
        problem = found.message
        # Of one that was ended by hand because of it, the end is what counts.
        if turn.last_event_id == REPAIR_EVENT_ID:
            with suppress(HistoryCorrupt):
                history = tuple(events_of(blobs, rows[-1:], turn.execution_id))
    return OrchestrationItem(
        instance=turn.instance_id,
        orchestration_name=name,
        execution_id=turn.execution_id,
        version=version or UNKNOWN_VERSION,
        history=history,
        messages=tuple(messages),
        history_error=problem,
        kv_snapshot={kept.key: KvEntry(text_of(blobs, kept.value) or "", kept.at_ms) for kept in turn.keys},
        digest=turn.digest,
    )


# --- what a turn decided ----------------------------------------------------------------------------------------------


def ack_command(
    operation: str,
    token: Token,
    commit: TurnCommit,
    new_id: Callable[[], str],
    hold: float | None = None,
    *,
    keep: bool = False,
    eventless: bool = False,
) -> AckTurn:
    """Give the command that makes a turn's results durable. Raises ProviderError for what cannot be written down.

    It can be `eventless`, for whoever takes what is added to the history as it is.
    """
    return AckTurn(
        token=token,
        execution_id=commit.execution_id,
        delta=Delta() if eventless else delta_of(operation, commit.history_delta),
        # Most commits are those of a step, and have events only.
        activities=_activities(operation, commit, new_id) if commit.worker_items else (),
        messages=_messages(operation, commit) if commit.orchestrator_items else (),
        metadata=_metadata(operation, commit.metadata),
        cancelled=_cancelled(commit) if commit.cancelled_activities else (),
        cancelled_timers=commit.cancelled_timers,
        handled=commit.handled,
        hold_s=hold,
        keep=keep,
    )


def _activities(operation: str, commit: TurnCommit, new_id: Callable[[], str]) -> tuple[NewActivity, ...]:
    items = [written(operation, "worker_items", item) for item in commit.worker_items]
    return tuple([NewActivity(job_id=JobId(new_id()), item=item) for item in items])


def _messages(operation: str, commit: TurnCommit) -> tuple[NewMessage, ...]:
    return tuple(
        [NewMessage(item=written(operation, "orchestrator_items", item)) for item in commit.orchestrator_items]
    )


def _cancelled(commit: TurnCommit) -> tuple[str, ...]:
    return tuple([owner_of(one.instance, one.execution_id, one.activity_id) for one in commit.cancelled_activities])


def delta_of(operation: str, events: Sequence[Event], field: str = "history_delta") -> Delta:
    """Write down events for a history."""
    return Delta(events=tuple([NewEvent(event=written(operation, field, event)) for event in events]))


def _metadata(operation: str, metadata: ExecutionMetadata) -> Metadata:
    return Metadata(
        status=None if metadata.status is None else InstanceStatus[metadata.status.name],
        output=NULL if metadata.output is None else written(operation, "output", metadata.output),
        orchestration_name=metadata.orchestration_name,
        orchestration_version=metadata.orchestration_version,
        parent_instance_id=metadata.parent_instance_id,
        waiting_on=metadata.waiting_on,
        pinned_engine_version=metadata.pinned_engine_version,
        retention_s=metadata.retention_s,
        keep_executions=metadata.keep_executions,
    )


# --- what a stranger handed over --------------------------------------------------------------------------------------


def checked(operation: str, commit: TurnCommit) -> TurnCommit:
    """Give a commit whose parts are what they should be; the runtime's own are, and need not be looked at."""
    return TurnCommit(
        execution_id=typed(operation, "execution_id", commit.execution_id, int),
        history_delta=checked_events(operation, "history_delta", commit.history_delta),
        worker_items=_structs(operation, "worker_items", commit.worker_items, WorkItem),
        orchestrator_items=_structs(operation, "orchestrator_items", commit.orchestrator_items, WorkItem),
        metadata=_checked_metadata(operation, commit.metadata),
        cancelled_activities=_structs(
            operation, "cancelled_activities", commit.cancelled_activities, ScheduledActivityIdentifier
        ),
        cancelled_timers=tuple(
            typed(operation, "cancelled_timers", number, int)
            for number in each(operation, "cancelled_timers", commit.cancelled_timers)
        ),
    )


def checked_events(operation: str, field: str, events: Sequence[Event]) -> tuple[Event, ...]:
    """Give what are events indeed."""
    return _structs(operation, field, events, Event)


def _structs(operation: str, field: str, values: Sequence[Any], kind: Any) -> tuple[Any, ...]:
    return tuple(
        struct_of(operation, field, value, kind, f"{field}[{at}].")
        for at, value in enumerate(each(operation, field, values))
    )


def _checked_metadata(operation: str, metadata: ExecutionMetadata) -> ExecutionMetadata:
    typed(operation, "metadata", metadata, ExecutionMetadata)
    status = metadata.status
    if status is not None and status not in list(Status):
        refuse(operation, f"unknown status {status!r:.80}")
    maybe_seconds(operation, "retention_s", metadata.retention_s)  # how many is judged by the rules
    struct_of(operation, "metadata", msgspec.structs.replace(metadata, retention_s=None), ExecutionMetadata)
    waiting_on = metadata.waiting_on
    return msgspec.structs.replace(
        metadata,
        status=None if status is None else Status(status),
        waiting_on=None if waiting_on is None else tuple(waiting_on),
    )
