"""The marker (`-seq`): the number of the last event that was durable, kept outside the log.

SQLite opens a database whose log was deleted without a word, in the state of the last copying. The marker is written
after each commit, so it never claims more than was durable; it is not synced, so after a power cut it may claim less.
A database that ends before its marker has lost its log.
"""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import suppress
from zlib import crc32

from holdfast.errors import LogMissing
from holdfast.stores.sqlite.rows import Meta
from holdfast.stores.sqlite.statements import SQL

_LINE = re.compile(rb"(holdfast-seq 1 ([0-9a-f]{32}) ([0-9]{20})) ([0-9a-f]{8})\n")
_WARILY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class CommitMarker:
    """Writes the marker of one database. What cannot be written is left out: the marker then claims less."""

    def __init__(self, path: str) -> None:
        self._path = f"{path}-seq"
        #: None until the first commit, -1 where no marker can be written.
        self._fd: int | None = None

    def note(self, store_id: str, seq: int) -> None:
        """Say that the events up to `seq` are durable."""
        with suppress(OSError):
            if self._fd is None:
                self._fd = -1
                self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | _WARILY, 0o600)
            if self._fd >= 0:
                claim = b"holdfast-seq 1 %s %020d" % (store_id.encode(), seq)
                os.pwrite(self._fd, b"%s %08x\n" % (claim, crc32(claim)), 0)

    def close(self) -> None:
        """Close the file."""
        fd, self._fd = self._fd, -1
        if fd is not None and fd >= 0:
            with suppress(OSError):
                os.close(fd)


def claimed(path: str) -> tuple[str, int] | None:
    """Read which store has come how far; None if there is no marker that can be read."""
    with suppress(OSError):
        fd = os.open(f"{path}-seq", os.O_RDONLY | _WARILY)
        try:
            found = _LINE.fullmatch(os.pread(fd, 256, 0))
        finally:
            os.close(fd)
        if found is not None and crc32(found[1]) == int(found[4], 16):
            return found[2].decode(), int(found[3])
    return None


def demand_log(db: sqlite3.Connection, path: str, claim: tuple[str, int] | None) -> None:
    """Compare the database with what was claimed before it was read. A marker of another store says nothing.

    Raises LogMissing if the database ends before it.
    """
    if claim is None:
        return
    meta = Meta(*db.execute(SQL["meta"]).fetchone())
    if claim[0] != meta.store_id or claim[1] <= meta.seq:
        return
    raise LogMissing(
        f"{path}: the database ends with event {meta.seq}, but {claim[1]} were durable: its log {path}-wal was removed "
        f"or replaced. Events {meta.seq + 1} to {claim[1]} are missing. Nothing was changed.",
        hint=f"Put the log back beside the database, or restore a newer copy. If this is the copy you want, remove "
        f"{path}-seq: that accepts the loss.",
        file=path,
        seq=meta.seq + 1,
    )
