"""Locks of instances timed by the monotonic clock, for when the wall clock is set back.

As `lease_timer` does with leases. A lock this process granted or extended also ends when its seconds have passed on
the monotonic clock. Soft: losing it changes no outcome, only when an expiry is noticed. Known by their tokens, of which
no two are alike.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.model import events as ev
from holdfast.model.ids import Token
from holdfast.model.times import Timestamp, seconds_between

#: Asked of every event there is, most of which are others.
_WATCHED = frozenset((ev.TurnLocked, ev.TurnExtended, ev.TurnCommitted, ev.TurnAbandoned, ev.TurnExpired))


class _Timed(NamedTuple):
    #: The expiry it has; None if that is not known.
    until: Timestamp | None
    #: Seconds it was granted for, and when they have passed (monotonic).
    length_s: float
    deadline: float


class TurnWatch:
    """Monotonic deadlines of the locks seen by this process. Thread-safe."""

    #: Kinds of events that `note` learns from.
    watched = _WATCHED

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._timed: dict[Token, _Timed] = {}

    def note(self, events: Iterable[ev.Event], now: Timestamp, monotonic: float) -> None:
        """Learn from committed events which locks live, and for how long."""
        lengths: dict[Timestamp, float] = {}
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
                    self._timed.pop(token, None)
                    continue
                known = self._timed.get(token)
                if known is not None and known.until == until:
                    # Kept with the expiry it had, which the clock, set back, may have moved out of reach.
                    length_s = known.length_s
                else:
                    found = lengths.get(until)
                    length_s = lengths[until] = seconds_between(now, until) if found is None else found
                self._timed[token] = _Timed(until, length_s, monotonic + length_s)

    def limit(self, token: Token, deadline: float, until: Timestamp | None = None, length_s: float = 0.0) -> None:
        """Time a lock of unknown start from now on, unless it is timed already."""
        with self._lock:
            self._timed.setdefault(token, _Timed(until, length_s, deadline))

    def renew(self, token: Token, deadline: float) -> None:
        """Give a lock that is watched more time: its holder has shown that it is alive."""
        with self._lock:
            known = self._timed.get(token)
            if known is not None:
                self._timed[token] = known._replace(deadline=max(known.deadline, deadline))

    def overdue(self, monotonic: float) -> tuple[Token, ...]:
        """Give the locks whose seconds have passed, and stop watching them."""
        with self._lock:
            late = [token for token, timed in self._timed.items() if timed.deadline <= monotonic]
            for token in late:
                del self._timed[token]
        return tuple(late)

    def next_deadline(self) -> float | None:
        """Return when the first of them is overdue, or None."""
        with self._lock:
            return min((timed.deadline for timed in self._timed.values()), default=None)
