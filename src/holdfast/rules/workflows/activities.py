"""Activities: jobs that a workflow waits for. How an item becomes a job, who may take it, what its end tells the owner.

There is no second worker queue: ordinary workers lease these jobs like any other. Whoever fetches them through the
provider face sees those with an owner only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from holdfast.errors import IdReused, LeaseLost, UnknownLease
from holdfast.model.command_base import Order
from holdfast.model.commands import ClockJump, Complete, Extend, Fail, GiveUp, NewJob, Release
from holdfast.model.events import Event, JobCancelled, JobCreated
from holdfast.model.ids import RunId, Token
from holdfast.model.jobs import Job
from holdfast.model.outcomes import Done, Grant, Leased, Refusal, Reported, refuse
from holdfast.model.records import AUTHORITY, Authority
from holdfast.model.times import Timestamp
from holdfast.model.workflows.commands import (
    AbandonActivity,
    AckActivity,
    FetchActivity,
    NewActivity,
    RenewActivity,
    StartActivity,
)
from holdfast.model.workflows.instances import owned_by
from holdfast.rules.decision import Decision, answer
from holdfast.rules.fold import after_grant
from holdfast.rules.idempotency import remember_grants, seen_before
from holdfast.rules.jobs.complete import decide_report
from holdfast.rules.jobs.enqueue import Drafts, draft
from holdfast.rules.jobs.leases import Moments, current_grant, decide_extend, decide_release, granted, is_live
from holdfast.rules.jobs.limits import Places
from holdfast.rules.random_source import Draws
from holdfast.rules.reservations.commands import lapsed_in_the_way
from holdfast.rules.state import State
from holdfast.rules.workflows.messages import Post
from holdfast.rules.workflows.sessions import claim, heard_of, may_take

#: What is said of a job that its workflow no longer waits for.
NOT_AWAITED = "its workflow no longer waits for it"


# --- creation and cancellation ----------------------------------------------------------------------------------------


def as_job(activity: NewActivity) -> NewJob:
    """Give the job of an activity."""
    return NewJob(
        job_id=activity.job_id,
        job_type=activity.name,
        params=activity.params,
        queue=activity.queue,
        priority=activity.priority,
        not_before=activity.not_before,
        timeout_s=activity.timeout_s,
        lease_s=activity.lease_s,
        retry_mode=activity.retry_mode,
        max_attempts=activity.max_attempts,
        max_expiries=activity.max_expiries,
        backoff=activity.backoff,
        limit_key=activity.limit_key,
        key_limit=activity.key_limit,
        owner=activity.owner,
        affinity=activity.affinity,
    )


def create_activities(
    state: State, activities: Sequence[NewActivity], order: Order, now: Timestamp
) -> list[JobCreated] | Refusal:
    """Create the jobs of a command, or refuse an id that is taken."""
    drafts = Drafts(state, order, now)
    made: list[JobCreated] = []
    for activity in activities:
        if activity.job_id in drafts.created or state.get(Job, activity.job_id) is not None:
            message = f"job {activity.job_id} exists already. Nothing was stored."
            return refuse(IdReused, message, job_id=activity.job_id)
        job = drafts.created[activity.job_id] = draft(drafts, as_job(activity))
        made.append(JobCreated(job=job, cmd=order.cmd, actor=order.actor))
    return made


def decide_start(state: State, command: StartActivity, now: Timestamp) -> Decision:
    """Create the job of one activity; it is not asked whether its instance is there."""
    made = create_activities(state, (command.activity,), command, now)
    return answer(made) if isinstance(made, Refusal) else answer(Done(), *made)


def cancel_activities(
    state: State, owners: Sequence[str], made: Sequence[JobCreated], order: Order
) -> Iterator[JobCancelled]:
    """Revoke the jobs of these activities, those that are only being made too. A worker's token is dead at once."""
    new: dict[str | None, list[Job]] = {}
    for event in made if owners else ():
        new.setdefault(event.job.owner, []).append(event.job)
    for owner in dict.fromkeys(owners):
        for job in (*state.activities(owner), *new.get(owner, ())):
            if not job.has_ended:
                yield JobCancelled(
                    job_id=job.job_id, reason=NOT_AWAITED, token=job.token, cmd=order.cmd, actor=order.actor
                )


# --- the worker's side ------------------------------------------------------------------------------------------------


def decide_fetch_activity(state: State, command: FetchActivity, now: Timestamp, draws: Draws) -> Decision:
    """Grant the first job with an owner, and with it the session it belongs to."""
    if command.cmd and (repeat := seen_before(state, command)) is not None:
        current = (job for job in state.granted_by(command.cmd) if is_live(job, now))
        still = Leased(grants=tuple(current_grant(state, job, now) for job in current))
        return answer(still if repeat.outcome is None else repeat.outcome)
    authority = state.get(Authority, AUTHORITY) or Authority()
    queues = state.owned_queues() if command.queues is None else command.queues
    if authority.dispatch_paused or not queues:
        return answer(Leased())
    lapsed = lapsed_in_the_way(state, "", queues, now, command.cmd)
    for job in Places(state, "", queues, now, 1).candidates(None):
        held_back = job.not_before is not None and job.not_before > now
        if owned_by(job.owner) is None or job.direct or held_back:
            continue
        if not may_take(state, job, command.affinity_owner, now):
            continue
        event = granted(job, command, Moments(now), Token(authority.last_token + 1), RunId(draws.new_id()))
        claims = claim(state, job, command.affinity_owner, command.affinity_s, now)
        done = [remember_grants(command, now, command.lease_s)] if command.cmd else []
        grant = Grant(after_grant(job, event, now), event.run_id, event.token, command.lease_s)
        return answer(Leased(grants=(grant,)), *lapsed, event, *claims, *done)
    return answer(Leased())


def decide_ack_activity(
    state: State, command: AckActivity, now: Timestamp, draws: Draws, jump: ClockJump | None
) -> Decision:
    """End the job and send the completion to whom it names, in one commit; a job that goes on tells nobody."""
    job = _held(state, command.token, now)
    if isinstance(job, Refusal):
        return answer(job)
    report: Complete | Fail | GiveUp
    if command.completion is None:
        report = GiveUp(job_id=job.job_id, token=command.token, cmd=command.cmd, actor=command.actor)
    elif command.failed:
        report = Fail(
            job_id=job.job_id,
            token=command.token,
            error=command.error,
            details=command.details,
            fatal=not command.retryable,
            cmd=command.cmd,
            actor=command.actor,
        )
    else:
        report = Complete(
            job_id=job.job_id, token=command.token, result=command.result, cmd=command.cmd, actor=command.actor
        )
    decision = decide_report(state, report, now, draws, jump)
    if command.completion is None:
        decision = answer(decision.outcome, *map(_untold, decision.events))
    ended = isinstance(decision.outcome, Reported) and decision.outcome.successor is None
    post = Post(state, command, now)
    if ended and command.completion is not None and decision.outcome.job_status != "QUEUED":  # type: ignore[union-attr]  # a Reported
        post.send(command.completion, tells_of=job.job_id)
    return answer(decision.outcome, *decision.events, *post.events, *heard_of(state, job, now))


def _untold(event: Event) -> Event:
    """Mark the end of a job as one that nobody is told of."""
    return msgspec.structs.replace(event, untold=True) if isinstance(event, JobCancelled) else event


def decide_abandon_activity(state: State, command: AbandonActivity, now: Timestamp, draws: Draws) -> Decision:
    """Give the job back at its old place, even after expiry."""
    job = state.leased(command.token)
    if job is None:
        return answer(_not_found(command.token))
    release = Release(
        job_id=job.job_id,
        token=command.token,
        begun=False,
        delay_s=command.delay_s,
        given_back=command.given_back,
        cmd=command.cmd,
        actor=command.actor,
    )
    return decide_release(state, release, now, draws)


def decide_renew_activity(
    state: State, command: RenewActivity, now: Timestamp, draws: Draws, jump: ClockJump | None
) -> Decision:
    """Keep the lease. That it cannot be kept is how a worker learns that its job was revoked."""
    job = _held(state, command.token, now)
    if isinstance(job, Refusal):
        return answer(job)
    extend = Extend(
        job_id=job.job_id, token=command.token, lease_s=command.lease_s, cmd=command.cmd, actor=command.actor
    )
    decision = decide_extend(state, extend, now, draws, jump)
    return answer(decision.outcome, *decision.events, *heard_of(state, job, now))


def _held(state: State, token: Token, now: Timestamp) -> Job | Refusal:
    """Give the job that this token holds, or say why it holds none."""
    job = state.leased(token)
    if job is None:
        return _not_found(token)
    return job if is_live(job, now) else refuse(LeaseLost, "Lock expired", token=token, job_id=job.job_id)


def _not_found(token: Token) -> Refusal:
    return refuse(UnknownLease, "Lock token not found: completed, cancelled or deleted", token=token)
