"""Retention: which ended work goes. Whole chains and whole groups only, never live ones.

A queue may say how long, and how many of, its ended jobs are kept; what it leaves open the store says, and what that
leaves open stands here. A chain goes when each of its jobs is out of what its queue keeps; so does a group, once it is
old by the store's own rule. One commit removes so many rows, more only where a chain or a group has
more: it never waits for a second one to be whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from holdfast.model.commands import Prune
from holdfast.model.events import (
    CommandForgotten,
    DeliveryPruned,
    Event,
    GroupPruned,
    JobPruned,
    KeyDropped,
    ReservationPruned,
)
from holdfast.model.groups import Group
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, JobStatus
from holdfast.model.outcomes import Swept
from holdfast.model.records import DoneCommand, HeldKey, Queue, pair
from holdfast.model.reservations import Reservation
from holdfast.model.retention import Retention
from holdfast.model.times import FIRST, Timestamp, later
from holdfast.model.webhooks import Delivery
from holdfast.rules.decision import Decision, answer
from holdfast.rules.groups.effects import callback_of
from holdfast.rules.idempotency import REMEMBER_S
from holdfast.rules.jobs.limits import is_counted
from holdfast.rules.state import Lane, State

DAY_S = 86_400.0
#: How long what is kept if nobody says otherwise, in seconds: jobs that are done, jobs that failed, lines, the feed.
DONE_S, FAILED_S, LOGS_S, FEED_S = 7 * DAY_S, 30 * DAY_S, 7 * DAY_S, 7 * DAY_S
#: Deliveries and reservations that are over, seconds.
DELIVERIES_S, RESERVATIONS_S = 7 * DAY_S, 7 * DAY_S
#: Workflow instances that are over, seconds.
WORKFLOWS_S = 30 * DAY_S
#: Chains and groups looked at for those that may go; bounds the cost of those that must wait for their last member.
LOOKED_AT = 5_000

#: A time, and an id among those of the same time.
Place = tuple[Timestamp, str]
_NOWHERE: Place = (FIRST, "")
_BEYOND = "\U0010ffff"


class Kept(NamedTuple):
    """How the jobs of one queue are kept: seconds, and how many at most."""

    done_s: float
    failed_s: float
    done_max: int | None
    failed_max: int | None


def kept_by(own: Retention | None, store: Retention) -> Kept:
    """Give what counts for a queue: what it says itself, else what the store says, else what is built in."""
    own = own or Retention()
    done_s = store.done_s if own.done_s is None else own.done_s
    failed_s = store.failed_s if own.failed_s is None else own.failed_s
    return Kept(
        DONE_S if done_s is None else done_s,
        FAILED_S if failed_s is None else failed_s,
        store.done_max if own.done_max is None else own.done_max,
        store.failed_max if own.failed_max is None else own.failed_max,
    )


class Limits:
    """Up to which place of each queue's ended jobs they may go; worked out once for each."""

    def __init__(self, state: State, retention: Retention, now: Timestamp) -> None:
        self._state = state
        self._retention = retention
        self._now = now
        self._found: dict[tuple[str, str, bool], Place] = {}
        everywhere = kept_by(None, retention)
        #: When a group must have ended to go: one without a failure, and one with.
        self.groups = later(now, -everywhere.done_s), later(now, -everywhere.failed_s)
        #: When other records must be over, or done, to go.
        self.lanes = {
            Lane.RESERVED: _before(now, retention.reservations_s, RESERVATIONS_S),
            Lane.DELIVERED: _before(now, retention.deliveries_s, DELIVERIES_S),
            Lane.COMMAND: later(now, -REMEMBER_S),
            Lane.KEY: now,
            Lane.PARKED: now,
            Lane.AGING: _before(now, retention.workflows_s, WORKFLOWS_S),
            Lane.LEAVING: now,
        }

    def of(self, namespace: str, queue: str, *, failed: bool) -> Place:
        """Give the last place that may go."""
        name = (namespace, queue, failed)
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = self._limit(namespace, queue, failed=failed)
        return found

    def _limit(self, namespace: str, queue: str, *, failed: bool) -> Place:
        settings = self._state.get(Queue, pair(namespace, queue))
        kept = kept_by(None if settings is None else settings.retention, self._retention)
        by_age = (later(self._now, -(kept.failed_s if failed else kept.done_s)), _BEYOND)
        most = kept.failed_max if failed else kept.done_max
        if most is None:
            return by_age
        return max(by_age, self._state.ended_beyond(namespace, queue, failed=failed, keep=most) or _NOWHERE)

    def let_go(self, job: Job) -> bool:
        """Tell whether a job has ended and is out of what its queue keeps."""
        failed = job.status is JobStatus.FAILED or job.status is JobStatus.DEAD
        return job.finished_at is not None and (job.finished_at, job.job_id) <= self.of(
            job.namespace, job.queue, failed=failed
        )


def has_old(state: State, retention: Retention, now: Timestamp) -> bool:
    """Tell whether a sweep may find anything; a look at the ends of a few orders."""
    limits = Limits(state, retention, now)
    if any(next(_out_of(state, limits, *queue), None) is not None for queue in state.ended_queues()):
        return True
    lanes = {Lane.GROUP: max(limits.groups), **limits.lanes}
    return any(next(iter(state.due(lane, until)), None) is not None for lane, until in lanes.items())


def _before(now: Timestamp, kept_s: float | None, built_in_s: float) -> Timestamp:
    return later(now, -(built_in_s if kept_s is None else kept_s))


def _out_of(state: State, limits: Limits, namespace: str, queue: str) -> Iterator[Job]:
    """Walk the jobs of a queue that are out of what it keeps."""
    for failed in (False, True):
        until, last = limits.of(namespace, queue, failed=failed)
        for job in state.ended(namespace, queue, failed=failed, until=until):
            if (job.finished_at or until, job.job_id) > (until, last):
                break
            yield job


class _Sweep:
    """What one commit removes."""

    def __init__(self, command: Prune) -> None:
        self._cmd = command.cmd
        self._limit = command.limit
        self.events: list[Event] = []
        self.rows = 0
        self.gone: set[JobId] = set()

    @property
    def is_full(self) -> bool:
        return self.rows >= self._limit

    def take_jobs(self, state: State, jobs: Sequence[Job]) -> None:
        """Remove jobs with their runs."""
        for job in jobs:
            self.gone.add(job.job_id)
            self.events.append(JobPruned(job_id=job.job_id, cmd=self._cmd))
            self.rows += 1 + len(state.runs(job.job_id))

    def take(self, event: Event) -> None:
        """Remove one record."""
        self.events.append(event)
        self.rows += 1


def decide_prune(state: State, command: Prune, now: Timestamp) -> Decision:
    """Remove what retention no longer keeps, as much as one commit takes."""
    sweep = _Sweep(command)
    limits = Limits(state, command.retention, now)
    for namespace, queue in state.ended_queues():
        _sweep_queue(state, sweep, limits, now, (namespace, queue))
    _sweep_groups(state, sweep, limits, now, command.cmd)
    for record in _old(state, sweep, Lane.RESERVED, limits.lanes[Lane.RESERVED]):
        assert isinstance(record, Reservation)
        sweep.take(ReservationPruned(reservation_id=record.reservation_id, cmd=command.cmd))
    for record in _old(state, sweep, Lane.DELIVERED, limits.lanes[Lane.DELIVERED]):
        assert isinstance(record, Delivery)
        sweep.take(DeliveryPruned(delivery_id=record.delivery_id, cmd=command.cmd))
    for record in _old(state, sweep, Lane.COMMAND, limits.lanes[Lane.COMMAND]):
        assert isinstance(record, DoneCommand)
        sweep.take(CommandForgotten(forgotten=record.cmd, cmd=command.cmd))
    for record in _old(state, sweep, Lane.KEY, limits.lanes[Lane.KEY]):
        assert isinstance(record, HeldKey)
        sweep.take(KeyDropped(namespace=record.namespace, unique_key=record.unique_key, cmd=command.cmd))
    return answer(Swept(count=len(sweep.events), more=sweep.is_full), *sweep.events)


def _old(state: State, sweep: _Sweep, lane: Lane, until: Timestamp) -> Iterator[object]:
    """Walk what is old in a lane, until the commit is full."""
    for record in state.due(lane, until):
        if sweep.is_full:
            return
        yield record


def _sweep_queue(state: State, sweep: _Sweep, limits: Limits, now: Timestamp, queue: tuple[str, str]) -> None:
    """Remove the chains that begin or end in a queue, if all their jobs may go."""
    for job in islice(_out_of(state, limits, *queue), LOOKED_AT):
        if sweep.is_full:
            return
        if job.job_id in sweep.gone:
            continue
        chain = chain_of(state, job)
        if all(
            member.group_id is None and limits.let_go(member) and not is_counted(state, member, now) for member in chain
        ):
            sweep.take_jobs(state, chain)


def _sweep_groups(state: State, sweep: _Sweep, limits: Limits, now: Timestamp, cmd: str) -> None:
    """Remove groups that are old, with all that belongs to them and what people made of it since."""
    quiet, failed = limits.groups
    for group in islice(_old(state, sweep, Lane.GROUP, max(quiet, failed)), LOOKED_AT):
        assert isinstance(group, Group)
        ended_at = group.finished_at or group.created_at  # one without members never began
        if ended_at > (failed if group.failed else quiet):
            continue  # told by the group alone: a look at all its jobs is dear
        jobs = family_of(state, group)
        if all(limits.let_go(job) and not is_counted(state, job, now) for job in jobs):
            sweep.take_jobs(state, jobs)
            sweep.take(GroupPruned(group_id=group.group_id, cmd=cmd))


def chain_of(state: State, job: Job) -> list[Job]:
    """Give the job with all that it retries and that retry it, root first."""
    root = job
    while root.retry_of is not None and (older := state.get(Job, root.retry_of)) is not None:
        root = older
    chain = [root]
    for member in chain:
        chain.extend(state.successors(member.job_id))
    return chain


def family_of(state: State, group: Group) -> list[Job]:
    """Give the members of a group and its callback, each with all that retry it."""
    callback = callback_of(group)
    called = None if callback is None else state.get(Job, callback.job_id)
    # A job of that id that was there before the group ended is no part of it.
    own = called is not None and called.group_id == group.group_id
    roots = [*state.members(group.group_id), *([called] if called is not None and own else [])]
    found = {job.job_id: job for root in roots for job in chain_of(state, root)}
    return list(found.values())
