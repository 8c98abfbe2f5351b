"""Templates and schedules as programs read them, and the fires to come."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.engine.views.projection import fill, preview, shown
from holdfast.model.schedules import Schedule
from holdfast.model.templates import Template
from holdfast.model.times import Timestamp
from holdfast.rules.schedules.next_fire import Preview


class FireToCome(msgspec.Struct, frozen=True):
    """One nominal fire: in UTC, in the schedule's zone, and what is odd about it."""

    fire_at: Timestamp
    local: str
    note: str


TemplateRow = shown("TemplateRow", Template, without=("default_params",), preview=str)
FullTemplate = shown("FullTemplate", Template)
ScheduleRow = shown("ScheduleRow", Schedule, without=("param_overrides",), preview=str)
#: `last_instance`: what a schedule of a workflow began last.
FullSchedule = shown("FullSchedule", Schedule, last_instance=str | None, preview=list[FireToCome])


def template_row(template: Template) -> Any:
    """Give a template as a list shows it."""
    return fill(TemplateRow, template, preview=preview(template.default_params))


def full_template(template: Template) -> Any:
    """Give a template with every field."""
    return fill(FullTemplate, template)


def schedule_row(schedule: Schedule) -> Any:
    """Give a schedule as a list shows it."""
    return fill(ScheduleRow, schedule, preview=preview(schedule.param_overrides))


def full_schedule(schedule: Schedule, last_instance: str | None, fires: list[Preview]) -> Any:
    """Give a schedule with every field, and its next fires."""
    return fill(FullSchedule, schedule, last_instance=last_instance, preview=[fire_to_come(fire) for fire in fires])


def fire_to_come(fire: Preview) -> FireToCome:
    """Give one fire to come."""
    return FireToCome(fire.fire_at, fire.local.isoformat(), fire.note)
