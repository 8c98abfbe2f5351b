"""Definitions of schedules: what may be one. Each is checked whole before anything changes."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.errors import InvalidValue
from holdfast.model.outcomes import Refusal, refuse
from holdfast.model.payloads import MAX_INLINE, ref_in
from holdfast.model.schedules import CatchUp, Overlap, Schedule
from holdfast.rules.field_checks import (
    MAX_DURATION_S,
    Problem,
    check_between,
    check_duration,
    check_queue,
    check_time,
)
from holdfast.rules.schedules.cron import parse_cron
from holdfast.rules.schedules.fire_times import parse_zone
from holdfast.rules.schedules.templates import find_template, option_problems
from holdfast.rules.state import State
from holdfast.rules.validation import name_problems


def fault_in(state: State, schedule: Schedule) -> Refusal | None:
    """Say what is wrong with a definition, or None."""
    fault = fault_in_itself(schedule)
    if fault is not None or schedule.template_id is None:
        return fault
    template = find_template(state, schedule.template_id)
    if isinstance(template, Refusal):
        return template
    if template.namespace != schedule.namespace:
        message = f"template {template.name} belongs to another namespace. Nothing was changed."
        return refuse(InvalidValue, message, field="template_id")
    return None


def fault_in_itself(schedule: Schedule) -> Refusal | None:
    """Say what is wrong with a definition, whatever there is beside it, or None."""
    for field, complaint in _problems(schedule):
        return refuse(InvalidValue, f"{field}: {complaint}. Nothing was changed.", field=field)
    try:
        parse_zone(schedule.timezone)
        if schedule.cron_expression is not None:
            parse_cron(schedule.cron_expression)
    except InvalidValue as problem:
        message = f"{problem.message} Nothing was changed."
        return refuse(InvalidValue, message, hint=problem.hint or "", **problem.facts)
    return None


def _problems(schedule: Schedule) -> Iterator[Problem]:
    yield from name_problems("name", schedule.name)
    if schedule.namespace:
        yield from name_problems("namespace", schedule.namespace)
    if sum(target is not None for target in (schedule.template_id, schedule.job_type, schedule.workflow)) != 1:
        yield "target", "name one task, one template or one workflow"
    if schedule.job_type is not None:
        yield from name_problems("job_type", schedule.job_type)
    if schedule.workflow is not None:
        yield from _workflow_problems(schedule, schedule.workflow)
    kinds = (schedule.cron_expression, schedule.interval_s, schedule.run_at)
    if sum(kind is not None for kind in kinds) != 1:
        yield "cron_expression", "give a cron expression, an interval or one time, and only one of them"
    if schedule.interval_s is not None:
        yield from check_between("interval_s", schedule.interval_s, 1, MAX_DURATION_S)
    yield from check_time("run_at", schedule.run_at)
    yield from check_time("start_at", schedule.start_at)
    yield from check_time("end_at", schedule.end_at)
    if schedule.start_at is not None and schedule.end_at is not None and schedule.start_at >= schedule.end_at:
        yield "end_at", f"{schedule.end_at} is not later than start_at"
    if schedule.queue is not None:
        yield from check_queue("", schedule.queue)
    if schedule.priority is not None:
        yield from check_between("priority", schedule.priority, -100, 100)
    yield from check_duration("grace_s", schedule.grace_s)
    yield from check_duration("jitter_s", schedule.jitter_s)
    yield from check_duration("catch_up_window_s", schedule.catch_up_window_s)
    if schedule.overlap is Overlap.SKIP and schedule.catch_up is CatchUp.ALL:
        yield "overlap", "skip would skip all but one of the fires that catch_up 'all' makes up for"
    yield from option_problems(schedule.options, schedule.namespace)


def _workflow_problems(schedule: Schedule, workflow: str) -> Iterator[Problem]:
    """Check what begins instances: they are no jobs, belong to no namespace, and carry their input with them."""
    yield from name_problems("workflow", workflow)
    if schedule.namespace:
        yield "namespace", "workflows belong to no namespace"
    if schedule.queue is not None:
        yield "queue", "an instance of a workflow stands in no queue"
    if schedule.priority is not None:
        yield "priority", "an instance of a workflow has no priority"
    if schedule.options.given():
        yield "options", "an instance of a workflow takes no options of jobs"
    if ref_in(schedule.param_overrides) is not None:
        yield "params", f"for a workflow they have at most {MAX_INLINE:,} bytes"
