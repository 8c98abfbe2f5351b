"""Schedules and templates as people see them: a line each, or a page."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.cli.render.status_labels import DELAYED, HELD, READY, STUCK
from holdfast.cli.render.tables import Column, age, lines
from holdfast.cli.render.terminal import Screen, safe
from holdfast.errors import InvalidValue
from holdfast.model.schedules import Schedule
from holdfast.model.templates import Template
from holdfast.model.times import Timestamp, seconds_between
from holdfast.rules.schedules.next_fire import Preview, passes_over, preview

#: Fires that a page shows.
SHOWN = 5


def to_come(schedule: Schedule, now: Timestamp) -> list[Preview]:
    """Give the fires that a page shows; none of what is paused, or cannot be planned here."""
    try:
        return preview(schedule, now, SHOWN) if schedule.enabled else []
    except InvalidValue:  # the page says it above
        return []


def when(schedule: Schedule) -> str:
    """Say at which times a schedule fires."""
    if schedule.run_at is not None:
        return f"once at {schedule.run_at}"
    if schedule.interval_s is not None:
        return f"every {schedule.interval_s:g} s"
    return f"{schedule.cron_expression} ({schedule.timezone})"


def _target(schedule: Schedule, templates: dict[str, str]) -> str:
    if schedule.workflow is not None:
        return f"workflow {schedule.workflow}"
    if schedule.template_id is not None:
        return f"template {templates.get(schedule.template_id, schedule.template_id)}"
    return schedule.job_type or ""


def _state(schedule: Schedule, now: Timestamp, screen: Screen) -> str:
    if not schedule.enabled:
        if schedule.run_at is not None and schedule.fires + schedule.missed and schedule.pause_reason is None:
            return f"{screen.glyph(READY)} over"
        because = f": {schedule.pause_reason}" if schedule.pause_reason else ""
        return f"{screen.glyph(HELD)} {safe(f'paused{because}')}"
    try:
        silent = passes_over(schedule, now)
    except InvalidValue as problem:
        return f"{screen.glyph(STUCK)} {safe(f'cannot be planned: {problem.message}')}"
    if silent is not None:
        return f"{screen.glyph(STUCK)} the clock had run ahead, fires are passed over; see `schedules reset`"
    if schedule.next_trigger_at is None:
        return f"{screen.glyph(READY)} no fire left"
    left = seconds_between(now, schedule.next_trigger_at)
    said = f"next in {age(left)}" if left > 0 else f"due for {age(-left)}"
    return f"{screen.glyph(DELAYED)} {said}"


def schedule_table(
    schedules: Sequence[Schedule], templates: dict[str, str], now: Timestamp, screen: Screen
) -> list[str]:
    """Lay out schedules."""
    columns = (
        Column("NAME"),
        Column("TARGET"),
        Column("WHEN"),
        Column("NEXT", spare=True),
        Column("FIRES", right=True, spare=True),
        Column("MISSED", right=True, spare=True),
        Column("STATE"),
    )
    rows = [
        [
            safe(schedule.name),
            safe(_target(schedule, templates)),
            safe(when(schedule)),
            schedule.next_fire_at or "-",
            str(schedule.fires),
            str(schedule.missed),
            _state(schedule, now, screen),
        ]
        for schedule in schedules
    ]
    return lines(columns, rows, screen)


def schedule_page(
    schedule: Schedule,
    templates: dict[str, str],
    fires: Sequence[Preview],
    now: Timestamp,
    screen: Screen,
    *,
    instance: str | None = None,
) -> list[str]:
    """Show a schedule whole, with its next fires, and the instance it began last."""
    fields = {
        "id": schedule.schedule_id,
        "target": _target(schedule, templates),
        "when": when(schedule),
        "from": schedule.start_at,
        "until": schedule.end_at,
        "params": None if schedule.param_overrides == msgspec.Raw(b"null") else str(schedule.param_overrides, "utf-8"),
        "queue": schedule.queue,
        "priority": None if schedule.priority is None else str(schedule.priority),
        "catch-up": schedule.catch_up.value,
        "overlap": schedule.overlap.value,
        "grace": f"{schedule.grace_s:g} s",
        "jitter": f"{schedule.jitter_s:g} s" if schedule.jitter_s else None,
        "last fire": schedule.last_fire_at,
        "instance": None if instance is None else f"{instance}  (holdfast explain {instance})",
        "fired": f"{schedule.fires} times, {schedule.missed} missed",
        "declared": "in code" if schedule.source == "code" else None,
        "version": str(schedule.version),
    }
    head = f"{safe(schedule.name)}  {_state(schedule, now, screen)}"
    body = [f"  {name:<9}  {safe(value)}" for name, value in fields.items() if value is not None]
    return [head, *body, *(["", *preview_table(fires, screen)] if fires else [])]


def preview_table(fires: Sequence[Preview], screen: Screen) -> list[str]:
    """Lay out fires to come."""
    rows = [[fire.fire_at, f"{fire.local:%a %Y-%m-%d %H:%M:%S %Z}", fire.note] for fire in fires]
    return lines((Column("FIRES AT"), Column("LOCAL"), Column("NOTE")), rows, screen)


def template_table(templates: Sequence[Template], screen: Screen) -> list[str]:
    """Lay out templates."""
    columns = (Column("NAME"), Column("TASK"), Column("VERSION", right=True), Column("STATE"))
    rows = [
        [
            safe(template.name),
            safe(template.job_type),
            str(template.version),
            "open" if template.archived_at is None else f"archived at {template.archived_at}",
        ]
        for template in templates
    ]
    return lines(columns, rows, screen)


def template_page(template: Template) -> list[str]:
    """Show a template whole."""
    fields = {
        "id": template.template_id,
        "task": template.job_type,
        "params": str(template.default_params, "utf-8"),
        "options": msgspec.json.encode(template.options).decode(),
        "about": template.description,
        "version": str(template.version),
        "archived": template.archived_at,
    }
    body = [f"  {name:<9}  {safe(value)}" for name, value in fields.items() if value not in (None, "null", "{}")]
    return [safe(template.name), *body]
