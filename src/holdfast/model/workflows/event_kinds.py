"""The kinds of events in a workflow's history. Document 003's vocabulary with ours beside it.

Three of these names are work items too (`holdfast.model.workflows.work_items`), hence a module of their own: write
`kinds.TimerFired`. The provider face shows this module as `EventKind`. Payloads are text that nobody here looks into;
times are milliseconds since 1970 UTC.
"""

from __future__ import annotations

import msgspec

from holdfast.model.error_details import ErrorDetails

#: A signal as it is handed on to the next execution: name, data.
Carried = tuple[str, str]


class Kind(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag=True, gc=False):
    """What all kinds have in common."""


# --- the execution's own life -----------------------------------------------------------------------------------------


class OrchestrationStarted(Kind, frozen=True, kw_only=True, tag=True):
    """The first event of every execution."""

    name: str
    version: str
    input: str
    parent_instance: str | None = None
    parent_id: int | None = None
    parent_execution_id: int | None = None
    #: Signals the execution before it had not read, oldest first.
    carry_forward_events: tuple[Carried, ...] = ()
    initial_custom_status: str | None = None
    #: Where `uuid`, `random` and `rng` begin, and the hashes of tasks.
    seed: int | None = None
    #: Information only; never compared.
    code_hash: str | None = None
    #: Words and numbers were taken out of the payloads before the history came here.
    redacted: bool = False


class OrchestrationCompleted(Kind, frozen=True, kw_only=True, tag=True):
    """It returned."""

    output: str


class OrchestrationFailed(Kind, frozen=True, kw_only=True, tag=True):
    """It raised, was cancelled (kind `Cancelled`) or was ended from outside."""

    details: ErrorDetails


class OrchestrationContinuedAsNew(Kind, frozen=True, kw_only=True, tag=True):
    """It goes on in the next execution."""

    input: str


class OrchestrationCancelRequested(Kind, frozen=True, kw_only=True, tag=True):
    """CancelledError was raised in its main task."""

    reason: str
    #: When it ends without being asked any more; None: never.
    deadline_ms: int | None = None


class OrchestrationChained(Kind, frozen=True, kw_only=True, tag=True):
    """It started another instance that it has no link to."""

    name: str
    instance: str
    input: str


class SignalSent(Kind, frozen=True, kw_only=True, tag=True):
    """It sent a signal to another instance."""

    instance: str
    name: str
    data: str


# --- activities, timers, children -------------------------------------------------------------------------------------


class ActivityScheduled(Kind, frozen=True, kw_only=True, tag=True):
    """A job was asked for."""

    name: str
    input: str
    session_id: str | None = None
    #: The queue; None is `default`.
    tag: str | None = None


class ActivityCompleted(Kind, frozen=True, kw_only=True, tag=True):
    """The job gave its result."""

    result: str


class ActivityFailed(Kind, frozen=True, kw_only=True, tag=True):
    """The job ended without a result."""

    details: ErrorDetails


class ActivityCancelRequested(Kind, frozen=True, kw_only=True, tag=True):
    """The await was cancelled, and the job with it."""

    reason: str


class TimerCreated(Kind, frozen=True, kw_only=True, tag=True):
    """A durable timer. With `source_event_id` 1 it is the workflow's own timeout and no command of its code."""

    fire_at_ms: int


class TimerFired(Kind, frozen=True, kw_only=True, tag=True):
    """Its time has come."""

    fire_at_ms: int


class SubOrchestrationScheduled(Kind, frozen=True, kw_only=True, tag=True):
    """A child was started."""

    name: str
    instance: str
    input: str


class SubOrchestrationCompleted(Kind, frozen=True, kw_only=True, tag=True):
    """The child returned."""

    result: str


class SubOrchestrationFailed(Kind, frozen=True, kw_only=True, tag=True):
    """The child failed or was cancelled."""

    details: ErrorDetails


class SubOrchestrationCancelRequested(Kind, frozen=True, kw_only=True, tag=True):
    """The await was cancelled, and the child asked to stop."""

    reason: str


# --- signals ----------------------------------------------------------------------------------------------------------


class ExternalEvent(Kind, frozen=True, kw_only=True, tag=True):
    """An event from outside came in; it is read as a signal of that name."""

    name: str
    data: str


class QueueEventDelivered(Kind, frozen=True, kw_only=True, tag=True):
    """A signal came in."""

    name: str
    data: str


class SignalRejected(Kind, frozen=True, kw_only=True, tag=True):
    """A signal was set aside: its data are not of the type that the code waited for. Ours."""

    name: str
    #: Signals are numbered as they come in, from 1; those carried over come first.
    number: int
    reason: str


class ExternalSubscribed(Kind, frozen=True, kw_only=True, tag=True):
    """Kept when found; our runtime does not write it."""

    name: str


class QueueSubscribed(Kind, frozen=True, kw_only=True, tag=True):
    """Kept when found; our runtime does not write it."""

    name: str


class ExternalSubscribedCancelled(Kind, frozen=True, kw_only=True, tag=True):
    """Kept when found; our runtime does not write it."""

    reason: str


class QueueSubscriptionCancelled(Kind, frozen=True, kw_only=True, tag=True):
    """Kept when found; our runtime does not write it."""

    reason: str


# --- steps, patches, decisions ----------------------------------------------------------------------------------------


class StepCompleted(Kind, frozen=True, kw_only=True, tag=True):
    """An inline step gave its result."""

    #: Steps are numbered in the order of their calls, from 1.
    step_no: int
    name: str
    result: str


class StepFailed(Kind, frozen=True, kw_only=True, tag=True):
    """An inline step failed for good."""

    step_no: int
    name: str
    details: ErrorDetails


class PatchRecorded(Kind, frozen=True, kw_only=True, tag=True):
    """The execution follows the new branch of this patch."""

    id: str


class DecisionRequested(Kind, frozen=True, kw_only=True, tag=True):
    """A person was asked."""

    prompt: str
    #: Labels. None: any text is an answer.
    options: tuple[str, ...] | None = None
    assignee: str | None = None
    source: str | None = None
    agent_id: str | None = None
    detail: str | None = None
    expires_at_ms: int | None = None
    #: The answer when it expires. None: there is none, and whoever waits gets TimeoutError.
    on_expire: str | None = None


class DecisionResolved(Kind, frozen=True, kw_only=True, tag=True):
    """It is closed: answered, expired (`by` is `expiry`) or no longer waited for (`cancelled`)."""

    chosen: str | None = None
    message: str | None = None
    by: str | None = None


class RunbookEvent(Kind, frozen=True, kw_only=True, tag=True):
    """One entry of the runbook interpreter: JSON text of one tagged object."""

    entry: str


# --- published state --------------------------------------------------------------------------------------------------


class CustomStatusUpdated(Kind, frozen=True, kw_only=True, tag=True):
    """What the instance says of itself; None clears it."""

    status: str | None = None


class KeyValueSet(Kind, frozen=True, kw_only=True, tag=True):
    """A key has this value from here on."""

    key: str
    value: str
    last_updated_at_ms: int = 0


class KeyValueCleared(Kind, frozen=True, kw_only=True, tag=True):
    """A key is gone."""

    key: str


class KeyValuesCleared(Kind, frozen=True, kw_only=True, tag=True):
    """All keys are gone."""


AnyKind = (
    OrchestrationStarted
    | OrchestrationCompleted
    | OrchestrationFailed
    | OrchestrationContinuedAsNew
    | OrchestrationCancelRequested
    | OrchestrationChained
    | SignalSent
    | ActivityScheduled
    | ActivityCompleted
    | ActivityFailed
    | ActivityCancelRequested
    | TimerCreated
    | TimerFired
    | SubOrchestrationScheduled
    | SubOrchestrationCompleted
    | SubOrchestrationFailed
    | SubOrchestrationCancelRequested
    | ExternalEvent
    | QueueEventDelivered
    | SignalRejected
    | ExternalSubscribed
    | QueueSubscribed
    | ExternalSubscribedCancelled
    | QueueSubscriptionCancelled
    | StepCompleted
    | StepFailed
    | PatchRecorded
    | DecisionRequested
    | DecisionResolved
    | RunbookEvent
    | CustomStatusUpdated
    | KeyValueSet
    | KeyValueCleared
    | KeyValuesCleared
)

#: How an execution ends; each is the last event of its history.
TERMINAL = (OrchestrationCompleted, OrchestrationFailed, OrchestrationContinuedAsNew)
