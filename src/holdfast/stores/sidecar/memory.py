"""Beside the records of `memory:`: dicts. Each part has a lock of its own and takes no other while holding it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import sha256

import msgspec

from holdfast.clock import Clock
from holdfast.errors import BlobMissing
from holdfast.model.ids import RunId, Token
from holdfast.model.logs import LogLine, NumberedLine, storable
from holdfast.model.times import Timestamp, stamp
from holdfast.model.workers import Wish, WorkerInfo
from holdfast.stores.sidecar.protocol import Marks, NoMarks, Sessions
from holdfast.stores.sidecar.worker_liveness import forgotten_before, shown


class MemoryBlobs:
    """Blobs by their hash. `unnamed` calls back for each that no record names, and keeps it so meanwhile."""

    def __init__(self, clock: Clock, unnamed: Callable[[Collection[str], Callable[[str], None]], None]) -> None:
        self._clock = clock
        self._unnamed = unnamed
        self._lock = threading.Lock()
        self._blobs: dict[str, tuple[Timestamp, bytes]] = {}

    def put(self, content: bytes) -> str:
        """Keep content."""
        digest = sha256(content).hexdigest()
        with self._lock:
            self._blobs[digest] = (stamp(self._clock.now()), bytes(content))
        return digest

    def get(self, digest: str) -> bytes:
        """Give content back."""
        found = self._blobs.get(digest)
        if found is None:
            raise BlobMissing(f"memory: has no blob {digest}.", digest=digest)
        return found[1]

    def has(self, digest: str) -> bool:
        """Tell whether it is there."""
        return digest in self._blobs

    def sweep(self, before: Timestamp, limit: int) -> int:
        """Forget what is old and not named."""
        with self._lock:
            old = [digest for digest, (at, _) in self._blobs.items() if at < before]
        gone: list[str] = []

        def forget(digest: str) -> None:
            with self._lock:
                # Put again meanwhile: somebody is about to name it.
                if len(gone) < limit and self._blobs[digest][0] < before:
                    del self._blobs[digest]
                    gone.append(digest)

        self._unnamed(old, forget)
        return len(gone)


class MemoryLogs:
    """Lines by run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[RunId, list[LogLine]] = {}

    def add(self, lines: Sequence[tuple[RunId, LogLine]]) -> None:
        """Keep lines."""
        with self._lock:
            for run_id, line in lines:
                self._lines.setdefault(run_id, []).append(storable(line))

    def read(self, run_id: RunId, after: int = 0, limit: int = 1000) -> Sequence[NumberedLine]:
        """Give lines."""
        with self._lock:
            lines = self._lines.get(run_id, [])[after : after + limit]
        return [NumberedLine(number, line) for number, line in enumerate(lines, start=after + 1)]

    def path(self, run_id: RunId) -> str | None:
        """Give nothing: there is no file."""
        del run_id
        return None

    def sweep(self, before: Timestamp, limit: int) -> int:
        """Forget runs whose last line is old."""
        with self._lock:
            old = [run_id for run_id, lines in self._lines.items() if lines[-1].at < before][:limit]
            for run_id in old:
                del self._lines[run_id]
            return len(old)


class MemoryRoster:
    """Workers by id."""

    def __init__(self, clock: Clock, sessions: Sessions) -> None:
        self._clock = clock
        self._sessions = sessions
        self._lock = threading.Lock()
        self._workers: dict[str, WorkerInfo] = {}
        self._wishes: dict[str, Wish] = {}

    def note(self, worker: WorkerInfo) -> None:
        """Insert or replace."""
        limit = forgotten_before(stamp(self._clock.now()))
        with self._lock:
            self._workers[worker.worker_id] = worker
            for old in [known.worker_id for known in self._workers.values() if known.last_seen < limit]:
                self._forget(old)

    def drop(self, worker_id: str) -> None:
        """Forget."""
        with self._lock:
            self._forget(worker_id)

    def _forget(self, worker_id: str) -> None:
        self._workers.pop(worker_id, None)
        self._wishes.pop(worker_id, None)

    def all(self) -> Sequence[WorkerInfo]:
        """Give all, `lost` filled in."""
        with self._lock:
            known = [
                msgspec.structs.replace(worker, wish=self._wishes.get(worker.worker_id, worker.wish))
                for worker in self._workers.values()
            ]
        return shown(known, self._sessions, stamp(self._clock.now()))

    def ask(self, worker_id: str, wish: Wish) -> bool:
        """Leave a wish."""
        with self._lock:
            if worker_id not in self._workers:
                return False
            self._wishes[worker_id] = wish
            return True

    def wish(self, worker_id: str) -> Wish | None:
        """Give the wish."""
        return self._wishes.get(worker_id)


class MemorySessions:
    """Openings within one process: while it can be asked, all of them live."""

    def hold(self, session_id: str) -> None:
        """Do nothing: it lives as long as this object."""

    def gone(self, session_ids: Collection[str]) -> set[str]:
        """Give none."""
        del session_ids
        return set()

    def marks(self, session_id: str | None) -> Marks:
        """Mark nothing: what is lost here is never taken from the dead."""
        del session_id
        return NoMarks()

    def unbegun(self, session_id: str, leases: Iterable[tuple[str | None, Token]]) -> set[Token]:
        """Give none."""
        del session_id, leases
        return set()
