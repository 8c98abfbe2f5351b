"""RUNNING jobs in memory, by what they hold a place of: their queue, their limit key, their schedule.

Part of `stores.memory.tables`. Counts nothing against a limit but to pass by what has no place now; whether a job may
run is for the rules to say. The QUEUED jobs of a schedule are here too, as one of them keeps the next from being made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, JobStatus
from holdfast.model.schedules import Overlap
from holdfast.stores.memory.indexes.id_sets import IdSets
from holdfast.stores.memory.indexes.sorted_set import OrderedSet, order_of


class RunningJobs:
    """Who runs where, and under which limit."""

    def __init__(self) -> None:
        #: By namespace and queue; by namespace and limit key.
        self._queues: IdSets[tuple[str, str], JobId] = IdSets()
        self._limited: IdSets[tuple[str, str], JobId] = IdSets()
        #: Of schedules: the QUEUED and RUNNING ones by id, and the RUNNING ones.
        self._active_of: dict[str, OrderedSet[tuple[str]]] = {}
        self._running_of: IdSets[str, JobId] = IdSets()

    def count(self, job: Job, by: int) -> None:
        """Note a job that runs, or belongs to a schedule and has not ended; or forget it. Others change nothing."""
        if job.status is JobStatus.RUNNING:
            self._queues.note((job.namespace, job.queue), job.job_id, by)
            if job.limit_key is not None:
                self._limited.note((job.namespace, job.limit_key), job.job_id, by)
        if job.schedule_id is not None and not job.has_ended:
            self._count_active(job, job.schedule_id, by)

    def _count_active(self, job: Job, schedule_id: str, by: int) -> None:
        active = order_of(self._active_of, schedule_id)
        if by > 0:
            active.add((job.job_id,))
        else:
            active.discard((job.job_id,))
            if not active:
                del self._active_of[schedule_id]
        if job.status is JobStatus.RUNNING:
            self._running_of.note(schedule_id, job.job_id, by)

    # --- looking up -------------------------------------------------------------------------------------------------

    def of_queue(self, namespace: str, queue: str) -> Collection[JobId]:
        """Give those of a queue."""
        return self._queues.get((namespace, queue), ())

    def with_key(self, namespace: str, limit_key: str) -> Collection[JobId]:
        """Give those of a namespace that carry a limit key."""
        return self._limited.get((namespace, limit_key), ())

    def of_schedule(self, schedule_id: str) -> Collection[JobId]:
        """Give those of a schedule."""
        return self._running_of.get(schedule_id, ())

    def active_of(self, schedule_id: str) -> JobId | None:
        """Give the QUEUED or RUNNING job of a schedule with the lowest id, or None."""
        active = self._active_of.get(schedule_id)
        return None if active is None else JobId(next(iter(active))[0])

    def free(self, jobs: Iterator[Job]) -> Iterator[Job]:
        """Pass on the jobs whose limit key has a place, and that need not wait for another one of their schedule."""
        # While no limit key and no schedule runs at all, every job is free.
        return self._with_a_place(jobs) if self._limited or self._running_of else jobs

    def _with_a_place(self, jobs: Iterable[Job]) -> Iterator[Job]:
        for job in jobs:
            key = job.limit_key
            if key is not None and len(self._limited.get((job.namespace, key), ())) >= job.key_limit:
                continue
            if job.overlap != Overlap.QUEUE or job.schedule_id not in self._running_of:
                yield job

    def few(self, namespace: str, limit: int) -> Sequence[str] | None:
        """Give those of a namespace if they are not more than that, else None."""
        held = [ids for name, ids in self._queues.items() if name[0] == namespace]
        return [job_id for ids in held for job_id in ids] if sum(map(len, held)) <= limit else None
