"""Instances, events and decisions as people see them: a line each, or a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from holdfast.app.workflows.decisions import DecisionState
from holdfast.app.workflows.records import decision_row
from holdfast.app.workflows.state import InstanceState
from holdfast.cli.render.history_text import worded
from holdfast.cli.render.instance_text import look_of
from holdfast.cli.render.output import Record
from holdfast.cli.render.status_labels import ASKING, COMPLETED, HELD
from holdfast.cli.render.tables import Column, age, lines
from holdfast.cli.render.terminal import Screen, safe
from holdfast.model.times import Timestamp, at_milliseconds, seconds_between
from holdfast.model.workflows.history import Event
from holdfast.rules.explain import Reason
from holdfast.rules.workflows.explain import NAMED

#: Cells that a reason, or what happened, should have; spare columns give way for it.
REASON_CELLS = 40


class InstanceSeen(NamedTuple):
    """An instance, and why it is where it is."""

    state: InstanceState
    reason: Reason


def instance_record(seen: InstanceSeen) -> Record:
    """Give an instance with every field, as programs read it."""
    fields = msgspec.structs.asdict(seen.state)
    return {"instance_id": fields.pop("id"), **fields, "reason": seen.reason}


def badge(seen: InstanceSeen, screen: Screen) -> str:
    """Give glyph and status."""
    return f"{screen.glyph(look_of(*seen))} {seen.state.status}"


def instance_table(rows: Sequence[InstanceSeen], now: Timestamp, screen: Screen) -> list[str]:
    """Lay out instances."""
    columns = (
        Column("STATUS"),
        Column("ID"),
        Column("WORKFLOW"),
        Column("VERSION", spare=True),
        Column("AGE", right=True),
        Column("REASON", least=REASON_CELLS),
    )
    cells = [
        [
            badge(one, screen),
            safe(one.state.id),
            safe(one.state.workflow),
            safe(one.state.version or "-"),
            age(seconds_between(one.state.created_at, now)),
            safe(one.reason.sentence),
        ]
        for one in rows
    ]
    return lines(columns, cells, screen)


def instance_page(
    seen: InstanceSeen, output: str | None, screen: Screen, asked: Sequence[DecisionState] = ()
) -> list[str]:
    """Show an instance whole; `output` is what it returned, or why it failed; `asked` are its open questions."""
    state, reason = seen
    fields = {
        "workflow": f"{state.workflow} {state.version or ''}".strip(),
        "execution": str(state.execution_id),
        "parent": state.parent or "",
        "fork of": state.forked_from or "",
        "forks": ", ".join(state.forks),
        "started": state.created_at,
        "ended": state.completed_at or "",
        "says": "" if state.custom_status is None else msgspec.json.encode(state.custom_status).decode(),
        "result": output or "",
    }
    shown = [*fields.items(), *(("asks", f"{one.prompt} {_answers(one)} {one.id}") for one in asked)]
    body = [f"  {screen.faint(f'{name:<9}')}  {safe(value)}" for name, value in shown if value]
    return [f"{safe(state.id)}  {badge(seen, screen)}  {safe(reason.sentence)}", *more(reason), *body]


def _answers(question: DecisionState) -> str:
    return "(any text)" if question.options is None else f"({', '.join(question.options)})"


def more(reason: Reason) -> list[str]:
    """Give what the sentence left out, line by line."""
    return [f"  {safe(line)}" for line in reason.lines] if len(reason.lines) > NAMED or reason.code == "blocked" else []


def event_record(event: Event) -> Record:
    """Give an event with every field, and in words."""
    fields: Record = msgspec.to_builtins(event)
    return {**fields, "says": worded(event)}


def event_table(events: Sequence[Event], screen: Screen) -> list[str]:
    """Lay out a history."""
    columns = (
        Column("EVENT", right=True),
        Column("TIME", spare=True),
        Column("KIND", spare=True),
        Column("WHAT", least=REASON_CELLS),
    )
    rows = [
        [
            str(event.event_id),
            at_milliseconds(event.timestamp_ms),
            type(event.kind).__name__,
            safe(worded(event)),
        ]
        for event in events
    ]
    return lines(columns, rows, screen)


def decision_record(state: DecisionState) -> Record:
    """Give a question with every field, as programs read it."""
    return msgspec.structs.asdict(decision_row(state))


def decision_table(states: Sequence[DecisionState], screen: Screen) -> list[str]:
    """Lay out questions."""
    columns = (
        Column("ID"),
        Column("STATE"),
        Column("ASKED BY"),
        Column("UNTIL", spare=True),
        Column("OPTIONS", spare=True),
        Column("QUESTION"),
    )
    rows = [
        [
            safe(one.id),
            _state(one, screen),
            safe(one.instance),
            one.expires_at or "-",
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
        "context": state.detail or "",
        "options": ", ".join(state.options or ("any text",)),
        "asked by": state.instance,
        "for": state.assignee or "",
        "asked at": state.created_at,
        "until": state.expires_at or "",
        "default": state.default or "",
        "answer": state.chosen or state.message or "",
        "by": state.by or "",
    }
    head = f"{safe(state.id)}  {_state(state, screen)}"
    return [head, *(f"  {screen.faint(f'{name:<8}')}  {safe(value)}" for name, value in fields.items() if value)]


def _state(one: DecisionState, screen: Screen) -> str:
    """Say whether it is open, or what became of it."""
    if one.is_open:
        return f"{screen.glyph(ASKING)} open"
    # Whoever answered is known at once; the answer, when the workflow has read it.
    answer = one.chosen or one.message or ("answered" if one.by else None)
    return f"{screen.glyph(HELD)} closed" if answer is None else f"{screen.glyph(COMPLETED)} {safe(answer)}"
