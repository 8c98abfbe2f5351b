"""What time it is for decisions: the wall clock, guarded by the monotonic one.

A step back of up to 5 s is waited out by standing still; a larger one is followed and reported. A step forward of more
than 5 s against the monotonic clock (suspend, correction) is reported, so that leases which lapsed inside it are not
held against their jobs. Knows no store.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import NamedTuple

from holdfast.clock import Clock
from holdfast.model.times import Timestamp, stamp

#: Seconds within which the two clocks may disagree without it being a step.
TOLERANCE_S = 5.0


class Reading(NamedTuple):
    """One look at the clock."""

    now: Timestamp
    #: Seconds of a process that only grow.
    monotonic: float
    #: The wall clock jumped forward from here since the last look.
    jumped_from: Timestamp | None
    #: The wall clock was set back since the last look.
    stepped_back: bool


class Timekeeper:
    """Reads one clock for one engine, and notices its steps."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._wall = clock.now()
        self._monotonic = clock.monotonic()
        #: How often the clock was seen to step, by direction.
        self.steps = {"forward": 0, "back": 0}

    def read(self) -> Reading:
        """Look at the clock."""
        with self._lock:
            wall, monotonic = self.clock.now(), self.clock.monotonic()
            expected = self._wall + timedelta(seconds=monotonic - self._monotonic)
            ahead_s = (wall - expected).total_seconds()
            jumped_from: Timestamp | None = None
            stepped_back = False
            if wall < self._wall:
                if (self._wall - wall).total_seconds() <= TOLERANCE_S:
                    # Stand still until the wall catches up. Its own pace stays on record, so that a slow drift is
                    # not taken for a jump later.
                    return Reading(stamp(self._wall), monotonic, None, stepped_back=False)
                stepped_back = True
            elif ahead_s < -TOLERANCE_S:
                # Set back by less than has passed since the last look: the time still grew, leases have moved away.
                stepped_back = True
            elif ahead_s > TOLERANCE_S:
                jumped_from = stamp(expected)
                self.steps["forward"] += 1
            self.steps["back"] += stepped_back
            self._wall, self._monotonic = wall, monotonic
            return Reading(stamp(wall), monotonic, jumped_from, stepped_back)
