"""The other records a store keeps, and the list of all tables.

A table is a kind of record with the key it is found by. Stores keep tables; they never look inside a record beyond
what its indexes need.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Literal

import msgspec

from holdfast.model.groups import Group
from holdfast.model.ids import JobId, Token
from holdfast.model.jobs import Job, KeyHold, Run
from holdfast.model.reservations import Reservation
from holdfast.model.retention import Retention
from holdfast.model.schedules import Schedule
from holdfast.model.templates import Template
from holdfast.model.times import Timestamp
from holdfast.model.webhooks import Delivery, Webhook
from holdfast.model.workflows.decisions import Decision
from holdfast.model.workflows.instances import (
    Affinity,
    Execution,
    HistoryRow,
    Instance,
    KeyValue,
    Message,
    Turn,
    execution_key,
    history_key,
    message_key,
)


class Queue(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Settings of one queue. A queue without a record has the defaults."""

    namespace: str
    name: str
    paused: bool = False
    pause_reason: str | None = None
    #: RUNNING jobs at a time, in all processes. None: no limit.
    max_running: int | None = None
    #: Starts within any `rate_period_s` seconds; both are set or neither.
    rate_count: int | None = None
    rate_period_s: float | None = None
    #: Whether all starts of the queue are counted together, or those of each limit key.
    rate_scope: Literal["queue", "key"] = "queue"
    #: Seconds of waiting that are worth one step of priority.
    aging_s: float | None = None
    #: How its ended jobs are kept; None as the store keeps them.
    retention: Retention | None = None


class HeldKey(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Which job holds a unique key."""

    namespace: str
    #: The key with its scope in front, so that scopes do not meet.
    unique_key: str
    job_id: JobId
    hold: KeyHold
    #: End of a `window` hold.
    held_until: Timestamp | None = None


class DoneCommand(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The first outcome of a command that leaves no id of its own, kept for an hour."""

    cmd: str
    #: Tells a repeat from another command under the same id.
    digest: str
    outcome: msgspec.Raw
    #: From when on the hour counts.
    at: Timestamp


class Authority(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What the store as a whole remembers."""

    #: Highest token ever granted.
    last_token: Token = Token(0)
    dispatch_paused: bool = False
    dispatch_reason: str | None = None


Record = (
    Job
    | Run
    | Queue
    | HeldKey
    | DoneCommand
    | Authority
    | Template
    | Schedule
    | Reservation
    | Group
    | Webhook
    | Delivery
    | Instance
    | Execution
    | HistoryRow
    | Message
    | Turn
    | KeyValue
    | Affinity
    | Decision
)
#: Tables with two-part keys (namespace, name) join them with U+0000, which neither part may contain.
Key = str

#: Key of the only record of `Authority`.
AUTHORITY = ""


def pair(namespace: str, name: str) -> Key:
    """Give the key of a record that is named within a namespace."""
    return f"{namespace}\0{name}"


#: How each kind of record is keyed. A table and not a chain of cases: every fold asks, several times.
_KEYS: dict[type, Callable[[Any], Key]] = {
    Job: attrgetter("job_id"),
    Run: attrgetter("run_id"),
    Queue: lambda record: pair(record.namespace, record.name),
    HeldKey: lambda record: pair(record.namespace, record.unique_key),
    DoneCommand: attrgetter("cmd"),
    Authority: lambda _record: AUTHORITY,
    Template: attrgetter("template_id"),
    Schedule: attrgetter("schedule_id"),
    Reservation: attrgetter("reservation_id"),
    Group: attrgetter("group_id"),
    Webhook: attrgetter("webhook_id"),
    Delivery: attrgetter("delivery_id"),
    Instance: attrgetter("instance_id"),
    Turn: attrgetter("instance_id"),
    Execution: lambda record: execution_key(record.instance_id, record.execution_id),
    HistoryRow: lambda record: history_key(record.history_id, record.event_id),
    Message: lambda record: message_key(record.seq),
    KeyValue: lambda record: pair(record.instance_id, record.key),
    Affinity: attrgetter("session"),
    Decision: attrgetter("decision_id"),
}


def key_of(record: Record) -> Key:
    """Give the key under which a record is kept."""
    return _KEYS[type(record)](record)


#: Table name → kind of record, in the order a snapshot is written and read: groups before their jobs, jobs before
#: their runs, templates before the schedules that use them, instances before their executions, these before their
#: histories.
TABLES: dict[str, type[Record]] = {
    "job_groups": Group,
    "jobs": Job,
    "job_runs": Run,
    "queues": Queue,
    "job_keys": HeldKey,
    "commands": DoneCommand,
    "meta": Authority,
    "job_templates": Template,
    "schedules": Schedule,
    "direct_reservations": Reservation,
    "webhooks": Webhook,
    "webhook_deliveries": Delivery,
    "instances": Instance,
    "executions": Execution,
    "history": HistoryRow,
    "orchestrator_queue": Message,
    "turns": Turn,
    "instance_kv": KeyValue,
    "sessions": Affinity,
    "decisions": Decision,
}
