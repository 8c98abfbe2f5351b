"""Fold of templates and schedules: what their events make of the records. The events say it all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.model import events as ev
from holdfast.model.payloads import EMPTY, NULL
from holdfast.model.schedules import Schedule
from holdfast.model.templates import Template
from holdfast.rules.fold_changes import Change, Stamp, contradiction, demand, put
from holdfast.rules.state import State

replace = msgspec.structs.replace


# --- templates --------------------------------------------------------------------------------------------------------


def _template(state: State, template_id: str, stamp: Stamp) -> Template:
    template = state.get(Template, template_id)
    if template is None:
        raise contradiction(stamp, f"there is no template {template_id}")
    return template


def _template_created(state: State, event: ev.TemplateCreated, stamp: Stamp) -> list[Change]:
    new = event.template
    demand(state.get(Template, new.template_id) is None, stamp, f"template {new.template_id} is created twice")
    return [put(new)]


def _template_updated(state: State, event: ev.TemplateUpdated, stamp: Stamp) -> list[Change]:
    template = _template(state, event.template_id, stamp)
    edited = replace(
        template,
        name=event.name,
        job_type=event.job_type,
        default_params=event.default_params,
        options=event.options,
        description=event.description,
        version=event.version,
        updated_at=stamp.ts,
    )
    return [put(edited)]


def _template_archived(state: State, event: ev.TemplateArchived, stamp: Stamp) -> list[Change]:
    template = _template(state, event.template_id, stamp)
    return [put(replace(template, archived_at=stamp.ts, version=event.version, updated_at=stamp.ts))]


def _template_deleted(state: State, event: ev.TemplateDeleted, stamp: Stamp) -> list[Change]:
    _template(state, event.template_id, stamp)
    return [Change(Template, event.template_id, None)]


# --- schedules --------------------------------------------------------------------------------------------------------


def _schedule(state: State, schedule_id: str, stamp: Stamp) -> Schedule:
    schedule = state.get(Schedule, schedule_id)
    if schedule is None:
        raise contradiction(stamp, f"there is no schedule {schedule_id}")
    return schedule


def _created(state: State, event: ev.ScheduleCreated, stamp: Stamp) -> list[Change]:
    new = event.schedule
    demand(state.get(Schedule, new.schedule_id) is None, stamp, f"schedule {new.schedule_id} is created twice")
    return [put(new)]


def _updated(state: State, event: ev.ScheduleUpdated, stamp: Stamp) -> list[Change]:
    schedule = _schedule(state, event.schedule_id, stamp)
    fields: dict[str, Any] = event.changes.given()
    if fields.get("param_overrides") == EMPTY:
        fields["param_overrides"] = NULL
    if event.enabled is not msgspec.UNSET:
        fields["enabled"] = event.enabled
    if event.is_reset:
        fields["last_fire_at"] = None
    edited = replace(
        schedule,
        **fields,
        version=event.version,
        next_fire_at=event.next_fire_at,
        next_trigger_at=event.next_trigger_at,
        updated_at=stamp.ts,
    )
    return [put(edited)]


def _fired(state: State, event: ev.ScheduleFired, stamp: Stamp) -> list[Change]:
    schedule = _schedule(state, event.schedule_id, stamp)
    last = schedule.last_fire_at
    demand(last is None or last < event.fire_at, stamp, f"schedule {schedule.schedule_id} fires backwards")
    fired = replace(
        schedule,
        last_fire_at=event.fire_at,
        last_triggered_at=stamp.ts,
        next_fire_at=event.next_fire_at,
        next_trigger_at=event.next_trigger_at,
        fires=schedule.fires + 1,
        enabled=schedule.enabled and not event.is_last,
    )
    return [put(fired)]


def _missed(state: State, event: ev.ScheduleMissed, stamp: Stamp) -> list[Change]:
    schedule = _schedule(state, event.schedule_id, stamp)
    passed = replace(
        schedule,
        next_fire_at=event.next_fire_at,
        next_trigger_at=event.next_trigger_at,
        missed=schedule.missed + event.count,
        enabled=schedule.enabled and not event.is_last,
    )
    return [put(passed)]


def _paused(state: State, event: ev.SchedulePaused, stamp: Stamp) -> list[Change]:
    schedule = _schedule(state, event.schedule_id, stamp)
    resting = replace(
        schedule,
        enabled=False,
        pause_reason=event.reason or None,
        next_fire_at=None,
        next_trigger_at=None,
        version=event.version,
        updated_at=stamp.ts,
    )
    return [put(resting)]


def _resumed(state: State, event: ev.ScheduleResumed, stamp: Stamp) -> list[Change]:
    schedule = _schedule(state, event.schedule_id, stamp)
    going = replace(
        schedule,
        enabled=True,
        pause_reason=None,
        next_fire_at=event.next_fire_at,
        next_trigger_at=event.next_trigger_at,
        version=event.version,
        updated_at=stamp.ts,
    )
    return [put(going)]


def _deleted(state: State, event: ev.ScheduleDeleted, stamp: Stamp) -> list[Change]:
    _schedule(state, event.schedule_id, stamp)
    return [Change(Schedule, event.schedule_id, None)]


SCHEDULE_FOLDS: dict[type[ev.Event], Callable[[State, Any, Stamp], list[Change]]] = {
    ev.TemplateCreated: _template_created,
    ev.TemplateUpdated: _template_updated,
    ev.TemplateArchived: _template_archived,
    ev.TemplateDeleted: _template_deleted,
    ev.ScheduleCreated: _created,
    ev.ScheduleUpdated: _updated,
    ev.ScheduleFired: _fired,
    ev.ScheduleMissed: _missed,
    ev.SchedulePaused: _paused,
    ev.ScheduleResumed: _resumed,
    ev.ScheduleDeleted: _deleted,
}
