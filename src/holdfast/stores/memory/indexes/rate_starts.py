"""When executions started, of the queues that have a rate. Others are not followed and cost nothing.

A queue is followed from the moment it has a rate; what ran before is found by passing all runs once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.model.jobs import Run
from holdfast.model.times import Timestamp
from holdfast.stores.memory.indexes.sorted_set import BEYOND, OrderedSet


class Starts:
    """The start times of followed queues, all together and by limit key."""

    def __init__(self) -> None:
        #: (namespace, queue) → limit key, or None for all → (start, run id) in order.
        self._queues: dict[tuple[str, str], dict[str | None, OrderedSet[tuple[Timestamp, str]]]] = {}

    def __bool__(self) -> bool:
        """Tell whether any queue is followed."""
        return bool(self._queues)

    def follow(self, namespace: str, queue: str, runs: Iterable[Run]) -> None:
        """Follow a queue from now on, beginning with what `runs` tells of it."""
        if (namespace, queue) in self._queues:
            return
        self._queues[namespace, queue] = {None: OrderedSet()}
        for run in runs:
            if (run.namespace, run.queue) == (namespace, queue):
                self.add(run)

    def forget(self, namespace: str, queue: str) -> None:
        """Follow a queue no longer."""
        self._queues.pop((namespace, queue), None)

    def add(self, run: Run) -> None:
        """Note a run that began; one that was skipped has no token and never did."""
        by_key = self._queues.get((run.namespace, run.queue))
        if by_key is None or run.token is None:
            return
        by_key[None].add((run.started_at, run.run_id))
        if run.limit_key is not None:
            by_key.setdefault(run.limit_key, OrderedSet()).add((run.started_at, run.run_id))

    def discard(self, run: Run) -> None:
        """Forget a run."""
        by_key = self._queues.get((run.namespace, run.queue))
        if by_key is None:
            return
        by_key[None].discard((run.started_at, run.run_id))
        if run.limit_key in by_key and run.limit_key is not None:
            by_key[run.limit_key].discard((run.started_at, run.run_id))
            if not by_key[run.limit_key]:
                del by_key[run.limit_key]

    def walk(self, namespace: str, queue: str, limit_key: str | None, after: Timestamp) -> Iterator[Timestamp]:
        """Walk the starts after a time, earliest first."""
        starts = self._queues.get((namespace, queue), {}).get(limit_key)
        return (when for when, _ in starts.walk((after, BEYOND))) if starts else iter(())
