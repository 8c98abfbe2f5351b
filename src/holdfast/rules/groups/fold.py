"""What job events make of the group they happen in: counts, and the status that follows from them. No policy.

Every member is counted once, by the last job of its automatic chain: a job that ends with a successor is counted as
queued again before the successor is there. Both the folds and the rules move counts by the same few functions, so what
was decided and what is folded cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.model import events as ev
from holdfast.model.groups import Group, GroupStatus, OnFailure
from holdfast.model.jobs import Job, JobStatus, RetryKind
from holdfast.model.times import Timestamp
from holdfast.rules.fold_changes import Change, Stamp, contradiction, demand, put
from holdfast.rules.state import State

replace = msgspec.structs.replace

#: Statuses of a group that has ended.
OVER = frozenset({GroupStatus.COMPLETED, GroupStatus.FAILED, GroupStatus.CANCELLED, GroupStatus.PARTIAL})
#: Where a member of a status is counted.
_COUNTED = {
    JobStatus.QUEUED: "queued",
    JobStatus.RUNNING: "running",
    JobStatus.COMPLETED: "completed",
    JobStatus.FAILED: "failed",
    JobStatus.DEAD: "failed",
    JobStatus.CANCELLED: "cancelled",
}
#: The events that change a job's status, and what they change it to; None where the event itself says it.
_TO: dict[type[ev.Event], JobStatus | None] = {
    ev.LeaseGranted: JobStatus.RUNNING,
    ev.LeaseExpired: None,
    ev.LeaseReleased: None,
    ev.JobCompleted: JobStatus.COMPLETED,
    ev.JobFailed: None,
    ev.JobSnoozed: None,
    ev.JobCancelled: JobStatus.CANCELLED,
    ev.JobSkipped: JobStatus.CANCELLED,
    ev.JobDead: JobStatus.DEAD,
    ev.JobMended: None,
}
#: The events that may move a member, make a group, or say what it is.
MOVING = frozenset({*_TO, ev.JobCreated, ev.GroupCreated, ev.GroupChanged})


def counted_as(event: Any) -> JobStatus | None:
    """Give the status by which a member is counted after this event; None if it changes none."""
    if type(event) not in _TO:
        return None
    if getattr(event, "successor", None) is not None:
        return JobStatus.QUEUED
    to: JobStatus = _TO[type(event)] or event.to
    return to


def moved(group: Group, before: JobStatus | None, after: JobStatus, at: Timestamp | None) -> Group:
    """Count a member differently; `before` is None for a new one, `at` is when it was first leased, if it was."""
    counts = {_COUNTED[after]: getattr(group, _COUNTED[after]) + 1}
    if before is None:
        counts["members"] = group.members + 1
    elif _COUNTED[before] == _COUNTED[after]:
        counts = {}
    else:
        counts[_COUNTED[before]] = getattr(group, _COUNTED[before]) - 1
    return started_by(replace(group, **counts), at)


def started_by(group: Group, at: Timestamp | None) -> Group:
    """Give the group with a member that was first leased at that time, if it was."""
    if at is None or (group.started_at is not None and group.started_at <= at):
        return group
    return replace(group, started_at=at)


def counts_of(group: Group) -> tuple[int, ...]:
    """Give how many members there are, queued, running, completed, failed and cancelled ones."""
    return (group.members, group.queued, group.running, group.completed, group.failed, group.cancelled)


def status_of(group: Group) -> GroupStatus:
    """Give the status that the counts of a group mean; the first that fits."""
    ended = group.completed + group.failed + group.cancelled
    if not group.members:
        return GroupStatus.CREATED
    if ended < group.members:
        return GroupStatus.RUNNING if ended or group.started_at is not None else GroupStatus.QUEUED
    fine = group.completed + (group.failed if group.on_failure is OnFailure.SKIP else 0)
    if group.completed and fine == group.members:
        return GroupStatus.COMPLETED
    if group.completed:
        return GroupStatus.PARTIAL
    return GroupStatus.FAILED if group.failed else GroupStatus.CANCELLED


# --- folds ------------------------------------------------------------------------------------------------------------


def fold_member(state: State, event: Any, job: Job, stamp: Stamp) -> Change:
    """Count a member as it is after the event; `job` is what the event made of it."""
    group = _group(state, job.group_id or "", stamp)
    if isinstance(event, ev.JobCreated):
        before = _counted_before(state, job, stamp)
        if before is None:
            demand(group.finished_at is None, stamp, f"job {job.job_id} joins group {group.group_id}, which is over")
        return put(moved(group, before, JobStatus.QUEUED, None))
    old = state.get(Job, job.job_id)
    after = counted_as(event)
    if old is None or after is None:
        raise contradiction(stamp, f"job {job.job_id} of group {group.group_id} is not there")
    return put(moved(group, old.status, after, stamp.ts if after is JobStatus.RUNNING else None))


def _counted_before(state: State, job: Job, stamp: Stamp) -> JobStatus | None:
    """Give how the member was counted that a new job stands for; None if it is a new member."""
    if job.retry_kind is not RetryKind.AUTO or job.retry_of is None:
        return None
    old = state.get(Job, job.retry_of)
    if old is None or old.seq == stamp.seq - 1:
        return JobStatus.QUEUED  # the event before has ended it, with this job as its successor
    return old.status  # it had ended without one, and is carried on all the same


def _created(state: State, event: ev.GroupCreated, stamp: Stamp) -> list[Change]:
    group = event.group
    demand(state.get(Group, group.group_id) is None, stamp, f"group {group.group_id} is created twice")
    jobs: list[Change] = []
    for job_id, number in event.joined:
        job = state.get(Job, job_id)
        if job is None or job.status is not JobStatus.QUEUED or job.group_id is not None:
            raise contradiction(stamp, f"job {job_id} cannot join group {group.group_id}")
        jobs.append(put(replace(job, group_id=group.group_id, sequence_number=number, seq=stamp.seq)))
        group = moved(group, None, JobStatus.QUEUED, job.started_at)
    # The group first: its jobs refer to it.
    return [put(group), *jobs]


def _changed(state: State, event: ev.GroupChanged, stamp: Stamp) -> list[Change]:
    group = _group(state, event.group_id, stamp)
    means = status_of(group)
    demand(event.status is means, stamp, f"group {group.group_id} is to be {event.status}, its members say {means}")
    return [put(replace(group, status=event.status, finished_at=stamp.ts if event.status in OVER else None))]


def _pruned(state: State, event: ev.GroupPruned, stamp: Stamp) -> list[Change]:
    group = _group(state, event.group_id, stamp)
    demand(group.status in OVER or not group.members, stamp, f"group {group.group_id} is pruned while {group.status}")
    return [Change(Group, group.group_id, None)]


def _group(state: State, group_id: str, stamp: Stamp) -> Group:
    group = state.get(Group, group_id)
    if group is None:
        raise contradiction(stamp, f"there is no group {group_id}")
    return group


GROUP_FOLDS: dict[type[ev.Event], Callable[[State, Any, Stamp], list[Change]]] = {
    ev.GroupCreated: _created,
    ev.GroupChanged: _changed,
    ev.GroupPruned: _pruned,
}
