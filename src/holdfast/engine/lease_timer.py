"""Leases timed by the monotonic clock, for when the wall clock is set back.

A lease this process granted or extended also ends when its seconds have passed on the monotonic clock, whichever comes
first. Soft: losing it changes no outcome, only when an expiry is noticed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from holdfast.model import events as ev
from holdfast.model.commands import Overdue
from holdfast.model.ids import JobId, Token
from holdfast.model.times import Timestamp, seconds_between

_STARTS = (ev.LeaseGranted, ev.LeaseExtended)
#: After these a job has no lease.
ENDS = (
    ev.LeaseExpired,
    ev.LeaseReleased,
    ev.JobCompleted,
    ev.JobFailed,
    ev.JobSnoozed,
    ev.JobCancelled,
    ev.JobDead,
    ev.JobMended,
)
#: Asked of every event there is, most of which are others: a look into a set costs less than ten comparisons.
_WATCHED = frozenset((*_STARTS, *ENDS))


class LeaseWatch:
    """Monotonic deadlines of the leases seen by this process. Thread-safe."""

    #: Kinds of events that `note` learns from.
    watched = _WATCHED

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._deadlines: dict[JobId, tuple[Token, float]] = {}

    def note(self, events: Iterable[ev.Event], now: Timestamp, monotonic: float) -> None:
        """Learn from committed events which leases live, and for how long."""
        with self._lock:
            deadlines: dict[Timestamp, float] = {}
            for event in events:
                if type(event) not in _WATCHED:
                    continue
                if isinstance(event, _STARTS):
                    deadline = deadlines.get(event.lease_expires_at)
                    if deadline is None:
                        deadline = monotonic + seconds_between(now, event.lease_expires_at)
                        deadlines[event.lease_expires_at] = deadline
                    self._deadlines[event.job_id] = (event.token, deadline)
                elif isinstance(event, ENDS):
                    self._deadlines.pop(event.job_id, None)

    def limit(self, job_id: JobId, token: Token, deadline: float) -> None:
        """Time a lease of unknown start from now on, unless it is timed already."""
        with self._lock:
            known = self._deadlines.get(job_id)
            if known is None or known[0] != token:
                self._deadlines[job_id] = (token, deadline)

    def renew(self, job_id: JobId, token: Token, deadline: float) -> None:
        """Give a lease that is watched more time: its holder has shown that it is alive."""
        with self._lock:
            known = self._deadlines.get(job_id)
            if known is not None and known[0] == token:
                self._deadlines[job_id] = (token, max(known[1], deadline))

    def overdue(self, monotonic: float) -> tuple[Overdue, ...]:
        """Give the leases whose seconds have passed, and stop watching them."""
        with self._lock:
            late = [job_id for job_id, (_, deadline) in self._deadlines.items() if deadline <= monotonic]
            return tuple(Overdue(job_id, self._deadlines.pop(job_id)[0]) for job_id in late)

    def next_deadline(self) -> float | None:
        """Return when the first of them is overdue, or None."""
        with self._lock:
            return min((deadline for _, deadline in self._deadlines.values()), default=None)
