"""Retention: which ended jobs and deliveries, remembered commands and lapsed keys go. Chains and groups go whole, once over."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from holdfast.model.commands import Prune, Retention
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
from holdfast.model.records import DoneCommand, HeldKey
from holdfast.model.reservations import Reservation
from holdfast.model.times import Timestamp, later
from holdfast.model.webhooks import Delivery
from holdfast.rules.decision import Decision, answer
from holdfast.rules.groupeffects import callback_of
from holdfast.rules.limits import is_counted
from holdfast.rules.repeats import REMEMBER_S
from holdfast.rules.state import Lane, State

#: Jobs of a lane looked at for those that may go; bounds the cost of chains that must wait for their last member.
LOOKED_AT = 5_000


def decide_prune(state: State, command: Prune, now: Timestamp) -> Decision:
    """Remove what retention no longer keeps, at most `limit` of it."""
    events: list[Event] = []
    gone: set[JobId] = set()
    for lane, keep_s in ((Lane.DONE, command.retention.done_s), (Lane.FAILED, command.retention.failed_s)):
        for record in islice(state.due(lane, later(now, -keep_s)), LOOKED_AT):
            assert isinstance(record, Job)
            if len(events) >= command.limit:
                break
            if record.job_id in gone:
                continue
            chain = chain_of(state, record)
            if any(job.group_id is not None for job in chain):
                continue  # the manual retry of a member goes with the group
            if _all_over(state, chain, command.retention, now):
                gone.update(job.job_id for job in chain)
                events.extend(JobPruned(job_id=job.job_id, cmd=command.cmd) for job in chain)
    for record in state.due(Lane.GROUP, later(now, -min(command.retention.done_s, command.retention.failed_s))):
        if len(events) >= command.limit:
            break
        assert isinstance(record, Group)
        if _may_be_over(record, command.retention, now):
            jobs = family_of(state, record)
            if _all_over(state, jobs, command.retention, now):
                events.extend(JobPruned(job_id=job.job_id, cmd=command.cmd) for job in jobs)
                events.append(GroupPruned(group_id=record.group_id, cmd=command.cmd))
    for record in state.due(Lane.COMMAND, later(now, -REMEMBER_S)):
        if len(events) >= command.limit:
            break
        assert isinstance(record, DoneCommand)
        events.append(CommandForgotten(forgotten=record.cmd, cmd=command.cmd))
    for record in state.due(Lane.KEY, now):
        if len(events) >= command.limit:
            break
        assert isinstance(record, HeldKey)
        events.append(KeyDropped(namespace=record.namespace, unique_key=record.unique_key, cmd=command.cmd))
    for record in state.due(Lane.DELIVERED, later(now, -command.retention.deliveries_s)):
        if len(events) >= command.limit:
            break
        assert isinstance(record, Delivery)
        events.append(DeliveryPruned(delivery_id=record.delivery_id, cmd=command.cmd))
    for record in state.due(Lane.RESERVED, later(now, -command.retention.reservations_s)):
        if len(events) >= command.limit:
            break
        assert isinstance(record, Reservation)
        events.append(ReservationPruned(reservation_id=record.reservation_id, cmd=command.cmd))
    return answer(Swept(count=len(events), more=len(events) >= command.limit), *events)


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
    roots = [*state.members(group.group_id), *([] if called is None else [called])]
    found = {job.job_id: job for root in roots for job in chain_of(state, root)}
    return list(found.values())


def _may_be_over(group: Group, retention: Retention, now: Timestamp) -> bool:
    """Tell by the group alone whether a look at all its jobs is worth while."""
    keep_s = retention.failed_s if group.failed else retention.done_s
    return (group.finished_at or group.created_at) <= later(now, -keep_s)


def _all_over(state: State, jobs: Sequence[Job], retention: Retention, now: Timestamp) -> bool:
    return all(_is_over(job, retention, now) and not is_counted(state, job, now) for job in jobs)


def _is_over(job: Job, retention: Retention, now: Timestamp) -> bool:
    if job.finished_at is None:
        return False
    lasting = job.status in (JobStatus.FAILED, JobStatus.DEAD)
    return job.finished_at <= later(now, -(retention.failed_s if lasting else retention.done_s))
