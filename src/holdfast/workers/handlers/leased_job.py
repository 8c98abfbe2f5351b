"""One execution as a worker holds it: the right to a job, the function to run, and how it was asked to end."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from holdfast.model.outcomes import Grant
from holdfast.workers.handlers.context import Context
from holdfast.workers.handlers.outcome import GaveUp, Outcome, Raised, Released
from holdfast.workers.handlers.run_reporter import RunNotes
from holdfast.workers.task_registry import TaskSpec


class Stop(StrEnum):
    """Why an execution is asked to end before its handler has."""

    #: Someone cancelled the job.
    CANCEL = "cancel"
    #: It took longer than its timeout.
    TIMEOUT = "timeout"
    #: The worker shuts down.
    SHUTDOWN = "shutdown"
    #: The lease is over; another worker may have the job.
    LOST = "lost"


class Assignment:
    """A job granted to this worker, with what it takes to run it."""

    __slots__ = (
        "context",
        "ended_at",
        "grant",
        "granted_at",
        "lost_at",
        "notes",
        "renew_at",
        "spec",
        "started_at",
        "stop",
    )

    def __init__(self, grant: Grant, spec: TaskSpec, sent_at: float, notes: RunNotes | None = None) -> None:
        """Hold a grant whose Lease was sent at `sent_at` (monotonic seconds)."""
        self.grant = grant
        self.spec = spec
        #: What it says while it runs.
        self.notes = notes or RunNotes(grant.run_id)
        self.context = Context(grant, self.notes)
        self.granted_at = sent_at
        #: When the handler was handed to its runner; None while it waits for a slot.
        self.started_at: float | None = None
        #: When its handler gave the slot back.
        self.ended_at: float | None = None
        #: The first reason for which it was asked to end.
        self.stop: Stop | None = None
        self.renew_at = self.lost_at = 0.0
        self.renewed(sent_at, grant.lease_s)

    def replace_params(self, params: msgspec.Raw) -> None:
        """Give the handler these parameters, before it starts."""
        self.grant = msgspec.structs.replace(self.grant, job=msgspec.structs.replace(self.grant.job, params=params))
        self.context = Context(self.grant, self.notes)

    def renewed(self, sent_at: float, lease_s: float) -> None:
        """Count the lease from when it was asked for: the authority's clock began no earlier."""
        self.lost_at = sent_at + lease_s
        self.renew_at = sent_at + max(lease_s / 3, SHORTEST_BEAT_S)

    @property
    def times_out_at(self) -> float | None:
        """When the handler has run for as long as it may."""
        timeout_s = self.grant.job.timeout_s
        return None if timeout_s is None or self.started_at is None else self.started_at + timeout_s

    def ask_to_stop(self, why: Stop) -> bool:
        """Raise the flag its handler can see; tell whether this is the first time."""
        if self.stop is not None:
            return False
        self.stop = why
        self.context.cancel(why)
        return True

    def stopped(self) -> Outcome:
        """Give the outcome of a handler that ended because it was asked to."""
        match self.stop:
            case Stop.TIMEOUT:
                return Raised(f"the handler ran longer than its timeout of {self.grant.job.timeout_s:g} s", "timeout")
            case Stop.CANCEL:
                return GaveUp()  # the job keeps the reason it was cancelled with
            case _:
                return Released(begun=self.started_at is not None)


#: Seconds between two heartbeats of one lease, at the least: near its deadline a lease is renewed by less and less.
SHORTEST_BEAT_S = 0.1
