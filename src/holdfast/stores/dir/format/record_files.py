"""Which record lies in which directory, and what its file says. Jobs with their runs, and instances, have own pages.

One line a kind: a new one costs a line. Every file ends with the number of the last event of the commit it was written
by, so that an image is never put over a newer one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from holdfast.model.groups import Group
from holdfast.model.jobs import JobStatus
from holdfast.model.records import DoneCommand, HeldKey, Queue, Record, key_of
from holdfast.model.reservations import Reservation
from holdfast.model.schedules import Schedule
from holdfast.model.templates import Template
from holdfast.model.webhooks import Delivery, Webhook
from holdfast.model.workflows.decisions import Decision
from holdfast.model.workflows.instances import Affinity, Instance, Message, Turn
from holdfast.stores.dir.format import camel_case
from holdfast.stores.dir.format.file_names import name_of
from holdfast.stores.dir.format.record_text import Unreadable

PENDING, RUNNING, COMPLETED, FAILED = (f"tasks/{state}" for state in ("pending", "running", "completed", "failed"))
#: The directories of jobs. Of several copies without numbers the one that comes first here counts least.
STATES = (PENDING, RUNNING, FAILED, COMPLETED)
ENDED = (COMPLETED, FAILED)

#: Status of a job → the directory of its file.
STATE_OF = {
    JobStatus.QUEUED: PENDING,
    JobStatus.RUNNING: RUNNING,
    JobStatus.COMPLETED: COMPLETED,
    JobStatus.FAILED: FAILED,
    JobStatus.DEAD: FAILED,
    JobStatus.CANCELLED: FAILED,
}

#: Kind of record → its directory.
FOLDERS: dict[type[Record], str] = {
    Queue: "queues/settings",
    Template: "templates",
    Schedule: "schedules",
    Group: "groups",
    Reservation: "reservations",
    HeldKey: "keys",
    Webhook: "webhooks",
    Delivery: "deliveries",
    DoneCommand: "commands",
    Affinity: "sessions",
    Decision: "decisions",
}
#: The directories of messages: of those on their way, and of those set aside.
MAIL, PARKED = "queues/orchestrator", "queues/parked"
#: Where each kind of record lies that has a file of its own: one directory, or several.
PLACES: dict[type[Record], tuple[str, ...]] = {
    **{kind: (folder,) for kind, folder in FOLDERS.items()},
    Message: (MAIL, PARKED),
}
#: Kinds that nobody writes by hand; their files may be as large and as deep as what is in them.
UNTOUCHED = frozenset({Affinity, Decision, Message})

INTENT, FEED, QUARANTINE, INSTANCES, TRASH = "intent", "feed", "quarantine", "instances", "trash"
#: Every directory of records; parents before what lies in them.
MADE = (
    *("tasks", *STATES, "queues", *FOLDERS.values(), MAIL, PARKED, INSTANCES),
    *(TRASH, INTENT, FEED, QUARANTINE),
)
#: Kinds with a number of their own: in files it is `number`, since `seq` says which commit wrote the file.
_NUMBERED = (Instance, Message, Turn)


class Found(NamedTuple):
    """What a file of a record says."""

    record: Record
    seq: int


def write(record: Record, seq: int) -> bytes:
    """Give the text of a record's file, without blanks."""
    return camel_case.encode({**fields_of(record), "seq": seq})


def fields_of(record: Record) -> camel_case.Fields:
    """Give the fields of a record as its file has them."""
    fields = camel_case.plan_of(type(record)).write(record)
    if isinstance(record, _NUMBERED):
        return {"number" if name == "seq" else name: value for name, value in fields.items()}
    return fields


def record_in(kind: type[Record], fields: camel_case.Fields) -> Any:
    """Give the record that the fields of a file describe. Raises Unreadable."""
    if kind in _NUMBERED:
        fields = {name: value for name, value in fields.items() if name != "seq"}
        if "number" in fields:
            fields["seq"] = fields["number"]
    return camel_case.plan_of(kind).read(fields)


def read(kind: type[Record], folder: str, stem: str, text: bytes) -> Found:
    """Read a record's file. Raises Unreadable, also if what is inside belongs elsewhere or under another name."""
    fields = camel_case.fields_of(text)
    seq = number_in(fields)
    record: Record = record_in(kind, fields)
    place, name = place_of(record)
    if name != stem or place != folder:
        raise Unreadable(f"what is inside belongs into {name if place == folder else f'{place}/{name}'}.json")
    return Found(record, seq or 0)


_number = msgspec.json.Decoder(int)


def number_in(fields: camel_case.Fields) -> int | None:
    """Take the number out of the fields of a file; None if it has none. Raises Unreadable."""
    raw = fields.get("seq")
    if raw is None or raw == camel_case.NULL:
        return None
    try:
        seq = _number.decode(raw)
    except msgspec.MsgspecError:
        raise Unreadable("seq: is no number") from None
    if seq < 0:
        raise Unreadable("seq: is negative")
    return seq


def place_of(record: Record) -> tuple[str, str]:
    """Give directory and name of the file of a record that has one of its own."""
    if isinstance(record, Message):
        return MAIL if record.parked is None else PARKED, f"{record.seq:016}-{name_of(record.instance_id)}"
    return FOLDERS[type(record)], name_of(key_of(record))
