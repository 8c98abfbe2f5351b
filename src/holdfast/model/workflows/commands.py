"""Commands about workflow instances: what the provider face asks the engine for, as data.

Items and events travel encoded. What the rules need to know of them stands beside them; admission works it out from the
text, whatever the sender says.
"""

from __future__ import annotations

import msgspec

from holdfast.model.command_base import FlowOrder
from holdfast.model.events import Asked, Closed
from holdfast.model.ids import JobId, Token
from holdfast.model.jobs import Backoff, RetryMode
from holdfast.model.payloads import EMPTY, NULL
from holdfast.model.times import Timestamp
from holdfast.model.workflows.history import HandledMessage
from holdfast.model.workflows.instances import InstanceStatus

# --- what commands carry ----------------------------------------------------------------------------------------------


class NewMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An item for the orchestrator queue. All but the item is worked out from it."""

    item: msgspec.Raw
    instance_id: str = ""
    kind: str = ""
    #: Of a signal.
    name: str | None = None
    #: Of an item that begins an execution.
    orchestration: str | None = None
    version: str | None = None
    parent_instance_id: str | None = None
    #: Of a timer: who asked for it, and when it fires.
    execution_id: int | None = None
    event_id: int | None = None
    fire_at: Timestamp | None = None
    #: Of a start: tells whether another asks for the same.
    digest: str | None = None


class SignalMismatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A workflow whose live workers refuse the data of a signal, because of their type."""

    workflow: str
    #: None: of an instance that no version has begun yet.
    version: str | None = None
    signal: str
    problem: str


class NewActivity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An item for the worker queue: a job to be created. All but the item and the id is worked out from it."""

    job_id: JobId
    item: msgspec.Raw
    owner: str = ""
    name: str = ""
    params: msgspec.Raw = EMPTY
    queue: str = "default"
    affinity: str | None = None
    #: Whether the job's own rules judge failures; else whoever fetches it does.
    judged: bool = False
    priority: int = 0
    max_attempts: int = 1
    max_expiries: int | None = None
    timeout_s: float | None = None
    lease_s: float = 30.0
    retry_mode: RetryMode = RetryMode.REQUEUE
    backoff: Backoff = Backoff()
    not_before: Timestamp | None = None
    limit_key: str | None = None
    key_limit: int = 1


class NewEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An event for a history. Its id and its length are worked out from it."""

    event: msgspec.Raw
    event_id: int = 0


class KeyWish(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A key to be set, or cleared with NULL; without a key all are cleared."""

    key: str | None = None
    value: msgspec.Raw = NULL
    at_ms: int = 0


class Delta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a turn adds to a history. All but the events is worked out from them."""

    events: tuple[NewEvent, ...] = ()
    #: What an OrchestrationStarted among them says.
    orchestration_name: str | None = None
    orchestration_version: str | None = None
    parent_instance_id: str | None = None
    digest: str | None = None
    #: Whether it says something else of itself, and what; NULL: nothing.
    said: bool = False
    custom_status: msgspec.Raw = NULL
    #: In order; a key of None stands for all keys there are.
    keys: tuple[KeyWish, ...] = ()
    asked: tuple[Asked, ...] = ()
    closed: tuple[Closed, ...] = ()


class Metadata(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a turn says of its execution; what is None stays as it was."""

    status: InstanceStatus | None = None
    #: A JSON text; NULL stays as it was.
    output: msgspec.Raw = NULL
    orchestration_name: str | None = None
    orchestration_version: str | None = None
    parent_instance_id: str | None = None
    waiting_on: tuple[str, ...] | None = None
    pinned_engine_version: str | None = None
    #: Seconds that the instance is kept once it is over; None: as the store says.
    retention_s: float | None = None
    #: Executions that are kept when it goes on as new, the newest; None: all.
    keep_executions: int | None = None


class VersionRange(msgspec.Struct, frozen=True, kw_only=True):
    """Versions of the runtime, ends included, each as three numbers."""

    low: tuple[int, ...]
    high: tuple[int, ...]


# --- turns ------------------------------------------------------------------------------------------------------------


class SendMessage(FlowOrder, frozen=True, kw_only=True, tag="send_message"):
    """Put an item into the orchestrator queue."""

    message: NewMessage
    #: Not delivered before.
    delay_s: float | None = None
    #: How long it waits for an instance that is not there; None: as long as orphans are kept.
    hold_s: float | None = None


class FetchTurn(FlowOrder, frozen=True, kw_only=True, tag="fetch_turn"):
    """Lock the first instance that something came in for, or the first few."""

    lock_s: float
    #: Instances at most.
    n: int = 1
    session_id: str | None = None
    #: Only executions pinned to none, or to one of these; None: any.
    versions: tuple[VersionRange, ...] | None = None
    #: How much the worker holds already, jobs and turns. None: it does not say.
    holds: int | None = None
    #: Some of that was lost once, and has run for a moment only.
    on_trial: bool = False


class FetchMore(FlowOrder, frozen=True, kw_only=True, tag="fetch_more"):
    """Take what came in since, under a lock that is held."""

    token: Token
    #: Numbers of the messages that the holder has in hand. What the lock holds besides is handed out again: an answer
    #: may have been lost. None: only what the lock does not hold yet.
    having: tuple[int, ...] | None = None


class AckTurn(FlowOrder, frozen=True, kw_only=True, tag="ack_turn"):
    """Make a turn's results durable, all or none, and let the instance go."""

    token: Token
    execution_id: int
    delta: Delta = Delta()
    activities: tuple[NewActivity, ...] = ()
    messages: tuple[NewMessage, ...] = ()
    metadata: Metadata = Metadata()
    #: Owners of the jobs to be cancelled, after the new ones were created.
    cancelled: tuple[str, ...] = ()
    #: Event ids of this execution whose queued timers go.
    cancelled_timers: tuple[int, ...] = ()
    #: The messages that leave the queue; others stay with the lock, or are free again. None: all that the lock holds.
    handled: tuple[HandledMessage, ...] | None = None
    #: Keep the lock so long instead of letting go; or keep it with the end it has.
    hold_s: float | None = None
    keep: bool = False


class AbandonTurn(FlowOrder, frozen=True, kw_only=True, tag="abandon_turn"):
    """Give an instance back with its messages."""

    token: Token
    delay_s: float | None = None
    #: Do not count the delivery.
    given_back: bool = False
    reason: str | None = None


class RenewTurn(FlowOrder, frozen=True, kw_only=True, tag="renew_turn"):
    """Keep a lock."""

    token: Token
    lock_s: float


class ParkMessages(FlowOrder, frozen=True, kw_only=True, tag="park_messages"):
    """Set messages of a turn aside that its holder cannot read."""

    token: Token
    messages: tuple[int, ...]


class AppendHistory(FlowOrder, frozen=True, kw_only=True, tag="append_history"):
    """Write events into a history by hand; for import and repair."""

    instance_id: str
    execution_id: int
    delta: Delta


# --- activities -------------------------------------------------------------------------------------------------------


class StartActivity(FlowOrder, frozen=True, kw_only=True, tag="start_activity"):
    """Create the job of an activity."""

    activity: NewActivity


class FetchActivity(FlowOrder, frozen=True, kw_only=True, tag="fetch_activity"):
    """Take the first activity of these queues."""

    worker_id: str
    lease_s: float
    #: None: any.
    queues: tuple[str, ...] | None = ("default",)
    session_id: str | None = None
    #: Who takes the sessions of activities, and for how long; None takes no activity of a session.
    affinity_owner: str | None = None
    affinity_s: float = 0.0


class AckActivity(FlowOrder, frozen=True, kw_only=True, tag="ack_activity"):
    """End an activity and tell whom it concerns."""

    token: Token
    #: ActivityCompleted or ActivityFailed; None: cancelled, and nobody is told.
    completion: NewMessage | None = None
    #: Worked out from the completion.
    failed: bool = False
    result: msgspec.Raw = NULL
    error: str = ""
    details: msgspec.Raw = NULL
    retryable: bool = False


class AbandonActivity(FlowOrder, frozen=True, kw_only=True, tag="abandon_activity"):
    """Give an activity back."""

    token: Token
    delay_s: float | None = None
    given_back: bool = False


class RenewActivity(FlowOrder, frozen=True, kw_only=True, tag="renew_activity"):
    """Keep an activity's lease."""

    token: Token
    lease_s: float


class RenewSessions(FlowOrder, frozen=True, kw_only=True, tag="renew_sessions"):
    """Keep the sessions of these owners that live and were heard of within `idle_s`."""

    owner_ids: tuple[str, ...]
    lock_s: float
    idle_s: float


class CleanSessions(FlowOrder, frozen=True, kw_only=True, tag="clean_sessions"):
    """Forget lapsed sessions that no waiting or running job names."""

    limit: int = 500


# --- instances --------------------------------------------------------------------------------------------------------


class StartInstance(FlowOrder, frozen=True, kw_only=True, tag="start_instance"):
    """Begin an instance, unless its id is taken."""

    message: NewMessage
    #: Signals it finds when it begins; not sent if it was there before.
    signals: tuple[NewMessage, ...] = ()
    #: The access token that asks for it; None: somebody of this machine.
    submitted_by: str | None = None
    #: Who refuses one of the signals: worked out from what live workers publish, whatever the sender says.
    signal_mismatches: tuple[SignalMismatch, ...] = ()


class TellInstance(FlowOrder, frozen=True, kw_only=True, tag="tell_instance"):
    """Send something to an instance that is there and has not ended."""

    message: NewMessage
    #: How long it is kept for an instance that is not there yet; None: it must be there.
    hold_s: float | None = None
    #: Who refuses the signal: worked out from what live workers publish, whatever the sender says.
    signal_mismatches: tuple[SignalMismatch, ...] = ()


class Again(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An item that goes to an instance that is made to go on."""

    message: NewMessage
    #: Its place among others; None: behind what is there.
    at: Timestamp | None = None


class ResetInstance(FlowOrder, frozen=True, kw_only=True, tag="reset_instance"):
    """Have an instance that is over or blocked go on from an earlier point, as its next execution."""

    instance_id: str
    #: The history that was read, and how far it went: if it went on meanwhile, nothing is done.
    history_id: int
    last_event_id: int
    #: The last event that is kept.
    until: int
    #: The first events of the next execution.
    begins: Delta
    #: What ends the execution that is given up; not written if it is over.
    ending: Delta = Delta()
    output: msgspec.Raw = NULL
    messages: tuple[Again, ...] = ()
    #: The keys there were when the given up execution began.
    keys: tuple[KeyWish, ...] = ()
    reason: str = ""


class ForkInstance(FlowOrder, frozen=True, kw_only=True, tag="fork_instance"):
    """Begin an instance with a copy of another's history."""

    instance_id: str
    #: The id of the new one.
    fork: str
    #: What was copied, and how far.
    execution_id: int
    until: int
    begins: Delta
    messages: tuple[Again, ...] = ()
    #: The keys there were when the copied execution began.
    keys: tuple[KeyWish, ...] = ()


class FailInstance(FlowOrder, frozen=True, kw_only=True, tag="fail_instance"):
    """End an instance that no code can end: it is blocked, or its history cannot be read."""

    instance_id: str
    execution_id: int
    #: The last event there was when it was read; 0: none.
    last_event_id: int
    ending: Delta
    output: msgspec.Raw = NULL
    #: To its parent and its children.
    messages: tuple[NewMessage, ...] = ()
    #: Whether the history was found to be damaged; else the instance must be blocked.
    damaged: bool = False


class Ended(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One execution that is over."""

    execution_id: int
    status: InstanceStatus
    delta: Delta
    output: msgspec.Raw = NULL


class ImportInstance(FlowOrder, frozen=True, kw_only=True, tag="import_instance"):
    """Keep an instance that ended elsewhere."""

    instance_id: str
    #: Oldest first.
    executions: tuple[Ended, ...]
    #: The keys there were when the first of them began.
    keys: tuple[KeyWish, ...] = ()


class DeleteInstances(FlowOrder, frozen=True, kw_only=True, tag="delete_instances"):
    """Delete exactly these instances, which must be whole trees."""

    instance_ids: tuple[str, ...]
    force: bool = False
    #: The one is a root that stands for its whole tree, and must be there.
    tree: bool = False


class DeleteEnded(FlowOrder, frozen=True, kw_only=True, tag="delete_ended"):
    """Delete ended roots with their trees, oldest end first."""

    instance_ids: tuple[str, ...] | None = None
    completed_before: Timestamp | None = None
    limit: int = 1000


class PruneExecutions(FlowOrder, frozen=True, kw_only=True, tag="prune_executions"):
    """Delete old executions of an instance, never its current one."""

    instance_id: str
    keep_last: int | None = None
    completed_before: Timestamp | None = None


class AnnounceHandlers(FlowOrder, frozen=True, kw_only=True, tag="announce_handlers"):
    """Say which workflows a worker has code for; what waited for it is delivered at once."""

    #: `name` for any version, or `name version`.
    handlers: tuple[str, ...]


class AnswerDecision(FlowOrder, frozen=True, kw_only=True, tag="answer_decision"):
    """Answer a question of a workflow."""

    decision_id: str
    #: The answer as the workflow will read it. All but the decision is worked out from it.
    message: NewMessage
    chosen: str | None = None
    by: str = ""


FlowCommand = (
    SendMessage
    | FetchTurn
    | FetchMore
    | AckTurn
    | AbandonTurn
    | RenewTurn
    | ParkMessages
    | AppendHistory
    | StartActivity
    | FetchActivity
    | AckActivity
    | AbandonActivity
    | RenewActivity
    | RenewSessions
    | CleanSessions
    | DeleteInstances
    | DeleteEnded
    | PruneExecutions
    | AnnounceHandlers
    | AnswerDecision
    | StartInstance
    | TellInstance
    | ResetInstance
    | ForkInstance
    | FailInstance
    | ImportInstance
)
