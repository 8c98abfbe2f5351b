"""Firing: the jobs a schedule makes, or the instances it begins.

By its timetable, by a person's wish, or for times of the past.

What a nominal time makes has an id made from the schedule, the time and the backfill, so that a time makes one job
however many ask for it. Values are copied into the job: a later edit of schedule or template does not reach it.
"""

from __future__ import annotations

from itertools import islice, takewhile

import msgspec

from holdfast.errors import IdReused, InvalidValue
from holdfast.model.commands import Backfill, Fire, Trigger
from holdfast.model.events import Event, JobCreated, JobSkipped, ScheduleFired, ScheduleMissed, SchedulePaused
from holdfast.model.ids import JobId, RunId
from holdfast.model.jobs import Job
from holdfast.model.outcomes import Backfilled, Enqueued, Fired, Refusal, Submitted
from holdfast.model.payloads import NULL, laid_over
from holdfast.model.schedules import Overlap, Schedule
from holdfast.model.templates import Template
from holdfast.model.times import Timestamp, later
from holdfast.model.workflows.instances import Instance
from holdfast.rules.decision import Decision, answer, deny
from holdfast.rules.jobs.enqueue import Drafts, draft
from holdfast.rules.random_source import Draws
from holdfast.rules.schedules.commands import missing
from holdfast.rules.schedules.next_fire import Planned, due, how_many, nominal, plan
from holdfast.rules.schedules.overlaps import Beginnings, fire_id
from holdfast.rules.schedules.templates import find_template, new_job
from holdfast.rules.state import State
from holdfast.rules.workflows.start import taken

replace = msgspec.structs.replace

#: Times one backfill may cover.
MAX_BACKFILL = 10_000


def _job(drafts: Drafts, schedule: Schedule, job_id: JobId, params: msgspec.Raw = NULL) -> Job:
    """Give a job of the schedule, with everything copied that its target and itself say now."""
    template = None if schedule.template_id is None else drafts.state.get(Template, schedule.template_id)
    options = schedule.options.given()
    if template is not None:
        options = {**template.options.given(), **options}
    if schedule.queue is not None:
        options["queue"] = schedule.queue
    if schedule.priority is not None:
        options["priority"] = schedule.priority
    job_type = schedule.job_type if template is None else template.job_type
    assert job_type is not None
    defaults = NULL if template is None else template.default_params
    laid = laid_over(defaults, schedule.param_overrides, params)
    job = draft(drafts, new_job(job_id, job_type, schedule.namespace, laid, options))
    return replace(
        job,
        template_id=schedule.template_id,
        schedule_id=schedule.schedule_id,
        overlap=schedule.overlap.value,
    )


def _is_there(state: State, schedule: Schedule, made: JobId) -> bool:
    """Tell whether a nominal time, or a wish, has its job, or its instance."""
    return state.get(Job, made) is not None if schedule.workflow is None else taken(state, made) is not None


def _closed(state: State, schedule: Schedule) -> Refusal | None:
    """Say why the target makes no jobs any more, or None."""
    if schedule.template_id is None:
        return None
    found = find_template(state, schedule.template_id)
    return found if isinstance(found, Refusal) else None


# --- by the timetable -------------------------------------------------------------------------------------------------


def decide_fire(state: State, command: Fire, now: Timestamp, draws: Draws) -> Decision:
    """Do what is due of a schedule: make jobs, count what was missed, plan the next fire."""
    schedule = state.get(Schedule, command.schedule_id)
    if schedule is None:
        return missing(command.schedule_id)
    if schedule.next_fire_at != command.expected:
        # Somebody was faster.
        made = fire_id(schedule.schedule_id, command.expected)
        return answer(Fired(jobs=(Submitted(made, created=False),) if _is_there(state, schedule, made) else ()))
    try:
        found = due(schedule, now)
        if found is None:
            return answer(Fired())
        planned = plan(schedule, found.until, draws.fraction())
    except InvalidValue as problem:
        return _set_aside(schedule, command, problem)
    plans = [*(Planned(fire, fire) for fire in found.fires), planned]
    is_once = schedule.run_at is not None
    events: list[Event] = []
    jobs: list[Submitted] = []
    if found.missed:
        missed = ScheduleMissed(
            schedule_id=schedule.schedule_id,
            count=found.missed,
            until=found.until,
            next_fire_at=plans[0].fire_at,
            next_trigger_at=plans[0].trigger_at,
            is_last=is_once and not found.fires,
            cmd=command.cmd,
        )
        events.append(missed)
    drafts = Drafts(state, command, now)
    begins = Beginnings(state, schedule, command, now)
    for fire_at, following in zip(found.fires, plans[1:], strict=True):
        job_id = fire_id(schedule.schedule_id, fire_at)
        fired = ScheduleFired(
            schedule_id=schedule.schedule_id,
            fire_at=fire_at,
            job_id=job_id,
            next_fire_at=following.fire_at,
            next_trigger_at=following.trigger_at,
            is_last=is_once,
            cmd=command.cmd,
        )
        if _is_there(state, schedule, job_id):
            events.append(fired)
            jobs.append(Submitted(job_id, created=False))
        elif schedule.workflow is not None and (active := begins.must_not_meet()) is not None:
            events.append(replace(fired, skipped_for=active))
        else:
            events.append(fired)
            events += _made(drafts, schedule, fired, draws) if schedule.workflow is None else begins.begin(job_id)
            jobs.append(Submitted(job_id, created=True))
    return answer(Fired(jobs=tuple(jobs), missed=found.missed), *events)


def _set_aside(schedule: Schedule, command: Fire, problem: InvalidValue) -> Decision:
    """Pause what was right once and cannot be planned now, as when its zone is gone; it would be due for ever."""
    paused = SchedulePaused(
        schedule_id=schedule.schedule_id,
        version=schedule.version + 1,
        reason=f"it cannot be planned: {problem.message}",
        cmd=command.cmd,
    )
    return answer(Fired(), paused)


def _made(drafts: Drafts, schedule: Schedule, fired: ScheduleFired, draws: Draws) -> list[Event]:
    """Make the job of a fire; where another one of the schedule is not over and must not be met, skip it at once."""
    job = replace(_job(drafts, schedule, fired.job_id), fire_at=fired.fire_at)
    created = JobCreated(job=job, cmd=fired.cmd)
    active = drafts.state.active_of(schedule.schedule_id) if schedule.overlap is Overlap.SKIP else None
    if active is None:
        return [created]
    run_id = RunId(draws.new_id())
    return [
        created,
        JobSkipped(job_id=job.job_id, run_id=run_id, reason="overlap", held_by=active, cmd=fired.cmd),
    ]


# --- by a wish --------------------------------------------------------------------------------------------------------


def decide_trigger(state: State, command: Trigger, now: Timestamp) -> Decision:
    """Make a job now, whether the schedule is paused or not. Nobody who asks for it wants it skipped."""
    schedule = state.get(Schedule, command.schedule_id)
    if schedule is None:
        return missing(command.schedule_id)
    if _is_there(state, schedule, command.job_id):
        if _is_triggered(state, schedule, command.job_id):
            return answer(Enqueued(jobs=(Submitted(command.job_id, created=False),)))
        what = "job" if schedule.workflow is None else "instance"
        return deny(IdReused, f"{what} {command.job_id} exists already. Nothing was stored.", job_id=command.job_id)
    closed = _closed(state, schedule)
    if closed is not None:
        return answer(closed)
    if schedule.workflow is not None:
        begun = Beginnings(state, schedule, command, now).begin(command.job_id, params=command.params)
        return answer(Enqueued(jobs=(Submitted(command.job_id, created=True),)), *begun)
    job = _job(Drafts(state, command, now), schedule, command.job_id, command.params)
    event = JobCreated(job=job, cmd=command.cmd, actor=command.actor)
    return answer(Enqueued(jobs=(Submitted(job.job_id, created=True),)), event)


def _is_triggered(state: State, schedule: Schedule, made: JobId) -> bool:
    """Tell whether what is there was made by an earlier sending of the same wish."""
    job = state.get(Job, made)
    if job is not None:
        return job.schedule_id == schedule.schedule_id and job.fire_at is None
    instance = state.get(Instance, made)
    owners = [message.schedule_id for message in state.beginnings(made)] if instance is None else [instance.schedule_id]
    return schedule.schedule_id in owners


def backfill_size(schedule: Schedule, since: Timestamp, until: Timestamp) -> int:
    """Count the nominal times in [since, until). Raises InvalidValue for more than one backfill takes."""
    count = how_many(schedule, since, until, MAX_BACKFILL)
    if count > MAX_BACKFILL:
        raise InvalidValue(
            f"between {since} and {until} there are more than {MAX_BACKFILL:,} fires. Nothing was changed.",
            hint="Backfill it in parts.",
            field="until",
        )
    return count


def decide_backfill(state: State, command: Backfill, now: Timestamp) -> Decision:
    """Make the jobs of times of the past, oldest first. They take turns, unless overlap is allowed."""
    schedule = state.get(Schedule, command.schedule_id)
    if schedule is None:
        return missing(command.schedule_id)
    closed = _closed(state, schedule)
    if closed is not None:
        return answer(closed)
    if command.until > now or command.since >= command.until:
        message = f"{command.since} to {command.until} is no time of the past. Nothing was changed."
        return deny(InvalidValue, message, hint="Give a time, and a later one up to now.", field="until")
    try:
        backfill_size(schedule, command.since, command.until)
    except InvalidValue as problem:
        return deny(InvalidValue, problem.message, hint=problem.hint or "", **problem.facts)
    drafts = Drafts(state, command, now)
    overlap = Overlap.ALLOW if schedule.overlap is Overlap.ALLOW else Overlap.QUEUE
    walk = takewhile(lambda at: at < command.until, nominal(schedule, later(command.since, -1e-6)))
    begins = Beginnings(state, schedule, command, now)
    events: list[Event] = []
    count = 0
    for fire_at in islice(walk, command.limit):
        job_id = fire_id(schedule.schedule_id, fire_at, command.backfill_id)
        if _is_there(state, schedule, job_id):
            continue
        count += 1
        if schedule.workflow is not None:
            events += begins.begin(job_id, overlap=overlap)
        else:
            job = replace(
                _job(drafts, schedule, job_id),
                fire_at=fire_at,
                backfill_id=command.backfill_id,
                overlap=overlap.value,
            )
            events.append(JobCreated(job=job, cmd=command.cmd, actor=command.actor))
    return answer(Backfilled(count=count, next_since=next(walk, None)), *events)
