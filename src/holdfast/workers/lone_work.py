"""Work that must run alone, in one worker: what the last lease left out, and what may not be started meanwhile.

The rules decide which work runs alone (`rules/jobs/suspects.py`); the worker follows their answers. This module does so
for jobs, `workflow_turns/machine.py` for turns of instances. Called by the thread of the main loop only.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.outcomes import Leased
from holdfast.rules.jobs.suspects import is_on_trial, must_run_alone
from holdfast.workers.handlers.leased_job import Assignment

#: Seconds until a lease or a fetch is tried again that left work out because of what the worker holds.
ASK_AGAIN_S = 1.0
#: Seconds for which a worker starts nothing else, after it was told that work waits to run alone there. Longer than
#: ASK_AGAIN_S, so that the next answer comes before they are over.
PAUSE_S = 2 * ASK_AGAIN_S
_NEVER = float("inf")


class LoneWork:
    """What the answers to leases say about jobs that must run alone."""

    def __init__(self) -> None:
        #: When a lease may get what the last one left out (monotonic).
        self.ask_at = _NEVER
        #: Until then no turn is started, so that the worker runs out of work (monotonic).
        self._paused_until = 0.0

    def note(self, reply: Leased, now: float) -> None:
        """Note what a lease left out."""
        self.ask_at = now + ASK_AGAIN_S if reply.held_back else _NEVER
        self._paused_until = now + PAUSE_S if reply.alone_next is not None else 0.0

    def is_due(self, now: float) -> bool:
        """Return, once, whether a lease is to be tried again."""
        if now < self.ask_at:
            return False
        self.ask_at = _NEVER
        return True

    def may_fetch(self, held: Sequence[Assignment], now: float) -> bool:
        """Return whether turns may be fetched: no held job runs alone, and none waits for this worker to be empty."""
        return now >= self._paused_until and not runs_alone(held)


def runs_alone(held: Sequence[Assignment]) -> bool:
    """Return whether one of these jobs must run alone."""
    return any(must_run_alone(one.grant.lost) for one in held if one.grant.lost)


def has_trial(held: Sequence[Assignment], now: float) -> bool:
    """Return whether one of these jobs was lost once, and has run for a moment only."""
    return any(
        is_on_trial(one.grant.lost, None if one.started_at is None else now - one.started_at)
        for one in held
        if one.grant.lost
    )
