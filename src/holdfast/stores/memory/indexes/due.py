"""What waits for a time, lane by lane, in memory: each key with the time at which something is to be done about it.

Part of `stores.memory.tables`, whose other parts put their own records here. Knows when a job, a command or a key is
due, and of which kind the records of a lane are; never what is done about them, nor what time it is.
"""

from __future__ import annotations

from collections.abc import Collection

from holdfast.model.groups import Group
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, JobStatus
from holdfast.model.records import DoneCommand, HeldKey, Record, key_of
from holdfast.model.reservations import Reservation
from holdfast.model.schedules import Schedule
from holdfast.model.webhooks import Delivery
from holdfast.model.workflows.instances import Affinity, Instance, Message, Turn
from holdfast.rules.state import Lane
from holdfast.stores.memory.indexes.sorted_set import OrderedSet, TimeKey


class Lanes(dict[Lane, OrderedSet[TimeKey]]):
    """Lane → its keys by time."""

    def __init__(self) -> None:
        super().__init__((lane, OrderedSet()) for lane in Lane)

    def add(self, job: Job, *, waits: bool) -> None:
        """Note the times of a job; one that waits for others becomes ready by no time."""
        if job.status is JobStatus.QUEUED:
            if job.not_before is not None and not waits:
                self[Lane.DELAYED].add((job.not_before, job.job_id))
            if job.expires_at is not None:
                self[Lane.TTL].add((job.expires_at, job.job_id))
        elif job.lease_expires_at is not None:
            self[Lane.LEASE].add((job.lease_expires_at, job.job_id))

    def discard(self, job: Job, *, waits: bool) -> None:
        """Forget the times of a job; one that was promoted is not among the delayed any more."""
        if job.status is JobStatus.QUEUED:
            if job.not_before is not None and not waits:
                self[Lane.DELAYED].discard((job.not_before, job.job_id))
            if job.expires_at is not None:
                self[Lane.TTL].discard((job.expires_at, job.job_id))
        elif job.lease_expires_at is not None:
            self[Lane.LEASE].discard((job.lease_expires_at, job.job_id))

    def fill(self, jobs: Collection[Job], waiting: Collection[JobId]) -> None:
        """Note the times of many jobs by sorting once. Lanes of jobs alone: nobody else has put anything there."""
        delayed: list[TimeKey] = []
        ttl: list[TimeKey] = []
        leases: list[TimeKey] = []
        for job in jobs:
            if job.status is JobStatus.QUEUED:
                if job.not_before is not None and job.job_id not in waiting:
                    delayed.append((job.not_before, job.job_id))
                if job.expires_at is not None:
                    ttl.append((job.expires_at, job.job_id))
            elif job.lease_expires_at is not None:
                leases.append((job.lease_expires_at, job.job_id))
        self[Lane.DELAYED], self[Lane.TTL], self[Lane.LEASE] = OrderedSet(delayed), OrderedSet(ttl), OrderedSet(leases)

    def reindex_command(self, before: DoneCommand | None, after: DoneCommand | None) -> None:
        """Follow what is remembered of a command."""
        if before is not None:
            self[Lane.COMMAND].discard((before.at, before.cmd))
        if after is not None:
            self[Lane.COMMAND].add((after.at, after.cmd))

    def reindex_key(self, before: HeldKey | None, after: HeldKey | None) -> None:
        """Follow an idempotency key that is held until a time."""
        if before is not None and before.held_until is not None:
            self[Lane.KEY].discard((before.held_until, key_of(before)))
        if after is not None and after.held_until is not None:
            self[Lane.KEY].add((after.held_until, key_of(after)))


#: Lanes of other records than jobs.
_KINDS: dict[Lane, type[Record]] = {
    Lane.COMMAND: DoneCommand,
    Lane.KEY: HeldKey,
    Lane.SCHEDULE: Schedule,
    Lane.RESERVATION: Reservation,
    Lane.RESERVED: Reservation,
    Lane.GROUP: Group,
    Lane.DELIVERY: Delivery,
    Lane.DELIVERED: Delivery,
    Lane.TURN: Turn,
    Lane.MAIL: Message,
    Lane.PARKED: Message,
    Lane.ROOT: Instance,
    Lane.AGING: Instance,
    Lane.LEAVING: Instance,
    Lane.AFFINITY: Affinity,
}


def kind_of(lane: Lane) -> type[Record]:
    """Give the kind of the records that stand in a lane."""
    return _KINDS.get(lane, Job)
