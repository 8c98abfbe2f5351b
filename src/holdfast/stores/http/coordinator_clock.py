"""The coordinator's time, as its last answer told it: worker clocks decide nothing.

Between answers it goes on by the monotonic clock of this process. An answer is as old as it took at most; so the time
given here may be late by that much, and never early.
"""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

from holdfast.clock import Clock


class Hearsay:
    """A clock that is set by answers."""

    def __init__(self, clock: Clock) -> None:
        """Begin with the wall clock of this machine, until the first answer."""
        self._clock = clock
        self._lock = threading.Lock()
        self._heard, self._heard_at = clock.now(), clock.monotonic()

    def hear(self, now: datetime) -> None:
        """Take over what an answer says."""
        with self._lock:
            self._heard, self._heard_at = now, self._clock.monotonic()

    def now(self) -> datetime:
        """Give the coordinator's wall time."""
        with self._lock:
            return self._heard + timedelta(seconds=self._clock.monotonic() - self._heard_at)

    def monotonic(self) -> float:
        """Give this process's own seconds."""
        return self._clock.monotonic()
