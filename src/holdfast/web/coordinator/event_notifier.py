"""The bell: wakes all who wait for a new event. One thread sleeps in the store for all of them.

Long polls and streams cost a task each, no thread. Once closed, nobody waits any more: a server that stops lets
everyone go at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from holdfast.engine.engine import Engine
from holdfast.failpoints import reach

#: Seconds after which the thread sees that the bell was closed.
PAUSE_S = 0.5


class Bell:
    """Rings whenever an event is durable. `start` and `wait` belong to one event loop."""

    def __init__(self, engine: Engine, failed: Callable[[Exception], None]) -> None:
        """Listen to the engine's store; `failed` is told, in the loop, if it cannot be listened to any more."""
        self._engine = engine
        self._failed = failed
        #: Number of the last event that was rung for.
        self.seq = 0
        self.is_closed = False
        #: Long polls and streams that wait for it.
        self.waiting = 0
        self._rung = asyncio.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to listen."""
        self.seq = self._last_event(0)
        loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._listen, args=(loop, self.seq), name="holdfast-bell", daemon=True)
        self._thread.start()

    async def wait(self, after: int, timeout_s: float) -> int:
        """Wait for an event above `after`; give the number of the last one, be it new or not."""
        self.waiting += 1
        try:
            return await self.listen(after, timeout_s)
        finally:
            self.waiting -= 1

    async def listen(self, after: int, timeout_s: float) -> int:
        """Wait as `wait` does, for the coordinator itself: nobody counts it."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.seq <= after and not self.is_closed:
                    reach("bell.waiting")
                    await self._rung.wait()
        except TimeoutError:
            pass
        return self.seq

    def close(self) -> None:
        """Let everyone go."""
        self.is_closed = True
        self._ring(self.seq)

    def join(self) -> None:
        """Wait for the thread to end."""
        if self._thread is not None:
            self._thread.join()

    def _last_event(self, above: int) -> int:
        """Give the number of the last event; numbers beyond it may be taken by a store's own notes, which ring nothing.

        Whoever waits above the last event must not find a higher number here: he would ask again and again.
        """
        with self._engine.read() as view:
            newest = view.seq
        while above < newest:
            middle = (above + newest) // 2
            if self._engine.store.wait(middle, 0):
                above = middle + 1
            else:
                newest = middle
        return above

    def _ring(self, seq: int) -> None:
        self.seq = max(self.seq, seq)
        rung, self._rung = self._rung, asyncio.Event()
        rung.set()

    def _listen(self, loop: asyncio.AbstractEventLoop, seq: int) -> None:
        try:
            while not self.is_closed:
                if self._engine.store.wait(seq, PAUSE_S):
                    seq = self._last_event(seq)
                    loop.call_soon_threadsafe(self._ring, seq)
        except Exception as problem:  # noqa: BLE001 - the coordinator must hear of it, whatever it is
            loop.call_soon_threadsafe(self._failed, problem)
