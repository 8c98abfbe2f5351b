"""The way out of a worker, as times: what is to be done on it, and when.

What has not begun is given back at once; handlers have a grace, then they are asked to stop, and what does not stop
within a moment is released. A store elsewhere that does not answer is waited for a moment only once nothing runs here.
Knows neither handlers nor stores, and reads no clock: the pump does what is told here.
"""

from __future__ import annotations

from typing import NamedTuple

#: Seconds that handlers have to end once they were asked to.
FAREWELL_S = 5.0
#: Seconds that a store elsewhere has to answer once nothing runs here and someone asked for the end; if at once.
LEAVE_S, LEAVE_NOW_S = 3.0, 1.0
_NEVER = float("inf")


class Step(NamedTuple):
    """What is to be done now."""

    #: Give back what has not begun; told once.
    gives_back: bool = False
    #: Ask handlers to stop.
    stops: bool = False
    #: Release what still runs.
    releases: bool = False


_NOTHING = Step()


class Ending:
    """The end of one worker. Wishes may come from any thread, all else from the pump's; times are monotonic."""

    def __init__(self) -> None:
        #: Seconds of grace once someone asked for the end; None before.
        self._grace_s: float | None = None
        #: Wait for nothing any more.
        self.is_hurried = False
        self._has_begun = False
        self._stop_at = self._release_at = _NEVER
        #: Since when only an answer of the store is waited for.
        self._done_at = _NEVER

    def ask(self, grace_s: float) -> None:
        """Ask for the end; handlers have `grace_s` seconds. Whoever asks first decides on them."""
        if self._grace_s is None:
            self._grace_s = grace_s if grace_s > 0 else 0.0  # what is not a number, too

    def hurry(self) -> None:
        """Let every step be due as soon as the end is asked for."""
        self.is_hurried = True

    @property
    def is_asked(self) -> bool:
        """Whether someone has asked for the end."""
        return self._grace_s is not None

    @property
    def due_at(self) -> float:
        """When the next step is due."""
        return self._stop_at if self._release_at == _NEVER else self._release_at

    def step(self, now: float) -> Step:
        """Go one step on, if someone asked for it."""
        if self._grace_s is None:
            return _NOTHING
        gives_back = not self._has_begun
        if gives_back:
            self._has_begun = True
            self._stop_at = now + self._grace_s
        if self.is_hurried:
            self._stop_at = self._release_at = now
        stops = self._stop_at <= now
        if stops:
            self._release_at = min(self._release_at, now + FAREWELL_S)
        return Step(gives_back, stops, releases=self._release_at <= now)

    def is_unheard(self, now: float, *, is_quiet: bool) -> bool:
        """Tell whether to end without an answer of the store; `is_quiet`: nothing runs here."""
        # Who waits for ever, as whoever runs one job directly, has not asked for an end before its report is heard.
        has_asked = self.is_hurried or (self._grace_s is not None and self._grace_s < _NEVER)
        if not has_asked or not is_quiet:
            return False
        self._done_at = min(self._done_at, now)
        return now - self._done_at >= (LEAVE_NOW_S if self.is_hurried else LEAVE_S)
