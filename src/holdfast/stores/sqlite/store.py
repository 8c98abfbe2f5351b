"""`sqlite:` — one file, many processes of one host, one transaction a batch.

Writes go through the one writer connection of the process, under a lock; each batch is BEGIN IMMEDIATE … COMMIT with
`synchronous=FULL`, so what was committed survives power loss. Reads use connections of their own, each inside one read
transaction: they see one state and block nobody.

Order of a commit: pending records, events and the store's own row are written; COMMIT; only then is what was added
known as durable and are waiters woken. A failed COMMIT leaves the outcome open, so nothing more is written by this
opening.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import chain
from typing import NamedTuple

from holdfast.clock import Clock, SystemClock
from holdfast.errors import HoldfastError, StoreClosed, StoreFailed, StoreFull, StoreReadOnly
from holdfast.failpoints import reach
from holdfast.journal.filesystem import after_fork_in_child, filesystem_kind, is_network
from holdfast.model.times import Timestamp
from holdfast.stores.protocol import Durability, Entry, Finding, Promises
from holdfast.stores.sidecar.sessions import LockedSessions
from holdfast.stores.sqlite.batch import Batch
from holdfast.stores.sqlite.caller_transaction import LateBell, joined
from holdfast.stores.sqlite.check import findings
from holdfast.stores.sqlite.commit_marker import CommitMarker, claimed, demand_log
from holdfast.stores.sqlite.connections import (
    BUSY_MS,
    Mode,
    begin_immediate,
    close_keeping_log,
    demand_setting,
    is_mounted_readonly,
    open_reader,
    open_writer,
    reading_mode,
    translated,
    wait_for_others,
)
from holdfast.stores.sqlite.fork_guard import inside
from holdfast.stores.sqlite.lookups import Lookups
from holdfast.stores.sqlite.rewrite_wal import write_log_again
from holdfast.stores.sqlite.schema import demand_ours, make_if_missing, migrate
from holdfast.stores.sqlite.shared_index import make_index
from holdfast.stores.sqlite.sidecar import Database, SqliteBlobs, SqliteLogs, SqliteRoster
from holdfast.stores.sqlite.statements import SQL
from holdfast.stores.sqlite.wakeup import Bells
from holdfast.stores.sqlite.wal_cycle import Cycle, cycle_reaching

log = logging.getLogger(__name__)

#: How long a write waits for other processes, in seconds.
PATIENCE_S = 30.0
#: How long what is soft waits for them.
SOFT_PATIENCE_S = 5.0
#: Bytes of the write-ahead log at which a commit copies it into the database.
COPY_AT = 4 * 1024 * 1024
#: Bytes of it from which on it is reported each time it cannot be cut: some reader keeps its view too long.
LONG_LOG = 16 * COPY_AT
#: Events read at a time by `feed`.
PAGE = 500
#: Idle connections kept for readers.
SPARE_READERS = 4


class _Copied(NamedTuple):
    """The last time the log was copied: in which cycle, from which length on again, and whether all of it was."""

    salts: bytes
    again_at: int
    whole: bool


class SqliteStore:
    """A store in one SQLite database."""

    promises = Promises(name="sqlite", durability=Durability.SYNC, many_processes=True, reopens=True)

    def __init__(
        self, path: str, writer: sqlite3.Connection | None, patience_s: float, clock: Clock | None = None
    ) -> None:
        """Use `open` instead."""
        self.path = path
        self._patience_s = patience_s
        #: None: opened for reading.
        self._writer = writer
        #: How connections for reading are opened.
        self._mode: Mode = reading_mode(path) if writer is None else "rw"
        self._batch = None if writer is None else Batch(writer)
        self._writing = threading.Lock()
        self._readers: list[sqlite3.Connection] = []
        self._reading = threading.Lock()
        self._watch: sqlite3.Connection | None = None
        self._watching = threading.Lock()
        #: What the watching connection saw last: a version of the data, and the number of its last event.
        self._seen = (-1, -1)
        self._bells = Bells(path)
        self._marker = CommitMarker(path)
        self._late = LateBell(self._last_seq, self._bells.ring)
        #: Which files the database and its log are; while we have them open, they stay the same.
        self._files = _identities(path)
        #: They were removed or replaced beneath us.
        self._lost = False
        self._failure: HoldfastError | None = None
        self._copied = _Copied(b"", 0, whole=False)
        self._closed = False
        self._of_parent = False
        self._clock = clock = clock or SystemClock()
        database = Database(path, self._write_beside, self._read_beside)
        self.blobs = SqliteBlobs(database, clock)
        self.logs = SqliteLogs(database)
        readonly = writer is None or is_network(filesystem_kind(path))
        self.sessions = LockedSessions(f"{path}-sessions", f"{path}-waiting", readonly=readonly)
        self.workers = SqliteRoster(database, clock, self.sessions, self._reopened if writer is None else None)
        _open_stores.add(self)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        network: bool = False,
        readonly: bool = False,
        patience_s: float = PATIENCE_S,
        clock: Clock | None = None,
    ) -> SqliteStore:
        """Open the store at `path`, making it if nothing is there.

        - `network`: accept a network file system, where locks and syncs promise less.
        - `patience_s`: how long a write waits for other processes before it raises StoreBusy.
        - Raises InvalidValue or StoreDamaged for a file that is not ours, TooNew for one of a newer version.
        """
        place = os.path.realpath(path)
        kind = filesystem_kind(place)
        if not network and is_network(kind):
            raise StoreFailed(
                f"{place} lies on {kind}, a network file system, where locks and syncs promise less. "
                "Nothing was opened.",
                hint="Use a local disk, or add ?network=allow to the URL if you accept that.",
                kind=kind,
                file=place,
            )
        with inside():
            return cls(place, cls._opened(place, patience_s, readonly=readonly), patience_s, clock)

    @staticmethod
    def _opened(place: str, patience_s: float, *, readonly: bool) -> sqlite3.Connection | None:
        """Give the writer of a store that is ours, of our version and durable; none for reading."""
        if not readonly:
            if is_mounted_readonly(place):
                raise StoreReadOnly(
                    f"{place}: the file system is mounted read-only. Nothing was opened.",
                    hint="Open it for reading only, or make the file system writable.",
                    file=place,
                )
            make_if_missing(place)
            if filesystem_kind(place) == "btrfs":
                make_index(place)
        demand_ours(place, readonly=readonly)
        if readonly:
            return None
        claim = claimed(place)  # before the database is read: others may commit meanwhile
        writer = open_writer(place)
        try:
            demand_log(writer, place, claim)
            write_log_again(writer, place, patience_s)
            migrate(writer, place, patience_s)
            wait_for_others(writer, 0)  # from here on `begin_immediate` does, and nobody for a reader
        except sqlite3.Error as error:
            writer.close()
            raise translated(error, place) from error
        except BaseException:
            writer.close()
            raise
        return writer

    # --- writing ----------------------------------------------------------------------------------------------------

    @contextmanager
    def write(self) -> Iterator[Batch]:
        """Open a batch; it is durable when left normally, gone otherwise."""
        self._demand_open()
        with inside(), self._writing:
            batch, db = self._demand_writer()
            try:
                begin_immediate(db, self.path, self._patience_s)
                reach("sqlite.begun")
                batch.begin()
                yield batch
                added = self._commit(batch, db)
            except BaseException as error:
                self._take_back(batch, db)
                # What a look-up raised may come back wrapped; it is the store's failure all the same.
                for cause in (error, error.__cause__):
                    if isinstance(cause, sqlite3.Error):
                        raise self._remember(translated(cause, self.path)) from error
                raise
            if added:
                self._copy_long_log(db)
        if added:
            self._bells.ring()

    @contextmanager
    def join(self, connection: object) -> Iterator[Batch]:
        """Open a batch inside a transaction of the caller on this database; waiters are woken soon after its commit."""
        self._demand_writer()
        with joined(connection, self.path) as batch:
            yield batch
        if batch.has_changes:
            self._late.expect()

    def blobs_within(self, connection: object) -> SqliteBlobs:
        """Give the blobs of a transaction that was joined: our own writer would wait for the caller's for ever."""
        assert isinstance(connection, sqlite3.Connection)
        db = connection

        def here() -> AbstractContextManager[sqlite3.Connection]:
            return nullcontext(db)

        return SqliteBlobs(Database(self.path, here, here), self._clock)

    def _commit(self, batch: Batch, db: sqlite3.Connection) -> bool:
        """Make the batch durable; tell whether there was anything in it."""
        batch.finish()
        if not batch.has_changes:
            db.execute("ROLLBACK")
            return False
        batch.write_out()
        reach("sqlite.committing")
        db.execute("COMMIT")
        reach("sqlite.committed")
        self._demand_files()
        batch.committed()
        self._marker.note(batch.store_id, batch.seq)
        return True

    def _demand_files(self) -> None:
        """Refuse to acknowledge what was written into files that nobody will find again."""
        if _identities(self.path) == self._files:
            return
        self._lost = True
        self._failure = StoreFailed(
            f"{self.path}: the database or its log was removed or replaced while it was open. What was in flight is "
            "not acknowledged; reopening shows whether it is there.",
            file=self.path,
        )
        raise self._failure

    def _copy_long_log(self, db: sqlite3.Connection) -> None:
        """Copy the log into the database once it is long, without waiting for anybody. The commit before it stands.

        A failure ends the writing: copying goes on where it was left, and a sync that failed may have taken away what
        had been copied by then. Only the next to open begins anew.
        """
        cycle = self._long_cycle()
        if cycle is None:
            return
        size, whole = _log_size(self.path), False
        try:
            _, frames, copied = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            size, whole = frames * cycle.frame, copied == frames
        except sqlite3.Error as error:
            failure = translated(error, self.path)
            if not isinstance(failure, StoreFull):
                self._failure = failure
        # Readers, or a full disk, may keep it from beginning anew: then it is tried again when the log has grown.
        stuck = not whole or (self._copied.whole and self._copied.salts == cycle.salts)
        self._copied = _Copied(cycle.salts, size + COPY_AT // 4, whole=whole)
        if size > LONG_LOG and stuck:
            log.warning("store.log_growing", extra={"file": self.path, "bytes": size})

    def _long_cycle(self) -> Cycle | None:
        """Give the cycle of the log if it is long enough to be copied, for the first time or again."""
        if _log_size(self.path) < COPY_AT:
            return None
        try:
            cycle = cycle_reaching(self.path, COPY_AT)
            if cycle is not None and cycle.salts == self._copied.salts:
                cycle = cycle_reaching(self.path, self._copied.again_at)
        except OSError:
            return None  # the next commit finds out what became of the log
        return cycle

    def _take_back(self, batch: Batch, db: sqlite3.Connection) -> None:
        batch.finish()
        batch.forget()
        if db.in_transaction:
            with suppress(sqlite3.Error):
                db.execute("ROLLBACK")

    def _remember(self, error: HoldfastError) -> HoldfastError:
        """Stop taking writes after an error that leaves the outcome open."""
        if isinstance(error, StoreFailed):
            self._failure = error
        return error

    def trim(self, before: Timestamp, limit: int, *, upto: int = 0) -> int:
        """Forget events older than `before` or numbered up to `upto`, at most `limit`."""
        with self.write() as batch:
            return batch.trim(before, limit, upto)

    @contextmanager
    def _write_beside(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction for what lies beside the records; the next commit's sync covers it.

        By the one writer, under its lock: a second connection would fight with it for SQLite's, and each of its commits
        would make the batch forget what it knows.
        """
        self._demand_open()
        with inside(), self._writing:
            _, db = self._demand_writer()
            try:
                db.execute("PRAGMA synchronous = NORMAL")
                begin_immediate(db, self.path, SOFT_PATIENCE_S)
                yield db
                db.execute("COMMIT")
            except sqlite3.Error as error:
                # It is the same log: a write or a sync of it that failed is final, whatever it was for.
                raise self._remember(translated(error, self.path)) from error
            finally:
                self._sync_again(db)

    def _sync_again(self, db: sqlite3.Connection) -> None:
        """Go back to commits that are synced, or take no more of them."""
        try:
            if db.in_transaction:
                db.execute("ROLLBACK")
            demand_setting(db, self.path, "synchronous", "FULL", 2)
        except (sqlite3.Error, StoreFailed) as error:
            self._failure = StoreFailed(f"{self.path}: commits are not synced any more: {error}.", file=self.path)
            raise self._failure from error

    @contextmanager
    def _read_beside(self) -> Iterator[sqlite3.Connection]:
        """Open one view of what lies beside the records."""
        with self.read() as view:
            yield view._db  # noqa: SLF001 - a view is a connection in a transaction

    @contextmanager
    def _reopened(self) -> Iterator[SqliteRoster]:
        """Open the file for writing, as one that was opened for reading cannot."""
        other = SqliteStore.open(self.path, network=True)
        try:
            yield other.workers
        finally:
            other.close()

    # --- reading ----------------------------------------------------------------------------------------------------

    @contextmanager
    def read(self) -> Iterator[Lookups]:
        """Open a view of what is durable."""
        with inside():
            db = self._reader()
            view = Lookups(db)
            healthy = False
            try:
                db.execute("BEGIN")
                _ = view.seq  # SQLite fixes the state at the first read, not at BEGIN
                yield view
                healthy = True
            except sqlite3.Error as error:
                raise translated(error, self.path) from error
            except BaseException:
                healthy = True
                raise
            finally:
                view.finish()
                self._give_back(db, healthy=healthy)

    def feed(self, after: int) -> Iterator[Entry]:
        """Walk the durable events above `after`."""
        with self.read() as view:
            last = view.seq
        # The first page is read at once, so that a number that is too old is refused here.
        return chain(self._page(after, last), self._later_pages(after, last))

    def _page(self, after: int, last: int) -> list[Entry]:
        with self.read() as view:
            return view.entries(after, last, PAGE)

    def _later_pages(self, after: int, last: int) -> Iterator[Entry]:
        after += PAGE
        while after < last:
            yield from self._page(after, last)
            after += PAGE

    def wait(self, after: int, timeout: float | None) -> bool:
        """Wait for a durable event above `after`, of this process or another. Closing lets everybody go."""
        self._demand_open()
        clock = SystemClock()
        deadline = None if timeout is None else clock.monotonic() + timeout
        while True:
            # Before looking, so that whatever comes after the look rings.
            count = self._bells.count()
            try:
                if self._last_seq() > after:
                    return True
            except StoreClosed:
                return False
            left = self._bells.pause_s if deadline is None else deadline - clock.monotonic()
            if left <= 0:
                return False
            self._bells.sleep(count, min(left, self._bells.pause_s))
            if self._closed:
                return False

    def _last_seq(self) -> int:
        """Give the number of the last durable event; asks the tables only if the data has changed."""
        with inside(), self._watching:
            self._demand_open()
            try:
                if self._watch is None:
                    self._watch = open_reader(self.path, self._mode)
                version = self._watch.execute("PRAGMA data_version").fetchone()[0]
                if version != self._seen[0]:
                    self._seen = (version, self._watch.execute(SQL["last_seq"]).fetchone()[0])
            except sqlite3.Error as error:
                raise translated(error, self.path) from error
            return self._seen[1]

    # --- looking after the file -------------------------------------------------------------------------------------

    def check(self) -> list[Finding]:
        """Read everything and list what is wrong."""
        with inside():
            db = self._reader()
            try:
                return findings(db, self.path)
            finally:
                self._give_back(db, healthy=False)

    def snapshot(self) -> None:
        """Copy the log into the database and cut it, as far as readers let us."""
        self._demand_open()
        with inside(), self._writing:
            _, db = self._demand_writer()
            try:
                # No `optimize`: statistics would let the planner leave the indexes each statement was written for.
                wait_for_others(db, BUSY_MS)
                try:
                    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                finally:
                    wait_for_others(db, 0)
            except sqlite3.Error as error:
                raise self._remember(translated(error, self.path)) from error

    def close(self) -> None:
        """Close every connection. The last process to close copies the log into the database, unless a write failed."""
        if self._of_parent or self._closed:
            return
        # First, so that a waiter who wakes finds it closed.
        self._closed = True
        self.sessions.close()
        self._bells.close()
        with inside():
            with self._writing, self._reading, self._watching:
                mine = [*self._readers, *(db for db in (self._watch, self._writer) if db is not None)]
                self._readers.clear()
                if self._writer is not None:
                    with suppress(sqlite3.Error):
                        wait_for_others(self._writer, BUSY_MS)  # another process may be closing too
                self._watch = self._writer = self._batch = None
            self._drop(mine)
            self._marker.close()

    # --- connections ------------------------------------------------------------------------------------------------

    def _reader(self) -> sqlite3.Connection:
        self._demand_open()
        with self._reading:
            if self._readers:
                return self._readers.pop()
        return open_reader(self.path, self._mode)

    def _give_back(self, db: sqlite3.Connection, *, healthy: bool) -> None:
        if self._of_parent:
            return
        with suppress(sqlite3.Error):
            if db.in_transaction:
                db.execute("ROLLBACK")
        with self._reading:
            if healthy and not self._closed and len(self._readers) < SPARE_READERS:
                self._readers.append(db)
                return
        self._drop([db])

    def _drop(self, connections: Sequence[sqlite3.Connection]) -> None:
        """Close connections; after a failure so that the log stays, or not at all.

        Of lost files the log is the one to lose: closing copies what we still have of it into the database, and SQLite
        itself leaves alone a database that is no longer in its place.
        """
        if self._failure is None or self._lost:
            for db in connections:
                with suppress(sqlite3.Error):
                    db.close()
            return
        try:
            close_keeping_log(connections, self.path)
        except sqlite3.Error:
            _never_closed.extend(connections)

    def _demand_open(self) -> None:
        if self._of_parent:
            raise StoreClosed(
                f"{self.path}: the store was opened before the process forked and belongs to the parent.",
                hint="Open the store again in the child.",
                file=self.path,
            )
        if self._closed:
            raise StoreClosed(f"{self.path}: the store was closed.", file=self.path)

    def _demand_writer(self) -> tuple[Batch, sqlite3.Connection]:
        self._demand_open()
        if self._failure is not None:
            raise StoreFailed(
                f"{self.path}: an earlier write failed, and the store takes no more: {self._failure.message}",
                file=self.path,
            )
        if self._writer is None or self._batch is None:
            why = " on a file system that is mounted read-only" if self._mode == "immutable" else ""
            raise StoreReadOnly(
                f"{self.path}: the store was opened for reading{why}. Nothing was written.", file=self.path
            )
        return self._batch, self._writer


def _identities(path: str) -> list[tuple[int, int] | None]:
    """Tell which files the database and its log are, by device and number."""
    found: list[tuple[int, int] | None] = []
    for name in (path, f"{path}-wal"):
        try:
            at = os.stat(name)  # noqa: PTH116 - the path may be bytes that are no text
        except OSError:
            found.append(None)
        else:
            found.append((at.st_dev, at.st_ino))
    return found


def _log_size(path: str) -> int:
    """Give the length of the write-ahead log in bytes, with what earlier cycles have left behind."""
    with suppress(OSError):
        return os.stat(f"{path}-wal").st_size  # noqa: PTH116 - the path may be bytes that are no text
    return 0


#: Kept only so that a forked child finds them.
_open_stores: weakref.WeakSet[SqliteStore] = weakref.WeakSet()
#: Connections whose closing would do harm.
_never_closed: list[sqlite3.Connection] = []
#: Connections of the parent. A child must neither use nor close them.
_of_parent: list[object] = []


def _leave_to_parent() -> None:
    for store in list(_open_stores):
        store._of_parent = True  # noqa: SLF001 - the fork concerns this module, not the class's users
        _of_parent.append((store._writer, store._watch, store._readers))  # noqa: SLF001 - the same
        store._bells.leave_to_parent()  # noqa: SLF001 - the same
        store._marker.close()  # noqa: SLF001 - the same
    _open_stores.clear()


after_fork_in_child(_leave_to_parent)
