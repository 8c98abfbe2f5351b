"""Group commit at the caller: whatever threads of one process send while a request is under way goes in the next one.

One of those who wait sends for all of them. Each keeps its own order and gets its own outcomes; one whose commands are
refused as a request takes no other with it. Whoever is interrupted while it sends for others leaves them to the next:
commands carry their ids, so sending the same again does no harm.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from holdfast.errors import HoldfastError, StoreError
from holdfast.failpoints import reach
from holdfast.model.outcomes import Outcome

#: Has encoded commands decided by one request, if they fit; blocks.
Send = Callable[[Sequence[bytes]], list[Outcome]]


class _Caller:
    """Commands of one caller, and the outcomes or the error they ended in."""

    __slots__ = ("commands", "error", "outcomes", "wake")

    def __init__(self, commands: Sequence[bytes]) -> None:
        self.commands = commands
        self.outcomes: list[Outcome] | None = None
        self.error: HoldfastError | None = None
        #: Set when it is settled, or when it is its turn to send.
        self.wake = threading.Event()

    @property
    def is_settled(self) -> bool:
        return self.outcomes is not None or self.error is not None


class Together:
    """Callers of one kind. For any thread."""

    def __init__(self, send: Send, most: int) -> None:
        """Send by `send`, up to `most` commands at a time, unless one caller alone has more."""
        self._send = send
        self._most = most
        self._lock = threading.Lock()
        #: In the order they came; the first one sends, for itself and those behind it.
        self._line: deque[_Caller] = deque()

    def decide(self, commands: Sequence[bytes]) -> list[Outcome]:
        """Have encoded commands decided. Raises what became of them otherwise."""
        caller = _Caller(commands)
        with self._lock:
            self._line.append(caller)
            is_first = self._line[0] is caller
        reach("together.joined")
        try:
            if not is_first:
                caller.wake.wait()
            if not caller.is_settled:
                self._lead()
        except BaseException:
            self._leave(caller)
            raise
        if caller.error is not None:
            raise _own(caller.error)
        assert caller.outcomes is not None
        return caller.outcomes

    def _lead(self) -> None:
        """Send what waits, then wake those who were served, and the next one."""
        with self._lock:
            taken = self._taken()
        self._settle(taken)
        with self._lock:
            self._forget(taken)

    def _taken(self) -> list[_Caller]:
        taken: list[_Caller] = []
        size = 0
        for caller in self._line:
            size += len(caller.commands)
            if taken and size > self._most:
                break
            taken.append(caller)
        return taken

    def _leave(self, caller: _Caller) -> None:
        """Forget a caller that gave up. Those it sent for are served by the next, unless they were before."""
        with self._lock:
            self._forget([caller, *(one for one in self._line if one.is_settled)])

    def _forget(self, callers: Sequence[_Caller]) -> None:
        """Take these out of the line, wake them, and whoever is first now."""
        for caller in callers:
            if caller in self._line:
                self._line.remove(caller)
            caller.wake.set()
        if self._line:
            self._line[0].wake.set()

    def _settle(self, taken: Sequence[_Caller]) -> None:
        try:
            outcomes = iter(self._send([command for caller in taken for command in caller.commands]))
        except HoldfastError as problem:
            if len(taken) == 1 or isinstance(problem, StoreError):
                for caller in taken:
                    caller.error = problem
                return
            # One of them cannot even be read there, and nothing was done. Each alone.
            for caller in taken:
                self._settle([caller])
            return
        for caller in taken:
            caller.outcomes = [next(outcomes) for _ in caller.commands]


def _own(error: HoldfastError) -> HoldfastError:
    """Give an error that several share as one of its own, which its caller may add to."""
    return type(error)(error.message, hint=error.hint, **error.facts)
