"""Schedules: made, edited, paused, resumed, reset and removed. When they fire is `timetable`'s, what then `fire`'s.

What may be one is told by `definitions`; one that would never fire is refused. Whoever edits its times makes it fire
from now on; what passed while it was paused is not missed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.errors import IdReused, InvalidOperation, InvalidValue, ScheduleNotFound
from holdfast.model.commands import (
    DeleteSchedule,
    PauseSchedule,
    PutSchedule,
    Replan,
    ResetSchedule,
    ResumeSchedule,
    UpdateSchedule,
)
from holdfast.model.events import (
    ScheduleCreated,
    ScheduleDeleted,
    SchedulePaused,
    ScheduleResumed,
    ScheduleUpdated,
)
from holdfast.model.outcomes import Done, Saved
from holdfast.model.payloads import EMPTY, NULL, shorten_error
from holdfast.model.schedules import NewSchedule, Schedule, ScheduleChanges
from holdfast.model.times import Timestamp
from holdfast.rules.decision import Decision, answer, deny
from holdfast.rules.random_source import Draws
from holdfast.rules.schedules.next_fire import Planned, after_a_pause, begun_ahead, plan
from holdfast.rules.schedules.templates import stale
from holdfast.rules.schedules.validation import fault_in
from holdfast.rules.state import State

replace = msgspec.structs.replace

#: Fields that say when it fires.
_TIMES = frozenset({"cron_expression", "interval_s", "run_at", "timezone", "start_at", "end_at", "jitter_s"})
_NOWHEN = Planned(None, None)


# --- refusals ---------------------------------------------------------------------------------------------------------


def _never(schedule: Schedule) -> Decision:
    hint = "It may lie in the past, or there is no fire between its start and its end."
    message = f"schedule {schedule.name} would never fire. Nothing was changed."
    return deny(InvalidValue, message, hint=hint, field="end_at" if schedule.run_at is None else "run_at")


def missing(schedule_id: str) -> Decision:
    """Refuse what names no schedule."""
    return deny(ScheduleNotFound, f"there is no schedule {schedule_id}. Nothing was changed.", schedule_id=schedule_id)


# --- making and editing -----------------------------------------------------------------------------------------------


def decide_put_schedule(state: State, command: PutSchedule, now: Timestamp, draws: Draws) -> Decision:
    """Make a schedule, or give the one of that name another content."""
    new = command.schedule
    found = state.by_name(Schedule, new.namespace, new.name)
    if found is not None and command.replace:
        return _edit(state, found, _differences(found, new), command, now=now, draws=draws)
    same_id = state.get(Schedule, command.schedule_id)
    if same_id is not None:
        if same_id == found:
            return answer(Saved(id=same_id.schedule_id, version=1, created=True))  # sent again
        message = f"schedule {same_id.schedule_id} exists already, with another name. Nothing was changed."
        return deny(IdReused, message, schedule_id=same_id.schedule_id)
    if found is not None:
        return _taken(found)
    schedule = Schedule(schedule_id=command.schedule_id, created_at=now, **_content(new))
    fault = fault_in(state, schedule)
    if fault is not None:
        return answer(fault)
    planned = plan(schedule, now, draws.fraction())
    if planned.fire_at is None:
        return _never(schedule)
    schedule = replace(schedule, next_fire_at=planned.fire_at, next_trigger_at=planned.trigger_at)
    event = ScheduleCreated(schedule=schedule, cmd=command.cmd, actor=command.actor)
    return answer(Saved(id=schedule.schedule_id, version=1, created=True), event)


def _taken(found: Schedule) -> Decision:
    message = f"a schedule {found.name} exists already. Nothing was changed."
    hint = "Update it, or choose another name."
    return deny(InvalidOperation, message, hint=hint, schedule_id=found.schedule_id)


def _content(new: NewSchedule) -> dict[str, Any]:
    fields = msgspec.structs.asdict(new)
    if fields["param_overrides"] == EMPTY:
        fields["param_overrides"] = NULL
    return fields


def _differences(found: Schedule, new: NewSchedule) -> ScheduleChanges:
    """Give what must change so that a schedule is what it is asked to be."""
    fields = {name: value for name, value in _content(new).items() if getattr(found, name) != value}
    if fields.get("param_overrides") == NULL:
        fields["param_overrides"] = EMPTY
    return ScheduleChanges(**fields)


def decide_update_schedule(state: State, command: UpdateSchedule, now: Timestamp, draws: Draws) -> Decision:
    """Edit a schedule, if it still is what was read."""
    schedule = state.get(Schedule, command.schedule_id)
    if schedule is None:
        return missing(command.schedule_id)
    if command.version not in (None, schedule.version):
        return stale("schedule", schedule.name, schedule.version, command.version)
    return _edit(state, schedule, command.changes, command, now=now, draws=draws)


def _edit(
    state: State,
    schedule: Schedule,
    changes: ScheduleChanges,
    command: PutSchedule | UpdateSchedule,
    *,
    now: Timestamp,
    draws: Draws,
) -> Decision:
    given: dict[str, Any] = changes.given()
    if given.get("param_overrides") == EMPTY:
        given["param_overrides"] = NULL
    edited = replace(schedule, **given)
    if edited == schedule:
        return answer(Saved(id=schedule.schedule_id, version=schedule.version))
    if edited.name != schedule.name:
        if schedule.source == "code":
            message = f"schedule {schedule.name} is declared in code, which would make it again. Nothing was changed."
            return deny(InvalidOperation, message, hint="Rename it there.", schedule_id=schedule.schedule_id)
        other = state.by_name(Schedule, schedule.namespace, edited.name)
        if other is not None:
            return _taken(other)
    fault = fault_in(state, edited)
    if fault is not None:
        return answer(fault)
    retimed = any(getattr(edited, name) != getattr(schedule, name) for name in _TIMES)
    # A one-off that is over was disabled by itself; with a new time it goes on.
    revived = retimed and not schedule.enabled and schedule.run_at is not None and _is_over(schedule)
    if (edited.enabled or revived) and retimed:
        planned = plan(edited, after_a_pause(edited, now), draws.fraction())
        if planned.fire_at is None:
            return _never(edited)
    else:
        planned = Planned(schedule.next_fire_at, schedule.next_trigger_at)
    event = ScheduleUpdated(
        schedule_id=schedule.schedule_id,
        version=schedule.version + 1,
        next_fire_at=planned.fire_at,
        next_trigger_at=planned.trigger_at,
        changes=changes,
        enabled=True if revived else msgspec.UNSET,
        cmd=command.cmd,
        actor=command.actor,
    )
    return answer(Saved(id=schedule.schedule_id, version=event.version), event)


def _is_over(one_off: Schedule) -> bool:
    return one_off.pause_reason is None and one_off.fires + one_off.missed > 0


# --- pausing ----------------------------------------------------------------------------------------------------------


def decide_pause_schedule(state: State, command: PauseSchedule) -> Decision:
    """Fire no more; jobs that were made go on."""
    schedule = state.get(Schedule, command.schedule_id)
    if schedule is None:
        return missing(command.schedule_id)
    reason = shorten_error(command.reason)
    if not schedule.enabled and schedule.pause_reason == (reason or None):
        return answer(Saved(id=schedule.schedule_id, version=schedule.version))
    event = SchedulePaused(
        schedule_id=schedule.schedule_id,
        version=schedule.version + 1,
        reason=reason,
        cmd=command.cmd,
        actor=command.actor,
    )
    return answer(Saved(id=schedule.schedule_id, version=event.version), event)


def decide_resume_schedule(state: State, command: ResumeSchedule, now: Timestamp, draws: Draws) -> Decision:
    """Fire again, from now on."""
    schedule = state.get(Schedule, command.schedule_id)
    if schedule is None:
        return missing(command.schedule_id)
    if schedule.enabled:
        return answer(Saved(id=schedule.schedule_id, version=schedule.version))
    fault = fault_in(state, schedule)
    if fault is not None:
        return answer(fault)
    planned = plan(schedule, after_a_pause(schedule, now), draws.fraction())
    if planned.fire_at is None:
        return _never(schedule)
    event = ScheduleResumed(
        schedule_id=schedule.schedule_id,
        version=schedule.version + 1,
        next_fire_at=planned.fire_at,
        next_trigger_at=planned.trigger_at,
        cmd=command.cmd,
        actor=command.actor,
    )
    return answer(Saved(id=schedule.schedule_id, version=event.version), event)


# --- planning anew ----------------------------------------------------------------------------------------------------


def decide_reset(state: State, command: ResetSchedule, now: Timestamp, draws: Draws) -> Decision:
    """Plan from now on, and forget the last fire if it lies in the future. A time that made its job makes no other."""
    schedule = state.get(Schedule, command.schedule_id)
    if schedule is None:
        return missing(command.schedule_id)
    begin = begun_ahead(schedule, now)
    changes = ScheduleChanges() if begin is None else ScheduleChanges(start_at=begin)
    edited = replace(schedule, **changes.given())
    planned = plan(edited, now, draws.fraction()) if schedule.enabled else _NOWHEN
    ahead = schedule.last_fire_at is not None and schedule.last_fire_at > now
    if not ahead and begin is None and planned.fire_at == schedule.next_fire_at:
        return answer(Saved(id=schedule.schedule_id, version=schedule.version))
    event = ScheduleUpdated(
        schedule_id=schedule.schedule_id,
        version=schedule.version + 1,
        next_fire_at=planned.fire_at,
        next_trigger_at=planned.trigger_at,
        changes=changes,
        is_reset=ahead,
        cmd=command.cmd,
        actor=command.actor,
    )
    return answer(Saved(id=schedule.schedule_id, version=event.version), event)


def decide_replan(state: State, command: Replan, now: Timestamp, draws: Draws) -> Decision:
    """Correct a fire that lies in the future, if the rules of its zone have changed since it was planned."""
    schedule = state.get(Schedule, command.schedule_id)
    if schedule is None or schedule.next_fire_at != command.expected or command.expected <= now:
        return answer(Done())
    planned = plan(schedule, after_a_pause(schedule, now), draws.fraction())
    if planned.fire_at == schedule.next_fire_at:
        return answer(Done())
    event = ScheduleUpdated(
        schedule_id=schedule.schedule_id,
        version=schedule.version,
        next_fire_at=planned.fire_at,
        next_trigger_at=planned.trigger_at,
        cmd=command.cmd,
        actor=command.actor,
    )
    return answer(Done(), event)


def decide_delete_schedule(state: State, command: DeleteSchedule) -> Decision:
    """Remove a schedule; jobs that were made go on."""
    if state.get(Schedule, command.schedule_id) is None:
        return missing(command.schedule_id)
    event = ScheduleDeleted(schedule_id=command.schedule_id, cmd=command.cmd, actor=command.actor)
    return answer(Done(), event)
