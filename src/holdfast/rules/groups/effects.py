"""What a command does to groups beyond what it was sent for: a group stops, has another status, calls back.

Sees the group as it will be after the events decided so far, and adds, in the same commit: with `stop`, once a member
has failed for good, the skipping of all that wait, retries included; the new status; at the end, the callback job.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from holdfast.model.command_base import Order
from holdfast.model.commands import MendGroups, NewJob
from holdfast.model.events import Event, GroupChanged, GroupCreated, JobCreated, JobSkipped
from holdfast.model.groups import Group, OnFailure
from holdfast.model.ids import JobId, RunId
from holdfast.model.jobs import Job, JobStatus, RetryKind
from holdfast.model.outcomes import Swept
from holdfast.model.payloads import NULL
from holdfast.model.times import Timestamp
from holdfast.rules.decision import Decision, answer
from holdfast.rules.groups.fold import MOVING, OVER, counted_as, moved, status_of
from holdfast.rules.jobs.dispatch_order import member_place
from holdfast.rules.jobs.enqueue import Drafts, draft
from holdfast.rules.jobs.retry import automatic_heir
from holdfast.rules.random_source import Draws
from holdfast.rules.state import State

_callback: msgspec.json.Decoder[NewJob] = msgspec.json.Decoder(NewJob)


def group_effects(state: State, events: Sequence[Event], now: Timestamp, draws: Draws) -> list[Event]:
    """Give the events that follow for the groups whose members these events touch."""
    seen = _Seen(state, now)
    for event in events:
        if type(event) in MOVING:
            seen.note(event)
    if not seen.groups:
        return []
    return _effects(seen, events[0].cmd, draws)


def decide_mend(state: State, command: MendGroups, now: Timestamp, draws: Draws) -> Decision:
    """Give groups what they lack: members that should have been skipped, their status, their callback."""
    lacking = [group for group in state.live_groups() if _lacks(group)]
    seen = _Seen(state, now)
    seen.groups.update({group.group_id: group for group in lacking[: command.limit]})
    count = len(seen.groups)
    return answer(Swept(count=count, more=count < len(lacking)), *_effects(seen, command.cmd, draws))


def _lacks(group: Group) -> bool:
    """Tell whether something should have happened in the commit that last changed a member."""
    stopped = group.on_failure is OnFailure.STOP and group.failed > 0
    return (stopped and group.queued > 0) or status_of(group) is not group.status


def callback_of(group: Group) -> NewJob | None:
    """Give the job that is made when the group ends, or None."""
    return None if group.callback == NULL else _callback.decode(group.callback)


def _effects(seen: _Seen, cmd: str, draws: Draws) -> list[Event]:
    added: list[Event] = []
    made: set[JobId] = set()
    drafts = Drafts(seen.state, Order(cmd=cmd), seen.now)
    for group_id in seen.groups:
        for skipped in _skipped(seen, group_id, cmd, draws):
            seen.note(skipped)
            added.append(skipped)
        group = seen.groups[group_id]
        status = status_of(group)
        if status is group.status:
            continue
        added.append(GroupChanged(group_id=group_id, status=status, cmd=cmd))
        callback = callback_of(group) if status in OVER else None
        # It is made once: a group that was carried on after its end finds it there, as does one that was given the
        # same job as another, be it that both end at once.
        if callback is not None and callback.job_id not in made and seen.state.get(Job, callback.job_id) is None:
            made.add(callback.job_id)
            job = msgspec.structs.replace(draft(drafts, callback), group_id=group_id)
            added.append(JobCreated(job=job, cmd=cmd))
    return added


def _skipped(seen: _Seen, group_id: str, cmd: str, draws: Draws) -> list[JobSkipped]:
    """Give the skipping of all that wait in a group that a failure has stopped."""
    group = seen.groups[group_id]
    if group.on_failure is not OnFailure.STOP or not group.failed or not group.queued:
        return []
    failed = seen.failed.get(group_id) or _failed_before(seen.state, group_id)
    return [
        JobSkipped(job_id=job.job_id, run_id=RunId(draws.new_id()), reason="group", held_by=failed, cmd=cmd)
        for job in sorted(seen.queued(group_id), key=member_place)
    ]


def _failed_before(state: State, group_id: str) -> JobId | None:
    """Give a member that has failed for good, before this command."""
    for status in (JobStatus.FAILED, JobStatus.DEAD):
        for job in state.members(group_id, status):
            if automatic_heir(state, job) is None:
                return job.job_id
    return None


class _Seen:
    """Groups and members as they will be after the events of one command."""

    def __init__(self, state: State, now: Timestamp) -> None:
        self.state = state
        self.now = now
        self.groups: dict[str, Group] = {}
        #: Group → a member that this command ends in failure, for good.
        self.failed: dict[str, JobId] = {}
        #: Members the command has touched, and how they are counted.
        self._jobs: dict[JobId, Job] = {}
        self._counted: dict[JobId, JobStatus] = {}

    def note(self, event: Event) -> None:
        """Take in one event."""
        match event:
            case GroupCreated():
                self._create(event)
            case GroupChanged(group_id=group_id, status=status):
                group = self.groups.get(group_id) or self.state.get(Group, group_id)
                if group is not None:
                    self.groups[group_id] = msgspec.structs.replace(group, status=status)
            case JobCreated(job=job) if job.sequence_number is not None:
                self._move(job, self._before(job), JobStatus.QUEUED)
            case JobCreated():
                return
            case _:
                job_id: JobId = event.job_id  # type: ignore[union-attr]  # what moves a member names it
                found = self._jobs.get(job_id) or self.state.get(Job, job_id)
                if found is None or found.sequence_number is None:
                    return
                after = counted_as(event)
                if after is not None:
                    self._move(found, self._counted.get(job_id, found.status), after)

    def queued(self, group_id: str) -> Iterator[Job]:
        """Walk the members that will be QUEUED."""
        for job in self.state.members(group_id, JobStatus.QUEUED):
            if job.job_id not in self._counted:
                yield job
        for job_id, job in self._jobs.items():
            ended = self._counted[job_id] is not JobStatus.QUEUED or self._is_followed(job_id)
            if job.group_id == group_id and not ended:
                yield job

    def _is_followed(self, job_id: JobId) -> bool:
        """Tell whether a job that counts as queued is not so itself: it has ended, and its successor waits."""
        return any(job.retry_of == job_id and job.retry_kind is RetryKind.AUTO for job in self._jobs.values())

    def _create(self, event: GroupCreated) -> None:
        group = event.group
        for job_id, _ in event.joined:
            job = self.state.get(Job, job_id)
            group = moved(group, None, JobStatus.QUEUED, None if job is None else job.started_at)
        self.groups[group.group_id] = group

    def _before(self, job: Job) -> JobStatus | None:
        """Give how the member was counted that a new job stands for; None if it is a new member."""
        if job.retry_kind is not RetryKind.AUTO or job.retry_of is None:
            return None
        counted = self._counted.get(job.retry_of)
        old = self.state.get(Job, job.retry_of)
        if counted is not None or old is None:
            return counted or JobStatus.QUEUED
        return old.status

    def _move(self, job: Job, before: JobStatus | None, after: JobStatus) -> None:
        group_id = job.group_id or ""
        group = self.groups.get(group_id) or self.state.get(Group, group_id)
        if group is None:
            return
        self._jobs[job.job_id] = job
        self._counted[job.job_id] = after
        self.groups[group_id] = moved(group, before, after, self.now if after is JobStatus.RUNNING else None)
        if after in (JobStatus.FAILED, JobStatus.DEAD):
            self.failed[group_id] = job.job_id
