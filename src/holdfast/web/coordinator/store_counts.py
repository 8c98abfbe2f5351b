"""How much there is in the store, for whoever watches: looked at anew only when that is cheap.

A look that took a second is not taken again for a hundred: watching takes at most a hundredth of anybody's time,
however large the store is and however often it is asked. What is counted as it happens is `engine.commit_stats`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from holdfast.engine.engine import Engine
from holdfast.model.jobs import JobStatus
from holdfast.model.times import Timestamp, seconds_between
from holdfast.model.workers import WorkerState
from holdfast.stores.diagnostics import size_of
from holdfast.stores.protocol import OnDisk, QueueCount, View

#: How much longer than a look it takes until the next one.
REST = 100.0
#: Jobs at the head of a queue among which the oldest is looked for.
HEAD = 100


class Found(NamedTuple):
    """What one look found."""

    #: Number of the last event.
    seq: int
    #: Name of a queue, with its namespace if it has one, and status → jobs.
    jobs: Mapping[tuple[str, str], int]
    #: Name of a queue → seconds that a job could have run and did not, of those at its head. Only where any could.
    oldest: Mapping[str, float]
    #: State → workers; each state is there.
    workers: Mapping[str, int]
    #: Bytes on the disk, blobs included; None where there is none.
    store_bytes: int | None


class Census:
    """Looks at one store. For any thread; blocks."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._found: Found | None = None
        #: When the next look may be taken, by the monotonic clock.
        self._next_at = 0.0

    def look(self) -> Found:
        """Give what there is, or was a moment ago."""
        monotonic = self._engine.time.clock.monotonic
        with self._lock:
            began = monotonic()
            if self._found is None or began >= self._next_at:
                self._found = self._look()
                ended = monotonic()
                self._next_at = ended + REST * (ended - began)
            return self._found

    def _look(self) -> Found:
        engine = self._engine
        now = engine.look().now
        with engine.read() as view:
            seq, counts = view.seq, view.counts()
            oldest = {
                queue_name(one): seconds_between(due, now)
                for one in counts
                if one.status is JobStatus.QUEUED and (due := _oldest_due(view, one, now)) is not None
            }
        states = Counter(worker.state.value for worker in engine.store.workers.all())
        store = engine.store
        return Found(
            seq=seq,
            jobs={(queue_name(one), one.status.value): one.count for one in counts},
            oldest=oldest,
            workers={state.value: states[state.value] for state in WorkerState},
            store_bytes=size_of(Path(store.path)) if isinstance(store, OnDisk) else None,
        )


def queue_name(count: QueueCount) -> str:
    """Name a queue as lists do, and no two of them alike: a slash of a name's own is written as in paths."""
    queue = _segment(count.queue)
    return f"{_segment(count.namespace)}/{queue}" if count.namespace else queue


def _segment(name: str) -> str:
    return name.replace("/", "%2F")  # no name has a percent sign


def _oldest_due(view: View, count: QueueCount, now: Timestamp) -> Timestamp | None:
    ready = islice(view.ready(count.namespace, (count.queue,), None, now), HEAD)
    return min((job.due_at for job in ready), default=None)
