"""Workers as programs read them, with the jobs they hold.

Two witnesses: the roster says who is there and how far runs are, the store's leases say who holds what. Only the second
one is certain, so numbers of jobs come from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.engine.views.projection import fill, shown
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job
from holdfast.model.times import FOREVER, Timestamp
from holdfast.model.workers import WorkerInfo
from holdfast.rules.state import Lane
from holdfast.stores.protocol import View


class Held(NamedTuple):
    """A RUNNING job, since when its run goes, and which one it is."""

    job: Job
    since: Timestamp
    run_id: str = ""


class Staff(NamedTuple):
    """A worker, and the jobs it holds, oldest lease first."""

    worker: WorkerInfo
    jobs: Sequence[Held]

    @property
    def used(self) -> int:
        """How many slots are taken; what is leased ahead waits for one."""
        return min(len(self.jobs), self.worker.slots)


class HeldJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a worker has under a lease."""

    job_id: JobId
    job_type: str
    queue: str
    started_at: Timestamp
    lease_expires_at: Timestamp | None


#: `used`: slots that are taken. `jobs`: what it holds, oldest lease first. Both null for who may not read everything.
WorkerRow = shown("WorkerRow", WorkerInfo, used=int | None, jobs=list[HeldJob] | None)


def staff(held: Sequence[Held], workers: Sequence[WorkerInfo]) -> list[Staff]:
    """Join the leases of the store with the roster. A worker leases in its namespace: another may bear its name."""
    by_worker: dict[tuple[str, str | None], list[Held]] = {}
    for one in held:
        by_worker.setdefault((one.job.namespace, one.job.worker_id), []).append(one)
    return [Staff(worker, by_worker.get((worker.namespace, worker.worker_id), ())) for worker in workers]


def running(view: View) -> list[Held]:
    """Give the RUNNING jobs, oldest lease first: tokens only grow."""
    jobs = [job for job in view.due(Lane.LEASE, FOREVER) if isinstance(job, Job)]
    runs = [(job, view.last_run(job.job_id)) for job in jobs]
    found = [Held(job, job.created_at) if run is None else Held(job, run.started_at, run.run_id) for job, run in runs]
    return sorted(found, key=lambda held: held.job.token or 0)


def worker_row(worker: WorkerInfo, one: Staff | None) -> Any:
    """Give a worker with every field, and what it holds, if that is to be told."""
    if one is None:
        return fill(WorkerRow, worker, used=None, jobs=None)
    return fill(WorkerRow, worker, used=one.used, jobs=[_held(job, since) for job, since, _ in one.jobs])


def _held(job: Job, since: Timestamp) -> HeldJob:
    return HeldJob(
        job_id=job.job_id,
        job_type=job.job_type,
        queue=job.queue,
        started_at=since,
        lease_expires_at=job.lease_expires_at,
    )
