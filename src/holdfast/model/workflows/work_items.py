"""Work items: the messages of a workflow's two queues, as document 003 names them.

`ActivityExecute` goes to the worker queue, all others to the orchestrator queue of the instance they name. Payloads are
text; times are milliseconds since 1970 UTC.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

from holdfast.model.error_details import ErrorDetails
from holdfast.model.jobs import Backoff
from holdfast.model.workflows.event_kinds import Carried


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag=True, gc=False):
    """What all work items have in common."""


class ActivityOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What an activity's job may be told, by the names of the job's fields."""

    priority: int = 0
    max_attempts: int = 4
    max_expiries: int = 5
    timeout_s: float | None = None
    lease_s: float = 30.0
    retry_mode: Literal["requeue", "chain"] = "requeue"
    backoff: Backoff | None = None
    not_before_ms: int | None = None
    limit_key: str | None = None
    key_limit: int = 1


class StartOrchestration(Item, frozen=True, kw_only=True, tag=True):
    """Begin an instance."""

    instance: str
    orchestration: str
    input: str
    version: str | None = None
    parent_instance: str | None = None
    parent_id: int | None = None
    parent_execution_id: int | None = None
    execution_id: int = 1


class ContinueAsNew(Item, frozen=True, kw_only=True, tag=True):
    """Begin an instance's next execution."""

    instance: str
    orchestration: str
    input: str
    version: str | None = None
    parent_instance: str | None = None
    parent_id: int | None = None
    parent_execution_id: int | None = None
    carry_forward_events: tuple[Carried, ...] = ()
    initial_custom_status: str | None = None


class ActivityExecute(Item, frozen=True, kw_only=True, tag=True):
    """Run a task and tell the instance."""

    instance: str
    execution_id: int
    #: The event id of its ActivityScheduled.
    id: int
    name: str
    input: str
    session_id: str | None = None
    tag: str | None = None
    options: ActivityOptions | None = None


class ActivityCompleted(Item, frozen=True, kw_only=True, tag=True):
    """An activity gave its result."""

    instance: str
    execution_id: int
    id: int
    result: str


class ActivityFailed(Item, frozen=True, kw_only=True, tag=True):
    """An activity ended without a result."""

    instance: str
    execution_id: int
    id: int
    details: ErrorDetails


class TimerFired(Item, frozen=True, kw_only=True, tag=True):
    """A timer, a decision's deadline or a cancellation's deadline: `id` is the event that asked for it."""

    instance: str
    execution_id: int
    id: int
    fire_at_ms: int


class ExternalRaised(Item, frozen=True, kw_only=True, tag=True):
    """An event from outside."""

    instance: str
    name: str
    data: str


class QueueMessage(Item, frozen=True, kw_only=True, tag=True):
    """A signal; named `@decision/<event id>` it is the answer to a decision."""

    instance: str
    name: str
    data: str


class SubOrchCompleted(Item, frozen=True, kw_only=True, tag=True):
    """A child returned."""

    parent_instance: str
    parent_execution_id: int
    parent_id: int
    result: str


class SubOrchFailed(Item, frozen=True, kw_only=True, tag=True):
    """A child failed or was cancelled."""

    parent_instance: str
    parent_execution_id: int
    parent_id: int
    details: ErrorDetails


class CancelInstance(Item, frozen=True, kw_only=True, tag=True):
    """Stop; with `force` at once and without running its code."""

    instance: str
    reason: str
    force: bool = False


class ResumeInstance(Item, frozen=True, kw_only=True, tag=True):
    """Go on from a copied history: what it shows as open is sent off again. Ours; document 003 has no such item."""

    instance: str
    execution_id: int


WorkItem = (
    StartOrchestration
    | ContinueAsNew
    | ActivityExecute
    | ActivityCompleted
    | ActivityFailed
    | TimerFired
    | ExternalRaised
    | QueueMessage
    | SubOrchCompleted
    | SubOrchFailed
    | CancelInstance
    | ResumeInstance
)

encode_item = msgspec.json.Encoder().encode
decode_item = msgspec.json.Decoder(WorkItem).decode


def goes_to(item: WorkItem) -> str | None:
    """Give the instance whose orchestrator queue an item belongs to; None: it belongs to the worker queue."""
    match item:
        case ActivityExecute():
            return None
        case SubOrchCompleted() | SubOrchFailed():
            return item.parent_instance
        case _:
            return item.instance


def start_digest(orchestration: str, text: str) -> str:
    """Give what starts of the same workflow with the same input have in common, and others do not."""
    return hashlib.sha256(msgspec.json.encode((orchestration, text))).hexdigest()[:32]
