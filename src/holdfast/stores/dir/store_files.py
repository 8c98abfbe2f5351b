"""The files that speak of the store as a whole: which store this is, how far it has counted, whether dispatch rests.

`holdfast.json` is written once, last, when all directories are durable. `data/meta.json` is written only while no
intent is open: at creation, when the feed begins a new file, and at closing.
"""

from __future__ import annotations

import uuid
from datetime import datetime

import msgspec

from holdfast.errors import StoreDamaged
from holdfast.journal.filesystem import FS
from holdfast.journal.migrations import refuse_newer
from holdfast.model.times import Timestamp, stamp
from holdfast.stores.dir.format import atomic_write
from holdfast.stores.dir.format.camel_case import plan_of
from holdfast.stores.dir.format.record_text import pretty, read_bytes

IDENTITY = "holdfast"
META = "meta"
FORMAT = 1


class AdoptedFiles(msgspec.Struct, frozen=True):
    """How many job files of another program lay in a directory when it became a store."""

    pending: int = 0
    running: int = 0
    completed: int = 0
    failed: int = 0


class Identity(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which store this is."""

    format: str
    version: int
    id: str
    created_at: str = msgspec.field(name="createdAt")
    #: None if the directory was empty.
    adopted: AdoptedFiles | None = None


class Counters(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a store has counted."""

    #: The last event that is applied, and its time.
    seq: int = 0
    ts: Timestamp = Timestamp("")
    #: The highest token granted.
    token: int = 0
    #: Ids of the jobs that waited then; None if an earlier version wrote it while the store was open.
    pending: tuple[str, ...] | None = None
    #: Ids of those that ran.
    running: tuple[str, ...] = ()
    #: Those whose files had been edited before it was opened, and nobody had decided that yet.
    edited: tuple[str, ...] = ()


_identity = msgspec.json.Decoder(Identity)
_counters = msgspec.json.Decoder(Counters)


def read_identity(fs: FS, root: str) -> Identity | None:
    """Read who this is; None if nobody said. Raises TooNew, StoreDamaged."""
    path = atomic_write.path_of("", IDENTITY)
    if fs.stat(path) is None:
        return None
    try:
        found = _identity.decode(read_bytes(fs, path))
    except (msgspec.MsgspecError, RecursionError) as problem:
        raise StoreDamaged(
            f"{root}/{path} cannot be read ({problem}). Nothing was changed.",
            hint="Restore this file from a copy of the store.",
            file=f"{root}/{path}",
            reason=str(problem),
        ) from None
    if found.format != "holdfast-dir":
        raise StoreDamaged(f"{root}/{path} is of {found.format!r:.40}. Nothing was changed.", file=f"{root}/{path}")
    refuse_newer(f"{root}/{path}", found.version, FORMAT)
    return found


def write_identity(fs: FS, now: datetime, adopted: AdoptedFiles | None) -> None:
    """Say which store this is, for good."""
    made = Identity("holdfast-dir", FORMAT, uuid.uuid4().hex, stamp(now), adopted)
    atomic_write.put(fs, "", IDENTITY, pretty(msgspec.json.encode(made)))


def read_counters(data: FS) -> Counters | None:
    """Read the counters; None if they are missing or cannot be read: then the records themselves must tell."""
    try:
        return _counters.decode(read_bytes(data, atomic_write.path_of("", META)))
    except (FileNotFoundError, msgspec.MsgspecError, RecursionError):
        return None


def write_counters(data: FS, counters: Counters) -> None:
    """Put the counters in place, durable on return."""
    atomic_write.put(data, "", META, pretty(msgspec.json.encode(counters)))


DISPATCH = "dispatch"


class Dispatch(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether dispatch is paused, and why."""

    paused: bool = False
    reason: str | None = None


dispatch_plan = plan_of(Dispatch)
