"""Locks of instances timed by the monotonic clock, for when the wall clock is set back. As `watch` does with leases.

A lock this process granted or extended also ends when its seconds have passed on the monotonic clock. Soft: losing it
changes no outcome, only when an expiry is noticed. Known by their tokens, of which no two are alike.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from holdfast.model import events as ev
from holdfast.model.ids import Token
from holdfast.model.times import Timestamp, seconds_between

#: Asked of every event there is, most of which are others.
_WATCHED = frozenset((ev.TurnLocked, ev.TurnExtended, ev.TurnCommitted, ev.TurnAbandoned, ev.TurnExpired))


class TurnWatch:
    """Monotonic deadlines of the locks seen by this process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._deadlines: dict[Token, float] = {}

    def note(self, events: Iterable[ev.Event], now: Timestamp, monotonic: float) -> None:
        """Learn from committed events which locks live, and for how long."""
        for event in events:
            if type(event) not in _WATCHED:
                continue
            match event:
                case ev.TurnLocked(token=token, locked_until=until) | ev.TurnExtended(token=token, locked_until=until):
                    self._set(token, monotonic + seconds_between(now, until))
                case ev.TurnCommitted(token=token, held_until=held):
                    if token is not None:
                        self._set(token, None if held is None else monotonic + seconds_between(now, held))
                case ev.TurnAbandoned(token=token) | ev.TurnExpired(token=token):
                    self._set(token, None)
                case _:
                    pass

    def _set(self, token: Token, deadline: float | None) -> None:
        with self._lock:
            if deadline is None:
                self._deadlines.pop(token, None)
            else:
                self._deadlines[token] = deadline

    def limit(self, token: Token, deadline: float) -> None:
        """Time a lock of unknown start from now on, unless it is timed already."""
        with self._lock:
            self._deadlines.setdefault(token, deadline)

    def renew(self, token: Token, deadline: float) -> None:
        """Give a lock that is watched more time: its holder has shown that it is alive."""
        with self._lock:
            if token in self._deadlines:
                self._deadlines[token] = max(self._deadlines[token], deadline)

    def overdue(self, monotonic: float) -> tuple[Token, ...]:
        """Give the locks whose seconds have passed, and stop watching them."""
        with self._lock:
            late = [token for token, deadline in self._deadlines.items() if deadline <= monotonic]
            for token in late:
                del self._deadlines[token]
        return tuple(late)
