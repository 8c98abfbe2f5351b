"""Between turns and commands: what a turn decided as a command, and what was locked as a turn reads it.

Used by whoever asks for turns: the provider's face one at a time, workers many in one commit. Asks nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from holdfast.errors import HistoryCorrupt
from holdfast.flows.provider.asking import each, encoded, maybe_seconds, message_of, refuse, text, typed
from holdfast.flows.provider.contents import events_of, item_of, text_of
from holdfast.model.flowcommands import AckTurn, Delta, Metadata, NewActivity, NewEvent
from holdfast.model.history import (
    Event,
    ExecutionMetadata,
    KvEntry,
    OrchestrationItem,
    ScheduledActivityIdentifier,
    Status,
    TurnCommit,
)
from holdfast.model.ids import JobId, Token
from holdfast.model.instances import HistoryRow, InstanceStatus, owner_of
from holdfast.model.outcomes import Delivered, LockedTurn
from holdfast.model.payloads import NULL
from holdfast.model.workitems import ContinueAsNew, StartOrchestration, WorkItem
from holdfast.stores.beside.protocol import Blobs

#: Of an instance whose version nobody has said.
UNKNOWN_VERSION = "unknown"

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
        name, version = (UNKNOWN_VERSION, None) if start is None else (start.orchestration, start.version)
    history: tuple[Event, ...] = ()
    problem: str | None = None
    try:
        history = tuple(events_of(blobs, rows, turn.execution_id))
    except HistoryCorrupt as found:
        problem = found.message
    return OrchestrationItem(
        instance=turn.instance_id,
        orchestration_name=name,
        execution_id=turn.execution_id,
        version=version or UNKNOWN_VERSION,
        history=history,
        messages=tuple(messages),
        history_error=problem,
        kv_snapshot={kept.key: KvEntry(text_of(blobs, kept.value) or "", kept.at_ms) for kept in turn.keys},
    )


# --- what a turn decided ----------------------------------------------------------------------------------------------


def ack_command(
    operation: str, token: Token, commit: TurnCommit, new_id: Callable[[], str], hold: float | None = None
) -> AckTurn:
    """Give the command that makes a turn's results durable. Raises ProviderError for what cannot be written down."""
    return AckTurn(
        token=token,
        execution_id=typed(operation, "execution_id", commit.execution_id, int),
        delta=delta_of(operation, commit.history_delta),
        activities=tuple(
            NewActivity(job_id=JobId(new_id()), item=encoded(operation, "worker_items", item, WorkItem))
            for item in each(operation, "worker_items", commit.worker_items)
        ),
        messages=tuple(
            message_of(operation, "orchestrator_items", item)
            for item in each(operation, "orchestrator_items", commit.orchestrator_items)
        ),
        metadata=_metadata(operation, commit.metadata),
        cancelled=tuple(
            _owner(operation, one) for one in each(operation, "cancelled_activities", commit.cancelled_activities)
        ),
        cancelled_timers=tuple(
            typed(operation, "cancelled_timers", number, int)
            for number in each(operation, "cancelled_timers", commit.cancelled_timers)
        ),
        hold_s=maybe_seconds(operation, "hold", hold),
    )


def delta_of(operation: str, events: Sequence[Event], field: str = "history_delta") -> Delta:
    """Write down events for a history."""
    return Delta(
        events=tuple(
            NewEvent(event=encoded(operation, field, event, Event)) for event in each(operation, field, events)
        )
    )


def _metadata(operation: str, metadata: ExecutionMetadata) -> Metadata:
    typed(operation, "metadata", metadata, ExecutionMetadata)
    try:
        metadata = msgspec.convert(msgspec.to_builtins(metadata), ExecutionMetadata)
    except msgspec.ValidationError as problem:
        if metadata.status is not None and metadata.status not in list(Status):
            refuse(operation, f"unknown status {metadata.status!r}")
        refuse(operation, f"invalid metadata: {problem}")
    return Metadata(
        status=None if metadata.status is None else InstanceStatus[metadata.status.name],
        output=NULL if metadata.output is None else encoded(operation, "output", metadata.output, str),
        orchestration_name=metadata.orchestration_name,
        orchestration_version=metadata.orchestration_version,
        parent_instance_id=metadata.parent_instance_id,
        waiting_on=metadata.waiting_on,
        pinned_engine_version=metadata.pinned_engine_version,
        retention_s=metadata.retention_s,
        keep_executions=metadata.keep_executions,
    )


def _owner(operation: str, one: ScheduledActivityIdentifier) -> str:
    typed(operation, "cancelled_activities", one, ScheduledActivityIdentifier)
    text(operation, "instance", one.instance)
    typed(operation, "execution_id", one.execution_id, int)
    return owner_of(one.instance, one.execution_id, typed(operation, "activity_id", one.activity_id, int))
