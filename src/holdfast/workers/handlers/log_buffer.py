"""The scribe of a worker: keeps lines in memory until the pump lets them be written.

Whoever says a line only appends it here; nobody waits for a disk. What the store cannot take, or what comes faster than
it is written, is left out, and a marker in the run says so. A line is written no later than the report that ends its
run, and while the run goes on about a second after it was said.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable

from holdfast.errors import StoreBusy
from holdfast.model.ids import RunId
from holdfast.model.logs import LogLine, Stream
from holdfast.model.times import Timestamp
from holdfast.stores.protocol import Store

log = logging.getLogger("holdfast.worker")

#: Lines kept in memory at most.
MAX_WAITING = 10_000
#: Seconds between two writes while runs go on.
FLUSH_S = 1.0
#: Runs whose markers are remembered, while a store takes no lines.
MAX_MARKERS = 1000


class StoreScribe:
    """Keeps what runs say in what a store keeps beside its records."""

    def __init__(self, store: Store, now: Callable[[], Timestamp], stirred: Callable[[], None]) -> None:
        """Write to `store`; `stirred` is told, from any thread, of the first line that waits."""
        self._store = store
        self._now = now
        self._stirred = stirred
        self._lock = threading.RLock()
        self._waiting: list[tuple[RunId, LogLine]] = []
        #: How many lines of a run were left out since it was last said.
        self._lost: Counter[RunId] = Counter()

    @property
    def has_lines(self) -> bool:
        """Tell whether something waits to be written."""
        return bool(self._waiting)

    def line(self, run_id: RunId, stream: Stream, level: str, text: str) -> None:
        """Take one line, or leave it out."""
        line = LogLine(self._now(), stream, level, text)
        with self._lock:
            if len(self._waiting) >= MAX_WAITING:
                self._miss(run_id)
                return
            self._waiting.append((run_id, line))
            is_first = len(self._waiting) == 1
        if is_first:
            self._stirred()

    def put(self, content: bytes) -> str:
        """Keep content and give its SHA-256 in hex."""
        return self._store.blobs.put(content)

    def flush(self) -> None:
        """Write what waits."""
        with self._lock:
            if not self._waiting:
                return
            lines, self._waiting = self._waiting, []
            lost, self._lost = self._lost, Counter()
        marks = [(run_id, LogLine(self._now(), "log", "", _mark(count))) for run_id, count in lost.items()]
        try:
            self._store.logs.add(lines + marks)
        except StoreBusy:  # it may take them a moment later
            with self._lock:
                self._waiting[:0] = lines
                self._lost.update(lost)
        except Exception as problem:  # noqa: BLE001 - whatever it is, no run pays for its lines
            log.warning("lines.lost", extra={"count": len(lines), "problem": str(problem)})
            with self._lock:
                for run_id, count in (Counter(run_id for run_id, _ in lines) + lost).items():
                    self._miss(run_id, count)

    def _miss(self, run_id: RunId, count: int = 1) -> None:
        if run_id in self._lost or len(self._lost) < MAX_MARKERS:
            self._lost[run_id] += count


def _mark(count: int) -> str:
    return f"… {count:,} lines are missing here: the store could not take them in time"
