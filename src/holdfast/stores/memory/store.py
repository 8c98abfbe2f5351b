"""`memory:` — tables in this process, nothing on disk. For tests, and the model all other stores are compared with."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from holdfast.clock import Clock, SystemClock
from holdfast.errors import StoreClosed
from holdfast.model.events import Event, encode_event
from holdfast.model.times import Timestamp
from holdfast.rules.invariants import reported
from holdfast.stores.feed_errors import forgotten
from holdfast.stores.memory.batch import BatchTables
from holdfast.stores.memory.tables import Tables
from holdfast.stores.protocol import Durability, Entry, Finding, Promises, finding_of
from holdfast.stores.sidecar.check import missing_blobs
from holdfast.stores.sidecar.memory import MemoryBlobs, MemoryLogs, MemoryRoster, MemorySessions

#: Events kept for the feed; older ones are forgotten.
FEED = 100_000


class MemoryStore:
    """A store that lives and dies with its process."""

    promises = Promises(name="memory", durability=Durability.NONE, many_processes=False, reopens=False)

    def __init__(self, *, clock: Clock | None = None) -> None:
        """Start empty; `clock` tells how old blobs and workers are."""
        clock = clock or SystemClock()
        self.blobs = MemoryBlobs(clock, self._each_unnamed)
        self.logs = MemoryLogs()
        self.sessions = MemorySessions()
        self.workers = MemoryRoster(clock, self.sessions)
        self._tables = BatchTables()
        self._entries: deque[Entry] = deque(maxlen=FEED)
        self._lock = threading.RLock()
        self._added = threading.Condition(self._lock)
        self._closed = False

    @contextmanager
    def write(self) -> Iterator[BatchTables]:
        """Open a batch; it is visible to others when left normally, undone otherwise."""
        with self._lock:
            self._demand_open()
            fresh: list[Entry] = []

            def keep(events: Sequence[Event], first: int, ts: Timestamp) -> None:
                fresh.extend(
                    Entry(seq, ts, msgspec.Raw(encode_event(event))) for seq, event in enumerate(events, start=first)
                )

            self._tables.begin(keep)
            try:
                yield self._tables
            except BaseException:
                self._tables.undo()
                raise
            self._tables.let_go()
            if fresh:
                self._entries.extend(fresh)
                self._added.notify_all()

    @contextmanager
    def read(self) -> Iterator[Tables]:
        """Open a view; writers wait while it is open."""
        with self._lock:
            self._demand_open()
            yield self._tables

    def feed(self, after: int) -> Iterator[Entry]:
        """Walk the events above `after`."""
        with self._lock:
            self._demand_open()
            entries = [entry for entry in self._entries if entry.seq > after]
            first = entries[0].seq if entries else self._tables.seq + 1
            if first > after + 1:
                raise forgotten(first - 1)
        return iter(entries)

    def wait(self, after: int, timeout: float | None) -> bool:
        """Wait for an event above `after`."""
        with self._lock:
            return self._added.wait_for(lambda: self._closed or self._tables.seq > after, timeout)

    def trim(self, before: Timestamp, limit: int, *, upto: int = 0) -> int:
        """Forget old events."""
        with self._lock:
            count = 0
            while self._entries and count < limit and (self._entries[0].ts < before or self._entries[0].seq <= upto):
                self._entries.popleft()
                count += 1
            return count

    def check(self) -> list[Finding]:
        """Check the invariants of the records."""
        with self.read() as view:
            named = list(view.named())
            found = [finding_of(fault) for fault in reported(view)]
        return found + missing_blobs(self.blobs, named)

    def snapshot(self) -> None:
        """Do nothing: there is nothing to reopen."""

    def close(self) -> None:
        """Let go of waiters."""
        with self._lock:
            self._closed = True
            self._added.notify_all()

    def _each_unnamed(self, digests: Collection[str], action: Callable[[str], None]) -> None:
        """Do something with each blob that no record names, while nobody can begin to name it."""
        with self._lock:
            for digest in digests:
                if not self._tables.names(digest):
                    action(digest)

    def _demand_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store memory: was closed.")
