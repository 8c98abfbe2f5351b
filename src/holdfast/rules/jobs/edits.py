"""Edits by people: cancel, bury, update, move, normalise, pause. Only what is QUEUED can be edited or moved."""

from __future__ import annotations

from holdfast.errors import InvalidOperation, InvalidValue, JobNotFound
from holdfast.model.commands import (
    Bury,
    Cancel,
    Move,
    Normalize,
    PauseDispatch,
    PauseQueue,
    ResumeDispatch,
    ResumeQueue,
    Update,
)
from holdfast.model.events import (
    DispatchPaused,
    DispatchResumed,
    JobCancelled,
    JobCancelRequested,
    JobDead,
    JobMoved,
    JobUpdated,
    QueueNormalized,
    QueuePaused,
    QueueResumed,
)
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, JobStatus, KeyScope
from holdfast.model.outcomes import CancelAnswer, Changed, Done
from holdfast.model.payloads import NULL, shorten_error
from holdfast.model.records import AUTHORITY, Authority, Queue, pair
from holdfast.rules.decision import Decision, answer, deny
from holdfast.rules.jobs.dispatch_order import FAR, GAP, back, place, rank_of
from holdfast.rules.state import State


def _missing(job_id: JobId) -> Decision:
    return deny(JobNotFound, f"there is no job {job_id}.", job_id=job_id)


def _not_so(job: Job, wish: str) -> Decision:
    return deny(
        InvalidOperation,
        f"job {job.job_id} is {job.status} and cannot be {wish}. Nothing was changed.",
        job_id=job.job_id,
        status=job.status,
    )


# --- ending -----------------------------------------------------------------------------------------------------------


def decide_cancel(state: State, command: Cancel) -> Decision:
    """End a queued job; ask a running one to stop, or with `force` revoke its lease at once."""
    job = state.get(Job, command.job_id)
    if job is None:
        return _missing(command.job_id)
    if job.has_ended:
        return _not_so(job, "cancelled")
    if job.status is JobStatus.QUEUED or command.force:
        ended = JobCancelled(
            job_id=job.job_id,
            reason=shorten_error(command.reason),
            token=job.token,
            cmd=command.cmd,
            actor=command.actor,
        )
        return answer(CancelAnswer(outcome="cancelled"), ended)
    if job.cancel_requested_at is not None:
        return answer(CancelAnswer(outcome="requested"))
    reason = shorten_error(command.reason)
    asked = JobCancelRequested(job_id=job.job_id, reason=reason, cmd=command.cmd, actor=command.actor)
    return answer(CancelAnswer(outcome="requested"), asked)


def decide_bury(state: State, command: Bury) -> Decision:
    """Declare a job DEAD, whether it waits or runs."""
    job = state.get(Job, command.job_id)
    if job is None:
        return _missing(command.job_id)
    if job.has_ended:
        return _not_so(job, "buried")
    reason = shorten_error(command.reason)
    event = JobDead(job_id=job.job_id, reason=reason, cmd=command.cmd, actor=command.actor)
    return answer(Changed(job_id=job.job_id), event)


# --- editing ----------------------------------------------------------------------------------------------------------


def decide_update(state: State, command: Update) -> Decision:
    """Change fields of a queued job; another priority or queue puts it at the back of its new band."""
    job = state.get(Job, command.job_id)
    if job is None:
        return _missing(command.job_id)
    if job.status is not JobStatus.QUEUED:
        return _not_so(job, "edited")
    changes = command.changes
    if changes.params != NULL and job.started_at is not None:
        return deny(
            InvalidOperation,
            f"job {job.job_id} was leased before; its parameters are frozen. Nothing was changed.",
            hint="Cancel it and enqueue a new one.",
            job_id=job.job_id,
        )
    queue = changes.queue if isinstance(changes.queue, str) else job.queue
    priority = changes.priority if isinstance(changes.priority, int) else job.priority
    rank = rank_of(priority, job.created_at, state.get(Queue, pair(job.namespace, queue)))
    moves = (queue, rank) != (job.queue, job.rank)
    if queue != job.queue and job.key is not None and job.key_scope is KeyScope.QUEUE:
        return deny(
            InvalidOperation,
            f"job {job.job_id} holds a key of queue {job.queue!r} and cannot leave it. Nothing was changed.",
            job_id=job.job_id,
        )
    event = JobUpdated(
        job_id=job.job_id,
        changes=changes,
        position=back(state, job.namespace, queue, rank) if moves else None,
        rank=rank if moves else None,
        cmd=command.cmd,
        actor=command.actor,
    )
    return answer(
        Changed(job_id=job.job_id, position=job.position if event.position is None else event.position), event
    )


def decide_move(state: State, command: Move) -> Decision:
    """Put a queued job elsewhere in its band."""
    job = state.get(Job, command.job_id)
    if job is None:
        return _missing(command.job_id)
    if job.status is not JobStatus.QUEUED:
        return _not_so(job, "moved")
    if sum(goal is not None for goal in (command.before, command.after, command.to)) != 1:
        return deny(InvalidValue, "name exactly one of before, after and to. Nothing was changed.", field="to")
    if command.to is not None:
        return _move_to_end(state, job, command)
    goal_id = command.before or command.after
    assert goal_id is not None
    goal = state.get(Job, goal_id)
    if goal is None:
        return _missing(goal_id)
    if goal.status is not JobStatus.QUEUED:
        return _not_so(goal, "the neighbour of a queued one")
    if (goal.namespace, goal.queue, goal.rank) != (job.namespace, job.queue, job.rank):
        message = f"job {goal.job_id} waits in another queue or priority than {job.job_id}. Nothing was changed."
        return deny(InvalidOperation, message, job_id=goal.job_id)
    if goal.job_id == job.job_id:
        return answer(Changed(job_id=job.job_id, position=job.position))
    return _move_beside(state, job, goal, command)


def _moved(command: Move, position: int) -> JobMoved:
    return JobMoved(job_id=command.job_id, position=position, cmd=command.cmd, actor=command.actor)


def _move_to_end(state: State, job: Job, command: Move) -> Decision:
    last = command.to == "last"
    edge = state.edge(job.namespace, job.queue, job.rank, last=last)
    assert edge is not None
    neighbour = state.beside(job, after=last)
    if neighbour is None:
        return answer(Changed(job_id=job.job_id, position=job.position))
    position = edge + GAP if last else edge - GAP
    if abs(position) > FAR:
        return _normalised_move(state, job, command, None)
    return answer(Changed(job_id=job.job_id, position=position), _moved(command, position))


def _move_beside(state: State, job: Job, goal: Job, command: Move) -> Decision:
    after = command.after is not None
    other = state.beside(goal, after=after)
    if other is not None and other.job_id == job.job_id:
        return answer(Changed(job_id=job.job_id, position=job.position))
    if other is None:
        position = goal.position + (GAP if after else -GAP)
        fits = abs(position) <= FAR
    else:
        low, high = sorted((goal.position, other.position))
        position = (low + high) // 2
        fits = low < position < high
    if fits:
        return answer(Changed(job_id=job.job_id, position=position), _moved(command, position))
    return _normalised_move(state, job, command, goal)


def _normalised_move(state: State, job: Job, command: Move, goal: Job | None) -> Decision:
    """Space the band evenly, then move, in one commit."""
    band = sorted(state.band(job.namespace, job.queue, job.rank), key=place)
    places = {other.job_id: GAP * number for number, other in enumerate(band, start=1)}
    if goal is not None:
        position = places[goal.job_id] + (GAP // 2 if command.after is not None else -GAP // 2)
    else:
        position = GAP * (len(band) + 1) if command.to == "last" else 0
    spaced = QueueNormalized(
        namespace=job.namespace, queue=job.queue, rank=job.rank, cmd=command.cmd, actor=command.actor
    )
    return answer(Changed(job_id=job.job_id, position=position), spaced, _moved(command, position))


def decide_normalize(state: State, command: Normalize) -> Decision:
    """Space the positions of every band of a queue evenly."""
    events = [
        QueueNormalized(
            namespace=command.namespace, queue=command.queue, rank=rank, cmd=command.cmd, actor=command.actor
        )
        for rank in state.bands(command.namespace, command.queue)
    ]
    return answer(Done(), *events)


# --- pausing ----------------------------------------------------------------------------------------------------------


def decide_pause(state: State, command: PauseQueue | ResumeQueue) -> Decision:
    """Stop or resume leasing from one queue; what runs goes on."""
    queue = state.get(Queue, pair(command.namespace, command.queue))
    paused = queue is not None and queue.paused
    match command:
        case PauseQueue():
            reason = shorten_error(command.reason)
            if paused and queue is not None and queue.pause_reason == (reason or None):
                return answer(Done())
            return answer(
                Done(),
                QueuePaused(
                    namespace=command.namespace,
                    queue=command.queue,
                    reason=reason,
                    cmd=command.cmd,
                    actor=command.actor,
                ),
            )
        case ResumeQueue():
            if not paused:
                return answer(Done())
            resumed = QueueResumed(
                namespace=command.namespace, queue=command.queue, cmd=command.cmd, actor=command.actor
            )
            return answer(Done(), resumed)


def decide_dispatch(state: State, command: PauseDispatch | ResumeDispatch) -> Decision:
    """Stop or resume leasing altogether."""
    authority = state.get(Authority, AUTHORITY) or Authority()
    match command:
        case PauseDispatch():
            reason = shorten_error(command.reason)
            if authority.dispatch_paused and authority.dispatch_reason == (reason or None):
                return answer(Done())
            return answer(Done(), DispatchPaused(reason=reason, cmd=command.cmd, actor=command.actor))
        case ResumeDispatch():
            if not authority.dispatch_paused:
                return answer(Done())
            return answer(Done(), DispatchResumed(cmd=command.cmd, actor=command.actor))
