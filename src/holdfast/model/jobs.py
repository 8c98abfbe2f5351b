"""Jobs and their runs. Records only: what may happen to them is decided in `rules`.

Fields stand in the order of their SQL columns; times are fixed-width text, payloads are raw JSON.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from holdfast.model.ids import JobId, RunId, Token
from holdfast.model.payloads import NULL
from holdfast.model.times import Timestamp


class JobStatus(StrEnum):
    """Where a job is in its life."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    #: It ran and reported failure; its attempts are used up.
    FAILED = "FAILED"
    #: It never reported; its lease expired too often, or an operator buried it.
    DEAD = "DEAD"
    CANCELLED = "CANCELLED"


#: Statuses that never change again.
ENDED = frozenset({JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.DEAD, JobStatus.CANCELLED})


class RunStatus(StrEnum):
    """How a run ended. An open run has none."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    CANCELLED = "CANCELLED"
    LOST = "LOST"


class RetryMode(StrEnum):
    """What an automatic retry does."""

    #: The same job goes back to its queue.
    REQUEUE = "requeue"
    #: The job ends and a successor is created, so one job id never runs twice.
    CHAIN = "chain"


class RetryKind(StrEnum):
    """Who asked for the job that has a `retry_of`."""

    AUTO = "auto"
    MANUAL = "manual"


class KeyScope(StrEnum):
    """Among which jobs a key is unique."""

    TASK = "task"
    QUEUE = "queue"
    NAMESPACE = "namespace"


class KeyHold(StrEnum):
    """How long a key is held."""

    #: While the job is QUEUED or RUNNING.
    ACTIVE = "active"
    #: Until the job is leased.
    QUEUED = "queued"
    #: For a time from creation, whatever happens.
    WINDOW = "window"
    #: For good, beyond retention.
    FOREVER = "forever"


class Backoff(msgspec.Struct, frozen=True, gc=False):
    """How long to wait before the next attempt: min(cap, base · factorⁿ), raised by up to `jitter` of itself."""

    base_s: float = 10.0
    factor: float = 2.0
    cap_s: float = 3600.0
    jitter: float = 0.2


class Job(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One request to run a task."""

    job_id: JobId
    #: The registered task.
    job_type: str
    #: JSON object of parameter names; frozen at the first lease.
    params: msgspec.Raw
    created_at: Timestamp
    namespace: str = ""
    queue: str = "default"
    status: JobStatus = JobStatus.QUEUED
    #: -100 … 100, higher first.
    priority: int = 0
    #: Place in the band, gaps of 100.
    position: int = 0
    #: The band: -priority, or with aging less the longer ago it was enqueued.
    rank: int = 0
    #: Delay, backoff or snooze: not leased before this.
    not_before: Timestamp | None = None
    #: Latest start; a job still QUEUED then is skipped.
    expires_at: Timestamp | None = None
    #: Longest single execution, in seconds.
    timeout_s: float | None = None
    #: Length of a lease, in seconds.
    lease_s: float = 30.0
    retry_mode: RetryMode = RetryMode.REQUEUE
    #: Executions that may report, in total.
    max_attempts: int = 4
    #: Lost leases after which the job is DEAD. None: no limit.
    max_expiries: int | None = 5
    backoff: Backoff = Backoff()
    #: Executions that reported COMPLETED or FAILED.
    attempts: int = 0
    #: Lost leases that count.
    expiries: int = 0
    snoozes: int = 0
    #: Leases granted; the last run_no.
    executions: int = 0
    retry_of: JobId | None = None
    retry_kind: RetryKind | None = None
    template_id: str | None = None
    schedule_id: str | None = None
    #: The nominal fire of the schedule that made it.
    fire_at: Timestamp | None = None
    backfill_id: str = ""
    overlap: str | None = None
    group_id: str | None = None
    sequence_number: int | None = None
    #: Runs in the caller's process, alone on its queue; never dispatched.
    direct: bool = False
    reservation_id: str | None = None
    #: Makes jobs unique within `key_scope` for as long as `key_hold` says.
    key: str | None = None
    key_scope: KeyScope = KeyScope.TASK
    key_hold: KeyHold = KeyHold.ACTIVE
    #: End of the hold, for `window`.
    key_until: Timestamp | None = None
    #: Jobs with the same limit key share `key_limit` places.
    limit_key: str | None = None
    key_limit: int = 1
    #: The workflow activity that waits for it.
    owner: str | None = None
    affinity: str | None = None
    #: Leases granted less those given back uncounted.
    deliveries: int = 0
    tags: dict[str, str] | None = None
    #: The lease; these six are set only while RUNNING.
    worker_id: str | None = None
    token: Token | None = None
    lease_expires_at: Timestamp | None = None
    #: Beyond it no lease is extended.
    deadline_at: Timestamp | None = None
    #: The opening of the store by the worker's process; None for a remote worker.
    session_id: str | None = None
    #: The Lease command that was answered with this grant.
    grant_cmd: str | None = None
    #: Name of the access token that submitted it.
    submitted_by: str | None = None
    #: Trace context of the submitter.
    traceparent: str | None = None
    cancel_requested_at: Timestamp | None = None
    cancel_reason: str | None = None
    result: msgspec.Raw = NULL
    #: The last error.
    error: str | None = None
    #: First lease.
    started_at: Timestamp | None = None
    finished_at: Timestamp | None = None
    #: Feed number of the event that last changed it.
    seq: int = 0

    @property
    def due_at(self) -> Timestamp:
        """Since when it could run: from its own time on, if it has one."""
        return max(self.created_at, self.not_before or self.created_at)

    @property
    def has_ended(self) -> bool:
        """Tell whether the status will never change again."""
        return self.status in ENDED


class Run(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One attempt of a job."""

    run_id: RunId
    job_id: JobId
    #: 1, 2, 3, … within its job; 0 for a run that was skipped and never started.
    run_no: int
    started_at: Timestamp
    #: The parameters as this run got them.
    params_snapshot: msgspec.Raw
    namespace: str = ""
    queue: str = "default"
    limit_key: str | None = None
    template_id: str | None = None
    worker_id: str | None = None
    token: Token | None = None
    #: None while open.
    status: RunStatus | None = None
    finished_at: Timestamp | None = None
    exit_code: int | None = None
    error: str | None = None
    #: exception, timeout, exit, fatal, bad_params, bad_result or lost.
    error_kind: str | None = None
    details: msgspec.Raw = NULL
    #: One word: snoozed, released, gave_up, cancelled, buried, expired, overlap, group, timeout, restart, deadline,
    #: clock_jump, not_begun.
    reason: str | None = None
    #: The file that holds its lines. Never stored: filled in when it is looked at, where a file of this machine does.
    log_path: str | None = None
    artifacts: msgspec.Raw = NULL
    progress: msgspec.Raw = NULL
