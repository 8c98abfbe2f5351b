"""Commands: requests to the engine, as data. Each may be sent again with the same ids and then gives the same outcome.

Durations are seconds and relative, because the authority's clock decides; absolute times are the caller's own wish.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.model.command_base import KeyedOrder, Order
from holdfast.model.events import JobChanges, QueueChanges
from holdfast.model.groups import GroupMode, OnFailure
from holdfast.model.ids import JobId, RunId, Token
from holdfast.model.jobs import Backoff, KeyHold, KeyScope, RetryMode
from holdfast.model.payloads import NULL
from holdfast.model.retention import Retention as Retention  # noqa: PLC0414 - part of a command, and found with it
from holdfast.model.schedules import NewSchedule, ScheduleChanges
from holdfast.model.templates import NewTemplate
from holdfast.model.times import Timestamp
from holdfast.model.webhooks import NewWebhook, WebhookChanges
from holdfast.model.workflows.commands import FlowCommand


class NewJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job to be created."""

    job_id: JobId
    job_type: str
    params: msgspec.Raw
    namespace: str = ""
    queue: str = "default"
    priority: int = 0
    #: Not leased before; the later of the two counts.
    delay_s: float | None = None
    not_before: Timestamp | None = None
    #: Skipped unless started by then; the earlier of the two counts.
    ttl_s: float | None = None
    expires_at: Timestamp | None = None
    timeout_s: float | None = None
    lease_s: float = 30.0
    retry_mode: RetryMode = RetryMode.REQUEUE
    max_attempts: int = 4
    max_expiries: int | None = 5
    backoff: Backoff = Backoff()
    key: str | None = None
    key_scope: KeyScope = KeyScope.TASK
    key_hold: KeyHold = KeyHold.ACTIVE
    #: Length of a `window` hold.
    key_window_s: float | None = None
    on_conflict: Literal["return", "reject", "replace"] = "return"
    limit_key: str | None = None
    key_limit: int = 1
    tags: dict[str, str] | None = None
    owner: str | None = None
    affinity: str | None = None
    submitted_by: str | None = None
    traceparent: str | None = None
    #: When it was asked for, if that was before now: a file may have lain for a while before anyone looked.
    created_at: Timestamp | None = None


class Enqueue(KeyedOrder, frozen=True, kw_only=True, tag="enqueue"):
    """Create jobs, all or none."""

    jobs: tuple[NewJob, ...]


class Lease(Order, frozen=True, kw_only=True, tag="lease"):
    """Take up to `n` jobs to work on."""

    worker_id: str
    queues: tuple[str, ...] = ("default",)
    #: Tasks the worker knows; None for any.
    job_types: tuple[str, ...] | None = None
    n: int = 1
    #: Overrides each job's own.
    lease_s: float | None = None
    namespace: str = ""
    session_id: str | None = None
    #: How much the worker holds already, jobs and turns. None: it does not say.
    holds: int | None = None
    #: Some of that was lost once, and has run for a moment only.
    on_trial: bool = False


class Extend(Order, frozen=True, kw_only=True, tag="extend"):
    """Keep a lease alive."""

    job_id: JobId
    token: Token
    lease_s: float | None = None


class Complete(Order, frozen=True, kw_only=True, tag="complete"):
    """Report success."""

    job_id: JobId
    token: Token
    result: msgspec.Raw = NULL
    #: What the execution left behind, a list; and the last it said about how far it was. The same in all reports.
    artifacts: msgspec.Raw = NULL
    progress: msgspec.Raw = NULL
    exit_code: int | None = None


class Fail(Order, frozen=True, kw_only=True, tag="fail"):
    """Report failure."""

    job_id: JobId
    token: Token
    error: str
    error_kind: Literal["exception", "timeout", "exit", "fatal", "bad_params", "bad_result"] = "exception"
    details: msgspec.Raw = NULL
    artifacts: msgspec.Raw = NULL
    progress: msgspec.Raw = NULL
    exit_code: int | None = None
    #: The handler's own choice of delay.
    retry_after_s: float | None = None
    #: No retry, whatever is left of the budget.
    fatal: bool = False


class Snooze(Order, frozen=True, kw_only=True, tag="snooze"):
    """Ask to be called later; uses up no attempt."""

    job_id: JobId
    token: Token
    delay_s: float
    artifacts: msgspec.Raw = NULL
    progress: msgspec.Raw = NULL


class GiveUp(Order, frozen=True, kw_only=True, tag="give_up"):
    """End the job CANCELLED from inside."""

    job_id: JobId
    token: Token
    reason: str = ""
    artifacts: msgspec.Raw = NULL
    progress: msgspec.Raw = NULL


class Release(Order, frozen=True, kw_only=True, tag="release"):
    """Give the job back unfinished."""

    job_id: JobId
    token: Token
    #: Whether the handler had started.
    begun: bool
    delay_s: float | None = None
    #: Do not count the delivery.
    given_back: bool = False
    artifacts: msgspec.Raw = NULL
    progress: msgspec.Raw = NULL


class Cancel(Order, frozen=True, kw_only=True, tag="cancel"):
    """End a queued job, or ask a running one to stop; `force` revokes its lease at once."""

    job_id: JobId
    reason: str = ""
    force: bool = False


class Bury(Order, frozen=True, kw_only=True, tag="bury"):
    """Declare a job DEAD."""

    job_id: JobId
    reason: str = ""


class Update(Order, frozen=True, kw_only=True, tag="update"):
    """Edit a queued job."""

    job_id: JobId
    changes: JobChanges


class Move(Order, frozen=True, kw_only=True, tag="move"):
    """Give a queued job another place in its band. Exactly one of the three is set."""

    job_id: JobId
    before: JobId | None = None
    after: JobId | None = None
    to: Literal["first", "last"] | None = None


class Normalize(Order, frozen=True, kw_only=True, tag="normalize"):
    """Space the positions of a queue evenly again."""

    queue: str
    namespace: str = ""


class Retry(KeyedOrder, frozen=True, kw_only=True, tag="retry"):
    """Run an ended job again, as a new job with a full budget."""

    job_id: JobId
    new_job_id: JobId
    #: Other parameters than those of the last run; NULL for the same.
    params: msgspec.Raw = NULL
    priority: int | None = None


class PauseQueue(Order, frozen=True, kw_only=True, tag="pause_queue"):
    """Stop leasing from a queue."""

    queue: str
    namespace: str = ""
    reason: str = ""


class ResumeQueue(Order, frozen=True, kw_only=True, tag="resume_queue"):
    """Lease from a queue again."""

    queue: str
    namespace: str = ""


class SetQueue(Order, frozen=True, kw_only=True, tag="set_queue"):
    """Change the limits of a queue; what is not named stays."""

    queue: str
    changes: QueueChanges
    namespace: str = ""


class PauseDispatch(Order, frozen=True, kw_only=True, tag="pause_dispatch"):
    """Stop leasing altogether."""

    reason: str = ""


class ResumeDispatch(Order, frozen=True, kw_only=True, tag="resume_dispatch"):
    """Lease again."""


class Reserve(Order, frozen=True, kw_only=True, tag="reserve"):
    """Hold a queue: nothing of it is dispatched until the reservation is released or expires."""

    reservation_id: str
    queue: str
    #: Who holds it, in words for people.
    reserved_by: str
    ttl_s: float = 60.0
    namespace: str = ""
    session_id: str | None = None


class RenewReservation(Order, frozen=True, kw_only=True, tag="renew_reservation"):
    """Hold a queue for `ttl_s` from now on."""

    reservation_id: str
    ttl_s: float = 60.0


class ReleaseReservation(Order, frozen=True, kw_only=True, tag="release_reservation"):
    """Give a queue back. One that is over stays as it ended."""

    reservation_id: str


class StartDirect(Order, frozen=True, kw_only=True, tag="start_direct"):
    """Create a job and lease it, in one step, to whoever holds its queue. It is tried once; delays do not count."""

    reservation_id: str
    job: NewJob
    worker_id: str
    session_id: str | None = None


class PutTemplate(KeyedOrder, frozen=True, kw_only=True, tag="put_template"):
    """Make a template, or with `replace` give the one of that name this content."""

    #: Of the new template; one that is replaced keeps its own.
    template_id: str
    template: NewTemplate
    replace: bool = False
    #: With `replace`: the version that was read; another one is not overwritten. None takes any.
    version: int | None = None


class ArchiveTemplate(Order, frozen=True, kw_only=True, tag="archive_template"):
    """Make no more jobs from a template, and pause its schedules."""

    template_id: str


class DeleteTemplate(KeyedOrder, frozen=True, kw_only=True, tag="delete_template"):
    """Remove a template that no schedule uses."""

    template_id: str


class UseTemplate(KeyedOrder, frozen=True, kw_only=True, tag="use_template"):
    """Make a job from a template."""

    template_id: str
    job_id: JobId
    #: JSON object laid over the template's parameters; NULL for none.
    params: msgspec.Raw = NULL


class PutSchedule(Order, frozen=True, kw_only=True, tag="put_schedule"):
    """Make a schedule, or with `replace` give the one of that name this content. Whether it is paused stays."""

    #: Of the new schedule; one that is replaced keeps its own.
    schedule_id: str
    schedule: NewSchedule
    replace: bool = False


class UpdateSchedule(Order, frozen=True, kw_only=True, tag="update_schedule"):
    """Edit a schedule. What times it had is forgotten if they are changed: it fires from now on."""

    schedule_id: str
    changes: ScheduleChanges
    #: The version that was read; another one is not overwritten. None takes any.
    version: int | None = None


class PauseSchedule(Order, frozen=True, kw_only=True, tag="pause_schedule"):
    """Fire no more."""

    schedule_id: str
    reason: str = ""


class ResumeSchedule(Order, frozen=True, kw_only=True, tag="resume_schedule"):
    """Fire again, from now on."""

    schedule_id: str


class ResetSchedule(Order, frozen=True, kw_only=True, tag="reset_schedule"):
    """Plan the next fire from now on, whatever has fired before: for a clock that had run ahead."""

    schedule_id: str


class DeleteSchedule(KeyedOrder, frozen=True, kw_only=True, tag="delete_schedule"):
    """Remove a schedule; its jobs stay."""

    schedule_id: str


class Trigger(KeyedOrder, frozen=True, kw_only=True, tag="trigger"):
    """Make a job of a schedule now, beside its timetable."""

    schedule_id: str
    job_id: JobId
    #: JSON object laid over the schedule's parameters; NULL for none.
    params: msgspec.Raw = NULL


class Backfill(KeyedOrder, frozen=True, kw_only=True, tag="backfill"):
    """Make a job for each nominal time in [since, until), oldest first. The same `backfill_id` again adds nothing."""

    schedule_id: str
    backfill_id: str
    since: Timestamp
    until: Timestamp
    #: Times one command deals with; its answer says where to go on.
    limit: int = 500


class Fire(Order, frozen=True, kw_only=True, tag="fire"):
    """Do what is due of a schedule, if it still expects this nominal time. Sent by the tick."""

    schedule_id: str
    expected: Timestamp


class Replan(Order, frozen=True, kw_only=True, tag="replan"):
    """Plan a fire anew that lies in the future: the rules of its zone may have changed. Sent at start."""

    schedule_id: str
    expected: Timestamp


class PutWebhook(Order, frozen=True, kw_only=True, tag="put_webhook"):
    """Make a webhook, or with `replace` give the one of that id this content. Whether it is disabled stays."""

    webhook_id: str
    webhook: NewWebhook
    replace: bool = False
    #: Networks that are not public and that whoever sends this vouches for; senders have their own list.
    allow: tuple[str, ...] = ()


class UpdateWebhook(Order, frozen=True, kw_only=True, tag="update_webhook"):
    """Edit a webhook; what is not named stays."""

    webhook_id: str
    changes: WebhookChanges
    allow: tuple[str, ...] = ()


class RotateSecret(Order, frozen=True, kw_only=True, tag="rotate_secret"):
    """Sign with a new secret as well as with the present one; or, without a new one, with the newest alone."""

    webhook_id: str
    secret: str | None = None

    def __repr__(self) -> str:
        """Show which webhook."""
        return f"RotateSecret(webhook_id={self.webhook_id!r})"


class DeleteWebhook(Order, frozen=True, kw_only=True, tag="delete_webhook"):
    """Remove a webhook; what it is still owed is not sent."""

    webhook_id: str


class ProbeWebhook(Order, frozen=True, kw_only=True, tag="probe_webhook"):
    """Make a delivery to see whether it arrives, claimed by whoever asks. It is tried once."""

    webhook_id: str
    delivery_id: str


class ClaimDeliveries(Order, frozen=True, kw_only=True, tag="claim_deliveries"):
    """Take up to `limit` deliveries that are due, to send them within a minute."""

    limit: int = 8
    #: Webhooks that the sender has deliveries for on their way, each as often as there are; others come first.
    under_way: tuple[str, ...] = ()


class EndDelivery(Order, frozen=True, kw_only=True, tag="end_delivery"):
    """Tell what came of a try: the HTTP status, or what went wrong before there was one."""

    delivery_id: str
    #: The claim's.
    claimed_until: Timestamp
    status: int | None = None
    error: str | None = None


class Redeliver(Order, frozen=True, kw_only=True, tag="redeliver"):
    """Send a delivery again, with all its tries."""

    delivery_id: str


class CreateGroup(Order, frozen=True, kw_only=True, tag="create_group"):
    """Make a group of jobs that belong together, all or none. Its members are fixed from then on."""

    group_id: str
    #: In their order: new jobs, and ids of QUEUED ones that belong to no group.
    members: tuple[NewJob | JobId, ...] = ()
    namespace: str = ""
    name: str | None = None
    mode: GroupMode = GroupMode.SEQUENTIAL
    on_failure: OnFailure = OnFailure.STOP
    #: Made in the commit that ends the group, however it ends.
    callback: NewJob | None = None


class CancelGroup(Order, frozen=True, kw_only=True, tag="cancel_group"):
    """End the queued members of a group; with `running` ask the others to stop."""

    group_id: str
    running: bool = False
    reason: str = ""


class MendGroups(Order, frozen=True, kw_only=True, tag="mend_groups"):
    """Skip what a failure should have stopped, and set the status of groups that lack it. Sent on recovery."""

    limit: int = 500


class Overdue(msgspec.Struct, frozen=True):
    """A lease that ran out by the monotonic clock of the process that watched it."""

    job_id: JobId
    token: Token


class OverdueHold(msgspec.Struct, frozen=True):
    """A reservation, or the hold of a worker on a session, that ran out by that clock."""

    #: The reservation or the session.
    id: str
    #: Its expiry when it ran out. One that was renewed since then stays.
    until: Timestamp


class ClockJump(msgspec.Struct, frozen=True):
    """A step of the wall clock forward: after a suspend, or a correction."""

    since: Timestamp
    until: Timestamp


class Expire(Order, frozen=True, kw_only=True, tag="expire"):
    """End what time has ended: lapsed leases and reservations, queued jobs past their latest start. By the tick."""

    limit: int = 500
    #: Leases that lapsed while the clock jumped are not held against their jobs.
    jump: ClockJump | None = None
    #: Leases, locks of instances, reservations and holds on sessions to end although the wall clock, set back, has not
    #: reached their expiry.
    overdue: tuple[Overdue, ...] = ()
    overdue_turns: tuple[Token, ...] = ()
    overdue_reservations: tuple[OverdueHold, ...] = ()
    overdue_sessions: tuple[OverdueHold, ...] = ()


class EndSessions(Order, frozen=True, kw_only=True, tag="end_sessions"):
    """End the local leases and reservations of earlier openings: the store's lock proves their holders gone.

    Sent on opening.
    """

    #: The present opening, whose leases and reservations stay.
    session_id: str
    limit: int = 500
    #: Leases and locks of which it is known that their work had not begun.
    unbegun: tuple[Token, ...] = ()


class EndSession(Order, frozen=True, kw_only=True, tag="end_session"):
    """End the leases and reservations of one opening that is provably gone while others live. Sent by who sees it."""

    session_id: str
    limit: int = 500
    #: Leases and locks of which it is known that their work had not begun.
    unbegun: tuple[Token, ...] = ()


class Mend(Order, frozen=True, kw_only=True, tag="mend"):
    """Bring jobs and runs that damage left in states no command makes back to ones that are known. Sent at start."""

    #: Look for failed jobs of chains without a successor, too: that costs a look at many ended ones.
    chains: bool = False
    limit: int = 500


class DropRuns(Order, frozen=True, kw_only=True, tag="drop_runs"):
    """Remove runs whose jobs are not there. Sent by a repair, which has written them elsewhere."""

    runs: tuple[RunId, ...]


class Prune(Order, frozen=True, kw_only=True, tag="prune"):
    """Remove what retention no longer keeps. Sent by the tick."""

    #: The store's own; a queue may have another.
    retention: Retention = Retention()
    #: Rows that one commit removes, unless a chain or a group has more.
    limit: int = 500


Report = Complete | Fail | Snooze | GiveUp
Command = (
    Enqueue
    | Lease
    | Extend
    | Complete
    | Fail
    | Snooze
    | GiveUp
    | Release
    | Cancel
    | Bury
    | Update
    | Move
    | Normalize
    | Retry
    | PauseQueue
    | ResumeQueue
    | SetQueue
    | PauseDispatch
    | ResumeDispatch
    | Reserve
    | RenewReservation
    | ReleaseReservation
    | StartDirect
    | PutTemplate
    | ArchiveTemplate
    | DeleteTemplate
    | UseTemplate
    | PutSchedule
    | UpdateSchedule
    | PauseSchedule
    | ResumeSchedule
    | ResetSchedule
    | DeleteSchedule
    | Trigger
    | Backfill
    | Fire
    | Replan
    | PutWebhook
    | UpdateWebhook
    | RotateSecret
    | DeleteWebhook
    | ProbeWebhook
    | ClaimDeliveries
    | EndDelivery
    | Redeliver
    | CreateGroup
    | CancelGroup
    | MendGroups
    | Mend
    | DropRuns
    | Expire
    | EndSessions
    | EndSession
    | Prune
    | FlowCommand
)
