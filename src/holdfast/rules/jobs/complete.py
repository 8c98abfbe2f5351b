"""How an execution ends: complete, fail, snooze, give up. For the holder of the lease only, while it is live.

A report at or after expiry writes the expiry instead and is told so. After a cancel request only completion wins.
"""

from __future__ import annotations

import msgspec

from holdfast.model.commands import ClockJump, Complete, Fail, GiveUp, Report, Snooze
from holdfast.model.events import JobCancelled, JobCompleted, JobCreated, JobFailed, JobSnoozed
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, JobStatus, RetryMode, Run, RunStatus
from holdfast.model.outcomes import Refusal, Reported
from holdfast.model.payloads import shorten_error
from holdfast.model.times import Timestamp, later
from holdfast.rules.decision import Decision, answer
from holdfast.rules.jobs.dispatch_order import back
from holdfast.rules.jobs.leases import already, expiry_events, is_live, lapse_reason, lost, not_holding, reported_before
from holdfast.rules.jobs.retry import delay_s, is_final_kind, is_last_attempt, successor
from holdfast.rules.random_source import Draws
from holdfast.rules.reservations.direct import as_direct
from holdfast.rules.state import State


def decide_report(
    state: State, report: Report, now: Timestamp, draws: Draws, jump: ClockJump | None = None
) -> Decision:
    """Settle the execution if `report.token` holds the job; else say why it does not."""
    job = state.get(Job, report.job_id)
    if job is not None and job.direct:
        report = as_direct(report)
    if job is None or job.token != report.token:
        return _late(state, job, report)
    if not is_live(job, now):
        reason = lapse_reason(job, jump)
        return answer(lost(job.job_id, report.token), *expiry_events(job, now, reason, report.cmd, draws))
    match report:
        case Complete():
            return _complete(job, report)
        case Fail():
            return _fail(state, job, report, now, draws)
        case Snooze():
            return _snooze(state, job, report, now, draws)
        case GiveUp():
            return _give_up(job, report)


def _late(state: State, job: Job | None, report: Report) -> Decision:
    """Answer a report whose token is not current: the same one again, another one, or one too late."""
    run = not_holding(state, job, report.job_id, report.token)
    if isinstance(run, Refusal):
        return answer(run)
    if not _is_same_kind(run, report):
        return answer(already(run))
    assert job is not None
    return reported_before(state, job, run)


def _is_same_kind(run: Run, report: Report) -> bool:
    match report:
        case Complete():
            return run.status is RunStatus.COMPLETED
        case Fail():
            return run.status is RunStatus.FAILED
        case Snooze():
            return run.reason == "snoozed"
        case GiveUp():
            return run.reason == "gave_up"


def _complete(job: Job, report: Complete) -> Decision:
    event = JobCompleted(
        job_id=job.job_id,
        token=report.token,
        result=report.result,
        artifacts=report.artifacts,
        progress=report.progress,
        exit_code=report.exit_code,
        cmd=report.cmd,
        actor=report.actor,
    )
    return answer(Reported(job_status=JobStatus.COMPLETED), event)


def _fail(state: State, job: Job, report: Fail, now: Timestamp, draws: Draws) -> Decision:
    attempts = job.attempts + 1
    final = report.fatal or is_final_kind(report.error_kind) or is_last_attempt(job)
    cancelled = job.cancel_requested_at is not None
    chained = job.retry_mode is RetryMode.CHAIN
    not_before: Timestamp | None = None
    if not final and not cancelled:
        wait_s = report.retry_after_s
        if wait_s is None:
            wait_s = delay_s(job.backoff, job.attempts, draws.fraction())
        not_before = later(now, wait_s)
    if cancelled:
        to = JobStatus.CANCELLED
    elif final or chained:
        to = JobStatus.FAILED
    else:
        to = JobStatus.QUEUED
    position = None if not_before is None else back(state, job.namespace, job.queue, job.rank)
    heir = JobId(draws.new_id()) if chained and not_before is not None else None
    error = shorten_error(report.error)
    event = JobFailed(
        job_id=job.job_id,
        token=report.token,
        error=error,
        error_kind="fatal" if report.fatal else report.error_kind,
        details=report.details,
        exit_code=report.exit_code,
        to=to,
        not_before=not_before if to is JobStatus.QUEUED else None,
        position=position if to is JobStatus.QUEUED else None,
        successor=heir,
        artifacts=report.artifacts,
        progress=report.progress,
        cmd=report.cmd,
        actor=report.actor,
    )
    reply = Reported(job_status=to, successor=heir)
    if heir is None or position is None:
        return answer(reply, event)
    raised = msgspec.structs.replace(job, attempts=attempts, error=error)
    follower = successor(raised, heir, now, position=position, not_before=not_before)
    return answer(reply, event, JobCreated(job=follower, cmd=report.cmd))


def _snooze(state: State, job: Job, report: Snooze, now: Timestamp, draws: Draws) -> Decision:
    not_before = later(now, report.delay_s)
    goes_on = job.cancel_requested_at is None
    chained = job.retry_mode is RetryMode.CHAIN
    heir = JobId(draws.new_id()) if chained and goes_on else None
    to = JobStatus.QUEUED if goes_on and not chained else JobStatus.CANCELLED
    position = back(state, job.namespace, job.queue, job.rank) if goes_on else None
    event = JobSnoozed(
        job_id=job.job_id,
        token=report.token,
        not_before=not_before,
        to=to,
        position=position if to is JobStatus.QUEUED else None,
        successor=heir,
        artifacts=report.artifacts,
        progress=report.progress,
        cmd=report.cmd,
        actor=report.actor,
    )
    reply = Reported(job_status=to, successor=heir)
    if heir is None or position is None:
        return answer(reply, event)
    raised = msgspec.structs.replace(job, snoozes=job.snoozes + 1)
    follower = successor(raised, heir, now, position=position, not_before=not_before)
    return answer(reply, event, JobCreated(job=follower, cmd=report.cmd))


def _give_up(job: Job, report: GiveUp) -> Decision:
    event = JobCancelled(
        job_id=job.job_id,
        reason=shorten_error(report.reason),
        token=report.token,
        gave_up=True,
        artifacts=report.artifacts,
        progress=report.progress,
        cmd=report.cmd,
        actor=report.actor,
    )
    return answer(Reported(job_status=JobStatus.CANCELLED), event)
