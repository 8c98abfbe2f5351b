"""The other records a store keeps, and the list of all tables.

A table is a kind of record with the key it is found by. Stores keep tables; they never look inside a record beyond
what its indexes need.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.model.decisions import Decision
from holdfast.model.groups import Group
from holdfast.model.ids import JobId, Token
from holdfast.model.instances import (
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
from holdfast.model.jobs import Job, KeyHold, Run
from holdfast.model.reservations import Reservation
from holdfast.model.retention import Retention
from holdfast.model.schedules import Schedule
from holdfast.model.templates import Template
from holdfast.model.times import Timestamp
from holdfast.model.webhooks import Delivery, Webhook


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


def key_of(record: Record) -> Key:
    """Give the key under which a record is kept."""
    match record:
        case Job():
            return record.job_id
        case Run():
            return record.run_id
        case Queue():
            return pair(record.namespace, record.name)
        case HeldKey():
            return pair(record.namespace, record.unique_key)
        case DoneCommand():
            return record.cmd
        case Authority():
            return AUTHORITY
        case Template():
            return record.template_id
        case Schedule():
            return record.schedule_id
        case Reservation():
            return record.reservation_id
        case Group():
            return record.group_id
        case Webhook():
            return record.webhook_id
        case Delivery():
            return record.delivery_id
        case Instance() | Turn():
            return record.instance_id
        case Execution():
            return execution_key(record.instance_id, record.execution_id)
        case HistoryRow():
            return history_key(record.history_id, record.event_id)
        case Message():
            return message_key(record.seq)
        case KeyValue():
            return pair(record.instance_id, record.key)
        case Affinity():
            return record.session
        case Decision():
            return record.decision_id


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
