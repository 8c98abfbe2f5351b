"""The file: made whole or not at all, recognised before it is used, brought up to date in one transaction.

A new database is built beside its place and linked there when it is complete and synced, so nobody ever meets half of
one, and of two processes that make it at once one wins. An empty file is therefore never ours: it is refused, like
everything else that does not carry our mark, and never overwritten.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import stat
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

from holdfast.errors import (
    InvalidValue,
    MigrationFailed,
    NoPath,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFailed,
    StoreReadOnly,
    TooNew,
)
from holdfast.failpoints import reach
from holdfast.journal.fs_errors import kind_of
from holdfast.model.records import Queue
from holdfast.stores.sqlite.connections import begin_immediate, connect, reading_mode, size_of, translated
from holdfast.stores.sqlite.rows import Meta, queue_row, sum_of
from holdfast.stores.sqlite.statements import SQL, read_sql, split

#: Marks a database as ours ("Hold").
APPLICATION_ID = 0x486F_6C64
VERSION = 7

Migration = Callable[[sqlite3.Connection], None]


def _to_2(db: sqlite3.Connection) -> None:
    """Give queues their limits, and the store its places beside the records."""
    for statement in split(read_sql("schema_v2.sql")):
        db.execute(statement)
    for namespace, name, paused, reason in db.execute("SELECT namespace, name, paused, pause_reason FROM queues_v1"):
        db.execute(SQL["save_queue"], queue_row(Queue(namespace, name, paused != 0, reason)))
    db.execute("DROP TABLE queues_v1")


def _to_3(db: sqlite3.Connection) -> None:
    """Make room for templates and schedules."""
    for statement in split(read_sql("schema_v3.sql")):
        db.execute(statement)


def _to_4(db: sqlite3.Connection) -> None:
    """Make room for reservations, groups, webhooks and deliveries."""
    for statement in split(read_sql("schema_v4.sql")):
        db.execute(statement)


def _to_5(db: sqlite3.Connection) -> None:
    """Make room for workflow instances."""
    for statement in split(read_sql("schema_v5.sql")):
        db.execute(statement)


def _to_6(db: sqlite3.Connection) -> None:
    """Make room for who started an instance: nobody is known of those that are there."""
    summed = {table: _summed_anew(db, table) for table in ("instances", "orchestrator_queue")}
    for statement in split(read_sql("schema_v6.sql")):
        db.execute(statement)
    for table, sums in summed.items():
        for total, row in sums:
            db.execute(f"UPDATE {table} SET sum = ? WHERE rowid = ?", (total, row))  # noqa: S608 - one of two names


def _to_7(db: sqlite3.Connection) -> None:
    """Let ready jobs be found by their task."""
    for statement in split(read_sql("schema_v7.sql")):
        db.execute(statement)


def _summed_anew(db: sqlite3.Connection, table: str) -> list[tuple[int, int]]:
    """Give the sums of rows that will have one field more, empty, as their last; and which rows.

    What is not as it was written keeps its old sum, which will fit as little: checking finds it as before.
    """
    kept = [name for _, name, *_ in db.execute(f"PRAGMA table_info({table})") if name not in ("row", "sum")]
    rows = db.execute(f"SELECT {', '.join(kept)}, sum, rowid FROM {table}")  # noqa: S608 - names of our own schema
    return [
        (sum_of([*fields, None, blob]), row) for *fields, blob, total, row in rows if total == sum_of([*fields, blob])
    ]


#: Version → the step that leads from it to the next.
MIGRATIONS: Mapping[int, Migration] = {1: _to_2, 2: _to_3, 3: _to_4, 4: _to_5, 5: _to_6, 6: _to_7}


def make_if_missing(path: str) -> None:
    """Make an empty store at `path`, unless there is something already."""
    # The log is looked for first: whoever makes a store makes its database before its log.
    orphan = size_of(f"{path}-wal") > 0
    if os.path.lexists(path):
        return
    if orphan:
        raise StoreDamaged(
            f"{path}: the database is gone, and its log {path}-wal is there. Nothing was made: a new database would "
            "take over what the log of the old one says.",
            hint="Restore the database; if it is not wanted any more, move the log away.",
            file=path,
        )
    place = Path(path)
    draft = place.with_name(f".{place.name}.new-{secrets.token_hex(8)}")
    try:
        _build(str(draft), path)
        reach("sqlite.built")
        # A link, not a rename: it fails if another process was faster, and theirs stays.
        with suppress(FileExistsError):
            os.link(draft, place)
        _sync(place.parent)
    except OSError as error:
        raise _not_made(path, kind_of(error), str(error.strerror)) from error
    finally:
        for leftover in (draft, Path(f"{draft}-wal"), Path(f"{draft}-shm"), Path(f"{draft}-journal")):
            # What cannot be removed was not made, or lies on a disk that the error above already tells of.
            with suppress(OSError):
                leftover.unlink()


def _not_made(path: str, kind: type[StoreError], reason: str) -> StoreError:
    return kind(
        f"{path}: the store cannot be made: {reason}. Nothing is there.",
        hint="Check the path, its permissions and the space on its disk, then open it again.",
        file=path,
    )


def _build(draft: str, path: str) -> None:
    fd = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(fd, 0o600)  # whatever the umask; SQLite gives its other files the same mode
    finally:
        os.close(fd)
    try:
        db = connect(draft, "rw")
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            _copy_blank(db)
            db.execute(SQL["save_meta"], Meta(secrets.token_hex(16), None, 0, None, 0, "", 0, 0, 0).row())
            # Closing would copy the log into the database too, but would not tell if it failed; and the log is dropped.
            busy, *_ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            db.close()
    except sqlite3.Error as error:
        failure = type(translated(error, path))
        kind = failure if issubclass(failure, StoreError) else StoreFailed
        raise _not_made(path, kind, str(error)) from error
    if busy:
        raise _not_made(path, StoreBusy, "another program uses the database that is being made")
    _sync(Path(draft))


@cache
def _blank() -> bytes:
    """Give the pages of a database with all tables and nothing in them. Laid out once: that is a hundred statements."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.execute("BEGIN")
        lay_out(db)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute("COMMIT")
        return db.serialize()


def _copy_blank(db: sqlite3.Connection) -> None:
    with closing(sqlite3.connect(":memory:")) as blank:
        blank.deserialize(_blank())
        blank.backup(db)


def lay_out(db: sqlite3.Connection) -> None:
    """Make all tables in an empty database. It takes the steps of an old one, so that the two cannot differ."""
    for statement in split(read_sql("schema_v1.sql")):
        db.execute(statement)
    for step in MIGRATIONS.values():
        step(db)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def demand_ours(path: str, *, readonly: bool = False) -> None:
    """Refuse whatever is not a Holdfast database this version can read. Changes nothing."""
    try:
        found_there = os.stat(path)  # noqa: PTH116 - the path may be bytes that are no text
    except FileNotFoundError:
        raise StoreReadOnly(f"{path}: there is no such file, and none is made when reading.", file=path) from None
    except OSError as error:
        raise StoreFailed(f"{path}: cannot be opened: {error.strerror}.", file=path) from error
    if not stat.S_ISREG(found_there.st_mode):
        raise StoreFailed(
            f"{path}: is no file but a directory, pipe or device. Nothing was changed.",
            hint="Give the path of a file; a directory is a `wal:` store's.",
            file=path,
        )
    if found_there.st_size == 0:
        raise StoreDamaged(
            f"{path}: the file is empty. A store is never empty; nothing was written.",
            hint="If it was made by mistake, remove it and open again; else restore a copy.",
            file=path,
        )
    try:
        db = connect(path, reading_mode(path) if readonly else "ro")
        try:
            mark = db.execute("PRAGMA application_id").fetchone()[0]
            found = db.execute("PRAGMA user_version").fetchone()[0]
        finally:
            db.close()
    except sqlite3.Error as error:
        raise translated(error, path) from error
    if mark != APPLICATION_ID:
        raise InvalidValue(
            f"{path}: a database, but not one of Holdfast (application_id {mark}). Nothing was changed.",
            hint="Give another path.",
            field="path",
            file=path,
        )
    demand_readable(path, found, VERSION)
    if readonly and found < VERSION:
        raise StoreReadOnly(
            f"{path}: the schema has version {found}, this program reads {VERSION}, and opening for reading migrates "
            "nothing. Nothing was changed.",
            hint=f"Open it for writing once: start a worker, or run `holdfast store snapshot sqlite:{path}`.",
            found=found,
            supported=VERSION,
            file=path,
        )


def demand_readable(path: str, found: int, supported: int) -> None:
    """Refuse a version newer than ours."""
    if found > supported:
        raise TooNew(
            f"{path}: the schema has version {found}; this program reads up to {supported}. Nothing was changed.",
            hint="Use the version of Holdfast that wrote it, or a newer one.",
            found=found,
            supported=supported,
            file=path,
        )


def migrate(
    db: sqlite3.Connection,
    path: str,
    patience_s: float,
    *,
    migrations: Mapping[int, Migration] = MIGRATIONS,
    version: int = VERSION,
) -> None:
    """Bring the database to `version`: all steps in one transaction, run by whoever gets the lock first."""
    if db.execute("PRAGMA user_version").fetchone()[0] == version:
        return
    begin_immediate(db, path, patience_s)
    try:
        # Looked at again under the lock: another process may have done it meanwhile.
        found = db.execute("PRAGMA user_version").fetchone()[0]
        demand_readable(path, found, version)
        for step in range(found, version):
            _step(db, path, step, migrations)
        db.execute(f"PRAGMA user_version = {version}")
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _step(db: sqlite3.Connection, path: str, step: int, migrations: Mapping[int, Migration]) -> None:
    migration = migrations.get(step)
    if migration is None:
        raise NoPath(
            f"{path}: no migration leads from version {step} to {step + 1}. Nothing was changed.",
            hint="Open it with a version in between first.",
            file=path,
        )
    try:
        migration(db)
    except Exception as error:
        raise MigrationFailed(
            f"{path}: the migration from version {step} to {step + 1} failed: {error}. Nothing was changed.", file=path
        ) from error
