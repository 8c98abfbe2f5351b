"""Counting what an authority does, for whoever watches it: each commit is told once, after it is durable.

Counts are of this process and begin at zero. Names what things are called, never which one: no id, key or payload is
kept beyond the lease it belongs to. Knows no format and no server.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.engine.lease_timer import ENDS
from holdfast.errors import LeaseLost
from holdfast.histogram import RECORD_BOUNDS, SYNC_BOUNDS, Histogram
from holdfast.model import events as ev
from holdfast.model.commands import Command, Complete, Fail, GiveUp, Release, Snooze
from holdfast.model.events import Event
from holdfast.model.ids import JobId
from holdfast.model.jobs import JobStatus, RetryMode
from holdfast.model.outcomes import Leased, Outcome, Refusal, Reported
from holdfast.model.times import Timestamp, seconds_between
from holdfast.model.workflows.commands import AbandonActivity, AckActivity

#: Seconds, from a millisecond to a day.
LONG_BOUNDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, 21600.0, 86400.0)
_REPORTS = (Complete, Fail, Snooze, GiveUp, Release, AckActivity, AbandonActivity)
#: Asked of every event there is, most of which are others.
_COUNTED = frozenset((ev.LeaseGranted, ev.LeaseExtended, *ENDS))


class Committed(NamedTuple):
    """One commit: what was asked, what was answered, what was written."""

    commands: Sequence[Command | Refusal]
    #: One a command.
    outcomes: Sequence[Outcome]
    events: Sequence[Event]
    now: Timestamp
    #: When it began, and how long it took.
    monotonic: float
    seconds: float


class Counts:
    """The counters of one engine. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: When each job that runs was leased, by the monotonic clock. Those leased before this process began are not
        #: among them.
        self._since: dict[JobId, float] = {}
        self.granted = 0
        self.extended = 0
        #: By reason.
        self.expired: Counter[str] = Counter()
        #: By kind of report and by reply: committed, cancelled, rejected.
        self.reports: Counter[tuple[str, str]] = Counter()
        self.duplicate_reports = 0
        #: Work that was done although its lease was lost.
        self.duplicate_executions = 0
        #: By mode.
        self.retries: Counter[str] = Counter()
        self.dead = 0
        #: By code of the error tree.
        self.rejected: Counter[str] = Counter()
        self.wait_seconds = Histogram.of(LONG_BOUNDS)
        self.run_seconds = Histogram.of(LONG_BOUNDS)
        self.commit_seconds = Histogram.of(SYNC_BOUNDS)
        self.commit_batch_size = Histogram.of(RECORD_BOUNDS)

    def note(self, commit: Committed) -> None:
        """Count one commit."""
        with self._lock:
            self.commit_seconds.add(commit.seconds)
            self.commit_batch_size.add(len(commit.commands))
            granted = set()
            for event in commit.events:
                if type(event) in _COUNTED:
                    self._happened(event, commit.monotonic)
                    if isinstance(event, ev.LeaseGranted):
                        granted.add(event.token)
            for command, outcome in zip(commit.commands, commit.outcomes, strict=True):
                self._answered(command, outcome)
                if isinstance(outcome, Leased):
                    for grant in outcome.grants:
                        if grant.token in granted:  # else it is told again what was granted before, or just now
                            granted.remove(grant.token)
                            self.wait_seconds.add(max(0.0, seconds_between(grant.job.due_at, commit.now)))

    def refused(self, refusal: Refusal) -> None:
        """Count a command that was refused before it came to a commit."""
        with self._lock:
            self.rejected[refusal.code] += 1

    def _answered(self, command: Command | Refusal, outcome: Outcome) -> None:
        reply = "committed"
        if isinstance(outcome, Refusal):
            reply = "cancelled" if outcome.code == LeaseLost.code else "rejected"
            if reply == "rejected":
                self.rejected[outcome.code] += 1
        if isinstance(command, _REPORTS):
            self.reports[str(command.__struct_config__.tag), reply] += 1
            self.duplicate_reports += isinstance(outcome, Reported) and outcome.duplicate
            self.duplicate_executions += reply == "cancelled" and isinstance(command, Complete | AckActivity)

    def _happened(self, event: Event, monotonic: float) -> None:
        if isinstance(event, ev.LeaseGranted):
            self.granted += 1
            self._since[event.job_id] = monotonic
            return
        if isinstance(event, ev.LeaseExtended):
            self.extended += 1
            return
        assert isinstance(event, ENDS)
        since = self._since.pop(event.job_id, None)
        if since is not None:
            self.run_seconds.add(monotonic - since)
        if isinstance(event, ev.LeaseExpired):
            self.expired[event.reason] += 1
        if isinstance(event, ev.LeaseExpired | ev.JobFailed):
            if event.successor is not None:
                self.retries[RetryMode.CHAIN] += 1
            elif event.to is JobStatus.QUEUED:
                self.retries[RetryMode.REQUEUE] += 1
        self.dead += isinstance(event, ev.JobDead) or getattr(event, "to", None) is JobStatus.DEAD
