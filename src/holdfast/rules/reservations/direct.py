"""Direct execution: a job that runs now, in its caller's process, alone on its queue.

Created and leased in one commit, so that it is never claimable; tried once, so that it is never queued again. Whoever
starts one holds a reservation of the queue and has waited until nothing of it runs.
"""

from __future__ import annotations

import msgspec

from holdfast.errors import DuplicateKey, IdReused, InvalidOperation, ReservationConflict
from holdfast.model.commands import Fail, Report, Snooze, StartDirect
from holdfast.model.events import JobCreated
from holdfast.model.ids import JobId, RunId, Token
from holdfast.model.jobs import Job, RetryMode
from holdfast.model.outcomes import Grant, Leased
from holdfast.model.records import AUTHORITY, Authority
from holdfast.model.reservations import Reservation
from holdfast.model.times import Timestamp
from holdfast.rules.decision import Decision, answer, deny
from holdfast.rules.fold import after_grant
from holdfast.rules.jobs.enqueue import Drafts, draft
from holdfast.rules.jobs.leases import Moments, current_grant, granted, is_live
from holdfast.rules.jobs.unique_keys import holder
from holdfast.rules.random_source import Draws
from holdfast.rules.reservations.commands import live
from holdfast.rules.state import State

#: What a direct execution leaves aside of a job's options: it is now or not at all, and once.
_ONCE = {
    "delay_s": None,
    "not_before": None,
    "ttl_s": None,
    "expires_at": None,
    "retry_mode": RetryMode.REQUEUE,
    "max_attempts": 1,
    "max_expiries": 1,
}


def decide_start_direct(state: State, command: StartDirect, now: Timestamp, draws: Draws) -> Decision:
    """Create the job and grant it, for the holder of the queue, once nothing of the queue runs."""
    existing = state.get(Job, command.job.job_id)
    if existing is not None:
        return _sent_again(state, existing, command, now)
    reservation = live(state, command.reservation_id, now, command.cmd)
    if isinstance(reservation, Decision):
        return reservation
    return _in_the_way(state, command, reservation, now) or _start(state, command, now, draws)


def _sent_again(state: State, existing: Job, command: StartDirect, now: Timestamp) -> Decision:
    """Give the lease that was granted then, if it is still live; to whoever got it alone."""
    new = command.job
    same = (existing.job_type, existing.namespace, existing.params) == (new.job_type, new.namespace, new.params)
    if not same or not existing.direct:
        message = f"job {existing.job_id} exists already, as something else. Nothing was started."
        return deny(IdReused, message, job_id=existing.job_id)
    if not is_live(existing, now):
        return answer(Leased())
    if existing.worker_id != command.worker_id:
        return _still_running(existing.job_id, existing.queue)
    # As it was answered then: before the commit nobody knew the number of the event.
    unnumbered = msgspec.structs.replace(existing, seq=0)
    return answer(Leased(grants=(current_grant(state, unnumbered, now),)))


def _still_running(job_id: JobId, queue: str) -> Decision:
    return deny(
        ReservationConflict,
        f"job {job_id} of queue {queue} is still running. Nothing was started.",
        hint="Wait until it has ended; nothing is interrupted for a direct execution.",
        job_id=job_id,
        queue=queue,
    )


def _in_the_way(state: State, command: StartDirect, reservation: Reservation, now: Timestamp) -> Decision | None:
    new = command.job
    if (reservation.namespace, reservation.queue) != (new.namespace, new.queue):
        return deny(
            InvalidOperation,
            f"reservation {reservation.reservation_id} is of queue {reservation.queue}, not of {new.queue}. "
            "Nothing was started.",
            reservation_id=reservation.reservation_id,
            queue=reservation.queue,
        )
    if reservation.session_id != command.session_id:
        return deny(
            ReservationConflict,
            f"reservation {reservation.reservation_id} of queue {reservation.queue} belongs to another process, "
            f"{reservation.reserved_by}, until {reservation.expires_at}. Nothing was started.",
            reservation_id=reservation.reservation_id,
            reserved_by=reservation.reserved_by,
            expires_at=reservation.expires_at,
        )
    running = min(state.running(new.namespace, new.queue), default=None)
    if running is not None:
        return _still_running(running, new.queue)
    held = holder(state, new, now)
    if held is None:
        return None
    message = f"the key {new.key!r} is held by job {held.job_id}. Nothing was started."
    return deny(DuplicateKey, message, job_id=held.job_id)


def _start(state: State, command: StartDirect, now: Timestamp, draws: Draws) -> Decision:
    once = msgspec.structs.replace(command.job, **_ONCE)
    drafted = draft(Drafts(state, command, now), once)
    job = msgspec.structs.replace(drafted, direct=True, reservation_id=command.reservation_id)
    authority = state.get(Authority, AUTHORITY) or Authority()
    token, until = Token(authority.last_token + 1), Moments(now)
    event = granted(job, command, until, token, RunId(draws.new_id()))
    grant = Grant(after_grant(job, event, now), event.run_id, token, until.left(event.lease_expires_at))
    return answer(Leased(grants=(grant,)), JobCreated(job=job, cmd=command.cmd, actor=command.actor), event)


def as_direct(report: Report) -> Report:
    """Give a report as it counts for a direct execution: who asks to be called later has failed, there is no later."""
    if not isinstance(report, Snooze):
        return report
    return Fail(
        job_id=report.job_id,
        token=report.token,
        error=f"asked to be called again in {report.delay_s:g} s, but a direct execution is tried once",
        artifacts=report.artifacts,
        progress=report.progress,
        cmd=report.cmd,
        actor=report.actor,
    )
