"""What lies beside the records of `sqlite:`: blobs, run logs and the roster, as tables of the same file.

Written by the process's one writer in transactions that are not synced by themselves (`synchronous=NORMAL`): the log is
one file in order, so the next commit's sync covers them. A blob is therefore durable no later than the commit that
names it, and what nobody commits behind costs no sync at all.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from hashlib import sha256
from typing import NamedTuple

import msgspec

from holdfast.clock import Clock
from holdfast.errors import BlobMissing, StoreClosed, StoreDamaged, StoreError
from holdfast.failpoints import reach
from holdfast.model.artifacts import copies_in
from holdfast.model.ids import RunId
from holdfast.model.logs import LogLine, NumberedLine, storable
from holdfast.model.times import Timestamp, stamp
from holdfast.model.workers import Wish, WorkerInfo
from holdfast.stores.sidecar.protocol import Sessions
from holdfast.stores.sidecar.worker_liveness import forgotten_before, shown
from holdfast.stores.sqlite.statements import SQL

log = logging.getLogger(__name__)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(WorkerInfo).decode

Opening = Callable[[], AbstractContextManager[sqlite3.Connection]]


class Database(NamedTuple):
    """How the tables are reached."""

    path: str
    #: One transaction of the writer, committed when left normally, not synced.
    write: Opening
    #: One connection for reading.
    read: Opening


class SqliteBlobs:
    """The table `blobs`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def put(self, content: bytes) -> str:
        """Keep content, or renew its age."""
        digest = sha256(content).hexdigest()
        now = stamp(self._clock.now())
        with self._database.write() as db:
            if not db.execute(SQL["renew_blob"], (now, digest)).rowcount:
                db.execute(SQL["insert_blob"], (digest, len(content), now, content))
        reach("blobs.written")
        return digest

    def get(self, digest: str) -> bytes:
        """Give content back, verified."""
        with self._database.read() as db:
            row = db.execute(SQL["blob"], (digest,)).fetchone()
        if row is None:
            raise BlobMissing(f"{self._database.path}: there is no blob {digest:.80}.", digest=digest)
        content = bytes(row[0])
        if sha256(content).hexdigest() != digest:
            raise StoreDamaged(
                f"{self._database.path}: the content of the blob {digest} is not what its name says.",
                hint="Restore a copy of the database.",
                digest=digest,
            )
        return content

    def has(self, digest: str) -> bool:
        """Tell whether it is there."""
        with self._database.read() as db:
            return db.execute(SQL["has_blob"], (digest,)).fetchone() is not None

    def sweep(self, before: Timestamp, limit: int) -> int:
        """Forget what is old and not named.

        Which blobs artifacts name is read ahead of the transaction, because it may be long: a run that adds one
        afterwards has put it not long ago, or was running already when the caller chose `before`.
        """
        with self._database.read() as db:
            old = db.execute(SQL["old_blobs"], (before,))
            first = old.fetchone()
            if first is None:
                return 0
            listed = {digest for (text,) in db.execute(SQL["all_artifacts"]) for digest in copies_in(text)}
            found: list[str] = [] if first[0] in listed else [first[0]]
            for (digest,) in old:
                if len(found) == limit:
                    break
                if digest not in listed:
                    found.append(digest)
            old.close()
        if not found:
            return 0
        with self._database.write() as db:
            # Asked again: a job may have been made from another one's parameters meanwhile, or the content put anew.
            return db.executemany(SQL["forget_blob"], [(digest, before) for digest in found]).rowcount


class SqliteLogs:
    """The table `run_logs`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, lines: Sequence[tuple[RunId, LogLine]]) -> None:
        """Keep lines, numbered behind those of their run."""
        try:
            with self._database.write() as db:
                last: dict[RunId, int] = {}
                rows: list[tuple[str, int, str, str, str, str]] = []
                for run_id, given in lines:
                    if run_id not in last:
                        last[run_id] = db.execute(SQL["last_line"], (run_id,)).fetchone()[0] or 0
                    last[run_id] += 1
                    line = storable(given)
                    rows.append((run_id, last[run_id], line.at, line.stream, line.level, line.text))
                db.executemany(SQL["insert_line"], rows)
        except StoreClosed:
            raise
        except StoreError as error:
            log.warning("logs.lost", extra={"file": self._database.path, "lines": len(lines), "error": error.message})

    def read(self, run_id: RunId, after: int = 0, limit: int = 1000) -> Sequence[NumberedLine]:
        """Give lines."""
        with self._database.read() as db:
            rows = db.execute(SQL["lines_of_run"], (run_id, after, limit)).fetchall()
        return [NumberedLine(number, LogLine(*line)) for number, *line in rows]

    def path(self, run_id: RunId) -> str | None:
        """Give nothing: the lines are in the database."""
        del run_id
        return None

    def sweep(self, before: Timestamp, limit: int) -> int:
        """Forget old lines."""
        with self._database.read() as db:
            if db.execute(SQL["has_old_lines"], (before,)).fetchone() is None:
                return 0
        with self._database.write() as db:
            return db.execute(SQL["forget_lines"], (before, limit)).rowcount


class SqliteRoster:
    """The table `workers`. `reopen` gives another opening of the same file, which may write, for one that may not."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        sessions: Sessions,
        reopen: Callable[[], AbstractContextManager[SqliteRoster]] | None,
    ) -> None:
        self._database = database
        self._clock = clock
        self._sessions = sessions
        self._reopen = reopen

    def note(self, worker: WorkerInfo) -> None:
        """Insert or replace, keeping the wish; forget those that nobody is shown any more."""
        limit = forgotten_before(stamp(self._clock.now()))
        self._soft(
            (SQL["save_worker"], (worker.worker_id, worker.last_seen, _encode(worker).decode())),
            (SQL["forget_workers"], (limit,)),
        )

    def drop(self, worker_id: str) -> None:
        """Forget."""
        self._soft((SQL["delete_worker"], (worker_id,)))

    def _soft(self, *statements: tuple[str, Sequence[object]]) -> None:
        try:
            with self._database.write() as db:
                for statement, values in statements:
                    db.execute(statement, values)
        except StoreClosed:
            raise
        except StoreError as error:
            # The roster is only shown; the worker goes on without.
            log.warning("roster.not_noted", extra={"file": self._database.path, "error": error.message})

    def all(self) -> Sequence[WorkerInfo]:
        """Give all, `lost` and wishes filled in."""
        with self._database.read() as db:
            rows = db.execute(SQL["all_workers"]).fetchall()
        workers = [_worker(text, wish) for text, wish in rows]
        return shown(workers, self._sessions, stamp(self._clock.now()))

    def ask(self, worker_id: str, wish: Wish) -> bool:
        """Leave a wish."""
        if self._reopen is not None:
            with self._reopen() as other:
                return other.ask(worker_id, wish)
        with self._database.write() as db:
            return db.execute(SQL["save_wish"], (wish.value, worker_id)).rowcount > 0

    def wish(self, worker_id: str) -> Wish | None:
        """Give the wish."""
        with self._database.read() as db:
            row = db.execute(SQL["wish"], (worker_id,)).fetchone()
        return None if row is None or row[0] is None else Wish(row[0])


def _worker(text: str, wish: str | None) -> WorkerInfo:
    worker = _decode(text)
    return worker if wish is None else msgspec.structs.replace(worker, wish=Wish(wish))
