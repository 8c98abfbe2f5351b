"""`virtual(hf)`: an application in a world of its own, whose clock jumps to what is due next when all is idle.

Store, leases, retries, schedules and timers obey that clock. Tasks, steps and turns run in the thread that asks, by the
same store, rules and pump as elsewhere; only who waits differs. Workflow code is guarded: a restricted call
is refused, a direct read of a clock, randomness or a file is a warning with its line.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from holdfast.engine.maintenance import tick
from holdfast.model.times import Timestamp, moment
from holdfast.rules.state import Lane
from holdfast.testing.clock import ManualClock
from holdfast.testing.here import Here, next_time
from holdfast.testing.jobs import use
from holdfast.testing.turning import Turning
from holdfast.workflows.determinism.guard import Guard
from holdfast.workflows.provider import Provider

if TYPE_CHECKING:
    from holdfast.app.application import Holdfast
    from holdfast.app.workflows.handle import Instance

R = TypeVar("R")

#: Things that happen at one time after which the world is taken to go round in circles.
MOST = 100_000
#: What time brings, beside jobs.
_LANES = (Lane.SCHEDULE, Lane.MAIL, Lane.TURN)


@contextmanager
def virtual(app: Holdfast) -> Iterator[VirtualWorld]:
    """Put an application on a fresh `memory:` store with a clock of its own, for as long as the block lasts.

    >>> with virtual(hf) as world:  # doctest: +SKIP
    ...     assert world.run(onboard.start(42)) == "welcome"
    """
    clock = ManualClock()
    with use(app, "memory:", clock=clock):
        app._prepare(app.engine)  # noqa: SLF001 - what opening a store does: it makes the schedules of decorators
        world = VirtualWorld(app, clock)
        with app.workflows.guarded_by(Guard(on_read=world.warn)):
            try:
                yield world
            finally:
                world.crash()


class VirtualWorld(Turning):
    """An application, its workers and its time."""

    def __init__(self, app: Holdfast, clock: ManualClock) -> None:
        """Use `virtual`."""
        super().__init__(app.workflows)
        self.app = app
        self.clock = clock
        self._worker = Here(app)
        self._warned: set[str] = set()

    def run(self, run: Instance[R], timeout: float | None = None) -> R:
        """Let time pass until an instance has ended, and give its result.

        Raises WorkflowFailed or WorkflowCancelled as `run.result` does, what blocks it, and TimeoutError if nothing
        will ever happen that it waits for, or `timeout` seconds of this world's time have passed.
        """
        until = None if timeout is None else self.clock.monotonic() + timeout
        while True:
            self.settle()
            if run.status().has_ended or not self._jump(until):
                return run.result(timeout=0)

    def advance(self, seconds: float) -> None:
        """Let so much time pass, and everything happen that it brings."""
        until = self.clock.monotonic() + seconds
        self.settle()
        while self._jump(until):
            self.settle()
        self.clock.advance(max(0.0, until - self.clock.monotonic()))
        self.settle()

    def crash(self) -> None:
        """Lose what is in memory only, as a process that died between two commits: instances go on by replay."""
        self.forget()

    def settle(self) -> None:
        """Do everything that can be done now, without any time passing."""
        tick(self.app.engine, self.app.retention)
        for _ in range(MOST):
            if not self._worker.work() and not self._run_turn():
                return
        raise AssertionError("the world does not come to rest")

    def _run_turn(self) -> bool:
        return self.turn_once(Provider(self.app.engine), secrets.randbits(63))

    def warn(self, found: Exception) -> None:
        """Say, once for each line, that workflow code reads what no replay can give it again."""
        if str(found) not in self._warned:
            self._warned.add(str(found))
            warnings.warn(str(found), stacklevel=2)

    # --- time ---------------------------------------------------------------------------------------------------------

    def _jump(self, until: float | None) -> bool:
        """Go on to the next time at which something is due, if that is not beyond `until`."""
        now = self.clock.now()
        ahead = [(moment(when) - now).total_seconds() for when in self._times()]
        left = [seconds for seconds in ahead if seconds > 0]
        if not left or (until is not None and self.clock.monotonic() + min(left) > until):
            return False
        self.clock.advance(min(left))
        return True

    def _times(self) -> list[Timestamp]:
        with self.app.engine.read() as view:
            found = [view.next_due(lane) for lane in _LANES]
        return [when for when in (*found, next_time(self.app)) if when is not None]
