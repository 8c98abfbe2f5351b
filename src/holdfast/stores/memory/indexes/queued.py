"""QUEUED jobs in memory, queue by queue: those that are ready, and those held back until a time or a turn comes.

Part of `stores.memory.tables`, which owns the records and the lanes of time: it says who must wait, and when a time has
come. Here are only the places, in the order of dispatch. A line gives ids; whoever asks looks the jobs up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from heapq import merge

from holdfast.model.ids import JobId
from holdfast.model.jobs import Job
from holdfast.rules.jobs.dispatch_order import PlaceKey, place
from holdfast.stores.memory.indexes.ready_by_task import TaskLines
from holdfast.stores.memory.indexes.sorted_set import OrderedSet, order_of

QueueKey = tuple[str, str]


class QueueLines:
    """The lines of all queues. A job stands in one of them, and moves from held back to ready when it is promoted."""

    def __init__(self, tasks: TaskLines) -> None:
        """Keep the lines by task right as well."""
        self._tasks = tasks
        self._ready: dict[QueueKey, OrderedSet[PlaceKey]] = {}
        #: Jobs whose `not_before` has not been seen to pass, in the order they will have.
        self._held_back: dict[QueueKey, OrderedSet[PlaceKey]] = {}
        #: Members of sequential groups that wait for their turn, among those held back.
        self._waiting: set[JobId] = set()
        #: Jobs with a `not_before` that are among the ready ones all the same.
        self._promoted: set[JobId] = set()

    # --- changing ---------------------------------------------------------------------------------------------------

    def add(self, job: Job, *, waits: bool) -> None:
        """Put a QUEUED job in its place; one that `waits` is held back whatever the time."""
        if waits:
            self._waiting.add(job.job_id)
        if waits or job.not_before is not None:
            order_of(self._held_back, (job.namespace, job.queue)).add(place(job))
        else:
            self._make_ready(job)

    def _make_ready(self, job: Job) -> None:
        queue, key = (job.namespace, job.queue), place(job)
        order_of(self._ready, queue).add(key)
        if self._tasks:
            self._tasks.add(queue, job.job_type, key)

    def discard(self, job: Job) -> bool:
        """Take a QUEUED job out; tell whether it was waiting for others."""
        job_id, queue, key = job.job_id, (job.namespace, job.queue), place(job)
        waits = job_id in self._waiting
        if waits or (job.not_before is not None and job_id not in self._promoted):
            self._held_back[queue].discard(key)
        else:
            self._ready[queue].discard(key)
            if self._tasks:
                self._tasks.discard(queue, job.job_type, key)
        self._promoted.discard(job_id)
        self._waiting.discard(job_id)
        return waits

    def promote(self, job: Job) -> None:
        """Make a job that was held back ready: its time has come."""
        self._held_back[job.namespace, job.queue].discard(place(job))
        self._make_ready(job)
        self._promoted.add(job.job_id)

    def fill(self, jobs: Iterable[Job], waiting: Collection[JobId]) -> None:
        """Place many QUEUED jobs by sorting once."""
        self._waiting.update(waiting)
        ready: dict[QueueKey, list[PlaceKey]] = {}
        held_back: dict[QueueKey, list[PlaceKey]] = {}
        for job in jobs:
            places = ready if job.not_before is None and job.job_id not in waiting else held_back
            queue = (job.namespace, job.queue)
            found = places.get(queue)
            if found is None:
                found = places[queue] = []
            found.append(place(job))
        self._ready.update((queue, OrderedSet(keys)) for queue, keys in ready.items())
        self._held_back.update((queue, OrderedSet(keys)) for queue, keys in held_back.items())

    # --- looking up -------------------------------------------------------------------------------------------------

    def ready(self, namespace: str, queues: Iterable[str], tasks: Collection[str] | None) -> Iterable[PlaceKey]:
        """Give the places of the ready jobs of these queues in the order of dispatch; of some tasks, or all."""
        found: list[Iterable[PlaceKey]] = []
        for name in dict.fromkeys(queues):
            queue = (namespace, name)
            line = self._ready.get(queue)
            if line is not None:
                found.append(line if tasks is None else self._tasks.walk(queue, line, tasks))
        return found[0] if len(found) == 1 else merge(*found)

    def all(self, namespace: str, queue: str) -> Iterable[str]:
        """Walk the jobs of a queue, delayed ones too, in order."""
        return (key[3] for key in merge(*self._both(namespace, queue)))

    def _both(self, namespace: str, queue: str) -> list[OrderedSet[PlaceKey]]:
        both = (self._ready.get((namespace, queue)), self._held_back.get((namespace, queue)))
        return [keys for keys in both if keys is not None]

    def band(self, namespace: str, queue: str, rank: int) -> list[str]:
        """Give the jobs of one band, delayed ones too, in order."""
        found: list[PlaceKey] = []
        for keys in self._both(namespace, queue):
            for key in keys.walk((rank,)):
                if key[0] != rank:
                    break
                found.append(key)
        return [key[3] for key in sorted(found)]

    def bands(self, namespace: str, queue: str) -> list[int]:
        """Give the ranks that jobs of the queue have, ascending."""
        ranks: set[int] = set()
        for keys in self._both(namespace, queue):
            key = next(keys.walk(), None)
            while key is not None:
                ranks.add(key[0])
                key = next(keys.walk((key[0] + 1,)), None)
        return sorted(ranks)

    def edge(self, namespace: str, queue: str, rank: int, *, last: bool) -> int | None:
        """Give the lowest or highest position in the band, delayed jobs included; None if empty."""
        found: list[int] = []
        for keys in self._both(namespace, queue):
            key = next(keys.walk((rank + 1,) if last else (rank,), backwards=last), None)
            if key is not None and key[0] == rank:
                found.append(key[1])
        if not found:
            return None
        return max(found) if last else min(found)

    def beside(self, job: Job, *, after: bool) -> str | None:
        """Give the job next before or after this one in its band, delayed jobs included."""
        here = place(job)
        found: list[PlaceKey] = []
        for keys in self._both(job.namespace, job.queue):
            walk = keys.walk((*here, ""), backwards=False) if after else keys.walk(here, backwards=True)
            key = next(walk, None)
            if key is not None and key[0] == job.rank:
                found.append(key)
        if not found:
            return None
        return min(found)[3] if after else max(found)[3]

    def few(self, namespace: str, limit: int) -> Sequence[str] | None:
        """Give the jobs of a namespace if they are not more than that, else None."""
        lines = [keys for lane in (self._ready, self._held_back) for name, keys in lane.items() if name[0] == namespace]
        return [key[3] for keys in lines for key in keys] if sum(map(len, lines)) <= limit else None
