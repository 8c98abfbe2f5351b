"""The order of dispatch: rank, position, created_at, id. Stored fields only, so the same state gives the same order.

And the orders of a job's runs and of a group's members.
"""

from __future__ import annotations

from holdfast.model.jobs import Job, Run
from holdfast.model.records import Queue
from holdfast.model.times import Timestamp, microseconds
from holdfast.rules.state import State

#: Distance between neighbours, so that a job can be put between two others without moving them.
GAP = 100
#: Positions beyond this are normalised: JSON readers keep integers exact up to here.
FAR = 1 << 53

PlaceKey = tuple[int, int, Timestamp, str]


def place(job: Job) -> PlaceKey:
    """Give the sort key of a QUEUED job within its queue."""
    return (job.rank, job.position, job.created_at, job.job_id)


def run_place(run: Run) -> tuple[int, Timestamp, str]:
    """Give the sort key of a run within its job; one that was skipped has no number and comes last."""
    return (run.run_no or 1 << 62, run.started_at, run.run_id)


def member_place(job: Job) -> tuple[int, Timestamp, str]:
    """Give the sort key of a member within its group; those of a chain have the number of the first."""
    return (job.sequence_number or 0, job.created_at, job.job_id)


def rank_of(priority: int, queued_at: Timestamp, queue: Queue | None) -> int:
    """Give the band of a job: higher priority, lower rank, served first. Fixed until priority, queue or aging change.

    In a queue with aging the jobs of an earlier `aging_s` come one step before those of the next.
    """
    if queue is None or queue.aging_s is None:
        return -priority
    return microseconds(queued_at) // round(queue.aging_s * 1_000_000) - priority


def back(state: State, namespace: str, queue: str, rank: int) -> int:
    """Give the position behind the last job of a band."""
    last = state.edge(namespace, queue, rank, last=True)
    return GAP if last is None else last + GAP
