"""The only reader of the machine's clock. A leaf: it imports no room.

Everything else takes `now` as a value or a `Clock` as a parameter, so that tests can set time. Wall time is for
records, monotonic time for waiting; the two are never mixed, and monotonic readings are never stored or sent.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What the engine asks for the time."""

    def now(self) -> datetime:
        """Wall time, UTC, aware, with microseconds."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow, for timeouts within this process."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """Read the wall clock."""
        return datetime.now(UTC)  # noqa: TID251 - this is the place the ban points to

    #: Read the monotonic clock. Asked so often that a function around it would cost as much as the look.
    monotonic = staticmethod(time.monotonic)

    #: Give the seconds of processor that all threads of this process have had.
    processor = staticmethod(time.process_time)
