"""The journal's fixed places below its root, and the file that says which journal this is.

`journal.json` is written once, atomically, and last: whoever finds it also finds the log. So a log without it, or it
without a log, is never taken for a fresh start.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from datetime import datetime

import msgspec

from holdfast.errors import JournalDamaged
from holdfast.journal import segments, snapshots
from holdfast.journal.filesystem import FS, atomic_write
from holdfast.journal.migrations import FORMAT, refuse_newer
from holdfast.journal.records import first_chain, stamp
from holdfast.journal.scan import reading, size_of
from holdfast.journal.segments import Segment

IDENTITY = "journal.json"
LOCK = "LOCK"
FOLDERS = (segments.FOLDER, snapshots.FOLDER)


class Identity(msgspec.Struct, frozen=True):
    """Which journal this is."""

    format: int
    #: 32 hex digits; the chain of sums starts from it.
    id: str
    created_at: str


_identity = msgspec.json.Decoder(Identity)


def read_identity(fs: FS, root: str) -> Identity | None:
    """Read who this is; None if nothing was ever made here."""
    if fs.stat(IDENTITY) is None:
        return None
    with reading(fs, IDENTITY) as handle:
        text = fs.read(handle, size_of(fs, IDENTITY), 0)
    try:
        found = _identity.decode(text)
        bytes.fromhex(found.id)  # the chain starts from it, so it must be what we write
    except (ValueError, RecursionError) as error:
        raise JournalDamaged(
            f"{root}/{IDENTITY} cannot be read ({error}). Nothing was changed.",
            hint="Restore this file from a copy of the store.",
            file=IDENTITY,
            reason=str(error),
        ) from error
    refuse_newer(f"{root}/{IDENTITY}", found.format, FORMAT)
    return found


def refuse_orphans(fs: FS, root: str) -> None:
    """Refuse a log or snapshots without `journal.json`. What a creation cut short left is empty and counts not."""
    for folder in FOLDERS:
        if fs.stat(folder) is None:
            continue
        for name in fs.listdir(folder):
            found = fs.stat(f"{folder}/{name}")
            if found is not None and found.size and not name.endswith(".tmp"):
                raise JournalDamaged(
                    f"{root}/{folder}/{name} is there, but {IDENTITY} is missing. Nothing was changed.",
                    hint=f"Restore {IDENTITY} from a copy of the store.",
                    file=f"{folder}/{name}",
                    reason=f"{IDENTITY} is missing",
                )


def create(fs: FS, now: datetime) -> tuple[Identity, Segment]:
    """Make a new journal: directories, the first segment, then the file that says it is whole."""
    identity = Identity(FORMAT, uuid.uuid4().hex, stamp(now).decode())
    for folder in FOLDERS:
        _remove_unfinished(fs, folder)
        fs.mkdir(folder)
    fs.sync_dir("")
    segment = Segment(1, first_chain(identity.id))
    fs.close(fs.open(segment.path, "create"))
    fs.sync_dir(segments.FOLDER)
    try:
        atomic_write(fs, IDENTITY, msgspec.json.encode(identity) + b"\n")
    except OSError:
        # Renamed, but the sync of its directory failed: a name that shows now and may vanish must not be built upon.
        with suppress(OSError):
            fs.unlink(IDENTITY)
        raise
    return identity, segment


def _remove_unfinished(fs: FS, folder: str) -> None:
    """Remove what a creation that was cut short left; made anew, its names can be made durable."""
    if fs.stat(folder) is not None:
        for name in fs.listdir(folder):
            fs.unlink(f"{folder}/{name}")
        fs.rmdir(folder)
