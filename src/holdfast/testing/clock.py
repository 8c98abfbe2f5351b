"""A clock that stands still until a test moves it. Nothing that uses it needs to sleep."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from threading import Lock

START = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """Wall and monotonic time under the test's hand. Safe to share between threads.

    >>> clock = ManualClock()
    >>> clock.advance(1.5)
    >>> clock.now().isoformat(), clock.monotonic()
    ('2026-01-01T00:00:01.500000+00:00', 1.5)
    """

    def __init__(self, start: datetime = START) -> None:
        """Stand at `start`, an aware time; monotonic time begins at 0."""
        if start.tzinfo is None:
            raise ValueError("a clock starts at an aware time; add tzinfo=UTC")
        self._mutex = Lock()
        self._wall = start.astimezone(UTC)
        self._elapsed = timedelta()

    def now(self) -> datetime:
        """Wall time, UTC."""
        with self._mutex:
            return self._wall

    def monotonic(self) -> float:
        """Seconds advanced since the start."""
        with self._mutex:
            return self._elapsed.total_seconds()

    def advance(self, seconds: float) -> None:
        """Let time pass, on both clocks."""
        if seconds < 0:
            raise ValueError("time does not run backwards; use set_wall to step the wall clock")
        with self._mutex:
            self._wall += timedelta(seconds=seconds)
            self._elapsed += timedelta(seconds=seconds)

    def set_wall(self, now: datetime) -> None:
        """Step the wall clock, either way, as an administrator or a time server does; monotonic time stands."""
        if now.tzinfo is None:
            raise ValueError("a clock is set to an aware time; add tzinfo=UTC")
        with self._mutex:
            self._wall = now.astimezone(UTC)
