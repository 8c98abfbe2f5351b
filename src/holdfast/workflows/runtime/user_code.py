"""The code of one execution, as it runs: a task of its loop, and the thread behind it if it is a `def`.

Knows no event and no command; it is begun, cancelled and let go by the execution it belongs to.
"""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import Any

from holdfast.workflows.api.definitions import Definition
from holdfast.workflows.runtime.event_loop import Loop
from holdfast.workflows.runtime.sync_adapter import Lockstep


class Program:
    """A workflow's function under way."""

    __slots__ = ("_lockstep", "main")

    def __init__(self, loop: Loop, definition: Definition, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Make it ready to run in the loop."""
        self._lockstep: Lockstep | None = None
        if definition.is_blocking:
            self._lockstep = Lockstep(loop, definition.function, args, kwargs)
            coro = self._lockstep.run()
        else:
            coro = definition.function(*args, **kwargs)
        #: The task it is.
        self.main: asyncio.Task[Any] = loop.create_task(coro, name="main", context=Context())

    @property
    def thread_id(self) -> int | None:
        """The thread that runs it, if that is not the turn's: of a `def` workflow."""
        return None if self._lockstep is None else self._lockstep.thread_id

    def block_until(self, awaitable: Any) -> Any:
        """Wait in the thread of a `def` workflow."""
        assert self._lockstep is not None
        return self._lockstep.wait(awaitable)

    def evict(self) -> None:
        """End its thread, if it has one, and wait for it."""
        if self._lockstep is not None:
            self._lockstep.evict()
