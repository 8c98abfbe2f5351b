"""Connections: how they are opened, what is demanded of them, and what their errors mean.

A setting that was not taken is a promise not kept, so every answer is read back. The database file itself is never
opened other than by SQLite: closing any descriptor of it would drop the locks this process holds on it.
"""

from __future__ import annotations

import os
import resource
import sqlite3
import sys
import threading
from collections.abc import Sequence
from typing import Literal
from urllib.parse import quote

from holdfast.clock import SystemClock
from holdfast.errors import (
    CorruptState,
    HoldfastError,
    StoreBusy,
    StoreDamaged,
    StoreFailed,
    StoreFull,
    StoreReadOnly,
)

#: KiB of pages a connection keeps in memory, as SQLite writes it: negative.
WRITER_CACHE = -65_536
READER_CACHE = -8_192
BUSY_MS = 5000
#: Seconds between two tries to begin a write, at first and at most. A commit takes about a millisecond; SQLite's own
#: waiting soon sleeps for 10 and more, and lets the lock lie idle.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.0001, 0.002

#: Bytes that SQLite writes at a time, at most: a frame of its log.
_PAGE = 4096 + 24

#: Setting → its value, and the answer to expect.
_SETTINGS: dict[str, tuple[str, object]] = {
    "busy_timeout": (str(BUSY_MS), BUSY_MS),
    "journal_mode": ("WAL", "wal"),
    "synchronous": ("FULL", 2),
    "foreign_keys": ("ON", 1),
    "trusted_schema": ("OFF", 0),
    "journal_size_limit": ("67108864", 67_108_864),
    # The store copies the log into the database by itself: SQLite would do it behind a commit and hide that it failed.
    "wal_autocheckpoint": ("0", 0),
    "cache_size": (str(WRITER_CACHE), WRITER_CACHE),
}
if sys.platform == "darwin":
    # Its fsync stops at the drive's cache.
    _SETTINGS |= {"fullfsync": ("ON", 1), "checkpoint_fullfsync": ("ON", 1)}
_READER_SETTINGS: dict[str, tuple[str, object]] = {
    "busy_timeout": (str(BUSY_MS), BUSY_MS),
    "trusted_schema": ("OFF", 0),
    "query_only": ("ON", 1),
    "cache_size": (str(READER_CACHE), READER_CACHE),
}


#: How a database is opened: to read, to read and write, or to read what nobody can change.
Mode = Literal["ro", "rw", "immutable"]
_MODES: dict[Mode, str] = {"ro": "mode=ro", "rw": "mode=rw", "immutable": "mode=ro&immutable=1"}


def connect(path: str, mode: Mode) -> sqlite3.Connection:
    """Open a database that exists. Transactions are begun and ended by hand; one thread at a time may use it."""
    uri = f"file:{quote(os.fsencode(path))}?{_MODES[mode]}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, cached_statements=256)


def open_writer(path: str) -> sqlite3.Connection:
    """Open the connection all writes of this process go through."""
    return _open(path, "rw", _SETTINGS)


def open_reader(path: str, mode: Mode) -> sqlite3.Connection:
    """Open a connection for reading. If `mode` is `rw` it may take part in recovering the log of a dead writer."""
    return _open(path, mode, _READER_SETTINGS)


def is_mounted_readonly(path: str) -> bool:
    """Tell whether the file system of a database takes no writes."""
    try:
        return bool(os.statvfs(os.path.dirname(path) or ".").f_flag & os.ST_RDONLY)  # noqa: PTH120 - may be no text
    except OSError:
        return False


def reading_mode(path: str) -> Mode:
    """Choose how to open a database that is only to be read.

    SQLite makes files beside a database even to read it. On a file system that takes no writes it needs them to be
    there, or to be told that nobody can change the database; then it does not look at the log.

    Raises StoreReadOnly for a log that cannot be read there.
    """
    if not is_mounted_readonly(path):
        return "ro"
    if not size_of(f"{path}-wal"):
        return "immutable"
    if os.path.lexists(f"{path}-shm"):
        return "ro"
    raise StoreReadOnly(
        f"{path}: the file system is mounted read-only, and SQLite cannot read the log {path}-wal there without its "
        "index. Nothing was opened: without the log the newest commits would be missing.",
        hint="Copy the database and its log to a disk that can be written, and open the copy.",
        file=path,
    )


def size_of(path: str) -> int:
    """Give the bytes of a file; 0 if there is none."""
    try:
        return os.stat(path).st_size  # noqa: PTH116 - the path may be bytes that are no text
    except OSError:
        return 0


def _open(path: str, mode: Mode, settings: dict[str, tuple[str, object]]) -> sqlite3.Connection:
    try:
        db = connect(path, mode)
    except sqlite3.Error as error:
        raise translated(error, path) from error
    try:
        for name, (value, expected) in settings.items():
            demand_setting(db, path, name, value, expected)
    except sqlite3.Error as error:
        db.close()
        raise translated(error, path) from error
    except BaseException:
        db.close()
        raise
    return db


def close_keeping_log(connections: Sequence[sqlite3.Connection], path: str) -> None:
    """Close connections after a failure, without the last of them copying the log into the database and removing it.

    What was copied before may be gone from the database although it can be read; the log has it all, and the next to
    open copies it from its beginning. Hence a guard that is open while the others close, so that none of them is the
    last; and it may only read, so it cannot take the lock that copying needs.

    Raises sqlite3.Error if there can be no guard; then nothing was closed.
    """
    guard = connect(path, "ro")
    try:
        guard.execute("PRAGMA schema_version").fetchone()
        for db in connections:
            db.close()
    finally:
        guard.close()


def demand_setting(db: sqlite3.Connection, path: str, name: str, value: str, expected: object) -> None:
    """Set one thing and read it back. Raises StoreFailed if the answer is not the one expected."""
    db.execute(f"PRAGMA {name} = {value}").fetchall()
    answer = db.execute(f"PRAGMA {name}").fetchone()[0]
    if answer != expected:
        raise StoreFailed(
            f"{path}: SQLite answers {answer!r} to {name} = {value}; without that setting nothing can be promised. "
            "Nothing was opened.",
            hint="Use a local disk and an unmodified SQLite of at least 3.37.",
            file=path,
        )


def wait_for_others(db: sqlite3.Connection, milliseconds: int) -> None:
    """Let SQLite itself wait so long for locks, or not at all."""
    db.execute(f"PRAGMA busy_timeout = {milliseconds}").fetchall()


def begin_immediate(db: sqlite3.Connection, path: str, patience_s: float) -> None:
    """Begin a write transaction, waiting for other writers. Raises StoreBusy after `patience_s` seconds.

    It waits by itself: the connection should be one that does not (`busy_timeout` 0).
    """
    clock = SystemClock()
    deadline = clock.monotonic() + patience_s
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if _kind(error) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise
            if clock.monotonic() >= deadline:
                raise translated(error, path) from error
        else:
            return
        threading.Event().wait(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _kind(error: sqlite3.Error) -> int:
    """Give the error's primary code; 0 if it came from Python's own layer."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def translated(error: sqlite3.Error, path: str) -> HoldfastError:
    """Say in our words what SQLite reports."""
    kind, text = _kind(error), str(error)
    facts = {"file": path}
    if kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy(
            f"{path}: other processes kept the database locked. Nothing was written.",
            hint="Send the same command again; look for a process that holds a transaction open.",
            **facts,
        )
    if kind == sqlite3.SQLITE_FULL:
        return StoreFull(
            f"{path}: {text}. Nothing more is acknowledged until there is space.",
            hint="Make space, then send the same command again.",
            **facts,
        )
    if kind in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreDamaged(
            f"{path}: {text}. Nothing was changed.",
            hint="Copy the database with its -wal file aside, then restore a backup.",
            **facts,
        )
    if kind == sqlite3.SQLITE_READONLY:
        return StoreReadOnly(
            f"{path}: {text}. Nothing was written.",
            hint="SQLite writes beside the database even to read it: check who may write to it and to its directory.",
            **facts,
        )
    if kind == sqlite3.SQLITE_CONSTRAINT:
        return CorruptState(
            f"{path}: {text}: a record contradicts another. Nothing was written.",
            hint="Run `holdfast store check` on it.",
            **facts,
        )
    if kind == sqlite3.SQLITE_CANTOPEN:
        return StoreFailed(
            f"{path}: {text}. Nothing was written.",
            hint="SQLite makes files beside the database even to read it: check who may write to its directory, the "
            "space there, and how many files the process may have open.",
            **facts,
        )
    if kind == sqlite3.SQLITE_IOERR and _has_reached_size_limit(path):
        return StoreFailed(
            f"{path}: {text}: a file has reached the file size limit of this process. The outcome of what was in "
            "flight is unknown.",
            hint="Raise the limit (`ulimit -f`), reopen the store, then send the same command again.",
            **facts,
        )
    return StoreFailed(f"{path}: {text}. The outcome of what was in flight is unknown.", **facts)


def _has_reached_size_limit(path: str) -> bool:
    """Tell whether the next page would not fit the limit that a process has for the size of a file."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit == resource.RLIM_INFINITY:
        return False
    return any(size_of(name) + _PAGE > limit for name in (path, f"{path}-wal"))
