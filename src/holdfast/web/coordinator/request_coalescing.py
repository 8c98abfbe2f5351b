"""What many ask for at once is found out once: all who ask in the same turn of the event loop share the answer.

Nobody gets one that is older than his question: whatever arrives after it was found out is read, and whatever was
decided meanwhile is answered, in a later turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """Something to find out. Belongs to one event loop; outside of it everybody finds out for himself."""

    def __init__(self, find: Callable[[], T]) -> None:
        self._find = find
        #: What was found in this turn; empty in the next.
        self._found: list[T] = []

    def __call__(self) -> T:
        """Give it."""
        if self._found:
            return self._found[0]
        found = self._find()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return found
        # Before anything that is read from now on.
        loop.call_soon(self._found.clear)
        self._found.append(found)
        return found
