"""Where steps of turns run: the threads of the crew, the worker's loop, the pump's time. Knows no step."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

from holdfast.workers.workflow_turns.thread_pool import Crew
from holdfast.workers.workflow_turns.wakeup import Alarm


class WorkerStage:
    """The `Stage` of one worker."""

    def __init__(self, crew: Crew, alarm: Alarm, spawn: Callable[[Coroutine[Any, Any, None]], Future[None]]) -> None:
        """Let `spawn` run a coroutine on the worker's loop."""
        self.spawn = spawn
        self._crew = crew
        self._alarm = alarm

    def now(self) -> float:
        """Give the monotonic time."""
        return self._alarm.now()

    def later(self, at: float, work: Callable[[], None]) -> None:
        """Call `work` at a time, from the pump's thread."""
        self._alarm.later(at, work)

    def hand_in(self, work: Callable[[], None]) -> None:
        """Have work done by a thread."""
        self._crew.put(work)

    def write_off(self, ident: int) -> None:
        """Count a thread no longer."""
        self._crew.write_off(ident)
