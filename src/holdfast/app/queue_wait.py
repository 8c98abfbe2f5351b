"""Waiting for a queue: in this process in the order of arrival, among processes until the first commit wins.

Whoever is first in line looks at the store, asks when the queue seems free, and sleeps until something happens there;
about once a second it also sees to it that nobody waits for the dead. A look costs a read; only an attempt writes.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from holdfast.clock import SystemClock
from holdfast.engine.engine import Engine
from holdfast.engine.maintenance import end_dead_sessions, end_lapsed
from holdfast.errors import InvalidValue, ReservationConflict, ReservationTimeout
from holdfast.failpoints import reach
from holdfast.model.outcomes import Refusal, refuse
from holdfast.rules.reservations.commands import held_by, holds

#: Seconds between two looks at whether those who are in the way live.
LOOK_S = 1.0
Wait = float | timedelta | None


class Patience:
    """How long somebody waits for a queue: without limit, for some seconds, or not at all."""

    def __init__(self, wait: Wait) -> None:
        """Wait so long, counted from `begin`. Raises InvalidValue for what is no time to wait."""
        seconds: Any = wait.total_seconds() if isinstance(wait, timedelta) else wait
        if seconds is not None and (type(seconds) not in (int, float) or not 0 <= seconds < math.inf):
            message = f"wait: {wait!r:.80} is not a number of seconds from 0 on. Nothing was done."
            raise InvalidValue(message, hint="None waits without limit, 0 does not wait.", field="wait")
        self.wait: float | None = seconds
        self._engine: Engine | None = None
        #: Monotonic, by the engine's clock and by the machine's: one that a test holds still ends no patience.
        self._deadline: float | None = None
        self._machine = SystemClock()
        self._machine_deadline = math.inf
        self._given_up = threading.Event()

    def begin(self, engine: Engine) -> None:
        """Count from now on."""
        self._engine = engine
        if self.wait is not None:
            self._deadline = engine.look().monotonic + self.wait
            self._machine_deadline = self._machine.monotonic() + self.wait

    def left(self) -> float | None:
        """Give the seconds left; None without limit."""
        if self._given_up.is_set():
            return 0.0
        if self._deadline is None or self._engine is None:
            return self.wait
        left = self._deadline - self._engine.look().monotonic
        return max(0.0, min(left, self._machine_deadline - self._machine.monotonic()))

    def give_up(self) -> None:
        """Wait no longer. From any thread."""
        self._given_up.set()

    @property
    def is_given_up(self) -> bool:
        """Whether nobody wants it any more."""
        return self._given_up.is_set()


class Waiters:
    """Who waits for one queue in this process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[Patience] = deque()

    @contextmanager
    def turn(self, patience: Patience) -> Iterator[bool]:
        """Stand in line; tell whether it is one's turn before patience ends."""
        with self._changed:
            self._waiting.append(patience)
        try:
            with self._changed:
                while self._waiting[0] is not patience and (left := patience.left()) != 0:
                    # Now and then it must see whether it was given up.
                    self._changed.wait(LOOK_S if left is None else min(left, LOOK_S))
                first = self._waiting[0] is patience
            yield first
        finally:
            with self._changed:
                self._waiting.remove(patience)
                self._changed.notify_all()


class Vigil:
    """Looks at one queue until it is free."""

    def __init__(self, engine: Engine, namespace: str, queue: str, patience: Patience) -> None:
        """Look at a queue for as long as `patience` lasts."""
        self._engine = engine
        self._queue = (namespace, queue)
        self._patience = patience
        self._look_at = -math.inf

    def reserved(self) -> Refusal | None:
        """Say who has reserved the queue, or None."""
        with self._engine.read() as view:
            found = view.reservation(*self._queue)
        return held_by(found) if found is not None and holds(found, self._engine.look().now) else None

    def running(self) -> Refusal | None:
        """Say which job of the queue runs, or None."""
        with self._engine.read() as view:
            first = min(view.running(*self._queue), default=None)
        if first is None:
            return None
        queue = self._queue[1]
        return refuse(ReservationConflict, f"job {first} of queue {queue} is still running.", job_id=first, queue=queue)

    def begin(self) -> int:
        """Give the number of the last event, before one looks; see to it that nobody waits for the dead."""
        now = self._engine.look().monotonic
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            end_lapsed(self._engine)
            end_dead_sessions(self._engine)
        with self._engine.read() as view:
            return view.seq

    def rest(self, seq: int, problem: Refusal) -> None:
        """Sleep until something has happened after `seq`. Raises what `late` gives once patience is at its end."""
        reach("reservation.waiting")
        left = self._patience.left()
        if left == 0:
            raise self.late(problem)
        self._engine.store.wait(seq, LOOK_S if left is None else min(left, LOOK_S))

    def late(self, problem: Refusal | None = None) -> ReservationConflict | ReservationTimeout:
        """Give the error of somebody who does not wait, or not any longer."""
        queue, wait = self._queue[1], self._patience.wait
        problem = problem or self.reserved() or self.running()
        if problem is None:
            others = f"others of this process wait for queue {queue}. Nothing was reserved."
            problem = refuse(ReservationConflict, others, queue=queue)
        if wait == 0:
            error = problem.error()
            assert isinstance(error, ReservationConflict)
            return error
        waited = "was given up" if wait is None else f"was not free within {wait:g} s"
        return ReservationTimeout(
            f"queue {queue} {waited}: {problem.message}", hint=problem.hint or None, **problem.facts
        )
