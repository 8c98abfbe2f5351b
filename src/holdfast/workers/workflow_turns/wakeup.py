"""When the pump of a worker with turns wakes: the calls that time asks for, and who makes it wake earlier.

Under the lock of the ledger. The order that matters: whoever has something due earlier notes it, then rings; the pump
looks at all that was noted and says until when it sleeps without letting the lock go in between. Knows no stint.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable

from holdfast.workers.workflow_turns import NEVER


class Alarm:
    """The times of one worker's turns, monotonic."""

    def __init__(self, lock: threading.Lock, now: Callable[[], float], poke: Callable[[], None]) -> None:
        """Tell the time by `now`; `poke` wakes the pump."""
        self.now = now
        self.poke = poke
        self._lock = lock
        #: What time asks for: when, a number to tell equal ones apart, what.
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        #: The pump wakes by then of itself.
        self._awake_by = 0.0

    def ring(self, at: float) -> None:
        """Let the pump be awake by then. By any thread, with the lock or without."""
        if at < self._awake_by:
            self.poke()

    def later(self, at: float, work: Callable[[], None]) -> None:
        """Call `work` at a time, from the pump's thread. The lock is not held."""
        with self._lock:
            heapq.heappush(self._timers, (at, next(self._numbers), work))
        self.ring(at)

    def due(self, now: float) -> list[Callable[[], None]]:
        """Give what is to be called now, in order, once. The lock is held."""
        due = []
        while self._timers and self._timers[0][0] <= now:
            due.append(heapq.heappop(self._timers)[2])
        return due

    def sleep(self, until: float) -> float:
        """Note when the pump wakes of itself: by then, or for the first call; and give that. The lock is held."""
        self._awake_by = min(until, self._timers[0][0] if self._timers else NEVER)
        return self._awake_by
