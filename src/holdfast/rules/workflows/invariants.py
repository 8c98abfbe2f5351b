"""What must hold between the records of workflow instances at any time. Part of `rules.invariants`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from holdfast.model.payloads import ref_in, refs_within
from holdfast.model.records import AUTHORITY, Authority, Record
from holdfast.model.workflows.decisions import Decision
from holdfast.model.workflows.history import decode_event
from holdfast.model.workflows.instances import (
    OVER,
    Execution,
    HistoryRow,
    Instance,
    KeyValue,
    Message,
    Turn,
    execution_key,
    message_key,
)
from holdfast.model.workflows.work_items import decode_item, goes_to
from holdfast.rules.state import State
from holdfast.rules.workflows.messages import UNREADABLE, is_expected

R = TypeVar("R", bound=Record)


class Fault(NamedTuple):
    """An invariant that does not hold, and for which record."""

    code: str
    message: str
    id: str
    #: What to do about it, where there is something.
    remedy: str = ""


class Whole(State, Protocol):
    """A state that can be walked from end to end."""

    def all(self, kind: type[R]) -> Iterator[R]:
        """Walk every record of a table."""
        ...


def flow_faults(state: Whole) -> Iterator[Fault]:
    """List every broken invariant of instances."""
    for instance in state.all(Instance):
        yield from _instance_faults(state, instance)
    for execution in state.all(Execution):
        yield from _execution_faults(state, execution)
    for turn in state.all(Turn):
        yield from _turn_faults(state, turn)
    for message in state.all(Message):
        yield from _message_faults(state, message)
    for held in state.all(KeyValue):
        if state.get(Instance, held.instance_id) is None:
            yield Fault("key", f"key {held.key!r} of {held.instance_id!r} belongs to nobody", held.instance_id)
    for asked in state.all(Decision):
        if state.get(Instance, asked.instance_id) is None:
            text = f"question {asked.decision_id} of {asked.instance_id!r} is asked by nobody"
            yield Fault("decision", text, asked.instance_id)


def set_aside(state: Whole) -> Iterator[Fault]:
    """List the messages that could not be read: nothing is wrong with the records, but somebody must look at them."""
    for message in state.all(Message):
        if message.parked == UNREADABLE:
            text = f"message {message.seq} for {message.instance_id!r} cannot be read and was set aside"
            yield Fault("unreadable", text, message.instance_id)


def _instance_faults(state: Whole, instance: Instance) -> Iterator[Fault]:
    name = instance.instance_id
    current = state.get(Execution, execution_key(name, instance.current_execution_id))
    if current is None:
        yield Fault("instance", f"instance {name!r} has no execution {instance.current_execution_id}", name)
    elif current.status is not instance.status:
        yield Fault("instance", f"instance {name!r} is {instance.status}, its execution {current.status}", name)
    if (instance.completed_at is not None) != (instance.status in OVER):
        yield Fault("instance", f"instance {name!r} is {instance.status} and ended {instance.completed_at}", name)


def _execution_faults(state: Whole, execution: Execution) -> Iterator[Fault]:
    name = execution.instance_id
    said = f"execution {execution.execution_id} of {name!r}"
    instance = state.get(Instance, name)
    if instance is None:
        yield Fault("execution", f"{said} belongs to nobody", name)
    elif execution.execution_id > instance.current_execution_id:
        yield Fault("execution", f"{said} comes after the current one, {instance.current_execution_id}", name)
    rows = state.history(execution.history_id)
    last = max((row.event_id for row in rows), default=0)
    if len(rows) != execution.event_count:
        yield Fault("history", f"{said} has {len(rows)} events and counts {execution.event_count}", name)
    elif last != execution.last_event_id:
        yield Fault("history", f"{said} ends with event {last} and says {execution.last_event_id}", name)
    for row in rows:
        problem = _unread_event(row)
        if problem is not None:
            yield Fault("history", f"{said}, event {row.event_id}: {problem}", name)


def _unread_event(row: HistoryRow) -> str | None:
    """Say why an event is not what its row says; what lies beside the record is looked at elsewhere."""
    if ref_in(row.event) is not None:
        return None
    try:
        event = decode_event(row.event)
    except (msgspec.MsgspecError, ValueError) as problem:
        return f"cannot be read: {problem}"
    return None if event.event_id == row.event_id else f"calls itself event {event.event_id}"


def _turn_faults(state: Whole, turn: Turn) -> Iterator[Fault]:
    name = turn.instance_id
    authority = state.get(Authority, AUTHORITY) or Authority()
    if turn.token is not None and turn.token > authority.last_token:
        yield Fault("A3", f"the turn of {name!r} has token {turn.token} above {authority.last_token}", name)
    if state.get(Instance, name) is None and not state.mail(name):
        yield Fault("turn", f"the turn of {name!r} is of nobody", name)
    if turn.locked_until is None and turn.messages:
        yield Fault("turn", f"nobody holds {name!r}, and it has messages in hand", name)
    if turn.locked_until is not None and turn.token is None:
        yield Fault("turn", f"{name!r} is held until {turn.locked_until} without a token", name)
    for seq in turn.messages:
        message = state.get(Message, message_key(seq))
        if message is None or message.instance_id != name or message.parked is not None:
            yield Fault("turn", f"the turn of {name!r} has message {seq}, which is not there for it", name)


def _message_faults(state: Whole, message: Message) -> Iterator[Fault]:
    name = message.instance_id
    if message.parked == UNREADABLE:
        return
    if message.parked is None and not is_expected(state, name):
        text = f"message {message.seq} waits for {name!r}, which is not there and not parked for"
        yield Fault("message", text, name)
    if refs_within(message.item):
        return
    try:
        item = decode_item(message.item)
    except (msgspec.MsgspecError, ValueError) as problem:
        yield Fault("unreadable", f"message {message.seq} for {name!r} cannot be read: {problem}", name)
        return
    if goes_to(item) != name:
        yield Fault("message", f"message {message.seq} for {name!r} is addressed to {goes_to(item)!r}", name)
