"""Ended jobs in memory, by queue and by their end: what retention walks. Part of `stores.memory.tables`.

Those that failed stand apart from the others, as they are kept longer. What belongs to a
group is left out: it goes with the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from holdfast.model.jobs import Job, JobStatus
from holdfast.model.times import Timestamp
from holdfast.stores.memory.indexes.sorted_set import OrderedSet, TimeKey

#: Namespace, queue, and whether they failed.
Kind = tuple[str, str, bool]


class EndedJobs:
    """The ended jobs of each queue, in the order they ended."""

    def __init__(self) -> None:
        self._orders: dict[Kind, OrderedSet[TimeKey]] = {}

    def add(self, job: Job) -> None:
        """Note a job, if it has ended."""
        if job.finished_at is not None and job.group_id is None:
            order = self._orders.get(_kind(job))
            if order is None:
                order = self._orders[_kind(job)] = OrderedSet()
            order.add((job.finished_at, job.job_id))

    def discard(self, job: Job) -> None:
        """Forget a job."""
        order = None if job.finished_at is None else self._orders.get(_kind(job))
        if order is not None and job.finished_at is not None:
            order.discard((job.finished_at, job.job_id))
            if not order:
                del self._orders[_kind(job)]

    def fill(self, jobs: Iterable[Job]) -> None:
        """Note many jobs by sorting once."""
        found: dict[Kind, list[TimeKey]] = {}
        for job in jobs:
            if job.finished_at is not None and job.group_id is None:
                found.setdefault(_kind(job), []).append((job.finished_at, job.job_id))
        self._orders = {kind: OrderedSet(keys) for kind, keys in found.items()}

    def queues(self) -> list[tuple[str, str]]:
        """Give the queues that have ended jobs, in order."""
        return sorted({kind[:2] for kind in self._orders})

    def walk(self, kind: Kind, until: Timestamp) -> Iterator[str]:
        """Walk the jobs that ended by a time, earliest first, then by id."""
        for when, job_id in self._orders.get(kind, ()):
            if when > until:
                return
            yield job_id

    def beyond(self, kind: Kind, keep: int) -> TimeKey | None:
        """Give the place of the newest job that is not among the `keep` newest, or None."""
        order = self._orders.get(kind)
        excess = 0 if order is None else len(order) - keep
        return None if order is None or excess <= 0 else next(islice(order, excess - 1, None))


def _kind(job: Job) -> Kind:
    return job.namespace, job.queue, job.status is JobStatus.FAILED or job.status is JobStatus.DEAD
