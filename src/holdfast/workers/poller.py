"""The outlook of a worker: what it has seen in its store, and when to look again.

A look finds out whether there is work, when the next of it comes, when the tick is due and what became of the jobs that
run here. It is true until an event comes; then it is stale, and nothing else makes it so but the clock. Reads only, and
decides nothing about what it has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdfast.engine.engine import Engine
from holdfast.engine.maintenance import TICKING, next_of
from holdfast.model.jobs import Job
from holdfast.model.times import Timestamp, seconds_between
from holdfast.rules.jobs.limits import next_opening
from holdfast.rules.state import Lane
from holdfast.stores.protocol import View
from holdfast.workers.handlers.leased_job import Assignment
from holdfast.workers.remote_calls import ATTEMPT_S
from holdfast.workers.work_filter import Scope

#: Seconds between two looks at whether running jobs were cancelled, and between two ticks.
LOOK_S = 1.0
_NEVER = float("inf")


class Seen(NamedTuple):
    """What a whole look found beside work."""

    #: When a delivery is due (monotonic).
    delivery_at: float
    #: What runs here, each with its job as it stands; nothing if it was looked at a moment ago.
    running: list[tuple[Assignment, Job | None]]


class Outlook:
    """What one worker has seen. Of its pump's thread, but for `fade`."""

    def __init__(self, engine: Engine, scope: Scope, *, ticks: bool) -> None:
        """Look for work of a scope; if it `ticks`, for what the tick is to do, too."""
        self._engine = engine
        self._scope = scope
        self._ticks = ticks
        #: A lease is worth a try.
        self.hope = True
        #: The store was seen as of event `seq`, and nothing is known to have happened since.
        self.is_fresh = False
        self.seq = 0
        #: What runs here was not looked at then; too little time had passed since the last look at it.
        self._unseen = False
        #: A lease found nothing although something was ready (a pause, say); not tried again until an event comes.
        self._fruitless = -1
        #: The last lease was decided then or later.
        self._asked_at = engine.look().now
        #: Monotonic times: when delayed jobs are due or a rate opens, when to tick, when to look at what runs.
        self.delayed_at = _NEVER
        self.tick_at = 0.0 if ticks else _NEVER
        self.look_at = 0.0
        #: By then a look must not stop at the first job it finds.
        self._full_by = _NEVER

    def fade(self) -> None:
        """Hear that something has happened, or may have. From any thread."""
        self.is_fresh = False

    def clock_stepped(self) -> None:
        """Note that the clock was set: what was far off may be due, and the reverse. The next tick comes at once."""
        self.is_fresh = False
        if self._ticks:
            self.tick_at = 0.0

    def begin_anew(self) -> None:
        """Hear that a lease may find what it did not find before."""
        self.is_fresh, self._fruitless = False, -1

    def asking(self) -> None:
        """Hear that a lease is about to be asked for."""
        self._asked_at = self._engine.look().now

    def leased(self, *, some: bool, all_wanted: bool) -> None:
        """Hear what a lease gave: something, and as much as was asked for."""
        self.hope = all_wanted
        if not some:
            self._fruitless = self.seq

    def wake(self, now: float) -> None:
        """See whether what was waited for has come."""
        if self.delayed_at <= now:
            self.hope, self.delayed_at = True, _NEVER

    @property
    def is_partial(self) -> bool:
        """Whether there is something that the last look has not seen."""
        return not self.is_fresh or self._unseen

    def look(
        self, now: float, room: int, running: Sequence[Assignment], beside: Callable[[View, Timestamp], None]
    ) -> Seen | None:
        """Look, for as many jobs as there is `room`; `beside` looks at the same view. None if it stopped at work."""
        self.is_fresh = True
        scope = self._scope
        with self._engine.read(attempt_s=ATTEMPT_S) as view:
            at = self._engine.look().now
            self.seq = view.seq
            beside(view, at)
            line = view.ready(scope.namespace, scope.queues, scope.tasks.names(), at, free=True)
            ready = bool(room) and any(True for _ in line)
            is_fruitless = self.seq == self._fruitless
            if ready and not is_fruitless and now < self._full_by:
                # Work comes first. What else there is to see is seen when there is nothing to start, or soon.
                self.hope, self.is_fresh = True, False
                self._full_by = min(self._full_by, now + LOOK_S)
                return None
            self._full_by = _NEVER
            waits = [view.next_due(Lane.DELAYED)]
            if ready and is_fruitless:
                # No event may ever come: a rate opens by time alone, and may have done so since the lease.
                waits.append(next_opening(view, scope.namespace, scope.queues, min(at, self._asked_at)))
            first = next_of(view, TICKING) if self._ticks else None
            owed = view.next_due(Lane.DELIVERY)
            self._unseen = bool(running) and now < self.look_at
            if not self._unseen:
                self.look_at = now + LOOK_S
            jobs = [] if self._unseen else [(one, view.get(Job, one.grant.job.job_id)) for one in running]
        # Without room nothing was looked for; a lease is worth a try once there is.
        self.hope = not room or (ready and not is_fruitless)
        self.delayed_at = _in_monotonic(min((when for when in waits if when is not None), default=None), at, now)
        self.tick_at = max(_in_monotonic(first, at, now), now + LOOK_S if first is not None and first <= at else now)
        if self._ticks and (overdue := self._engine.next_overdue()) is not None:
            self.tick_at = min(self.tick_at, max(overdue, now))
        return Seen(_in_monotonic(owed, at, now), jobs)


def _in_monotonic(when: Timestamp | None, at: Timestamp, now: float) -> float:
    return _NEVER if when is None else now + seconds_between(at, when)
