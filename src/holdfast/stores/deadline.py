"""Until when a caller waits, known to whatever asks a store elsewhere for it.

Whoever waits for a limited time says so once, where the waiting begins; all that is asked inside, in whatever layer,
ends by then instead of after the patience a store has of itself. It belongs to the thread or task that waits, and to
the threads its work is handed to (`asyncio.to_thread`). A store of this machine never asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf

_deadline: ContextVar[float] = ContextVar("holdfast_deadline", default=inf)


@contextmanager
def keeping_to(ends_at: float) -> Iterator[None]:
    """Let what is asked inside end by then (monotonic), or sooner if whoever is outside waits no longer."""
    outside = _deadline.set(min(ends_at, _deadline.get()))
    try:
        yield
    finally:
        _deadline.reset(outside)


def deadline() -> float:
    """Give when the caller stops waiting (monotonic); infinity if he has not said."""
    return _deadline.get()
