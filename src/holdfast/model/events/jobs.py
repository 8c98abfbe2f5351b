"""What happens to jobs and their leases."""

from __future__ import annotations

import msgspec

from holdfast.model.events.base import Fact
from holdfast.model.ids import JobId, RunId, Token
from holdfast.model.jobs import Backoff, Job, JobStatus
from holdfast.model.payloads import NULL
from holdfast.model.times import Timestamp


class JobCreated(Fact, frozen=True, kw_only=True, tag="job:created"):
    """A job is durable and QUEUED."""

    job: Job


class LeaseGranted(Fact, frozen=True, kw_only=True, tag="lease:granted"):
    """A worker may work on the job until its lease expires; the only way a job gets an owner."""

    job_id: JobId
    run_id: RunId
    run_no: int
    token: Token
    worker_id: str
    lease_expires_at: Timestamp
    deadline_at: Timestamp | None = None
    session_id: str | None = None


class LeaseExtended(Fact, frozen=True, kw_only=True, tag="lease:extended"):
    """The holder may work longer."""

    job_id: JobId
    token: Token
    lease_expires_at: Timestamp
    #: The new deadline, if the clock jumped and it moved along; else None.
    deadline_at: Timestamp | None = None


class LeaseExpired(Fact, frozen=True, kw_only=True, tag="lease:expired"):
    """Time revoked the lease. Always written, never implied."""

    job_id: JobId
    token: Token
    #: timeout, restart, deadline, clock_jump, not_begun; or damaged: it had no run.
    reason: str
    #: Whether it counts towards `max_expiries`.
    counted: bool
    to: JobStatus
    #: The automatic retry, created by the next event of the group.
    successor: JobId | None = None
    #: With `damaged`: the run that is made for it.
    run_id: RunId | None = None


class LeaseReleased(Fact, frozen=True, kw_only=True, tag="lease:released"):
    """The worker gave the job back."""

    job_id: JobId
    token: Token
    #: Whether the handler had started.
    begun: bool
    to: JobStatus
    not_before: Timestamp | None = None
    #: The delivery does not count.
    given_back: bool = False
    successor: JobId | None = None
    artifacts: msgspec.Raw = NULL
    progress: msgspec.Raw = NULL


class JobCompleted(Fact, frozen=True, kw_only=True, tag="job:completed"):
    """The holder reported success."""

    job_id: JobId
    token: Token
    result: msgspec.Raw = NULL
    #: What the execution left behind, and the last it said about how far it was. The same wherever a run ends.
    artifacts: msgspec.Raw = NULL
    progress: msgspec.Raw = NULL
    exit_code: int | None = None


class JobFailed(Fact, frozen=True, kw_only=True, tag="job:failed"):
    """The holder reported failure."""

    job_id: JobId
    token: Token
    error: str
    error_kind: str
    to: JobStatus
    details: msgspec.Raw = NULL
    exit_code: int | None = None
    #: With `to` QUEUED: when and where it waits for the next attempt.
    not_before: Timestamp | None = None
    position: int | None = None
    successor: JobId | None = None
    artifacts: msgspec.Raw = NULL
    progress: msgspec.Raw = NULL


class JobSnoozed(Fact, frozen=True, kw_only=True, tag="job:snoozed"):
    """The handler asked to be called later."""

    job_id: JobId
    token: Token
    not_before: Timestamp
    to: JobStatus
    position: int | None = None
    successor: JobId | None = None
    artifacts: msgspec.Raw = NULL
    progress: msgspec.Raw = NULL


class JobCancelRequested(Fact, frozen=True, kw_only=True, tag="job:cancel_requested"):
    """Someone asked the holder of a running job to stop."""

    job_id: JobId
    reason: str = ""


class JobCancelled(Fact, frozen=True, kw_only=True, tag="job:cancelled"):
    """The job is over by wish; a token says whose running execution was ended."""

    job_id: JobId
    reason: str = ""
    token: Token | None = None
    #: The handler itself asked for it.
    gave_up: bool = False
    #: The workflow that waits for the job is not told.
    untold: bool = False
    artifacts: msgspec.Raw = NULL
    progress: msgspec.Raw = NULL


class JobSkipped(Fact, frozen=True, kw_only=True, tag="job:skipped"):
    """A queued job will not run: its latest start has passed, another of its schedule is not over, its group stops."""

    job_id: JobId
    run_id: RunId
    #: One word: expired, overlap or group.
    reason: str
    #: With `overlap`: the job that is not over. With `group`: the one that has failed.
    held_by: JobId | None = None


class JobDead(Fact, frozen=True, kw_only=True, tag="job:dead"):
    """An operator buried the job."""

    job_id: JobId
    reason: str = ""


class JobChanges(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """New values for fields that may change while a job is QUEUED. What is unset stays."""

    #: NULL leaves them.
    params: msgspec.Raw = NULL
    queue: str | msgspec.UnsetType = msgspec.UNSET
    priority: int | msgspec.UnsetType = msgspec.UNSET
    not_before: Timestamp | msgspec.UnsetType | None = msgspec.UNSET
    expires_at: Timestamp | msgspec.UnsetType | None = msgspec.UNSET
    timeout_s: float | msgspec.UnsetType | None = msgspec.UNSET
    lease_s: float | msgspec.UnsetType = msgspec.UNSET
    max_attempts: int | msgspec.UnsetType = msgspec.UNSET
    max_expiries: int | msgspec.UnsetType = msgspec.UNSET
    backoff: Backoff | msgspec.UnsetType = msgspec.UNSET
    limit_key: str | msgspec.UnsetType | None = msgspec.UNSET
    key_limit: int | msgspec.UnsetType = msgspec.UNSET
    tags: dict[str, str] | msgspec.UnsetType | None = msgspec.UNSET

    def given(self) -> dict[str, object]:
        """Give the fields that are set, by name."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in fields.items() if value is not msgspec.UNSET and value != NULL}


class JobMended(Fact, frozen=True, kw_only=True, tag="job:mended"):
    """A job that was RUNNING although its run had ended, by damage, has the outcome of the run, and its time."""

    job_id: JobId
    run_id: RunId
    to: JobStatus
    #: What it has now.
    attempts: int
    expiries: int
    snoozes: int
    error: str | None = None
    #: With `to` QUEUED.
    not_before: Timestamp | None = None
    position: int | None = None
    #: The automatic retry, created by the next event of the group.
    successor: JobId | None = None


class RunDropped(Fact, frozen=True, kw_only=True, tag="run:dropped"):
    """A run whose job was not there, by damage, was removed by hand."""

    run_id: RunId


class JobUpdated(Fact, frozen=True, kw_only=True, tag="job:updated"):
    """A queued job was edited; position and rank are set when it changed its band."""

    job_id: JobId
    changes: JobChanges
    position: int | None = None
    rank: int | None = None


class JobMoved(Fact, frozen=True, kw_only=True, tag="job:moved"):
    """A queued job has a new place in its band."""

    job_id: JobId
    position: int


class JobPruned(Fact, frozen=True, kw_only=True, tag="job:pruned"):
    """Retention removed an ended job and its runs."""

    job_id: JobId


JobEvent = (
    JobCreated
    | LeaseGranted
    | LeaseExtended
    | LeaseExpired
    | LeaseReleased
    | JobCompleted
    | JobFailed
    | JobSnoozed
    | JobCancelRequested
    | JobCancelled
    | JobSkipped
    | JobDead
    | JobUpdated
    | JobMoved
    | JobPruned
    | JobMended
    | RunDropped
)
