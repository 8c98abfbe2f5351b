"""Workflow instances as a store keeps them: records only. What may happen to them is decided in `rules`.

Payloads are JSON texts that nobody here looks into: an item or an event whole, or a text in quotation marks; what is
large lies beside the record as a blob. Fields stand in the order of their SQL columns.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from holdfast.model.ids import Token
from holdfast.model.payloads import NULL
from holdfast.model.times import Timestamp


class InstanceStatus(StrEnum):
    """What an execution has come to; an instance has the status of its current one."""

    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    CONTINUED_AS_NEW = "CONTINUED_AS_NEW"


#: Statuses with which an instance is over.
OVER = frozenset({InstanceStatus.COMPLETED, InstanceStatus.FAILED, InstanceStatus.CANCELLED})


#: Why a start is parked that waits for another instance of its schedule to end.
OVERLAP = "overlap"
#: From so many events, or bytes of them, on an execution should continue as new.
MANY_EVENTS, MANY_BYTES = 10_000, 10 << 20
#: Characters and bytes of an instance's id.
MAX_ID, MAX_ID_BYTES = 512, 2048
#: Bytes of what an instance says of itself, of a key, and of a key's value.
MAX_STATUS, MAX_KEY, MAX_VALUE = 256 << 10, 256, 64 << 10
#: Keys of an instance that have a value.
MAX_KEYS = 1000
#: The name of an instance of which nobody has said one.
UNNAMED = "unknown"


class Instance(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One durable run of a workflow, through all its executions."""

    instance_id: str
    orchestration_name: str
    created_at: Timestamp
    updated_at: Timestamp
    #: Feed number of the event that made it: tells two apart that had the same id one after the other.
    seq: int
    orchestration_version: str | None = None
    current_execution_id: int = 1
    #: Of the current execution.
    status: InstanceStatus = InstanceStatus.RUNNING
    completed_at: Timestamp | None = None
    parent_instance_id: str | None = None
    #: What it says of itself, and how often it has said something.
    custom_status: msgspec.Raw = NULL
    custom_status_version: int = 0
    #: One line for each thing it waits for.
    waiting_on: tuple[str, ...] | None = None
    #: Of what it was started with: tells whether another start asks for the same.
    digest: str | None = None
    #: The instance whose history it began with a copy of, and those that began with a copy of its own.
    forked_from: str | None = None
    forks: tuple[str, ...] = ()
    #: The schedule that began it.
    schedule_id: str | None = None
    #: When it goes, once it is over; None: as the store says.
    keep_until: Timestamp | None = None
    #: The access token that started it, or the instance above it; None: somebody of this machine, or a schedule.
    submitted_by: str | None = None


class Execution(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One history of an instance, from its start to its end or to the next."""

    instance_id: str
    execution_id: int
    #: Feed number of the event that made it; its events are kept under it and go with it.
    history_id: int
    started_at: Timestamp
    status: InstanceStatus = InstanceStatus.RUNNING
    output: msgspec.Raw = NULL
    completed_at: Timestamp | None = None
    event_count: int = 0
    #: Of the encoded events, wherever they lie.
    history_bytes: int = 0
    #: The highest there is. A greater id is known to be new.
    last_event_id: int = 0
    pinned_engine_version: str | None = None


class HistoryRow(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One event of a history, encoded. Written once, read on request, gone with its execution."""

    history_id: int
    event_id: int
    event: msgspec.Raw


class Message(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One item of the orchestrator queue."""

    #: Feed number of the event that stored it.
    seq: int
    instance_id: str
    #: The item's type.
    kind: str
    #: The item, encoded.
    item: msgspec.Raw
    #: Its place among others; never changed.
    due_at: Timestamp
    stored_at: Timestamp
    #: Not delivered before; None: at once.
    visible_at: Timestamp | None = None
    #: Deliveries that came to nothing. One that is under way is not yet among them.
    attempts: int = 0
    #: Set aside: nobody it is for is there, or it cannot be read. Why, and until when.
    parked: str | None = None
    drop_at: Timestamp | None = None
    #: Of a message that begins an execution.
    orchestration: str | None = None
    version: str | None = None
    parent_instance_id: str | None = None
    #: Of a timer: who asked for it.
    execution_id: int | None = None
    event_id: int | None = None
    #: Of a start: tells whether another asks for the same.
    digest: str | None = None
    #: Of a start: the schedule that asked for it, or the access token.
    schedule_id: str | None = None
    submitted_by: str | None = None

    @property
    def is_start(self) -> bool:
        """Tell whether it begins an execution."""
        return self.orchestration is not None

    @property
    def is_to_begin(self) -> bool:
        """Tell whether it begins an execution, now or when another one of its schedule has ended."""
        return self.orchestration is not None and self.parked in (None, OVERLAP)


class Turn(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Who works on an instance, and with which messages; or how the last try ended."""

    instance_id: str
    #: Feed number of the event that last changed it.
    seq: int
    #: The holder's, or that of the last one whom time took it from.
    token: Token | None = None
    #: None: nobody holds it.
    locked_until: Timestamp | None = None
    locked_at: Timestamp | None = None
    #: The messages handed out. Each is one delivery more for them, once the turn ends without an ack.
    messages: tuple[int, ...] = ()
    #: The opening of the store by the holder's process; None for a remote one.
    session_id: str | None = None
    #: The command that was answered with this turn.
    cmd: str = ""
    #: Why the last holder gave it back, and when.
    reason: str | None = None
    reason_at: Timestamp | None = None


class KeyValue(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A key of an instance: its value, and what the running execution has made of it."""

    instance_id: str
    key: str
    #: A JSON text, or NULL for none; and when the workflow set it, in milliseconds since 1970.
    value: msgspec.Raw = NULL
    at_ms: int = 0
    #: Whether the running execution has set or cleared it, and to what (NULL: cleared).
    touched: bool = False
    delta: msgspec.Raw = NULL
    delta_at_ms: int = 0

    @property
    def live(self) -> msgspec.Raw:
        """The value as the running execution sees it; NULL for none."""
        return self.delta if self.touched else self.value


class Affinity(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Which worker the activities of one session go to."""

    session: str
    owner_id: str
    locked_until: Timestamp
    last_activity_at: Timestamp


def execution_key(instance_id: str, execution_id: int) -> str:
    """Give the key of an execution."""
    return f"{instance_id}\0{execution_id}"


def message_key(seq: int) -> str:
    """Give the key of a message; keys sort as numbers do."""
    return f"{seq:016d}"


def history_key(history_id: int, event_id: int) -> str:
    """Give the key of an event in a history; keys sort as numbers do."""
    return f"{history_id:016d}\0{event_id:019d}"


#: Names an activity: instance, execution and event id, as a JSON list. The owner of its job.
_owner = msgspec.json.Encoder().encode
_owned: msgspec.json.Decoder[tuple[str, int, int]] = msgspec.json.Decoder(tuple[str, int, int])


def owner_of(instance_id: str, execution_id: int, event_id: int) -> str:
    """Write down whose activity a job is."""
    return _owner((instance_id, execution_id, event_id)).decode()


def owned_by(owner: str | None) -> tuple[str, int, int] | None:
    """Read whose activity a job is: instance, execution, event. None for a text that names none."""
    try:
        return None if owner is None else _owned.decode(owner)
    except msgspec.MsgspecError:
        return None


def is_owner(text: str) -> bool:
    """Tell whether a text says whose activity a job is."""
    owner = owned_by(text)
    if owner is None or owner_of(*owner) != text:
        return False
    _, execution_id, event_id = owner
    return 0 <= execution_id < 1 << 63 and 0 <= event_id < 1 << 63


def owner_prefix(instance_id: str) -> str:
    """Give what the owners of all activities of an instance begin with, and no others do."""
    return _owner([instance_id]).decode()[:-1] + ","
