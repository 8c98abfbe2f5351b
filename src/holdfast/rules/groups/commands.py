"""Groups: jobs that belong together are made, or brought together, by one command; and cancelled by one.

Members are fixed at creation. What happens to a group when its members end is decided in `effects`.
"""

from __future__ import annotations

import msgspec

from holdfast.errors import DuplicateKey, GroupNotFound, IdReused, InvalidOperation, JobNotFound
from holdfast.model.commands import CancelGroup, CreateGroup, NewJob
from holdfast.model.events import Event, GroupCreated, JobCancelled, JobCancelRequested, JobCreated
from holdfast.model.groups import Group
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, JobStatus
from holdfast.model.outcomes import GroupCancelled, Grouped, Refusal, refuse
from holdfast.model.payloads import NULL, shorten_error
from holdfast.model.times import Timestamp
from holdfast.rules.decision import Decision, answer, deny
from holdfast.rules.groups.fold import OVER
from holdfast.rules.jobs.enqueue import Drafts, draft, key_holder, key_wanted
from holdfast.rules.state import State

replace = msgspec.structs.replace


def decide_create_group(state: State, command: CreateGroup, now: Timestamp) -> Decision:
    """Make a group with all its members, or refuse it. Sent again, it finds what it made."""
    existing = state.get(Group, command.group_id)
    if existing is not None:
        return _sent_again(state, command, existing)
    group = Group(
        group_id=command.group_id,
        created_at=now,
        namespace=command.namespace,
        name=command.name,
        mode=command.mode,
        on_failure=command.on_failure,
        callback=_kept(command.callback),
    )
    drafts = Drafts(state, command, now)
    joined: list[tuple[JobId, int]] = []
    for number, member in enumerate(command.members):
        refusal = _make(drafts, group, member, number) if isinstance(member, NewJob) else _join(state, group, member)
        if refusal is not None:
            return answer(refusal)
        if not isinstance(member, NewJob):
            joined.append((member, number))
    if command.callback is not None and state.get(Job, command.callback.job_id) is not None:
        return answer(_taken(command.callback.job_id))
    created = GroupCreated(group=group, joined=tuple(joined), cmd=command.cmd, actor=command.actor)
    return answer(Grouped(group_id=group.group_id, members=_ids(command)), created, *drafts.events)


def _ids(command: CreateGroup) -> tuple[JobId, ...]:
    return tuple(member.job_id if isinstance(member, NewJob) else member for member in command.members)


def _kept(callback: NewJob | None) -> msgspec.Raw:
    return NULL if callback is None else msgspec.Raw(msgspec.json.encode(callback))


def _make(drafts: Drafts, group: Group, new: NewJob, number: int) -> Refusal | None:
    """Draft a new member, or refuse it: what it meets is never taken for it, as it would not belong to the group."""
    if drafts.state.get(Job, new.job_id) is not None:
        return _taken(new.job_id)
    if new.key is not None:
        held_by = key_holder(drafts, new)
        if held_by is not None:
            job_id = held_by.job_id if isinstance(held_by, Job) else held_by
            return refuse(
                DuplicateKey,
                f"the key {new.key!r} is held by job {job_id}, which is no member. Nothing was stored.",
                hint="Wait for that job, cancel it, or use another key.",
                job_id=job_id,
                key=new.key,
            )
    job = replace(draft(drafts, new), group_id=group.group_id, sequence_number=number)
    drafts.created[job.job_id] = job
    if new.key is not None:
        drafts.keys[key_wanted(new)] = job
    drafts.events.append(JobCreated(job=job, cmd=drafts.command.cmd, actor=drafts.command.actor))
    return None


def _taken(job_id: JobId) -> Refusal:
    return refuse(IdReused, f"job {job_id} exists already. Nothing was stored.", job_id=job_id)


def _join(state: State, group: Group, job_id: JobId) -> Refusal | None:
    """Refuse a job that cannot become a member, or None."""
    job = state.get(Job, job_id)
    if job is None or job.namespace != group.namespace:
        return refuse(JobNotFound, f"there is no job {job_id}. Nothing was stored.", job_id=job_id)
    if job.group_id is not None:
        message = f"job {job_id} belongs to group {job.group_id} already. Nothing was stored."
        return refuse(InvalidOperation, message, job_id=job_id, group_id=job.group_id)
    if job.status is not JobStatus.QUEUED:
        message = f"job {job_id} is {job.status}; only a QUEUED one can join a group. Nothing was stored."
        return refuse(InvalidOperation, message, job_id=job_id, status=job.status)
    return None


def _sent_again(state: State, command: CreateGroup, group: Group) -> Decision:
    """Answer as the first time if everything is the same."""
    wished = (command.namespace, command.name, command.mode, command.on_failure, _kept(command.callback))
    had = (group.namespace, group.name, group.mode, group.on_failure, group.callback)
    if wished == had and len(command.members) == group.members and _has_members(state, command):
        return answer(Grouped(group_id=group.group_id, members=_ids(command), created=False))
    return deny(
        IdReused,
        f"group {group.group_id} exists already, with other members or options. Nothing was stored.",
        group_id=group.group_id,
    )


def _has_members(state: State, command: CreateGroup) -> bool:
    for number, member in enumerate(command.members):
        job = state.get(Job, member.job_id if isinstance(member, NewJob) else member)
        if job is None or (job.group_id, job.sequence_number) != (command.group_id, number):
            return False
        if isinstance(member, NewJob) and (job.job_type, job.params) != (member.job_type, member.params):
            return False
    return True


def decide_cancel_group(state: State, command: CancelGroup) -> Decision:
    """End the members that wait; with `running` ask those that run to stop."""
    group = state.get(Group, command.group_id)
    if group is None:
        return deny(GroupNotFound, f"there is no group {command.group_id}.", group_id=command.group_id)
    if group.status in OVER:
        return deny(
            InvalidOperation,
            f"group {group.group_id} is {group.status} and cannot be cancelled. Nothing was changed.",
            group_id=group.group_id,
            status=group.status,
        )
    reason, cmd, actor = shorten_error(command.reason), command.cmd, command.actor
    queued = state.members(group.group_id, JobStatus.QUEUED)
    running = state.members(group.group_id, JobStatus.RUNNING) if command.running else ()
    ended: list[Event] = [JobCancelled(job_id=job.job_id, reason=reason, cmd=cmd, actor=actor) for job in queued]
    asked: list[Event] = [
        JobCancelRequested(job_id=job.job_id, reason=reason, cmd=cmd, actor=actor)
        for job in running
        if job.cancel_requested_at is None
    ]
    return answer(GroupCancelled(cancelled=len(ended), requested=len(asked)), *ended, *asked)
