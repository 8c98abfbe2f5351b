"""Recovery of what damage left behind: states that no command makes, brought back to ones that every command knows.

- RUNNING without a run for its lease: the run is made, LOST, and the job goes on as after any lost lease.
- RUNNING although its run has ended: the job takes the run's outcome, and its time; the run stays as it is.
- A job of a chain that FAILED with attempts left and that nothing follows: its successor is made.
- A run without its job: told by `store check`, and removed only by hand, once it was written elsewhere.

What is RUNNING is looked at whenever a store is opened for writing, failed jobs of chains when a worker starts: once,
before anything is dispatched. A second pass finds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast.errors import InvalidOperation, RunNotFound
from holdfast.model.commands import DropRuns, Mend
from holdfast.model.events import Event, JobCreated, JobMended, RunDropped
from holdfast.model.ids import JobId, RunId
from holdfast.model.jobs import Job, JobStatus, RetryMode, Run, RunStatus
from holdfast.model.outcomes import Mended, Swept
from holdfast.model.times import FOREVER, Timestamp, later
from holdfast.rules.decision import Decision, answer, deny
from holdfast.rules.jobs.dispatch_order import back
from holdfast.rules.jobs.leases import UNCOUNTED, expiry_events
from holdfast.rules.jobs.retry import delay_s, is_final_kind, is_last_attempt, successor
from holdfast.rules.random_source import Draws
from holdfast.rules.state import Lane, State

replace = msgspec.structs.replace


def decide_mend(state: State, command: Mend, now: Timestamp, draws: Draws) -> Decision:
    """Mend what is broken, at most `limit` of it."""
    events: list[Event] = []
    runs = jobs = chains = 0
    for job, run in _broken(state):
        if runs + jobs == command.limit:
            return answer(Mended(runs=runs, jobs=jobs, chains=chains, more=True), *events)
        if run is None:
            runs += 1
            events += expiry_events(job, now, "damaged", command.cmd, draws, run_id=RunId(draws.new_id()))
        else:
            jobs += 1
            events += _settled(state, job, run, now, draws, cmd=command.cmd)
    for job in unfollowed(state) if command.chains else ():
        if runs + jobs + chains == command.limit:
            return answer(Mended(runs=runs, jobs=jobs, chains=chains, more=True), *events)
        chains += 1
        events.append(_carried_on(state, job, now, draws, command.cmd))
    return answer(Mended(runs=runs, jobs=jobs, chains=chains), *events)


def _broken(state: State) -> Iterator[tuple[Job, Run | None]]:
    """Walk the RUNNING jobs whose lease has no run, or one that has ended."""
    for job in state.due(Lane.LEASE, FOREVER):
        assert isinstance(job, Job)
        run = state.last_run(job.job_id)
        if run is None or run.token != job.token:
            yield job, None
        elif run.status is not None:
            yield job, run


def unfollowed(state: State) -> Iterator[Job]:
    """Walk the jobs of chains that should have a successor and have none."""
    for job in state.unfollowed():
        run = state.last_run(job.job_id)
        if job.attempts < job.max_attempts and not job.direct and (run is None or not is_final_kind(run.error_kind)):
            yield job


# --- a run that has ended ---------------------------------------------------------------------------------------------


def _settled(state: State, job: Job, run: Run, now: Timestamp, draws: Draws, *, cmd: str) -> Iterator[Event]:
    """Let the job take the outcome of its run, as if the end of the run had just been reported."""
    gained = _counted(job, run)
    to, goes_on = _after(gained, job, run)
    not_before, position = None, job.position
    if goes_on and run.status in (RunStatus.FAILED, RunStatus.SKIPPED):
        position = back(state, job.namespace, job.queue, job.rank)
        if run.status is RunStatus.FAILED:
            not_before = later(now, delay_s(job.backoff, job.attempts, draws.fraction()))
    heir = JobId(draws.new_id()) if goes_on and to is not JobStatus.QUEUED else None
    waits = to is JobStatus.QUEUED
    yield JobMended(
        job_id=job.job_id,
        run_id=run.run_id,
        to=to,
        attempts=gained.attempts,
        expiries=gained.expiries,
        snoozes=gained.snoozes,
        error=gained.error,
        not_before=not_before if waits else None,
        position=position if waits else None,
        successor=heir,
        cmd=cmd,
    )
    if heir is not None:
        yield JobCreated(job=successor(gained, heir, now, position=position, not_before=not_before), cmd=cmd)


def _counted(job: Job, run: Run) -> Job:
    """Give the job with what the end of its run counts for."""
    match run.status:
        case RunStatus.COMPLETED:
            return replace(job, attempts=job.attempts + 1, error=None)
        case RunStatus.FAILED:
            return replace(job, attempts=job.attempts + 1, error=run.error)
        case RunStatus.LOST:
            return replace(job, expiries=job.expiries + (run.reason not in UNCOUNTED), error=run.error)
        case _:
            return replace(job, snoozes=job.snoozes + (run.reason == "snoozed"))


def _after(gained: Job, job: Job, run: Run) -> tuple[JobStatus, bool]:
    """Give the status that the job has then, and whether it is to run again, itself or by a successor."""
    chained = job.retry_mode is RetryMode.CHAIN
    if run.status is RunStatus.COMPLETED:
        return JobStatus.COMPLETED, False
    if run.reason == "buried":
        return JobStatus.DEAD, False
    if job.cancel_requested_at is not None or run.reason in ("gave_up", "cancelled"):
        return JobStatus.CANCELLED, False
    if run.status is RunStatus.FAILED:
        if is_final_kind(run.error_kind) or is_last_attempt(job):
            return JobStatus.FAILED, False
        return (JobStatus.FAILED if chained else JobStatus.QUEUED), True
    if run.status is RunStatus.LOST:
        if gained.max_expiries is not None and gained.expiries >= gained.max_expiries:
            return JobStatus.DEAD, False
        return (JobStatus.FAILED if chained else JobStatus.QUEUED), True
    return (JobStatus.CANCELLED if chained else JobStatus.QUEUED), True  # snoozed, or given back


def _carried_on(state: State, job: Job, now: Timestamp, draws: Draws, cmd: str) -> JobCreated:
    """Give the successor that a failed job lacks, with the budget of the job itself."""
    run = state.last_run(job.job_id)
    not_before = None
    position = job.position
    if run is None or run.status is not RunStatus.LOST:
        not_before = later(now, delay_s(job.backoff, max(0, job.attempts - 1), draws.fraction()))
        position = back(state, job.namespace, job.queue, job.rank)
    heir = JobId(draws.new_id())
    return JobCreated(job=successor(job, heir, now, position=position, not_before=not_before), cmd=cmd)


# --- runs without a job -----------------------------------------------------------------------------------------------


def decide_drop_runs(state: State, command: DropRuns) -> Decision:
    """Remove runs whose jobs are not there."""
    events: list[Event] = []
    for run_id in dict.fromkeys(command.runs):
        run = state.get(Run, run_id)
        if run is None:
            return deny(RunNotFound, f"there is no run {run_id}. Nothing was changed.", run_id=run_id)
        if state.get(Job, run.job_id) is not None:
            message = f"run {run_id} belongs to job {run.job_id}. Nothing was changed."
            return deny(InvalidOperation, message, hint="Its job goes with its runs, by retention.", run_id=run_id)
        events.append(RunDropped(run_id=run_id, cmd=command.cmd, actor=command.actor))
    return answer(Swept(count=len(events)), *events)
