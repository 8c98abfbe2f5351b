"""What happens to workflow instances: their messages, turns, histories, sessions."""

from __future__ import annotations

import msgspec

from holdfast.model.events.base import Fact
from holdfast.model.ids import JobId, Token
from holdfast.model.payloads import NULL
from holdfast.model.times import Timestamp
from holdfast.model.workflows.instances import InstanceStatus

# --- messages ---------------------------------------------------------------------------------------------------------


class MessageStored(Fact, frozen=True, kw_only=True, tag="message:stored"):
    """An item is in the orchestrator queue. Its number is the event's."""

    instance_id: str
    kind: str
    item: msgspec.Raw
    #: None: the event's time.
    due_at: Timestamp | None = None
    visible_at: Timestamp | None = None
    parked: str | None = None
    drop_at: Timestamp | None = None
    #: Of an item that begins an execution.
    orchestration: str | None = None
    version: str | None = None
    parent_instance_id: str | None = None
    #: Of a timer.
    execution_id: int | None = None
    event_id: int | None = None
    #: Of a start: tells whether another asks for the same.
    digest: str | None = None
    #: Of a start: the schedule that asked for it, or the access token.
    schedule_id: str | None = None
    submitted_by: str | None = None
    #: The job whose end it tells.
    tells_of: JobId | None = None
    #: Messages that were given back and are delivered with this one, though their time has not come.
    woken: tuple[int, ...] = ()


class MessageParked(Fact, frozen=True, kw_only=True, tag="message:parked"):
    """It is set aside, out of everybody's way."""

    message: int
    reason: str
    drop_at: Timestamp | None = None


class MessageUnparked(Fact, frozen=True, kw_only=True, tag="message:unparked"):
    """The instance it is for will be there: it waits in the queue, at its old place."""

    message: int


class MessageDropped(Fact, frozen=True, kw_only=True, tag="message:dropped"):
    """It is gone, and no event of a history records it."""

    message: int
    #: `cancelled` (a timer), `orphan`, `ended`, `deleted` (its sender is gone). Of a turn that used it: `woke` and
    #: `resumed` (it only began the turn), `continued` (the next execution gets it). Else why the turn ignored it.
    reason: str


# --- turns ------------------------------------------------------------------------------------------------------------


class TurnLocked(Fact, frozen=True, kw_only=True, tag="turn:locked"):
    """Somebody works on the instance, with these messages."""

    instance_id: str
    token: Token
    locked_until: Timestamp
    messages: tuple[int, ...]
    session_id: str | None = None


class TurnTagged(Fact, frozen=True, kw_only=True, tag="turn:tagged"):
    """The holder got more messages."""

    instance_id: str
    token: Token
    messages: tuple[int, ...]


class TurnExtended(Fact, frozen=True, kw_only=True, tag="turn:extended"):
    """The holder may work longer."""

    instance_id: str
    token: Token
    locked_until: Timestamp


class TurnAbandoned(Fact, frozen=True, kw_only=True, tag="turn:abandoned"):
    """The holder gave the instance back with all its messages."""

    instance_id: str
    token: Token
    #: None: they can be delivered at once.
    visible_at: Timestamp | None = None
    #: Whether it counts as a delivery.
    counted: bool = True
    reason: str | None = None
    #: Timers that only wait for the end of the lock, which came earlier.
    woken: tuple[int, ...] = ()


class TurnExpired(Fact, frozen=True, kw_only=True, tag="turn:expired"):
    """Time revoked the lock. Always written, never implied."""

    instance_id: str
    token: Token
    #: timeout, restart, clock_jump or not_begun.
    reason: str
    counted: bool
    #: As of a turn that is given back.
    woken: tuple[int, ...] = ()


class KeyChange(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What the running execution has made of a key; NULL: cleared."""

    key: str
    value: msgspec.Raw = NULL
    at_ms: int = 0


class Asked(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A question was put to people."""

    decision_id: str
    event_id: int
    question: msgspec.Raw
    options: tuple[str, ...] | None = None


class Closed(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A question is no longer open."""

    decision_id: str
    answer: msgspec.Raw = NULL


class TurnCommitted(Fact, frozen=True, kw_only=True, tag="turn:committed"):
    """A turn's results are durable, and the messages it handled are gone.

    The events that follow in the group are the rest of it.
    """

    instance_id: str
    execution_id: int
    #: None: no turn, but a history that was written by hand.
    token: Token | None = None
    #: As they are from now on.
    orchestration_name: str
    orchestration_version: str | None = None
    parent_instance_id: str | None = None
    #: Of its start, if it begins.
    digest: str | None = None
    schedule_id: str | None = None
    submitted_by: str | None = None
    status: InstanceStatus
    #: NULL: as it was.
    output: msgspec.Raw = NULL
    #: None: as they were.
    pinned_engine_version: str | None = None
    waiting_on: tuple[str, ...] | None = None
    #: Whether it says something else of itself from now on, and what; NULL: nothing.
    said: bool = False
    custom_status: msgspec.Raw = NULL
    keys: tuple[KeyChange, ...] = ()
    #: Keys whose changes become the instance's own: the execution is over.
    kept_keys: tuple[str, ...] = ()
    asked: tuple[Asked, ...] = ()
    closed: tuple[Closed, ...] = ()
    #: The holder goes on until then.
    held_until: Timestamp | None = None
    #: Messages of the lock that this commit has not handled: they stay in the queue.
    kept: tuple[int, ...] = ()
    #: It is over, and goes then; None: as the store says.
    keep_until: Timestamp | None = None


class HistoryAppended(Fact, frozen=True, kw_only=True, tag="history:appended"):
    """One event more in a history."""

    instance_id: str
    execution_id: int
    event_id: int
    event: msgspec.Raw


# --- instances --------------------------------------------------------------------------------------------------------


class InstanceDeleted(Fact, frozen=True, kw_only=True, tag="instance:deleted"):
    """Nothing is left of the instance; its id is free. Its jobs go by events of their own in the same group."""

    instance_id: str
    executions: tuple[int, ...] = ()
    messages: tuple[int, ...] = ()
    keys: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()


class InstancePruned(Fact, frozen=True, kw_only=True, tag="instance:pruned"):
    """Old executions are gone, with their histories."""

    instance_id: str
    executions: tuple[int, ...]


class InstanceReset(Fact, frozen=True, kw_only=True, tag="instance:reset"):
    """A person had it go on from an earlier point; the execution that begins so follows in the group."""

    instance_id: str
    #: The one that begins, the one it has its first events from, and the last of these.
    execution_id: int
    copied_from: int
    until: int
    #: Messages that were held back and can be delivered.
    messages: tuple[int, ...] = ()
    reason: str = ""


class InstanceForked(Fact, frozen=True, kw_only=True, tag="instance:forked"):
    """Another instance begins with a copy of this one's history."""

    instance_id: str
    fork: str
    #: The execution that was copied, and the last event of the copy.
    execution_id: int
    until: int


class DecisionAnswered(Fact, frozen=True, kw_only=True, tag="decision:answered"):
    """Somebody answered a question; the answer is on its way to the workflow."""

    decision_id: str
    by: str


# --- sessions and handlers --------------------------------------------------------------------------------------------


class AffinityClaimed(Fact, frozen=True, kw_only=True, tag="affinity:claimed"):
    """The activities of a session go to one worker."""

    session: str
    owner_id: str
    locked_until: Timestamp


class AffinityExtended(Fact, frozen=True, kw_only=True, tag="affinity:extended"):
    """They go to it longer, or its work has been heard of."""

    session: str
    locked_until: Timestamp
    active: bool = False


class AffinityRemoved(Fact, frozen=True, kw_only=True, tag="affinity:removed"):
    """Nobody speaks of the session any more."""

    session: str


class HandlersAnnounced(Fact, frozen=True, kw_only=True, tag="handlers:announced"):
    """A worker has code for these workflows; what waited for it can be delivered."""

    #: `name` or `name version`.
    handlers: tuple[str, ...]
    #: Messages held back until now.
    messages: tuple[int, ...] = ()
    #: Instances whose last holder gave a reason that no longer counts.
    instances: tuple[str, ...] = ()


FlowEvent = (
    MessageStored
    | MessageParked
    | MessageUnparked
    | MessageDropped
    | TurnLocked
    | TurnTagged
    | TurnExtended
    | TurnAbandoned
    | TurnExpired
    | TurnCommitted
    | HistoryAppended
    | InstanceDeleted
    | InstancePruned
    | InstanceReset
    | InstanceForked
    | DecisionAnswered
    | AffinityClaimed
    | AffinityExtended
    | AffinityRemoved
    | HandlersAnnounced
)
