"""`task.direct(…)`: run a task now, here, alone on its queue. Current, then direct, then the queue.

The queue is reserved, what runs on it is waited for, the job is created and leased in one step and run in this process;
whatever happens, the queue is given back.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from holdfast.app.handles.job import Job
from holdfast.app.handles.reservation import TTL_S, Reservation, inside
from holdfast.errors import InvalidOperation, WorkFailed
from holdfast.model.commands import NewJob, StartDirect
from holdfast.model.jobs import JobStatus
from holdfast.model.outcomes import Grant, Leased, Refusal
from holdfast.workers.direct_run import DirectRun
from holdfast.workers.handlers.control_exceptions import Retry, Snooze

if TYPE_CHECKING:
    from holdfast.app.queue_wait import Patience
    from holdfast.app.tasks.task import Task

R = TypeVar("R")

#: Characters of what says who holds a queue.
MAX_BY = 200


def run_directly(task: Task[..., R], args: tuple[Any, ...], kwargs: Mapping[str, Any], patience: Patience) -> R:
    """Give what the handler returned, or raise what it raised."""
    app = task.app
    if task.chosen.connection is not None:
        raise InvalidOperation(
            "connection: a direct execution cannot be part of a transaction of its caller. Nothing was started.",
            field="connection",
        )
    task.chosen.demand_valid(task.name, app.namespace)
    new = task.job(*args, **kwargs)
    handle: Job[R] = Job(app, new.job_id, task.codec)
    with _reserved(task, new.queue, patience) as reservation:
        started = _start(reservation, new, patience)
        if started is None:
            return handle.outcome(handle.refresh())  # the same id again: it has ended, and this is how
        run = DirectRun(app.engine, task.spec, started.grant, started.sent_at)
        run.run()
        return _outcome(handle, run.kept.error)


@contextmanager
def _reserved(task: Task[..., Any], queue: str, patience: Patience) -> Iterator[Reservation]:
    """Hold the queue; by the reservation that the caller is inside of, if there is one."""
    mine = inside(task.app, queue)
    if mine is not None:
        patience.begin(task.app.engine)
        yield mine
        return
    by = f"{task.name}, directly, pid {os.getpid()} on {socket.gethostname()}"[:MAX_BY].strip()
    reservation = Reservation(task.app, queue, patience, by=by, ttl_s=TTL_S)
    try:
        reservation.demand_not_in_the_way(idle=True)
        reservation.acquire()
        yield reservation
    finally:
        reservation.release()


class _Started(NamedTuple):
    """A grant, and when it was asked for (monotonic)."""

    grant: Grant
    sent_at: float


def _start(reservation: Reservation, new: NewJob, patience: Patience) -> _Started | None:
    """Wait until nothing of the queue runs, and create the job; None if the same job was there and has ended."""
    engine = reservation.engine
    worker_id = f"direct:{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
    command = StartDirect(
        reservation_id=reservation.reservation_id, job=new, worker_id=worker_id, session_id=engine.session_id
    )

    def attempt() -> _Started | Refusal | None:
        sent_at = engine.look().monotonic
        outcome = engine.submit(command)
        if isinstance(outcome, Refusal):
            return outcome
        assert isinstance(outcome, Leased)
        return _Started(outcome.grants[0], sent_at) if outcome.grants else None

    return reservation.when_idle(patience, attempt)


def _outcome(handle: Job[R], error: BaseException | None) -> R:
    """Give the result as it is kept, or raise: what the handler raised, or else what became of the job."""
    job = handle.refresh()
    if error is not None and job.status is JobStatus.FAILED and _is_its_own(handle, error):
        raise error
    try:
        return handle.outcome(job)
    except WorkFailed as failure:
        raise failure from error


def _is_its_own(handle: Job[Any], error: BaseException) -> bool:
    """Tell whether the job failed by what its handler raised, and not by a wish that cannot be, or by its timeout."""
    wish = isinstance(error, Retry | Snooze | asyncio.CancelledError)
    return not wish and handle.runs()[-1].error_kind in ("exception", "fatal")
