"""A workflow's history and what a turn hands to the store: events, and one commit of everything a turn decided.

A history belongs to one execution and only grows; its first event is OrchestrationStarted, its last a terminal one.
Event ids are given by the runtime, from 1, without gaps. Times are milliseconds since 1970 UTC.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from holdfast.model.ids import uuid5
from holdfast.model.workflows.event_kinds import AnyKind
from holdfast.model.workflows.work_items import WorkItem

#: The id of the event that ends a history from outside, where the last id may be unreadable.
REPAIR_EVENT_ID = 2**31 - 1
#: The version of an instance of which nobody has said one.
UNKNOWN_VERSION = "unknown"


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One fact of an execution."""

    event_id: int
    instance: str
    execution_id: int
    timestamp_ms: int
    kind: AnyKind
    #: What this completes or cancels.
    source_event_id: int | None = None
    #: The rules of the runtime that wrote it; in the first event only.
    engine_version: str = ""


encode_event = msgspec.json.Encoder().encode
decode_event = msgspec.json.Decoder(Event).decode


class Status(StrEnum):
    """What an execution has come to, as the provider face spells it."""

    RUNNING = "Running"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    CONTINUED_AS_NEW = "ContinuedAsNew"


class ExecutionMetadata(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a turn says of its execution; what is None stays as it was."""

    status: Status | None = None
    output: str | None = None
    orchestration_name: str | None = None
    orchestration_version: str | None = None
    parent_instance_id: str | None = None
    #: One line per thing waited for, for `explain`.
    waiting_on: tuple[str, ...] | None = None
    pinned_engine_version: str | None = None
    #: Seconds that the instance is kept once it is over; None: as the store says.
    retention_s: float | None = None
    #: Executions that are kept when it goes on as new, the newest; None: all.
    keep_executions: int | None = None


class ScheduledActivityIdentifier(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Names an activity."""

    instance: str
    execution_id: int
    #: The event id of its ActivityScheduled.
    activity_id: int


class KvEntry(msgspec.Struct, frozen=True, gc=False):
    """A value and when it was set."""

    value: str
    last_updated_at_ms: int


class OrchestrationItem(msgspec.Struct, frozen=True, kw_only=True):
    """A locked instance with what came in for it."""

    instance: str
    orchestration_name: str
    execution_id: int
    version: str
    #: The current execution's, by event id. Empty: it has none yet.
    history: tuple[Event, ...]
    messages: tuple[WorkItem, ...]
    #: Why the history cannot be read, naming execution and event.
    history_error: str | None = None
    #: The store without the running execution's changes.
    kv_snapshot: dict[str, KvEntry] = {}
    #: What starts of the same workflow with the same input have in common; None: it is not known.
    digest: str | None = None


class HandledMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How a turn has handled one message: recorded by an event of the same commit, or by none, with the reason."""

    #: Its number in the queue.
    message: int
    event_id: int | None = None
    #: Why no event records it. The feed says so.
    reason: str | None = None


class TurnCommit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The arguments of one ack: all of it becomes durable, or none."""

    execution_id: int
    history_delta: tuple[Event, ...] = ()
    worker_items: tuple[WorkItem, ...] = ()
    orchestrator_items: tuple[WorkItem, ...] = ()
    metadata: ExecutionMetadata = ExecutionMetadata()
    #: Created first if they are that new, then revoked.
    cancelled_activities: tuple[ScheduledActivityIdentifier, ...] = ()
    #: Event ids whose queued TimerFired goes.
    cancelled_timers: tuple[int, ...] = ()
    #: The messages that leave the queue with this commit; None: all that the lock holds.
    handled: tuple[HandledMessage, ...] | None = None


# --- what management shows --------------------------------------------------------------------------------------------


class InstanceInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One instance."""

    instance_id: str
    orchestration_name: str
    orchestration_version: str
    current_execution_id: int
    status: Status
    created_at: int
    updated_at: int
    output: str | None = None
    parent_instance_id: str | None = None


class ExecutionInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One execution."""

    execution_id: int
    status: Status
    started_at: int
    event_count: int
    output: str | None = None
    completed_at: int | None = None


class SystemMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """How much there is."""

    total_instances: int = 0
    total_executions: int = 0
    running_instances: int = 0
    completed_instances: int = 0
    failed_instances: int = 0
    cancelled_instances: int = 0
    total_events: int = 0


class QueueDepths(msgspec.Struct, frozen=True, kw_only=True):
    """How much waits."""

    orchestrator_queue: int = 0
    worker_queue: int = 0
    timer_queue: int = 0
    parked: int = 0


class InstanceTree(msgspec.Struct, frozen=True, kw_only=True):
    """A root with all its descendants."""

    root_id: str
    all_ids: tuple[str, ...]

    @property
    def is_root_only(self) -> bool:
        """It has no children."""
        return len(self.all_ids) == 1

    @property
    def size(self) -> int:
        """How many instances it has."""
        return len(self.all_ids)


class InstanceFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which ended instances; the parts are ANDed."""

    instance_ids: tuple[str, ...] | None = None
    completed_before: int | None = None
    limit: int = 1000


class PruneOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which executions go; both must agree."""

    keep_last: int | None = None
    completed_before: int | None = None


class DeleteInstanceResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a deletion removed."""

    instances_deleted: int = 0
    executions_deleted: int = 0
    events_deleted: int = 0
    queue_messages_deleted: int = 0


class PruneResult(msgspec.Struct, frozen=True, kw_only=True):
    """What pruning removed."""

    instances_processed: int = 0
    executions_deleted: int = 0
    events_deleted: int = 0


def decision_id(instance: str, execution_id: int, event_id: int) -> str:
    """Give the id of the decision an event asked for; the same wherever it is asked."""
    return uuid5(instance, str(execution_id), f"decision-{event_id}")


def activity_key(instance: str, execution_id: int, event_id: int) -> str:
    """Give the idempotency key of the activity an event asked for; the same on every attempt."""
    return uuid5(instance, str(execution_id), f"activity-{event_id}")


def step_key(instance: str, execution_id: int, step_no: int) -> str:
    """Give the idempotency key of an inline step; the same on every attempt."""
    return uuid5(instance, str(execution_id), f"step-{step_no}")
