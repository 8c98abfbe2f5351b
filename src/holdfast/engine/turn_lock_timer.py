"""Locks of instances timed by the monotonic clock, for when the wall clock is set back.

As `lease_timer` does with leases. A lock this process granted or extended also ends when its seconds have passed on
the monotonic clock. Soft: losing it changes no outcome, only when an expiry is noticed. Known by their tokens, of which
no two are alike.
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
        deadlines: dict[Timestamp, float] = {}
        with self._lock:
            for event in events:
                if type(event) not in _WATCHED:
                    continue
                until: Timestamp | None = None
                match event:
                    case ev.TurnCommitted():
                        if event.token is None:
                            continue
                        token, until = event.token, event.held_until
                    case ev.TurnLocked() | ev.TurnExtended():
                        token, until = event.token, event.locked_until
                    case ev.TurnAbandoned() | ev.TurnExpired():
                        token = event.token
                    case _:
                        continue
                if until is None:
                    self._deadlines.pop(token, None)
                    continue
                deadline = deadlines.get(until)
                if deadline is None:
                    deadline = deadlines[until] = monotonic + seconds_between(now, until)
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
