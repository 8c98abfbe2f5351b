"""Suspects: work that was lost with its worker and may be what kills it. Decides what a worker may run beside it.

A worker that dies takes down everything that it was running, and nobody can tell which of it was the cause. So work
that was lost once does not start beside other lost work for a moment; it may run beside work that was never lost. Work
that was lost again runs alone: if its worker dies, too, it was the cause. After a power cut, or when one worker runs
out of memory, nothing is therefore delayed by more than that moment.

The rules are the same for leases of jobs and for turns of instances. Knows no store, clock or process.
"""

from __future__ import annotations

from enum import Enum

from holdfast.model.jobs import Job, Run, RunStatus
from holdfast.model.times import Timestamp, seconds_between
from holdfast.rules.state import State

#: Losses in a row after which work runs alone.
ALONE_AFTER = 2
#: Seconds for which what was lost once runs beside no other such work.
TRIAL_S = 1.0
#: Seconds for which work that must run alone waits for a worker to become empty by itself.
PATIENCE_S = 10.0
#: While it waits on, workers pause for it again and again: first after PATIENCE_S, then each time after NEXT_TIME times
#: as long. A pause lasts for half of the time waited so far, so in the end it is longer than anything a worker runs.
NEXT_TIME = 4
#: How a run ended that came back: whoever ran it lived.
_REPORTED = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.SKIPPED})


class Verdict(Enum):
    """What a worker does with a candidate."""

    TAKE = "take"
    #: Leave it to others, and look at the next.
    SKIP = "skip"
    #: Leave it, and take nothing that stands behind it: the worker is to become empty.
    STOP = "stop"


class Company:
    """What a worker would run beside the next candidate of one Lease or fetch."""

    def __init__(self, holds: int | None, *, on_trial: bool) -> None:
        """Judge for a worker that holds so much, and something on trial if it says so.

        With `holds` None it does not say, and may take everything: nobody could tell when it is empty.
        """
        self._holds = holds
        self._on_trial = on_trial
        self._taken = 0
        #: What was taken last runs alone: nothing may follow.
        self.is_closed = False
        #: Something was left out on account of the others.
        self.has_skipped = False

    def judge(self, lost: int, waited_s: float) -> Verdict:
        """Judge work that was lost so often, and has waited for so long since; count it if it is taken."""
        if self._holds is None:
            return Verdict.TAKE
        if lost and must_run_alone(lost):
            if self._taken or self._holds:
                self.has_skipped = True
                return Verdict.STOP if is_made_way_for(waited_s) else Verdict.SKIP
            self.is_closed = True
        elif lost:
            if self._on_trial:
                self.has_skipped = True
                return Verdict.SKIP
            self._on_trial = True
        self._taken += 1
        return Verdict.TAKE


def must_run_alone(lost: int) -> bool:
    """Tell whether work that was lost so often in a row runs beside nothing else."""
    return lost >= ALONE_AFTER


def is_on_trial(lost: int, ran_s: float | None) -> bool:
    """Tell whether work that was lost so often may not run beside other such work yet.

    `ran_s` is how long it has run, or None if it has not started.
    """
    return lost > 0 and not must_run_alone(lost) and (ran_s is None or ran_s < TRIAL_S)


def is_made_way_for(waited_s: float) -> bool:
    """Tell whether workers take nothing else now, because work that must run alone has waited for so long."""
    begins_s = PATIENCE_S
    while begins_s * NEXT_TIME <= waited_s:
        begins_s *= NEXT_TIME
    return begins_s <= waited_s < begins_s * 1.5


# --- jobs -------------------------------------------------------------------------------------------------------------


def lost_in_a_row(state: State, job: Job) -> int:
    """Count the lost leases of a job, unless an execution has reported since the last of them."""
    if not job.expiries:
        return 0
    before = _run_before(state, job)
    return 0 if before is not None and before.status in _REPORTED else job.expiries


def waited_since_loss(state: State, job: Job, now: Timestamp) -> float:
    """Give the seconds for which a lost job could have run again."""
    before = _run_before(state, job)
    lost_at = job.created_at if before is None or before.finished_at is None else before.finished_at
    return seconds_between(max(lost_at, job.due_at), now)


def _run_before(state: State, job: Job) -> Run | None:
    """Give the last run that has ended, of the job or of the one it succeeds."""
    last = state.last_run(job.job_id)
    if last is not None and last.status is None:
        ended = [run for run in state.runs(job.job_id) if run.status is not None]
        last = ended[-1] if ended else None
    if last is None and job.retry_of is not None:
        last = state.last_run(job.retry_of)
    return last
