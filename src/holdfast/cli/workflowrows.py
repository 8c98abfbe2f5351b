"""Instances, events and decisions as people see them: a line each, or a page."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.app.decisions import DecisionState
from holdfast.app.instancestate import InstanceState
from holdfast.cli.output import Record
from holdfast.cli.tables import Column, lines
from holdfast.cli.terminal import Screen, safe
from holdfast.cli.words import CANCELLED, COMPLETED, FAILED, HELD, READY, RUNNING, STUCK
from holdfast.flows.matching import describe_event
from holdfast.model.history import Event
from holdfast.model.instances import InstanceStatus
from holdfast.model.times import at_milliseconds

_LOOKS = {
    InstanceStatus.RUNNING: RUNNING,
    InstanceStatus.COMPLETED: COMPLETED,
    InstanceStatus.FAILED: FAILED,
    InstanceStatus.CANCELLED: CANCELLED,
    InstanceStatus.CONTINUED_AS_NEW: RUNNING,
}


def instance_record(state: InstanceState) -> Record:
    """Give an instance with every field, as programs read it."""
    fields = msgspec.structs.asdict(state)
    return {"instance_id": fields.pop("id"), **fields}


def _said(state: InstanceState) -> str:
    """Say why it is where it is, in one line."""
    if state.blocked is not None:
        return f"blocked, {state.blocked.kind}: {state.blocked.text.partition(chr(10))[0]}"
    return ", ".join(state.waiting_on)


def _status(state: InstanceState, screen: Screen) -> str:
    look = STUCK if state.blocked is not None else _LOOKS[state.status]
    return f"{screen.glyph(look)} {state.status}"


def instance_table(states: Sequence[InstanceState], screen: Screen) -> list[str]:
    """Lay out instances."""
    columns = (
        Column("ID"),
        Column("STATUS"),
        Column("WORKFLOW"),
        Column("VERSION", spare=True),
        Column("STARTED", spare=True),
        Column("WAITS FOR"),
    )
    rows = [
        [
            safe(one.id),
            _status(one, screen),
            safe(one.workflow),
            safe(one.version or "-"),
            one.created_at,
            safe(_said(one)),
        ]
        for one in states
    ]
    return lines(columns, rows, screen)


def instance_page(state: InstanceState, output: str | None, screen: Screen) -> list[str]:
    """Show an instance whole; `output` is what it returned, or why it failed."""
    fields = {
        "workflow": f"{state.workflow} {state.version or ''}".strip(),
        "execution": str(state.execution_id),
        "parent": state.parent or "",
        "started": state.created_at,
        "ended": state.completed_at or "",
        "says": "" if state.custom_status is None else msgspec.json.encode(state.custom_status).decode(),
        "waits for": ", ".join(state.waiting_on),
        "result": output or "",
    }
    body = [f"  {name:<9}  {safe(value)}" for name, value in fields.items() if value]
    blocked = state.blocked.text.splitlines() if state.blocked is not None else []
    return [f"{safe(state.id)}  {_status(state, screen)}", *body, *(f"  {safe(line)}" for line in blocked)]


def event_record(event: Event) -> Record:
    """Give an event with every field, and in words."""
    fields: Record = msgspec.to_builtins(event)
    return {**fields, "says": describe_event(event)}


def event_table(events: Sequence[Event], screen: Screen) -> list[str]:
    """Lay out a history."""
    columns = (Column("EVENT", right=True), Column("TIME", spare=True), Column("KIND"), Column("WHAT"))
    rows = [
        [
            str(event.event_id),
            at_milliseconds(event.timestamp_ms),
            type(event.kind).__name__,
            safe(describe_event(event)),
        ]
        for event in events
    ]
    return lines(columns, rows, screen)


def decision_record(state: DecisionState) -> Record:
    """Give a question with every field, as programs read it."""
    fields = msgspec.structs.asdict(state)
    return {"decision_id": fields.pop("id"), **fields}


def decision_table(states: Sequence[DecisionState], screen: Screen) -> list[str]:
    """Lay out questions."""
    columns = (Column("ID"), Column("STATE"), Column("ASKED BY"), Column("OPTIONS", spare=True), Column("QUESTION"))
    rows = [
        [
            safe(one.id),
            f"{screen.glyph(READY)} open" if one.is_open else f"{screen.glyph(HELD)} {safe(one.by or 'closed')}",
            safe(one.instance),
            safe(", ".join(one.options or ("any text",))),
            safe(one.prompt),
        ]
        for one in states
    ]
    return lines(columns, rows, screen)


def decision_page(state: DecisionState, screen: Screen) -> list[str]:
    """Show a question whole."""
    fields = {
        "question": state.prompt,
        "options": ", ".join(state.options or ("any text",)),
        "asked by": state.instance,
        "for": state.assignee or "",
        "asked at": state.created_at,
        "until": state.expires_at or "",
        "default": state.default or "",
        "answer": state.chosen or state.message or "",
        "by": state.by or "",
    }
    head = f"{safe(state.id)}  {screen.glyph(READY) + ' open' if state.is_open else screen.glyph(HELD) + ' closed'}"
    return [head, *(f"  {name:<8}  {safe(value)}" for name, value in fields.items() if value)]
