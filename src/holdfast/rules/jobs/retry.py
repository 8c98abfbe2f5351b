"""Retry: how long to wait, what a successor is, and running an ended job again by hand."""

from __future__ import annotations

import msgspec

from holdfast.errors import DuplicateKey, IdReused, InvalidOperation, JobNotFound
from holdfast.model.commands import Retry
from holdfast.model.events import JobCreated
from holdfast.model.ids import JobId
from holdfast.model.jobs import Backoff, Job, JobStatus, KeyHold, RetryKind
from holdfast.model.outcomes import Enqueued, Submitted
from holdfast.model.payloads import NULL
from holdfast.model.records import Queue, pair
from holdfast.model.times import Timestamp, later, seconds_between
from holdfast.rules.decision import Decision, answer, deny
from holdfast.rules.jobs.dispatch_order import back, rank_of
from holdfast.rules.jobs.unique_keys import holder
from holdfast.rules.state import State


def delay_s(backoff: Backoff, failures_before: int, fraction: float) -> float:
    """Give the seconds until the next attempt: min(cap, base · factorⁿ), raised by up to `jitter` of itself."""
    try:
        wait = min(backoff.cap_s, backoff.base_s * backoff.factor**failures_before)
    except OverflowError:
        wait = backoff.cap_s
    return wait * (1 + fraction * backoff.jitter)


def successor(job: Job, heir: JobId, now: Timestamp, *, position: int, not_before: Timestamp | None = None) -> Job:
    """Give the job that carries on a chain. The counters of `job`, raised already, move along; its life does not."""
    return msgspec.structs.replace(
        job,
        job_id=heir,
        status=JobStatus.QUEUED,
        created_at=now,
        position=position,
        not_before=not_before,
        executions=0,
        retry_of=job.job_id,
        retry_kind=RetryKind.AUTO,
        worker_id=None,
        token=None,
        lease_expires_at=None,
        deadline_at=None,
        session_id=None,
        grant_cmd=None,
        result=NULL,
        started_at=None,
        finished_at=None,
        seq=0,
    )


def is_last_attempt(job: Job) -> bool:
    """Tell whether a job that runs has no attempt left after this one."""
    return job.attempts + 1 >= job.max_attempts or job.direct


def is_final_kind(error_kind: str | None) -> bool:
    """Tell whether a failure of this kind ends the job, whatever attempts are left.

    `bad_result`: the handler has done its work and returned a value that cannot be encoded. Another attempt would
    repeat the effect, and return the same.
    """
    return error_kind in ("fatal", "bad_result")


def automatic_heir(state: State, job: Job) -> JobId | None:
    """Give the job that carries on after this one by itself, or None."""
    heirs = (heir.job_id for heir in state.successors(job.job_id) if heir.retry_kind is RetryKind.AUTO)
    return next(heirs, None)


def last_of(state: State, job_id: JobId) -> Job | None:
    """Give the job that now stands for this one: itself, or the last of its automatic retries."""
    job = state.get(Job, job_id)
    while job is not None and job.has_ended:
        heir = automatic_heir(state, job)
        if heir is None:
            break
        job = state.get(Job, heir)
    return job


def decide_retry(state: State, command: Retry, now: Timestamp) -> Decision:
    """Make a new job from an ended one, with a full budget of its own."""
    made = state.get(Job, command.new_job_id)
    if made is not None:
        if made.retry_of == command.job_id and made.retry_kind is RetryKind.MANUAL:
            return answer(Enqueued(jobs=(Submitted(made.job_id, created=False),)))
        return deny(IdReused, f"job {made.job_id} exists already. Nothing was stored.", job_id=made.job_id)
    old = state.get(Job, command.job_id)
    if old is None:
        return deny(JobNotFound, f"there is no job {command.job_id}.", job_id=command.job_id)
    complaint = _not_retryable(state, old)
    if complaint is not None:
        return complaint
    job = _again(state, old, command, now)
    held = holder(state, job, now)
    if held is not None and held.job_id != old.job_id:
        return deny(
            DuplicateKey, f"the key {job.key!r} is held by job {held.job_id}. Nothing was stored.", job_id=held.job_id
        )
    event = JobCreated(job=job, cmd=command.cmd, actor=command.actor)
    return answer(Enqueued(jobs=(Submitted(job.job_id, created=True),)), event)


def _not_retryable(state: State, old: Job) -> Decision | None:
    if old.status not in (JobStatus.FAILED, JobStatus.DEAD, JobStatus.CANCELLED):
        return deny(
            InvalidOperation,
            f"job {old.job_id} is {old.status}; only a FAILED, DEAD or CANCELLED job can be retried.",
            job_id=old.job_id,
            status=old.status,
        )
    if old.direct:
        return deny(InvalidOperation, f"job {old.job_id} was a direct execution; call it again.", job_id=old.job_id)
    heir = automatic_heir(state, old)
    if heir is None:
        return None
    message = f"job {old.job_id} was already followed by job {heir}."
    return deny(InvalidOperation, message, hint=f"Retry {heir} instead.", job_id=heir)


def _again(state: State, old: Job, command: Retry, now: Timestamp) -> Job:
    last = state.last_run(old.job_id)
    params = last.params_snapshot if last is not None else old.params
    if command.params != NULL:
        params = command.params
    priority = old.priority if command.priority is None else command.priority
    rank = rank_of(priority, now, state.get(Queue, pair(old.namespace, old.queue)))
    window = old.key_hold is KeyHold.WINDOW and old.key_until is not None
    return Job(
        job_id=command.new_job_id,
        job_type=old.job_type,
        params=params,
        created_at=now,
        namespace=old.namespace,
        queue=old.queue,
        priority=priority,
        position=back(state, old.namespace, old.queue, rank),
        rank=rank,
        timeout_s=old.timeout_s,
        lease_s=old.lease_s,
        retry_mode=old.retry_mode,
        max_attempts=old.max_attempts,
        max_expiries=5 if old.max_expiries is None else old.max_expiries,
        backoff=old.backoff,
        retry_of=old.job_id,
        retry_kind=RetryKind.MANUAL,
        template_id=old.template_id,
        schedule_id=old.schedule_id,
        fire_at=old.fire_at,
        backfill_id=old.backfill_id,
        overlap=old.overlap,
        key=old.key,
        key_scope=old.key_scope,
        key_hold=old.key_hold,
        key_until=later(now, seconds_between(old.created_at, old.key_until)) if window and old.key_until else None,
        limit_key=old.limit_key,
        key_limit=old.key_limit,
        tags=old.tags,
        submitted_by=old.submitted_by,
        traceparent=old.traceparent,
    )
