"""Events: everything that ever happens to a record, in the past tense. Facts are the truth.

Each carries every computed value (times, positions, ids, the resulting status), so folding needs no policy, no clock
and no chance. `cmd` and `actor` say which command caused it and who sent it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.errors import BadEvent, UnknownEvent
from holdfast.model.ids import JobId, RunId, Token
from holdfast.model.jobs import Backoff, Job, JobStatus
from holdfast.model.payloads import NULL
from holdfast.model.schedules import Schedule, ScheduleChanges
from holdfast.model.templates import JobOptions, Template
from holdfast.model.times import Timestamp


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", gc=False):
    """What all events have in common."""

    #: Id of the command that caused it.
    cmd: str = ""
    #: Who sent the command; empty for the embedding program itself.
    actor: str = ""


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


class LeaseExpired(Fact, frozen=True, kw_only=True, tag="lease:expired"):
    """Time revoked the lease. Always written, never implied."""

    job_id: JobId
    token: Token
    #: timeout, restart, deadline or clock_jump.
    reason: str
    #: Whether it counts towards `max_expiries`.
    counted: bool
    to: JobStatus
    #: The automatic retry, created by the next event of the group.
    successor: JobId | None = None


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
    artifacts: msgspec.Raw = NULL
    progress: msgspec.Raw = NULL


class JobSkipped(Fact, frozen=True, kw_only=True, tag="job:skipped"):
    """A queued job will not run: its latest start has passed, or another job of its schedule is not over."""

    job_id: JobId
    run_id: RunId
    #: One word: expired or overlap.
    reason: str
    #: With `overlap`: the job that is not over.
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


class QueuePaused(Fact, frozen=True, kw_only=True, tag="queue:paused"):
    """Nothing of the queue is leased until it is resumed."""

    namespace: str
    queue: str
    reason: str = ""


class QueueResumed(Fact, frozen=True, kw_only=True, tag="queue:resumed"):
    """The queue is dispatched again."""

    namespace: str
    queue: str


class QueueChanges(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """New values for the settings of a queue. What is unset stays; None takes a limit away."""

    #: RUNNING jobs at a time, in all processes.
    max_running: int | msgspec.UnsetType | None = msgspec.UNSET
    #: Starts within any `rate_period_s` seconds; the two are set, or taken away, together.
    rate_count: int | msgspec.UnsetType | None = msgspec.UNSET
    rate_period_s: float | msgspec.UnsetType | None = msgspec.UNSET
    #: Whether all starts of the queue are counted together, or those of each limit key.
    rate_scope: Literal["queue", "key"] | msgspec.UnsetType = msgspec.UNSET
    #: Seconds of waiting that are worth one step of priority.
    aging_s: float | msgspec.UnsetType | None = msgspec.UNSET

    def given(self) -> dict[str, object]:
        """Give the settings that are set, by name."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in fields.items() if value is not msgspec.UNSET}


class QueueSet(Fact, frozen=True, kw_only=True, tag="queue:set"):
    """A queue has other limits. With another aging, its waiting and running jobs stand in new bands, in order."""

    namespace: str
    queue: str
    changes: QueueChanges


class QueueNormalized(Fact, frozen=True, kw_only=True, tag="queue:normalized"):
    """The positions of one band are 100, 200, 300, … in the order it had."""

    namespace: str
    queue: str
    rank: int


class DispatchPaused(Fact, frozen=True, kw_only=True, tag="dispatch:paused"):
    """Nothing at all is leased until dispatch is resumed."""

    reason: str = ""


class DispatchResumed(Fact, frozen=True, kw_only=True, tag="dispatch:resumed"):
    """Dispatch goes on."""


class TemplateCreated(Fact, frozen=True, kw_only=True, tag="template:created"):
    """A template can be used."""

    template: Template


class TemplateUpdated(Fact, frozen=True, kw_only=True, tag="template:updated"):
    """A template says something else now; jobs made from it before are as they were."""

    template_id: str
    name: str
    job_type: str
    version: int
    default_params: msgspec.Raw = NULL
    options: JobOptions = JobOptions()
    description: str | None = None


class TemplateArchived(Fact, frozen=True, kw_only=True, tag="template:archived"):
    """A template makes no more jobs."""

    template_id: str
    version: int


class TemplateDeleted(Fact, frozen=True, kw_only=True, tag="template:deleted"):
    """A template is gone; jobs made from it stay."""

    template_id: str


class ScheduleCreated(Fact, frozen=True, kw_only=True, tag="schedule:created"):
    """A schedule will fire."""

    schedule: Schedule


class ScheduleUpdated(Fact, frozen=True, kw_only=True, tag="schedule:updated"):
    """A schedule was edited, reset, or planned anew; the next fire is what it is from now on."""

    schedule_id: str
    version: int
    next_fire_at: Timestamp | None
    next_trigger_at: Timestamp | None
    changes: ScheduleChanges = ScheduleChanges()
    #: A one-off that was over has a new time.
    enabled: bool | msgspec.UnsetType = msgspec.UNSET
    #: The last fire is forgotten, since it lay in the future.
    is_reset: bool = False


class ScheduleFired(Fact, frozen=True, kw_only=True, tag="schedule:fired"):
    """A nominal time has come, or is made up for; its job is created by the next event, unless it was there before."""

    schedule_id: str
    fire_at: Timestamp
    job_id: JobId
    next_fire_at: Timestamp | None
    next_trigger_at: Timestamp | None
    #: It was the one time of a one-off, which is disabled now.
    is_last: bool = False


class ScheduleMissed(Fact, frozen=True, kw_only=True, tag="schedule:missed"):
    """Nominal times have passed without a job."""

    schedule_id: str
    count: int
    #: The last of them.
    until: Timestamp
    next_fire_at: Timestamp | None
    next_trigger_at: Timestamp | None
    is_last: bool = False


class SchedulePaused(Fact, frozen=True, kw_only=True, tag="schedule:paused"):
    """A schedule fires no more until it is resumed."""

    schedule_id: str
    version: int
    reason: str = ""


class ScheduleResumed(Fact, frozen=True, kw_only=True, tag="schedule:resumed"):
    """A schedule fires again, from now on."""

    schedule_id: str
    version: int
    next_fire_at: Timestamp | None
    next_trigger_at: Timestamp | None


class ScheduleDeleted(Fact, frozen=True, kw_only=True, tag="schedule:deleted"):
    """A schedule is gone; jobs it made stay."""

    schedule_id: str


class KeyDropped(Fact, frozen=True, kw_only=True, tag="key:dropped"):
    """A key whose hold has lapsed is free."""

    namespace: str
    unique_key: str


class CommandDone(Fact, frozen=True, kw_only=True, tag="command:done"):
    """The outcome of `cmd` is remembered, so that a repeat gets the same answer."""

    digest: str
    outcome: msgspec.Raw


class CommandForgotten(Fact, frozen=True, kw_only=True, tag="command:forgotten"):
    """The outcome of a command is no longer remembered."""

    forgotten: str


Event = (
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
    | QueuePaused
    | QueueResumed
    | QueueSet
    | QueueNormalized
    | DispatchPaused
    | DispatchResumed
    | TemplateCreated
    | TemplateUpdated
    | TemplateArchived
    | TemplateDeleted
    | ScheduleCreated
    | ScheduleUpdated
    | ScheduleFired
    | ScheduleMissed
    | SchedulePaused
    | ScheduleResumed
    | ScheduleDeleted
    | KeyDropped
    | CommandDone
    | CommandForgotten
)

#: Schema version of events and records. Raised when a change needs a migration.
SCHEMA_VERSION = 1

#: Event types outside Holdfast's own; kept, and ignored by folds.
FOREIGN_NAMESPACES = ("x:", "journal:")

encode_event = msgspec.json.Encoder().encode
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
_TYPES = frozenset(kind.__struct_config__.tag for kind in Event.__args__)


class _Tagged(msgspec.Struct, tag_field=None):
    type: str


_tag = msgspec.json.Decoder(_Tagged)


def decode_event(raw: bytes | msgspec.Raw, *, seq: int, file: str) -> Event | None:
    """Read one event; None for those of foreign namespaces.

    Raises UnknownEvent for a type this version does not know, BadEvent when a required field is missing or mistyped.
    """
    try:
        return _decoder.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        reason = str(problem)
    try:
        kind = _tag.decode(raw).type
    except (msgspec.MsgspecError, ValueError, RecursionError):
        kind = ""
    if kind.startswith(FOREIGN_NAMESPACES):
        return None
    if kind and kind not in _TYPES:
        raise UnknownEvent(
            f"{file}: event {seq} has the type {kind!r}, which this version does not know. Nothing was changed.",
            hint="Open the store with the version that wrote it, or a newer one.",
            file=file,
            seq=seq,
        )
    raise BadEvent(
        f"{file}: event {seq} ({kind or 'no type'}) cannot be read: {reason}. Nothing was changed.",
        hint="Run `holdfast store check` on it.",
        file=file,
        seq=seq,
    )
