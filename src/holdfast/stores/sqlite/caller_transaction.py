"""A batch inside a transaction of the caller: on their connection to the same database, and theirs to commit.

The batch is a fresh one that knows nothing: what the store knows between its own batches stays out of it, and the
caller's commit makes the store forget that, as the commit of another process does. A state that was read in the
transaction and is no longer the newest cannot be written upon: SQLite refuses it, so numbers and sums of events never
part. What fails is taken back to a savepoint; the caller's own work stays.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.errors import InvalidOperation, InvalidValue, StoreBusy, StoreError
from holdfast.stores.sqlite.batch import Batch
from holdfast.stores.sqlite.connections import translated
from holdfast.stores.sqlite.statements import COLUMNS

#: Seconds between two looks for a commit of a caller, and how many there are after the last that joined.
LOOK_S = 0.02
LOOKS = 250


@contextmanager
def joined(connection: object, path: str) -> Iterator[Batch]:
    """Open a batch in the caller's transaction; left normally, it has been written there, and nobody was told."""
    if not isinstance(connection, sqlite3.Connection):
        raise InvalidValue(
            f"connection: a {type(connection).__name__} is no sqlite3.Connection. Nothing was stored.",
            field="connection",
        )
    db = connection
    # Rows come as tuples of plain values here, whatever the caller likes to get.
    shown, db.row_factory = db.row_factory, None
    texts, db.text_factory = db.text_factory, str
    try:
        _demand(db, path)
        with _savepoint(db):
            batch = Batch(db)
            try:
                batch.begin()
                yield batch
            finally:
                batch.finish()
            if batch.has_changes:
                batch.write_out()
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_BUSY_SNAPSHOT:
            raise StoreBusy(
                f"{path}: others have written since the transaction began to read. Nothing was stored in it.",
                hint="Begin it with BEGIN IMMEDIATE, and do all of it again.",
                file=path,
            ) from error
        raise translated(error, path) from error
    finally:
        db.row_factory, db.text_factory = shown, texts


@contextmanager
def _savepoint(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("SAVEPOINT holdfast")
    try:
        yield
    except BaseException:
        with suppress(sqlite3.Error):  # a full disk may have ended the whole transaction
            db.execute("ROLLBACK TO holdfast")
            db.execute("RELEASE holdfast")
        raise
    db.execute("RELEASE holdfast")


def _demand(connection: sqlite3.Connection, path: str) -> None:
    """Refuse what is no open transaction of this very database."""
    try:
        files = {name: file for _, name, file in connection.execute("PRAGMA database_list")}
        hidden = {name.lower() for (name,) in connection.execute("SELECT name FROM temp.sqlite_master")}
        (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
    except sqlite3.ProgrammingError as error:  # closed, or of another thread
        raise InvalidOperation(f"connection: {error} Nothing was stored.", field="connection") from error
    if not _same(files["main"], path):
        raise InvalidOperation(
            f"connection: it is open on {files['main'] or 'a database in memory'}, not on {path}. Nothing was stored.",
            hint="Two files cannot be committed as one: keep your tables in the store's database, or enqueue after "
            "your own commit.",
            field="connection",
            file=path,
        )
    if not connection.in_transaction:
        raise InvalidOperation(
            "connection: no transaction is open on it, and one that nobody commits would lose the job. "
            "Nothing was stored.",
            hint='Begin one: connection.execute("BEGIN IMMEDIATE").',
            field="connection",
        )
    if not synchronous:
        raise InvalidOperation(
            "connection: its `synchronous` is OFF. A power cut after one of its commits could take away what others "
            "were promised. Nothing was stored.",
            hint="Leave it at FULL, or set NORMAL if your own commits need not last.",
            field="connection",
        )
    if hidden & {*COLUMNS, "events", "blobs"}:
        raise InvalidOperation(
            "connection: a temporary table on it has the name of one of the store's. Nothing was stored.",
            hint="Give it another name.",
            field="connection",
        )


def _same(file: str, path: str) -> bool:
    """Tell whether it is the same database with the same log, which has its name from the database's."""
    try:
        return bool(file) and all(Path(f"{file}{end}").samefile(f"{path}{end}") for end in ("", "-wal"))
    except OSError:
        return False


class LateBell:
    """Rings soon after a transaction of a caller was committed. SQLite tells nobody of that, so a thread looks."""

    def __init__(self, last_seq: Callable[[], int], ring: Callable[[], None]) -> None:
        self._last_seq = last_seq
        self._ring = ring
        self._lock = threading.Lock()
        #: Looks that are left; a transaction that takes longer is seen when waiters look by themselves.
        self._left = 0
        self._pause = threading.Event()

    def expect(self) -> None:
        """Ring soon after the next commit."""
        before = self._last_seq()
        with self._lock:
            idle, self._left = self._left == 0, LOOKS
            if idle:
                threading.Thread(target=self._look, args=(before,), name="holdfast-sqlite-late", daemon=True).start()

    def _look(self, seen: int) -> None:
        try:
            while self._goes_on():
                self._pause.wait(LOOK_S)
                last = self._last_seq()
                if last > seen:
                    seen = last
                    self._ring()
        except StoreError:  # closed, or failed: whoever waits hears of it by themselves
            with self._lock:
                self._left = 0

    def _goes_on(self) -> bool:
        with self._lock:
            self._left -= 1
            return self._left > 0
