"""Presence: how a worker shows itself in the roster. Soft: no job depends on it, and no failure of it is one.

Noted at the start, when the state changes, and now and then while something runs; not while idle, because the store
itself can tell whether the process lives. Dropped at the end.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from holdfast.engine.engine import Engine
from holdfast.errors import HoldfastError, InvalidOperation
from holdfast.model.times import later
from holdfast.model.workers import LiveRun, Wish, WorkerInfo, WorkerState
from holdfast.workers.handlers.leased_job import Assignment

log = logging.getLogger("holdfast.worker")

#: Seconds between two notes: while something runs; when its progress changed, or nothing runs any more; while idle,
#: which is only so that a worker idle for a day is not forgotten.
BUSY_S, CHANGED_S, IDLE_S = 20.0, 1.0, 3600.0
_NEVER = float("inf")


class Presence:
    """One worker's line in the roster of its store."""

    def __init__(self, engine: Engine, me: WorkerInfo) -> None:
        self._engine = engine
        self._me = me
        self._noted_at = _NEVER
        self._state = me.state
        self._is_listed = False
        #: Something about what runs has changed since the last note.
        self.is_stale = False

    def arrive(self) -> None:
        """Enter the roster. Raises InvalidOperation if a live worker there has the same name."""
        self._me = msgspec.structs.replace(self._me, started_at=self._engine.look().now)  # it may have waited for this
        self._note((), 0.0)
        for other in self._roster():
            if other.name != self._me.name or other.worker_id == self._me.worker_id or other.state is WorkerState.LOST:
                continue
            # Of two that start at once, one stays.
            if (other.started_at, other.worker_id) < (self._me.started_at, self._me.worker_id):
                self.leave()
                raise InvalidOperation(
                    f"a worker named {other.name!r} is at work on this store, on host {other.host} with pid "
                    f"{other.pid}. This one was not started.",
                    hint="Stop the other one, or give this one another name.",
                    worker_id=other.worker_id,
                )

    def lurk(self) -> None:
        """Enter the roster only when there is something to tell: a progress, or that it takes long."""
        self._noted_at = self._engine.look().monotonic

    def _roster(self) -> Sequence[WorkerInfo]:
        try:
            return self._engine.store.workers.all()
        except HoldfastError as problem:
            log.warning("roster.unread", extra={"problem": problem.message})
            return ()

    def leave(self) -> None:
        """Leave the roster."""
        self._noted_at = _NEVER
        if not self._is_listed:
            return
        self._is_listed = False
        try:
            self._engine.store.workers.drop(self._me.worker_id)
        except HoldfastError as problem:
            log.warning("roster.unwritten", extra={"problem": problem.message})

    def drain(self) -> None:
        """Say at the next note, which is due now, that no more jobs are taken."""
        self._state = WorkerState.DRAINING

    def wish(self) -> Wish | None:
        """Give what an operator asks of this worker."""
        try:
            return self._engine.store.workers.wish(self._me.worker_id)
        except HoldfastError:
            return None

    def due_at(self, *, is_busy: bool) -> float:
        """Give when the next note is due (monotonic)."""
        if self._noted_at == _NEVER:  # not arrived, or gone
            return _NEVER
        if self._state is not self._me.state:
            return self._noted_at
        if is_busy:
            return self._noted_at + (CHANGED_S if self.is_stale else BUSY_S)
        return self._noted_at + (CHANGED_S if self._me.runs else IDLE_S)

    def note_if_due(self, held: Sequence[Assignment], now: float) -> None:
        """Tell the roster, if it is time."""
        if now >= self.due_at(is_busy=bool(held)):
            self._note(tuple(_live(one) for one in held if one.started_at is not None), now)

    def _note(self, runs: tuple[LiveRun, ...], now: float) -> None:
        reading = self._engine.look()
        self._noted_at, self.is_stale, self._is_listed = now or reading.monotonic, False, True
        self._me = msgspec.structs.replace(self._me, state=self._state, runs=runs, last_seen=reading.now)
        try:
            self._engine.store.workers.note(self._me)
        except HoldfastError as problem:
            log.warning("roster.unwritten", extra={"problem": problem.message})


def _live(held: Assignment) -> LiveRun:
    job = held.grant.job
    assert job.lease_expires_at is not None
    return LiveRun(
        job.job_id,
        held.grant.run_id,
        job.job_type,
        later(job.lease_expires_at, -held.grant.lease_s),
        held.notes.progress,
    )
