"""Fold: what an event makes of the records it touches. No policy, no clock, no chance; the event says it all.

A pair of status and event that the rules would have refused raises CorruptState: it can only come from damage or a bug,
and guessing on would make it worse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from holdfast.model import events as ev
from holdfast.model.ids import JobId, RunId, Token
from holdfast.model.jobs import Job, JobStatus, KeyHold, RetryKind, Run, RunStatus
from holdfast.model.records import AUTHORITY, Authority, DoneCommand, HeldKey, Queue, pair
from holdfast.model.times import Timestamp
from holdfast.rules.fold_changes import Change, Stamp, contradiction, demand, put
from holdfast.rules.groups.fold import GROUP_FOLDS, MOVING, fold_member
from holdfast.rules.jobs.dispatch_order import GAP, place, rank_of
from holdfast.rules.jobs.unique_keys import hold_of, table_key
from holdfast.rules.reservations.fold import RESERVATION_FOLDS
from holdfast.rules.schedules.fold import SCHEDULE_FOLDS
from holdfast.rules.state import State
from holdfast.rules.webhooks.fold import WEBHOOK_FOLDS
from holdfast.rules.workflows.fold import FLOW_FOLDS

replace = msgspec.structs.replace

#: The error of a run whose lease expired.
LOST = "worker did not report"
#: Why a member of a group is skipped.
_STOPPED = "the group was stopped by the failure of job {}"
#: Where a running job may go: by a reported failure, by being given back, by a lost lease.
_AFTER_FAILURE = frozenset({JobStatus.QUEUED, JobStatus.FAILED, JobStatus.CANCELLED})
_AFTER_RETURN = frozenset({JobStatus.QUEUED, JobStatus.CANCELLED})
_AFTER_LOSS = frozenset({JobStatus.QUEUED, JobStatus.FAILED, JobStatus.DEAD, JobStatus.CANCELLED})


def fold(state: State, event: ev.Event, stamp: Stamp) -> list[Change]:
    """Give the changes `event` makes to the records of `state`."""
    kind = type(event)
    changes = _FOLDS[kind](state, event, stamp)
    if kind in MOVING:
        for _, _, record in changes:
            if isinstance(record, Job) and record.sequence_number is not None and kind is not ev.GroupCreated:
                return [*changes, fold_member(state, event, record, stamp)]
    return changes


# --- creation and grant -----------------------------------------------------------------------------------------------


def _created(state: State, event: ev.JobCreated, stamp: Stamp) -> list[Change]:
    job = replace(event.job, seq=stamp.seq)
    if state.get(Job, job.job_id) is not None:
        raise contradiction(stamp, f"job {job.job_id} is created twice")
    if job.status is not JobStatus.QUEUED or job.token is not None:
        raise contradiction(stamp, f"job {job.job_id} is not created QUEUED")
    if job.retry_kind is RetryKind.AUTO and job.retry_of is not None:
        heirs = [heir.job_id for heir in state.successors(job.retry_of) if heir.retry_kind is RetryKind.AUTO]
        demand(not heirs, stamp, f"job {job.retry_of} already has the successor {heirs}")
    hold = hold_of(job)
    if hold is None or not _may_take(state, job):
        return [Change(Job, job.job_id, job)]
    return [put(job), put(hold)]


def _may_take(state: State, job: Job) -> bool:
    """Tell whether the job takes its key: a successor in a chain only from its predecessor, or if it is free."""
    key = table_key(job)
    held = None if key is None else state.get(HeldKey, key)
    return held is None or job.retry_kind is not RetryKind.AUTO or held.job_id == job.retry_of


def after_grant(job: Job, event: ev.LeaseGranted, now: Timestamp) -> Job:
    """Give the job as the worker gets it: RUNNING, with its lease."""
    return replace(
        job,
        status=JobStatus.RUNNING,
        not_before=None,
        executions=event.run_no,
        deliveries=job.deliveries + 1,
        worker_id=event.worker_id,
        token=event.token,
        lease_expires_at=event.lease_expires_at,
        deadline_at=event.deadline_at,
        session_id=event.session_id,
        grant_cmd=event.cmd or None,
        started_at=job.started_at or now,
    )


def _granted(state: State, event: ev.LeaseGranted, stamp: Stamp) -> list[Change]:
    job = _job(state, event.job_id, stamp)
    if job.status is not JobStatus.QUEUED:
        raise contradiction(stamp, f"job {job.job_id} is leased while {job.status}")
    if event.run_no != job.executions + 1:
        raise contradiction(stamp, f"job {job.job_id} skips from run {job.executions}")
    authority = state.get(Authority, AUTHORITY) or Authority()
    if event.token <= authority.last_token:
        raise contradiction(stamp, f"token {event.token} does not exceed {authority.last_token}")
    run = Run(
        run_id=event.run_id,
        job_id=job.job_id,
        run_no=event.run_no,
        started_at=stamp.ts,
        params_snapshot=job.params,
        namespace=job.namespace,
        queue=job.queue,
        limit_key=job.limit_key,
        template_id=job.template_id,
        worker_id=event.worker_id,
        token=event.token,
    )
    running = replace(after_grant(job, event, stamp.ts), seq=stamp.seq)
    changes = [
        Change(Job, job.job_id, running),
        Change(Run, run.run_id, run),
        Change(Authority, AUTHORITY, replace(authority, last_token=event.token)),
    ]
    return changes + _freed(state, job) if job.key_hold is KeyHold.QUEUED else changes


def _extended(state: State, event: ev.LeaseExtended, stamp: Stamp) -> list[Change]:
    job = _held(state, event.job_id, event.token, stamp)
    later = job.lease_expires_at is not None and event.lease_expires_at > job.lease_expires_at
    demand(later, stamp, f"the lease of job {job.job_id} is extended backwards")
    deadline = job.deadline_at if event.deadline_at is None else event.deadline_at
    return [put(replace(job, lease_expires_at=event.lease_expires_at, deadline_at=deadline, seq=stamp.seq))]


# --- the end of an execution ------------------------------------------------------------------------------------------


def _completed(state: State, event: ev.JobCompleted, stamp: Stamp) -> list[Change]:
    job = _held(state, event.job_id, event.token, stamp)
    run = _end_run(state, job, stamp, RunStatus.COMPLETED, **_left_behind(event), exit_code=event.exit_code)
    life: dict[str, Any] = {"attempts": job.attempts + 1, "result": event.result, "error": None}
    return [run, *_leave(state, job, JobStatus.COMPLETED, stamp, **life)]


def _failed(state: State, event: ev.JobFailed, stamp: Stamp) -> list[Change]:
    job = _held(state, event.job_id, event.token, stamp)
    run = _end_run(
        state,
        job,
        stamp,
        RunStatus.FAILED,
        error=event.error,
        error_kind=event.error_kind,
        details=event.details,
        exit_code=event.exit_code,
        **_left_behind(event),
    )
    demand(event.to in _AFTER_FAILURE, stamp, f"job {job.job_id} fails into {event.to}")
    life: dict[str, Any] = {"attempts": job.attempts + 1, "error": event.error}
    return [run, *_leave(state, job, event.to, stamp, not_before=event.not_before, position=event.position, **life)]


def _snoozed(state: State, event: ev.JobSnoozed, stamp: Stamp) -> list[Change]:
    job = _held(state, event.job_id, event.token, stamp)
    run = _end_run(state, job, stamp, RunStatus.SKIPPED, reason="snoozed", **_left_behind(event))
    demand(event.to in _AFTER_RETURN, stamp, f"job {job.job_id} is snoozed into {event.to}")
    job = replace(job, snoozes=job.snoozes + 1)
    return [run, *_leave(state, job, event.to, stamp, not_before=event.not_before, position=event.position)]


def _released(state: State, event: ev.LeaseReleased, stamp: Stamp) -> list[Change]:
    job = _held(state, event.job_id, event.token, stamp)
    run = _end_run(state, job, stamp, RunStatus.CANCELLED, reason="released", **_left_behind(event))
    demand(event.to in _AFTER_RETURN, stamp, f"job {job.job_id} is released into {event.to}")
    if event.given_back:
        job = replace(job, deliveries=max(0, job.deliveries - 1))
    return [run, *_leave(state, job, event.to, stamp, not_before=event.not_before)]


def _expired(state: State, event: ev.LeaseExpired, stamp: Stamp) -> list[Change]:
    job = _held(state, event.job_id, event.token, stamp)
    demand(event.to in _AFTER_LOSS, stamp, f"job {job.job_id} expires into {event.to}")
    lost: dict[str, Any] = {"error": LOST, "error_kind": "lost", "reason": event.reason}
    if event.run_id is None:
        run = _end_run(state, job, stamp, RunStatus.LOST, **lost)
    else:
        run = put(_lost_run(state, job, event.run_id, stamp, **lost))
    job = replace(job, expiries=job.expiries + event.counted, error=LOST)
    return [run, *_leave(state, job, event.to, stamp)]


def _lost_run(state: State, job: Job, run_id: RunId, stamp: Stamp, **end: Any) -> Run:
    """Make the run that a lease lacks, at its end already."""
    last = state.last_run(job.job_id)
    if last is not None and last.token == job.token:
        raise contradiction(stamp, f"job {job.job_id} has the run {last.run_id} for its lease")
    return Run(
        run_id=run_id,
        job_id=job.job_id,
        run_no=job.executions,
        started_at=job.started_at or stamp.ts,
        params_snapshot=job.params,
        namespace=job.namespace,
        queue=job.queue,
        limit_key=job.limit_key,
        template_id=job.template_id,
        worker_id=job.worker_id,
        token=job.token,
        status=RunStatus.LOST,
        finished_at=stamp.ts,
        **end,
    )


def _mended(state: State, event: ev.JobMended, stamp: Stamp) -> list[Change]:
    job, run = _job(state, event.job_id, stamp), state.get(Run, event.run_id)
    if run is None or run.finished_at is None or run.job_id != job.job_id or run.token != job.token:
        raise contradiction(stamp, f"run {event.run_id} is no ended run of job {job.job_id}")
    demand(job.status is JobStatus.RUNNING, stamp, f"job {job.job_id} is mended while {job.status}")
    counters = {"attempts": event.attempts, "expiries": event.expiries, "snoozes": event.snoozes}
    job = replace(job, **counters, error=event.error)
    change, *others = _leave(state, job, event.to, stamp, not_before=event.not_before, position=event.position)
    left = change.record
    if isinstance(left, Job) and left.has_ended:
        left = replace(left, finished_at=run.finished_at)
    return [Change(Job, job.job_id, left), *others]


def _run_dropped(state: State, event: ev.RunDropped, stamp: Stamp) -> list[Change]:
    run = state.get(Run, event.run_id)
    if run is None or state.get(Job, run.job_id) is not None:
        raise contradiction(stamp, f"run {event.run_id} is not there, or has its job")
    return [Change(Run, event.run_id, None)]


def _cancelled(state: State, event: ev.JobCancelled, stamp: Stamp) -> list[Change]:
    job = _job(state, event.job_id, stamp)
    demand(not job.has_ended, stamp, f"job {job.job_id} is cancelled while {job.status}")
    demand(job.token == event.token, stamp, f"job {job.job_id} is cancelled with another token")
    reason = "gave_up" if event.gave_up else "cancelled"
    left = _left_behind(event)
    runs = [] if job.token is None else [_end_run(state, job, stamp, RunStatus.CANCELLED, reason=reason, **left)]
    job = replace(job, cancel_reason=event.reason or job.cancel_reason)
    return [*runs, *_leave(state, job, JobStatus.CANCELLED, stamp)]


def _cancel_requested(state: State, event: ev.JobCancelRequested, stamp: Stamp) -> list[Change]:
    job = _job(state, event.job_id, stamp)
    demand(job.status is JobStatus.RUNNING, stamp, f"job {job.job_id} is asked to stop while {job.status}")
    asked = replace(job, cancel_requested_at=stamp.ts, cancel_reason=event.reason or None, seq=stamp.seq)
    return [put(asked)]


def _dead(state: State, event: ev.JobDead, stamp: Stamp) -> list[Change]:
    job = _job(state, event.job_id, stamp)
    demand(not job.has_ended, stamp, f"job {job.job_id} is buried while {job.status}")
    runs = [] if job.token is None else [_end_run(state, job, stamp, RunStatus.CANCELLED, reason="buried")]
    job = replace(job, error=event.reason or job.error)
    return [*runs, *_leave(state, job, JobStatus.DEAD, stamp)]


def _skipped(state: State, event: ev.JobSkipped, stamp: Stamp) -> list[Change]:
    job = _job(state, event.job_id, stamp)
    demand(job.status is JobStatus.QUEUED, stamp, f"job {job.job_id} is skipped while {job.status}")
    run = Run(
        run_id=event.run_id,
        job_id=job.job_id,
        run_no=0,
        started_at=stamp.ts,
        params_snapshot=job.params,
        namespace=job.namespace,
        queue=job.queue,
        limit_key=job.limit_key,
        template_id=job.template_id,
        status=RunStatus.SKIPPED,
        finished_at=stamp.ts,
        reason=event.reason,
        error=_why_skipped(event),
    )
    said = event.reason if event.held_by is None else f"{event.reason} with job {event.held_by}"
    job = replace(job, cancel_reason=_STOPPED.format(event.held_by) if event.reason == "group" else said)
    return [put(run), *_leave(state, job, JobStatus.CANCELLED, stamp)]


def _why_skipped(event: ev.JobSkipped) -> str | None:
    """Say which job is to blame, if one is."""
    if event.reason == "group":
        return _STOPPED.format(event.held_by)
    return None if event.held_by is None else f"job {event.held_by} of the schedule was not over"


# --- edits ------------------------------------------------------------------------------------------------------------


def _updated(state: State, event: ev.JobUpdated, stamp: Stamp) -> list[Change]:
    job = _queued(state, event.job_id, stamp)
    fields: dict[str, Any] = event.changes.given()
    demand("params" not in fields or job.started_at is None, stamp, f"the parameters of job {job.job_id} are frozen")
    if event.rank is not None:
        fields["rank"] = event.rank
    if event.position is not None:
        fields["position"] = event.position
    return [put(replace(job, **fields, seq=stamp.seq))]


def _moved(state: State, event: ev.JobMoved, stamp: Stamp) -> list[Change]:
    return [put(replace(_queued(state, event.job_id, stamp), position=event.position, seq=stamp.seq))]


def _normalized(state: State, event: ev.QueueNormalized, stamp: Stamp) -> list[Change]:
    band = state.band(event.namespace, event.queue, event.rank)
    return [put(replace(job, position=GAP * number, seq=stamp.seq)) for number, job in enumerate(band, start=1)]


def _pruned(state: State, event: ev.JobPruned, stamp: Stamp) -> list[Change]:
    job = _job(state, event.job_id, stamp)
    demand(job.has_ended, stamp, f"job {job.job_id} is pruned while {job.status}")
    runs = [Change(Run, run.run_id, None) for run in state.runs(job.job_id)]
    return [*runs, Change(Job, job.job_id, None)]


def _queue_paused(state: State, event: ev.QueuePaused, stamp: Stamp) -> list[Change]:
    del stamp
    queue = state.get(Queue, pair(event.namespace, event.queue)) or Queue(event.namespace, event.queue)
    return [put(replace(queue, paused=True, pause_reason=event.reason or None))]


def _queue_resumed(state: State, event: ev.QueueResumed, stamp: Stamp) -> list[Change]:
    del stamp
    queue = state.get(Queue, pair(event.namespace, event.queue)) or Queue(event.namespace, event.queue)
    return [put(replace(queue, paused=False, pause_reason=None))]


def _queue_set(state: State, event: ev.QueueSet, stamp: Stamp) -> list[Change]:
    queue = state.get(Queue, pair(event.namespace, event.queue)) or Queue(event.namespace, event.queue)
    fields: dict[str, Any] = event.changes.given()
    changed = replace(queue, **fields)
    return [put(changed), *(_banded(state, changed, stamp) if changed.aging_s != queue.aging_s else ())]


def _banded(state: State, queue: Queue, stamp: Stamp) -> Iterator[Change]:
    """Put the jobs of a queue into their bands anew, in the order they have; running ones may come back to it."""
    jobs = [*state.queued(queue.namespace, queue.name)]
    jobs += [_job(state, job_id, stamp) for job_id in state.running(queue.namespace, queue.name)]
    backs: dict[int, int] = {}
    for job in sorted(jobs, key=place):
        rank = rank_of(job.priority, job.created_at, queue)
        backs[rank] = position = backs.get(rank, 0) + GAP
        yield put(replace(job, rank=rank, position=position, seq=stamp.seq))


def _dispatch_paused(state: State, event: ev.DispatchPaused, stamp: Stamp) -> list[Change]:
    del stamp
    authority = state.get(Authority, AUTHORITY) or Authority()
    return [put(replace(authority, dispatch_paused=True, dispatch_reason=event.reason or None))]


def _dispatch_resumed(state: State, event: ev.DispatchResumed, stamp: Stamp) -> list[Change]:
    del event, stamp
    authority = state.get(Authority, AUTHORITY) or Authority()
    return [put(replace(authority, dispatch_paused=False, dispatch_reason=None))]


def _key_dropped(state: State, event: ev.KeyDropped, stamp: Stamp) -> list[Change]:
    del state, stamp
    return [Change(HeldKey, pair(event.namespace, event.unique_key), None)]


def _command_done(state: State, event: ev.CommandDone, stamp: Stamp) -> list[Change]:
    del state
    return [put(DoneCommand(event.cmd, event.digest, event.outcome, event.since or stamp.ts))]


def _command_forgotten(state: State, event: ev.CommandForgotten, stamp: Stamp) -> list[Change]:
    del state, stamp
    return [Change(DoneCommand, event.forgotten, None)]


# --- shared steps -----------------------------------------------------------------------------------------------------


def _job(state: State, job_id: JobId, stamp: Stamp) -> Job:
    job = state.get(Job, job_id)
    if job is None:
        raise contradiction(stamp, f"there is no job {job_id}")
    return job


def _queued(state: State, job_id: JobId, stamp: Stamp) -> Job:
    job = _job(state, job_id, stamp)
    demand(job.status is JobStatus.QUEUED, stamp, f"job {job_id} is edited while {job.status}")
    return job


def _held(state: State, job_id: JobId, token: Token, stamp: Stamp) -> Job:
    job = _job(state, job_id, stamp)
    if job.status is not JobStatus.RUNNING:
        raise contradiction(stamp, f"job {job_id} is reported while {job.status}")
    if job.token != token:
        raise contradiction(stamp, f"job {job_id} is reported with token {token}, its lease has {job.token}")
    return job


def _end_run(state: State, job: Job, stamp: Stamp, status: RunStatus, **fields: Any) -> Change:
    run = state.last_run(job.job_id)
    if run is None or run.token != job.token:
        raise contradiction(stamp, f"job {job.job_id} has no run for its lease")
    if run.status is not None:
        raise contradiction(stamp, f"run {run.run_id} ends twice")
    return Change(Run, run.run_id, replace(run, status=status, finished_at=stamp.ts, **fields))


def _left_behind(
    event: ev.JobCompleted | ev.JobFailed | ev.JobSnoozed | ev.LeaseReleased | ev.JobCancelled,
) -> dict[str, Any]:
    """Give what the holder reported beside the outcome; it stays with the run."""
    return {"artifacts": event.artifacts, "progress": event.progress}


def _leave(
    state: State,
    job: Job,
    to: JobStatus,
    stamp: Stamp,
    *,
    not_before: Timestamp | None = None,
    position: int | None = None,
    **life: Any,
) -> list[Change]:
    """Take the job out of the hands of its worker: back to the queue, or to its end. `life` is what it gained."""
    ended = to is not JobStatus.QUEUED
    left = replace(
        job,
        status=to,
        not_before=None if ended else not_before,
        position=job.position if position is None else position,
        worker_id=None,
        token=None,
        lease_expires_at=None,
        deadline_at=None,
        session_id=None,
        grant_cmd=None,
        finished_at=stamp.ts if ended else None,
        seq=stamp.seq,
        **life,
    )
    change = Change(Job, job.job_id, left)
    if job.key is None:
        return [change]
    return [change, *(_freed(state, left) if ended else _taken_again(state, left))]


def _freed(state: State, job: Job) -> list[Change]:
    """Let go of the key, unless it is held beyond the job or by another one."""
    key = table_key(job)
    if key is None or job.key_hold in (KeyHold.WINDOW, KeyHold.FOREVER):
        return []
    held = state.get(HeldKey, key)
    return [Change(HeldKey, key, None)] if held is not None and held.job_id == job.job_id else []


def _taken_again(state: State, job: Job) -> list[Change]:
    """Take a `queued` key again when the job is queued again and the key is free."""
    key = table_key(job)
    if key is None or job.key_hold is not KeyHold.QUEUED or state.get(HeldKey, key) is not None:
        return []
    hold = hold_of(job)
    return [] if hold is None else [put(hold)]


_FOLDS: dict[type[ev.Event], Callable[[State, Any, Stamp], list[Change]]] = {
    ev.JobCreated: _created,
    ev.LeaseGranted: _granted,
    ev.LeaseExtended: _extended,
    ev.LeaseExpired: _expired,
    ev.LeaseReleased: _released,
    ev.JobCompleted: _completed,
    ev.JobFailed: _failed,
    ev.JobSnoozed: _snoozed,
    ev.JobCancelRequested: _cancel_requested,
    ev.JobCancelled: _cancelled,
    ev.JobSkipped: _skipped,
    ev.JobDead: _dead,
    ev.JobUpdated: _updated,
    ev.JobMoved: _moved,
    ev.JobPruned: _pruned,
    ev.JobMended: _mended,
    ev.RunDropped: _run_dropped,
    ev.QueuePaused: _queue_paused,
    ev.QueueResumed: _queue_resumed,
    ev.QueueSet: _queue_set,
    ev.QueueNormalized: _normalized,
    ev.DispatchPaused: _dispatch_paused,
    ev.DispatchResumed: _dispatch_resumed,
    **SCHEDULE_FOLDS,
    **FLOW_FOLDS,
    **GROUP_FOLDS,
    **RESERVATION_FOLDS,
    **WEBHOOK_FOLDS,
    ev.KeyDropped: _key_dropped,
    ev.CommandDone: _command_done,
    ev.CommandForgotten: _command_forgotten,
}
