"""Leases: who may work on a job, and until when. Decides grant, extension, release and expiry.

A lease is valid in [granted, expiry): expired when now >= expiry, everywhere. It ends by an explicit event; from then
on its token is refused. Giving up is always safe, so a release is taken even after expiry.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast.errors import AlreadyReported, JobNotFound, LeaseLost, UnknownLease
from holdfast.model.commands import ClockJump, EndSession, EndSessions, Expire, Extend, Lease, Release, StartDirect
from holdfast.model.events import (
    Event,
    JobCreated,
    JobSkipped,
    LeaseExpired,
    LeaseExtended,
    LeaseGranted,
    LeaseReleased,
)
from holdfast.model.ids import JobId, RunId, Token
from holdfast.model.jobs import Job, JobStatus, RetryMode, Run, RunStatus
from holdfast.model.outcomes import Extended, Grant, Leased, Refusal, Reported, Swept, refuse
from holdfast.model.records import AUTHORITY, Authority
from holdfast.model.times import Timestamp, later, seconds_between
from holdfast.model.workflows.commands import FetchActivity
from holdfast.rules.decision import Decision, answer
from holdfast.rules.fold import LOST, after_grant
from holdfast.rules.idempotency import remember_grants, seen_before
from holdfast.rules.jobs.limits import Places
from holdfast.rules.jobs.retry import automatic_heir, successor
from holdfast.rules.jobs.suspects import Company, Verdict, lost_in_a_row, waited_since_loss
from holdfast.rules.random_source import Draws
from holdfast.rules.reservations.commands import all_lapsed, lapsed_in_the_way, local_holders, of_dead
from holdfast.rules.state import Lane, State
from holdfast.rules.workflows.sessions import claim, may_take

#: Seconds after the handler's own timeout at which the lease cannot be extended any more.
DEADLINE_SLACK_S = 10
#: How many lapsed things one Lease clears out of its way.
IN_THE_WAY = 100
#: Reasons of an expiry that are not held against a job: the clock jumped; its handler had not begun.
UNCOUNTED = frozenset({"clock_jump", "not_begun"})


# --- grant ------------------------------------------------------------------------------------------------------------


def decide_lease(state: State, command: Lease, now: Timestamp, draws: Draws) -> Decision:
    """Grant up to `n` ready jobs, in order. The same command sent again gets its still current leases."""
    if command.cmd and (repeat := seen_before(state, command)) is not None:
        if repeat.outcome is not None:
            return answer(repeat.outcome)
        current = (job for job in state.granted_by(command.cmd) if is_live(job, now))
        return answer(Leased(grants=tuple(current_grant(state, job, now) for job in current)))
    authority = state.get(Authority, AUTHORITY) or Authority()
    if authority.dispatch_paused:
        return answer(Leased())
    lapsed = lapsed_in_the_way(state, command.namespace, command.queues, now, command.cmd)
    places = Places(state, command.namespace, command.queues, now, command.n)
    events: list[Event] = []
    grants: list[Grant] = []
    claims: list[Event] = []
    token = authority.last_token
    until = Moments(now)
    company = Company(command.holds, on_trial=command.on_trial)
    alone_next: JobId | None = None
    for job in places.candidates(command.job_types):
        # A clock that was set back makes a job wait again that had been made ready.
        if job.direct or (job.not_before is not None and job.not_before > now):
            continue
        if not may_take(state, job, command.worker_id, now):
            continue
        if job.expires_at is not None and job.expires_at <= now:
            if len(events) - len(grants) < IN_THE_WAY:
                events.append(_skip(job, command.cmd, draws))
            continue
        lost_before = lost_in_a_row(state, job)
        verdict = company.judge(lost_before, waited_since_loss(state, job, now) if lost_before else 0.0)
        if verdict is Verdict.STOP:
            alone_next = job.job_id
            break
        if verdict is Verdict.SKIP:
            continue
        places.take(job)
        token = Token(token + 1)
        event = granted(job, command, until, token, RunId(draws.new_id()))
        events.append(event)
        claims += claim(state, job, command.worker_id, job.lease_s, now)
        left_s = until.left(event.lease_expires_at)
        grants.append(Grant(after_grant(job, event, now), event.run_id, token, left_s, lost_before))
        if len(grants) == command.n or company.is_closed:
            break  # before the next is looked for: it may stand behind many that must wait
    leased = Leased(grants=tuple(grants), held_back=company.has_skipped, alone_next=alone_next)
    if grants and command.cmd:
        events.append(remember_grants(command, now, max(grant.lease_s for grant in grants)))
    return answer(leased, *lapsed, *events, *claims)


def current_grant(state: State, job: Job, now: Timestamp) -> Grant:
    """Give the live lease of a job as it was granted."""
    run = state.last_run(job.job_id)
    assert run is not None
    assert job.token is not None
    assert job.lease_expires_at is not None
    return Grant(job, run.run_id, job.token, _left(job.lease_expires_at, now), lost_in_a_row(state, job))


class Moments(dict[float, Timestamp]):
    """Seconds from now → moment, worked out once for each length: jobs of a batch mostly share theirs."""

    def __init__(self, now: Timestamp) -> None:
        super().__init__()
        self.now = now
        self._seconds: dict[Timestamp, float] = {}

    def __missing__(self, seconds: float) -> Timestamp:
        """Work it out."""
        self[seconds] = when = later(self.now, seconds)
        self._seconds[when] = seconds
        return when

    def left(self, when: Timestamp) -> float:
        """Give the seconds until a moment that was worked out here."""
        return self._seconds[when]


def granted(
    job: Job, command: Lease | StartDirect | FetchActivity, until: Moments, token: Token, run_id: RunId
) -> LeaseGranted:
    """Give the event that makes whoever asks the holder of a job."""
    deadline = None if job.timeout_s is None else until[job.timeout_s + DEADLINE_SLACK_S]
    asked_s = None if isinstance(command, StartDirect) else command.lease_s
    expiry = until[job.lease_s if asked_s is None else asked_s]
    return LeaseGranted(
        job_id=job.job_id,
        run_id=run_id,
        run_no=job.executions + 1,
        token=token,
        worker_id=command.worker_id,
        lease_expires_at=expiry if deadline is None else min(expiry, deadline),
        deadline_at=deadline,
        session_id=command.session_id,
        cmd=command.cmd,
        actor=command.actor,
    )


def _left(expiry: Timestamp, now: Timestamp) -> float:
    return max(0.0, seconds_between(now, expiry))


# --- who holds it -----------------------------------------------------------------------------------------------------


def is_live(job: Job, now: Timestamp) -> bool:
    """Tell whether the job's lease is valid at `now`."""
    return job.lease_expires_at is not None and now < job.lease_expires_at


def not_holding(state: State, job: Job | None, job_id: JobId, token: Token) -> Refusal | Run:
    """Say why `token` does not hold the job; an ended run that was reported with it is given back for comparison."""
    if job is None:
        return refuse(JobNotFound, f"there is no job {job_id}.", job_id=job_id)
    run = state.run_by_token(job_id, token)
    if run is None:
        return refuse(UnknownLease, f"token {token} was never granted for job {job_id}.", job_id=job_id, token=token)
    if run.status is RunStatus.LOST or run.reason in ("cancelled", "buried"):
        return lost(job_id, token)
    return run


def lost(job_id: JobId, token: Token) -> Refusal:
    """Tell a late worker that its authority is gone."""
    return refuse(
        LeaseLost, f"the lease {token} on job {job_id} is over; nothing was recorded.", job_id=job_id, token=token
    )


def already(run: Run) -> Refusal:
    """Tell a worker that this execution ended in another way."""
    return refuse(
        AlreadyReported,
        f"run {run.run_id} of job {run.job_id} was already reported as {run.status}.",
        job_id=run.job_id,
        run_id=run.run_id,
    )


def reported_before(state: State, job: Job, run: Run) -> Decision:
    """Acknowledge a report sent again with what it did then: it ended the job if both ended at once, else queued it."""
    status = job.status if job.finished_at == run.finished_at else JobStatus.QUEUED
    return answer(Reported(job_status=status, duplicate=True, successor=automatic_heir(state, job)))


# --- extend, release --------------------------------------------------------------------------------------------------


def decide_extend(
    state: State, command: Extend, now: Timestamp, draws: Draws, jump: ClockJump | None = None
) -> Decision:
    """Move the end of the lease to now + lease_s, at most to the deadline, for its holder only."""
    job = state.get(Job, command.job_id)
    if job is None or job.token != command.token:
        found = not_holding(state, job, command.job_id, command.token)
        return answer(found if isinstance(found, Refusal) else lost(command.job_id, command.token))
    assert job.lease_expires_at is not None
    if not is_live(job, now):
        reason = lapse_reason(job, jump)
        return answer(lost(job.job_id, command.token), *expiry_events(job, now, reason, command.cmd, draws))
    lease_s = job.lease_s if command.lease_s is None else command.lease_s
    until = later(now, lease_s)
    if job.deadline_at is not None:
        until = min(until, job.deadline_at)
    cancel = job.cancel_requested_at is not None
    if seconds_between(job.lease_expires_at, until) < lease_s / 6:
        # After a clock was set back an hour the lease seems to have an hour left, but its seconds are counted by the
        # monotonic clock, too. Told no more than a lease lasts, its holder goes on asking in time.
        left = min(_left(job.lease_expires_at, now), max(lease_s, job.lease_s))
        return answer(Extended(lease_s=left, cancel=cancel))
    event = LeaseExtended(
        job_id=job.job_id, token=command.token, lease_expires_at=until, cmd=command.cmd, actor=command.actor
    )
    return answer(Extended(lease_s=_left(until, now), cancel=cancel), event)


def decide_release(state: State, command: Release, now: Timestamp, draws: Draws) -> Decision:
    """Give the job back unfinished: it may run elsewhere at once."""
    job = state.get(Job, command.job_id)
    if job is None or job.token != command.token:
        run = not_holding(state, job, command.job_id, command.token)
        if isinstance(run, Refusal):
            return answer(run)
        if run.reason != "released":
            return answer(already(run))
        assert job is not None
        return reported_before(state, job, run)
    not_before = later(now, command.delay_s) if command.delay_s else None
    chained = job.retry_mode is RetryMode.CHAIN and command.begun
    follows = JobId(draws.new_id()) if chained and job.cancel_requested_at is None else None
    # A direct execution that is given back has no queue to go to: it was for its caller alone.
    stays = not chained and not job.direct and job.cancel_requested_at is None
    to = JobStatus.QUEUED if stays else JobStatus.CANCELLED
    released = LeaseReleased(
        job_id=job.job_id,
        token=command.token,
        begun=command.begun,
        to=to,
        not_before=not_before if stays else None,
        given_back=command.given_back,
        successor=follows,
        artifacts=command.artifacts,
        progress=command.progress,
        cmd=command.cmd,
        actor=command.actor,
    )
    events: list[Event] = [released]
    if follows is not None:
        given_back = msgspec.structs.replace(job, deliveries=job.deliveries - command.given_back)
        heir = successor(given_back, follows, now, position=job.position, not_before=not_before)
        events.append(JobCreated(job=heir, cmd=command.cmd))
    return answer(Reported(job_status=to, successor=follows), *events)


# --- expiry -----------------------------------------------------------------------------------------------------------


def lapse_reason(job: Job, jump: ClockJump | None) -> str:
    """Say why a lapsed lease ends: what lapsed while the clock jumped is not held against the job."""
    jumped = jump is not None and job.lease_expires_at is not None and jump.since < job.lease_expires_at <= jump.until
    return "clock_jump" if jumped else "timeout"


def expiry_events(
    job: Job, now: Timestamp, reason: str, cmd: str, draws: Draws, *, run_id: RunId | None = None
) -> Iterator[Event]:
    """Revoke a lease: the run is LOST, the job goes back, on to a successor, or is DEAD.

    With `run_id` the run is made for it: the lease had none.
    """
    assert job.token is not None
    if reason == "timeout" and job.deadline_at is not None and now >= job.deadline_at:
        reason = "deadline"
    counted = reason not in UNCOUNTED
    expiries = job.expiries + counted
    used_up = counted and job.max_expiries is not None and expiries >= job.max_expiries
    follows: JobId | None = None
    if job.cancel_requested_at is not None:
        to = JobStatus.CANCELLED
    elif used_up or job.direct:
        to = JobStatus.DEAD
    elif job.retry_mode is RetryMode.CHAIN and reason != "not_begun":
        to, follows = JobStatus.FAILED, JobId(draws.new_id())
    else:
        to = JobStatus.QUEUED
    yield LeaseExpired(
        job_id=job.job_id,
        token=job.token,
        reason=reason,
        counted=counted,
        to=to,
        successor=follows,
        run_id=run_id,
        cmd=cmd,
    )
    if follows is not None:
        counted_job = msgspec.structs.replace(job, expiries=expiries, error=LOST)
        yield JobCreated(job=successor(counted_job, follows, now, position=job.position), cmd=cmd)
    if job.expires_at is not None and job.expires_at <= now and (follows is not None or to is JobStatus.QUEUED):
        # It waits again, but past its latest start. Said at once: a second sweep at the same time finds nothing.
        yield JobSkipped(job_id=follows or job.job_id, run_id=RunId(draws.new_id()), reason="expired", cmd=cmd)


def _skip(job: Job, cmd: str, draws: Draws) -> JobSkipped:
    return JobSkipped(job_id=job.job_id, run_id=RunId(draws.new_id()), reason="expired", cmd=cmd)


def decide_expire(state: State, command: Expire, now: Timestamp, draws: Draws) -> Decision:
    """End what time has ended, at most `limit` of it."""
    events: list[Event] = []
    count = 0
    seen: set[JobId] = set()
    for late in command.overdue:
        job = state.get(Job, late.job_id)
        if job is not None and job.token == late.token and job.job_id not in seen and count < command.limit:
            events.extend(expiry_events(job, now, lapse_reason(job, command.jump), command.cmd, draws))
            seen.add(job.job_id)
            count += 1
    for job in _due_jobs(state, Lane.LEASE, now):
        if count == command.limit:
            return answer(Swept(count=count, more=True), *events)
        if job.job_id in seen:
            continue
        events.extend(expiry_events(job, now, lapse_reason(job, command.jump), command.cmd, draws))
        count += 1
    for job in _due_jobs(state, Lane.TTL, now):
        if count == command.limit:
            return answer(Swept(count=count, more=True), *events)
        events.append(_skip(job, command.cmd, draws))
        count += 1
    for event in all_lapsed(state, now, command.cmd, command.overdue_reservations):
        if count == command.limit:
            return answer(Swept(count=count, more=True), *events)
        events.append(event)
        count += 1
    return answer(Swept(count=count), *events)


def _due_jobs(state: State, lane: Lane, now: Timestamp) -> Iterator[Job]:
    for record in state.due(lane, now):
        assert isinstance(record, Job)
        yield record


def decide_end_sessions(state: State, command: EndSessions | EndSession, now: Timestamp, draws: Draws) -> Decision:
    """End what openings hold whose processes are provably gone: the one named, or all others."""
    events: list[Event] = []
    unbegun = frozenset(command.unbegun)
    count = 0
    for held in local_holders(state):
        if (held.session_id == command.session_id) is isinstance(command, EndSessions):
            continue
        if count == command.limit:
            return answer(Swept(count=count, more=True), *events)
        if isinstance(held, Job):
            reason = "not_begun" if held.token in unbegun and not held.direct else "restart"
            events.extend(expiry_events(held, now, reason, command.cmd, draws))
        else:
            events.append(of_dead(held, command.cmd))
        count += 1
    return answer(Swept(count=count), *events)
