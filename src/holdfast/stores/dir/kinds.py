"""Which record lies in which directory, and what its file says. Jobs and their runs have a page of their own.

One line a kind: a new one costs a line. Every file ends with the number of the last event of the commit it was written
by, so that an image is never put over a newer one.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from holdfast.model.groups import Group
from holdfast.model.jobs import JobStatus
from holdfast.model.records import DoneCommand, HeldKey, Key, Queue, Record, key_of
from holdfast.model.reservations import Reservation
from holdfast.model.schedules import Schedule
from holdfast.model.templates import Template
from holdfast.model.webhooks import Delivery, Webhook
from holdfast.stores.dir import camel
from holdfast.stores.dir.names import name_of
from holdfast.stores.dir.text import Unreadable

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
}

INTENT, FEED, QUARANTINE = "intent", "feed", "quarantine"
#: Every directory of records; parents before what lies in them. Those of workflows are made with them.
MADE = ("tasks", *STATES, "queues", *FOLDERS.values(), INTENT, FEED, QUARANTINE)


class Found(NamedTuple):
    """What a file of a record says."""

    record: Record
    seq: int


def write(record: Record, seq: int) -> bytes:
    """Give the text of a record's file, without blanks."""
    return camel.encode({**camel.plan_of(type(record)).write(record), "seq": seq})


def read(kind: type[Record], stem: str, text: bytes) -> Found:
    """Read a record's file. Raises Unreadable, also if what is inside belongs under another name."""
    fields = camel.fields_of(text)
    seq = number_in(fields)
    record: Record = camel.plan_of(kind).read(fields)
    if name_of(key_of(record)) != stem:
        raise Unreadable(f"what is inside belongs into {name_of(key_of(record))}.json")
    return Found(record, seq or 0)


_number = msgspec.json.Decoder(int)


def number_in(fields: camel.Fields) -> int | None:
    """Take the number out of the fields of a file; None if it has none. Raises Unreadable."""
    raw = fields.get("seq")
    if raw is None or raw == camel.NULL:
        return None
    try:
        seq = _number.decode(raw)
    except msgspec.MsgspecError:
        raise Unreadable("seq: is no number") from None
    if seq < 0:
        raise Unreadable("seq: is negative")
    return seq


def place_of(kind: type[Record], key: Key) -> tuple[str, str]:
    """Give directory and name of a record's file."""
    return FOLDERS[kind], name_of(key)
