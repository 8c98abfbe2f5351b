"""Relog: what opening found in the log must stay, so the log is written once more, as it is, and synced.

A process that died within a commit may have left frames that were never synced, or whose sync had failed: the next one
can read them, answers by them, and a power cut would take them away with all that was committed behind them. A sync
alone would not do: after a failed one the system holds the bytes for clean. Written again, they are not.

Only the log is opened here, which no process ever locks; a descriptor of the database or its index must not be, since
closing it would drop locks. The write lock keeps the log as it is meanwhile; readers see the same bytes throughout.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress

from holdfast.errors import StoreFailed
from holdfast.failpoints import reach
from holdfast.stores.sqlite.connections import begin_immediate

#: Bytes written at a time.
PIECE = 1 << 20


def write_log_again(db: sqlite3.Connection, path: str, patience_s: float) -> None:
    """Make durable what the log holds. Raises StoreFailed if that cannot be done, StoreBusy if others keep writing."""
    begin_immediate(db, path, patience_s)
    try:
        with suppress(FileNotFoundError):
            fd = os.open(f"{path}-wal", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                _rewrite(fd)
            finally:
                os.close(fd)
    except OSError as error:
        raise StoreFailed(
            f"{path}-wal: the log cannot be made durable: {error.strerror}. Nothing was opened.",
            hint="Check the disk and its free space, then open the store again.",
            file=f"{path}-wal",
        ) from error
    finally:
        db.execute("ROLLBACK")


def _rewrite(fd: int) -> None:
    at = 0
    while piece := os.pread(fd, PIECE, at):
        at += os.pwrite(fd, piece, at)
    if at:
        reach("sqlite.relogged")
        os.fsync(fd)
