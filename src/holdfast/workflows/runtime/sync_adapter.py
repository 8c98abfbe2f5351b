"""`def` workflows: the function runs in a thread of its own, in lockstep with the turn, never both at once.

The loop sees a coroutine that awaits what the thread blocks on; so history, matching and cancellation are those of
`async def` workflows. The order that matters: whoever passes the word on waits until it comes back.
"""

from __future__ import annotations

import threading
from asyncio import events
from collections.abc import Awaitable, Callable, Coroutine
from queue import SimpleQueue
from typing import Any

from holdfast.workflows.runtime.event_loop import Loop

#: Seconds that a thread has to come to its end.
PATIENCE = 5.0
#: Calls of a thread that was told to end before it is left to wait for ever.
MANY_REFUSALS = 100


class Evicted(BaseException):
    """The workflow leaves this process. Let it pass; it goes on elsewhere, or here, from its history."""


class Lockstep:
    """One `def` workflow and its thread."""

    def __init__(self, loop: Loop, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._loop = loop
        self._call = (function, args, kwargs)
        #: To the thread: an answer, or the exception to raise. To the loop: what to await, or how it ended.
        self._answers: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._requests: SimpleQueue[tuple[Awaitable[Any] | None, Any, BaseException | None]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_evicted = False
        self._refused = 0
        #: Into which nobody ever puts anything.
        self._nothing: SimpleQueue[None] = SimpleQueue()

    async def run(self) -> Any:
        """Be the workflow, for the loop."""
        self._thread = threading.Thread(target=self._work, name="holdfast-def-workflow", daemon=True)
        self._thread.start()
        while True:
            awaited, value, problem = self._requests.get()
            if awaited is None:
                if problem is not None:
                    raise problem
                return value
            try:
                self._answers.put((await awaited, None))
            except GeneratorExit:
                self.evict()
                raise
            except BaseException as raised:  # noqa: BLE001 - it belongs to the thread, whatever it is
                self._answers.put((None, raised))

    @property
    def thread_id(self) -> int | None:
        """The thread the function runs in, once it does."""
        return None if self._thread is None else self._thread.ident

    def wait(self, awaited: Awaitable[Any]) -> Any:
        """Block the thread until the loop has the result."""
        if self._is_evicted:
            if isinstance(awaited, Coroutine):
                awaited.close()
            self._refused += 1
            if self._refused > MANY_REFUSALS:
                self._nothing.get()  # it catches everything, and would take the time of all others from here on
            raise Evicted
        self._requests.put((awaited, None, None))
        value, problem = self._answers.get()
        if self._loop.guard is not None:
            self._loop.guard.enter()  # again: a refusal has switched it off
        if problem is not None:
            raise problem
        return value

    def evict(self) -> None:
        """End the thread, wherever it blocks, and wait for it."""
        if self._is_evicted or self._thread is None:
            return
        self._is_evicted = True
        if self._thread.is_alive():
            self._answers.put((None, Evicted()))
            # Code that will not go is left behind: it is refused whatever it asks for.
            self._thread.join(PATIENCE)

    def _work(self) -> None:
        # asyncio's own mark: so `current` finds the execution here, and asyncio.run is refused.
        events._set_running_loop(self._loop)  # noqa: SLF001 - there is no public way
        function, args, kwargs = self._call
        try:
            if self._loop.guard is not None:
                self._loop.guard.enter()  # for as long as this thread lives: it runs nothing else
            value = function(*args, **kwargs)
        except Evicted:
            self._requests.put((None, None, None))
        except BaseException as raised:  # noqa: BLE001 - the loop raises it in the workflow's task
            self._requests.put((None, None, raised))
        else:
            self._requests.put((None, value, None))
        finally:
            events._set_running_loop(None)  # noqa: SLF001 - the same
