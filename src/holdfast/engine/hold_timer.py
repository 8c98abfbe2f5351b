"""Reservations and holds on sessions timed by the monotonic clock, for when the wall clock is set back.

As `lease_timer` does with leases. Soft: losing it changes no outcome, only when an expiry is noticed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.model import events as ev
from holdfast.model.commands import OverdueHold
from holdfast.model.reservations import Reservation
from holdfast.model.times import Timestamp, seconds_between
from holdfast.model.workflows.instances import Affinity
from holdfast.rules.far_expiries import HoldKey

_STARTS = (ev.ReservationAcquired, ev.ReservationRenewed, ev.AffinityClaimed, ev.AffinityExtended)
_ENDS = (ev.ReservationReleased, ev.ReservationExpired, ev.AffinityRemoved)
#: Asked of every event there is, most of which are others.
_WATCHED = frozenset((*_STARTS, *_ENDS))


class _Timed(NamedTuple):
    until: Timestamp
    #: Seconds it was granted for, and when they have passed (monotonic).
    length_s: float
    deadline: float


class HoldWatch:
    """Monotonic deadlines of the reservations and sessions seen by this process. Thread-safe."""

    #: Kinds of events that `note` learns from.
    watched = _WATCHED

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._timed: dict[HoldKey, _Timed] = {}

    def note(self, events: Iterable[ev.Event], now: Timestamp, monotonic: float) -> None:
        """Learn from committed events what is held, and for how long."""
        with self._lock:
            for event in events:
                if type(event) not in _WATCHED:
                    continue
                match event:
                    case ev.ReservationAcquired():
                        held = event.reservation
                        self._begin((Reservation, held.reservation_id), held.expires_at, now, monotonic)
                    case ev.ReservationRenewed():
                        self._begin((Reservation, event.reservation_id), event.expires_at, now, monotonic)
                    case ev.AffinityClaimed() | ev.AffinityExtended():
                        self._begin((Affinity, event.session), event.locked_until, now, monotonic)
                    case ev.ReservationReleased() | ev.ReservationExpired():
                        self._timed.pop((Reservation, event.reservation_id), None)
                    case ev.AffinityRemoved():
                        self._timed.pop((Affinity, event.session), None)
                    case _:
                        continue

    def _begin(self, key: HoldKey, until: Timestamp, now: Timestamp, monotonic: float) -> None:
        known = self._timed.get(key)
        # The same expiry again: a sign of life of a holder whose expiry the clock, set back, has moved out of reach.
        is_alive = known is not None and known.until == until
        length_s = known.length_s if known is not None and is_alive else seconds_between(now, until)
        if length_s > 0:
            self._timed[key] = _Timed(until, length_s, monotonic + length_s)
        else:
            self._timed.pop(key, None)

    def limit(self, key: HoldKey, until: Timestamp, length_s: float, monotonic: float) -> None:
        """Time a hold of unknown start from now on, unless it is timed already."""
        with self._lock:
            known = self._timed.get(key)
            if known is None or known.until != until:
                self._timed[key] = _Timed(until, length_s, monotonic + length_s)

    def overdue(self, monotonic: float) -> dict[type[Reservation | Affinity], tuple[OverdueHold, ...]]:
        """Return the holds whose seconds have passed, by kind, and stop watching them."""
        with self._lock:
            late = [key for key, timed in self._timed.items() if timed.deadline <= monotonic]
            found = {key: self._timed.pop(key).until for key in late}
        return {
            kind: tuple(OverdueHold(key[1], until) for key, until in found.items() if key[0] is kind)
            for kind in (Reservation, Affinity)
        }

    def next_deadline(self) -> float | None:
        """Return when the first of them is overdue, or None."""
        with self._lock:
            return min((timed.deadline for timed in self._timed.values()), default=None)
