"""Explain: why a job is where it is, and what it waits for. Exactly one reason, the first that applies. Pure.

The same sentence is shown everywhere: Python, command line, HTTP, dashboard. To who may not see what holds a job it is
said without naming it: how much there is, and until when.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from heapq import nsmallest
from itertools import islice

import msgspec

from holdfast.model.groups import Group, GroupMode
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, JobStatus, RetryMode, Run, RunStatus
from holdfast.model.records import AUTHORITY, Authority, Queue, pair
from holdfast.model.reservations import Reservation
from holdfast.model.schedules import Overlap
from holdfast.model.times import Timestamp
from holdfast.model.workers import WorkerInfo, WorkerState
from holdfast.rules.fold import LOST
from holdfast.rules.jobs.dispatch_order import place
from holdfast.rules.jobs.limits import rate_opens_at, settings_of
from holdfast.rules.jobs.retry import automatic_heir
from holdfast.rules.jobs.suspects import lost_in_a_row, must_run_alone
from holdfast.rules.reservations.commands import reserved_by
from holdfast.rules.state import State

#: Jobs counted ahead of one; beyond that the number is not worth the walk.
COUNTED = 1000
#: Running jobs given as those that hold the places of a limit, and of them those named in the sentence.
HOLDERS = 100
NAMED = 3
#: Characters of an id that are always shown.
SHORTEST_ID = 4

#: Tells whether a live worker would take a job of this queue and task; None if nobody knows.
Served = Callable[[str, str], bool] | None
#: Tells whether who asks may see something that holds a job; None if they see everything.
Sees = Callable[[Job | Reservation], bool] | None


class Reason(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a job or an instance is where it is."""

    #: One word for programs.
    code: str
    #: One sentence for people.
    sentence: str
    #: What holds it: a queue, a job, a worker, the run that put it off. None where only time does.
    holder: str | None = None
    #: The running jobs that hold the places it waits for.
    held_by: tuple[JobId, ...] = ()
    #: When that can change by itself.
    until: Timestamp | None = None
    #: Of an instance: all that it waits for, or more about what blocks it, line by line.
    lines: tuple[str, ...] = ()


def explain(state: State, job: Job, now: Timestamp, served: Served = None, sees: Sees = None) -> Reason:
    """Give the one reason why `job` is where it is."""
    match job.status:
        case JobStatus.QUEUED:
            return _waiting(state, job, now, served, sees)
        case JobStatus.RUNNING:
            return _running(job, now)
        case _:
            return _ended(state, job)


def takes(worker: WorkerInfo, namespace: str, queue: str, job_type: str) -> bool:
    """Tell whether a worker lives, leases, and serves that queue and task."""
    return (
        worker.state is WorkerState.READY
        and worker.wish is None
        and worker.namespace == namespace
        and queue in worker.queues
        and (worker.job_types is None or job_type in worker.job_types)
    )


def _is_named(state: State, job_id: JobId, sees: Sees) -> bool:
    """Tell whether a job may be named."""
    return sees is None or ((job := state.get(Job, job_id)) is not None and sees(job))


def _waiting(state: State, job: Job, now: Timestamp, served: Served, sees: Sees) -> Reason:
    authority = state.get(Authority, AUTHORITY) or Authority()
    if authority.dispatch_paused:
        sentence = f"dispatch is paused{_because(authority.dispatch_reason)}"
        return Reason(code="dispatch_paused", sentence=sentence, holder="dispatch")
    queue = state.get(Queue, pair(job.namespace, job.queue))
    if queue is not None and queue.paused:
        sentence = f"queue {job.queue} is paused{_because(queue.pause_reason)}"
        return Reason(code="queue_paused", sentence=sentence, holder=job.queue)
    reserved = _reserved(state, job, now, sees)
    if reserved is not None:
        return reserved
    if job.not_before is not None and job.not_before > now:
        return _delayed(job, state.last_run(job.job_id))
    held = _held_by_group(state, job, sees)
    if held is not None:
        return held
    if job.overlap == Overlap.QUEUE and job.schedule_id is not None:
        before = min(state.running_of(job.schedule_id), default=None)
        if before is not None:
            named = before if _is_named(state, before, sees) else None
            which = "another job" if named is None else f"job {named}"
            sentence = f"waits until {which} of the same schedule has ended"
            return Reason(code="overlap_wait", sentence=sentence, holder=named)
    limited = _limited(state, job, now, sees)
    if limited is not None:
        return limited
    if served is not None and not served(job.queue, job.job_type):
        sentence = f"no live worker knows task {job.job_type} on queue {job.queue}"
        return Reason(code="no_worker", sentence=sentence, holder=job.job_type)
    return _in_line(state, job, now, sees)


def _reserved(state: State, job: Job, now: Timestamp, sees: Sees) -> Reason | None:
    """Say who has the queue to himself, or None."""
    found = reserved_by(state, job.namespace, job.queue, now)
    if found is None:
        return None
    if isinstance(found, Reservation):
        is_named = sees is None or sees(found)
        by = f" by {found.reserved_by}" if is_named else ""
        sentence = f"queue {job.queue} is reserved{by} until {found.expires_at}"
        holder = found.reservation_id if is_named else None
        return Reason(code="reserved", sentence=sentence, holder=holder, until=found.expires_at)
    alone = state.get(Job, found)
    until = None if alone is None else alone.lease_expires_at
    named = found if _is_named(state, found, sees) else None
    sentence = f"{'a job' if named is None else f'job {named}'} runs directly, alone on queue {job.queue}"
    return Reason(code="reserved", sentence=sentence, holder=named, until=until)


def _held_by_group(state: State, job: Job, sees: Sees) -> Reason | None:
    """Give the member of a sequential group that must end first, or None."""
    if job.group_id is None or job.sequence_number is None:
        return None
    group = state.get(Group, job.group_id)
    if group is None or group.mode is not GroupMode.SEQUENTIAL:
        return None
    before = state.turn_of(job.group_id)
    if before is None or before.job_id == job.job_id:
        return None
    which = f"number {(before.sequence_number or 0) + 1} of {group.members} in its group"
    named = before.job_id if sees is None or sees(before) else None
    sentence = f"waits for {which if named is None else f'job {named}, {which}'}, which is {before.status}"
    return Reason(code="group_wait", sentence=sentence, holder=named)


def _limited(state: State, job: Job, now: Timestamp, sees: Sees) -> Reason | None:
    """Give the limit that holds the job back, or None."""
    if job.limit_key is not None:
        carriers = state.running_with(job.namespace, job.limit_key)
        if len(carriers) >= job.key_limit:
            held_by = _holders(state, carriers, sees)
            return _full("key_limit", f"limit key {job.limit_key}", len(carriers), job.key_limit, held_by)
    queue = settings_of(state, job.namespace, job.queue)
    if queue.max_running is not None:
        running = state.running(job.namespace, job.queue)
        if len(running) >= queue.max_running:
            held_by = _holders(state, running, sees)
            return _full("queue_limit", "queue limit", len(running), queue.max_running, held_by)
    opens_at = rate_opens_at(state, queue, job.limit_key, now)
    if opens_at is None:
        return None
    whose = f" for limit key {job.limit_key}" if queue.rate_scope == "key" else ""
    sentence = f"rate of {queue.rate_count} in {queue.rate_period_s:g} s{whose} is used up; next start at {opens_at}"
    return Reason(code="rate_limit", sentence=sentence, holder=job.queue, until=opens_at)


def _holders(state: State, running: Collection[JobId], sees: Sees) -> tuple[JobId, ...]:
    """Give the first of those that hold places, as far as they may be named."""
    return tuple(one for one in nsmallest(HOLDERS, running) if _is_named(state, one, sees))


def _full(code: str, what: str, count: int, limit: int, held_by: tuple[JobId, ...]) -> Reason:
    named = _short(held_by[:NAMED])
    more = f" and {count - len(named)} more" if count > len(named) else ""
    by = f", held by {', '.join(named)}{more}" if named else ""
    sentence = f"{what} {count} of {limit}{by}"
    return Reason(code=code, sentence=sentence, holder=held_by[0] if held_by else None, held_by=held_by)


def _short(ids: Sequence[str]) -> list[str]:
    """Cut ids to as many characters as tell them apart."""
    size = SHORTEST_ID
    while len({one[:size] for one in ids}) < len(ids):
        size += 1
    return [one if len(one) <= size + 1 else f"{one[:size]}…" for one in ids]


def _in_line(state: State, job: Job, now: Timestamp, sees: Sees) -> Reason:
    ahead, first = 0, None
    for other in islice(state.ready(job.namespace, (job.queue,), None, now), COUNTED):
        if place(other) >= place(job):
            break
        first = first or other
        ahead += 1
    lost = lost_in_a_row(state, job)
    alone = f"; it was lost {lost} times in a row and waits to be run alone" if must_run_alone(lost) else ""
    if first is None:
        return Reason(code="ready", sentence=f"next in queue {job.queue}{alone}", holder=job.queue)
    number = f"{COUNTED} or more" if ahead == COUNTED else str(ahead)
    holder = first.job_id if sees is None or sees(first) else None
    return Reason(code="behind", sentence=f"{number} ahead in queue {job.queue}{alone}", holder=holder)


def _delayed(job: Job, last: Run | None) -> Reason:
    """Say what time the job waits for, and which run has put it off, if one has."""
    sentence, holder = f"not before {job.not_before}", None
    if last is not None and last.status is RunStatus.FAILED:
        lines = (last.error or "").strip().splitlines()
        said = f"; last: {lines[-1][:120]}" if lines else ""
        sentence, holder = f"attempt {job.attempts + 1} of {job.max_attempts} at {job.not_before}{said}", last.run_id
    elif last is not None and last.reason == "snoozed":
        sentence, holder = f"snoozed until {job.not_before}", last.run_id
    return Reason(code="delayed", sentence=sentence, holder=holder, until=job.not_before)


def _running(job: Job, now: Timestamp) -> Reason:
    until = job.lease_expires_at
    if until is not None and until <= now:
        sentence = f"the lease of {job.worker_id} lapsed at {until} and will be ended"
        return Reason(code="lease_lapsed", sentence=sentence, holder=job.worker_id, until=until)
    if job.cancel_requested_at is not None:
        sentence = f"{job.worker_id} was asked to stop at {job.cancel_requested_at}{_because(job.cancel_reason)}"
        return Reason(code="cancel_requested", sentence=sentence, holder=job.worker_id, until=until)
    return Reason(
        code="running", sentence=f"leased by {job.worker_id} until {until}", holder=job.worker_id, until=until
    )


def _ended(state: State, job: Job) -> Reason:
    match job.status:
        case JobStatus.COMPLETED:
            return Reason(code="ended", sentence=f"completed at {job.finished_at}")
        case JobStatus.CANCELLED:
            said = f"cancelled at {job.finished_at}{_because(job.cancel_reason)}"
        case JobStatus.DEAD if job.direct and job.error == LOST:
            said = "it ran directly, and its caller was lost; it is not run again"
        case JobStatus.DEAD:
            times = f"its lease expired {job.expiries} times; it seems to kill its worker"
            said = (
                times if job.max_expiries is not None and job.expiries >= job.max_expiries else f"buried: {job.error}"
            )
        case _:
            lines = (job.error or "").strip().splitlines()
            said = f"failed after {job.attempts} of {job.max_attempts} attempts: {lines[-1][:120] if lines else ''}"
    heir = automatic_heir(state, job) if job.retry_mode is RetryMode.CHAIN else None
    if heir is not None:
        said = f"{said}; carried on by {heir}"
    return Reason(code="ended", sentence=said, holder=heir)


def _because(reason: str | None) -> str:
    return f": {reason}" if reason else ""
