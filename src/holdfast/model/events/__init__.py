"""Events: everything that ever happens to a record, in the past tense. Facts are the truth.

Each carries every computed value (times, positions, ids, the resulting status), so folding needs no policy, no clock
and no chance. `cmd` and `actor` say which command caused it and who sent it.
"""

from __future__ import annotations

from functools import cache

import msgspec

from holdfast.errors import BadEvent, UnknownEvent
from holdfast.model.events.base import Fact
from holdfast.model.events.bookkeeping import CommandDone, CommandForgotten, KeyDropped, MemoryEvent
from holdfast.model.events.groups import GroupChanged, GroupCreated, GroupEvent, GroupPruned
from holdfast.model.events.jobs import (
    JobCancelled,
    JobCancelRequested,
    JobChanges,
    JobCompleted,
    JobCreated,
    JobDead,
    JobEvent,
    JobFailed,
    JobMended,
    JobMoved,
    JobPruned,
    JobSkipped,
    JobSnoozed,
    JobUpdated,
    LeaseExpired,
    LeaseExtended,
    LeaseGranted,
    LeaseReleased,
    RunDropped,
)
from holdfast.model.events.queues import (
    DispatchPaused,
    DispatchResumed,
    QueueChanges,
    QueueEvent,
    QueueNormalized,
    QueuePaused,
    QueueResumed,
    QueueSet,
)
from holdfast.model.events.reservations import (
    ReservationAcquired,
    ReservationEvent,
    ReservationExpired,
    ReservationPruned,
    ReservationReleased,
    ReservationRenewed,
)
from holdfast.model.events.schedules import (
    PlanEvent,
    ScheduleCreated,
    ScheduleDeleted,
    ScheduleFired,
    ScheduleMissed,
    SchedulePaused,
    ScheduleResumed,
    ScheduleUpdated,
    TemplateArchived,
    TemplateCreated,
    TemplateDeleted,
    TemplateUpdated,
)
from holdfast.model.events.webhooks import (
    DeliveryClaimed,
    DeliveryCreated,
    DeliveryEnded,
    DeliveryPruned,
    WebhookCreated,
    WebhookDeleted,
    WebhookEvent,
    WebhookUpdated,
)
from holdfast.model.events.workflows import (
    AffinityClaimed,
    AffinityExtended,
    AffinityRemoved,
    Asked,
    Closed,
    DecisionAnswered,
    FlowEvent,
    HandlersAnnounced,
    HistoryAppended,
    InstanceDeleted,
    InstanceForked,
    InstancePruned,
    InstanceReset,
    KeyChange,
    MessageDropped,
    MessageParked,
    MessageStored,
    MessageUnparked,
    TurnAbandoned,
    TurnCommitted,
    TurnExpired,
    TurnExtended,
    TurnLocked,
    TurnTagged,
)

Event = JobEvent | QueueEvent | PlanEvent | ReservationEvent | GroupEvent | WebhookEvent | FlowEvent | MemoryEvent

__all__ = [
    "FOREIGN_NAMESPACES",
    "SCHEMA_VERSION",
    "AffinityClaimed",
    "AffinityExtended",
    "AffinityRemoved",
    "Asked",
    "Closed",
    "CommandDone",
    "CommandForgotten",
    "DecisionAnswered",
    "DeliveryClaimed",
    "DeliveryCreated",
    "DeliveryEnded",
    "DeliveryPruned",
    "DispatchPaused",
    "DispatchResumed",
    "Event",
    "Fact",
    "GroupChanged",
    "GroupCreated",
    "GroupPruned",
    "HandlersAnnounced",
    "HistoryAppended",
    "InstanceDeleted",
    "InstanceForked",
    "InstancePruned",
    "InstanceReset",
    "JobCancelRequested",
    "JobCancelled",
    "JobChanges",
    "JobCompleted",
    "JobCreated",
    "JobDead",
    "JobFailed",
    "JobMended",
    "JobMoved",
    "JobPruned",
    "JobSkipped",
    "JobSnoozed",
    "JobUpdated",
    "KeyChange",
    "KeyDropped",
    "LeaseExpired",
    "LeaseExtended",
    "LeaseGranted",
    "LeaseReleased",
    "MessageDropped",
    "MessageParked",
    "MessageStored",
    "MessageUnparked",
    "QueueChanges",
    "QueueNormalized",
    "QueuePaused",
    "QueueResumed",
    "QueueSet",
    "ReservationAcquired",
    "ReservationExpired",
    "ReservationPruned",
    "ReservationReleased",
    "ReservationRenewed",
    "RunDropped",
    "ScheduleCreated",
    "ScheduleDeleted",
    "ScheduleFired",
    "ScheduleMissed",
    "SchedulePaused",
    "ScheduleResumed",
    "ScheduleUpdated",
    "TemplateArchived",
    "TemplateCreated",
    "TemplateDeleted",
    "TemplateUpdated",
    "TurnAbandoned",
    "TurnCommitted",
    "TurnExpired",
    "TurnExtended",
    "TurnLocked",
    "TurnTagged",
    "WebhookCreated",
    "WebhookDeleted",
    "WebhookUpdated",
    "decode_event",
    "encode_event",
]

#: Schema version of events and records. Raised when a change needs a migration.
SCHEMA_VERSION = 1

#: Event types outside Holdfast's own; kept, and ignored by folds.
FOREIGN_NAMESPACES = ("x:", "journal:")

encode_event = msgspec.json.Encoder().encode
_TYPES = frozenset(kind.__struct_config__.tag for kind in Event.__args__)


class _Tagged(msgspec.Struct, tag_field=None):
    type: str


_tag = msgspec.json.Decoder(_Tagged)


@cache
def _decoder() -> msgspec.json.Decoder[Event]:
    from holdfast.model.events.decode import decoder  # noqa: PLC0415 - it imports this, and takes its time

    return decoder


def decode_event(raw: bytes | msgspec.Raw, *, seq: int, file: str) -> Event | None:
    """Read one event; None for those of foreign namespaces.

    Raises UnknownEvent for a type this version does not know, BadEvent when a required field is missing or mistyped.
    """
    try:
        return _decoder().decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        reason = str(problem)
    try:
        kind = _tag.decode(raw).type
    except (msgspec.MsgspecError, ValueError, RecursionError):
        kind = ""
    if kind.startswith(FOREIGN_NAMESPACES):
        return None
    if kind and kind not in _TYPES:
        raise UnknownEvent(
            f"{file}: event {seq} has the type {kind!r}, which this version does not know. Nothing was changed.",
            hint="Open the store with the version that wrote it, or a newer one.",
            file=file,
            seq=seq,
        )
    raise BadEvent(
        f"{file}: event {seq} ({kind or 'no type'}) cannot be read: {reason}. Nothing was changed.",
        hint="Run `holdfast store check` on it.",
        file=file,
        seq=seq,
    )
