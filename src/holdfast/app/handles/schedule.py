"""Schedules: jobs, or instances of a workflow, again and again, declared by a call or by a task's decorator.

And the handle on one of them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import msgspec

from holdfast.app.handles.job import Job
from holdfast.app.handles.template import Template, demand_call, packed, standing_options
from holdfast.app.tasks.options import Seconds
from holdfast.app.tasks.signature_codec import SignatureCodec
from holdfast.app.tasks.task import Task
from holdfast.app.workflows.handle import Instance
from holdfast.engine.engine import Engine
from holdfast.errors import Forbidden, InvalidArguments, InvalidValue, ScheduleNotFound
from holdfast.model.commands import (
    Backfill,
    DeleteSchedule,
    PauseSchedule,
    PutSchedule,
    ResetSchedule,
    ResumeSchedule,
    Trigger,
    UpdateSchedule,
)
from holdfast.model.ids import JobId
from holdfast.model.outcomes import Backfilled, Saved
from holdfast.model.payloads import EMPTY, NULL, laid_over, pack
from holdfast.model.schedules import CatchUp, NewSchedule, Overlap, ScheduleChanges
from holdfast.model.schedules import Schedule as Record
from holdfast.model.templates import JobOptions
from holdfast.model.templates import Template as TemplateRecord
from holdfast.model.times import Timestamp
from holdfast.rules.schedules.cron import parse_cron
from holdfast.rules.schedules.fire import backfill_size
from holdfast.rules.schedules.fire_times import parse_zone, time_in
from holdfast.rules.schedules.next_fire import Preview, preview
from holdfast.rules.schedules.overlaps import latest_instance
from holdfast.workflows.api.definitions import Definition
from holdfast.workflows.api.workflow import Workflow

if TYPE_CHECKING:
    from typing import Unpack

    from holdfast.app.aio.schedules import AioSchedule
    from holdfast.app.application import Holdfast

log = logging.getLogger("holdfast.app.handles.schedule")

#: What a schedule makes jobs of: a task, the name of one that another program knows, or a template; or what it begins.
Target = Task[..., Any] | Template | Workflow[..., Any] | str


class ScheduleOptions(TypedDict, total=False):
    """What `hf.schedule(…)` takes; exactly one of the first three. `priority` and `queue` are for jobs only."""

    #: Five fields, a name such as `@daily`, or `@every 15m`.
    cron: str
    #: The time from one fire to the next.
    every: Seconds
    #: The one time; without zone it is local to `timezone`.
    at: datetime
    timezone: str
    #: Arguments by name.
    params: Mapping[str, Any]
    #: What becomes of fires nobody was there for.
    catch_up: Literal["none", "latest", "all"]
    #: How far back they are made up for.
    catch_up_window: Seconds | None
    #: A fire this late is still on time.
    grace: Seconds
    #: What becomes of a fire while a job of the schedule is not over.
    overlap: Literal["skip", "queue", "allow"]
    #: Each fire is put off by a random part of it.
    jitter: Seconds
    #: Fires lie from `start` on and before `end`; without zone they are local to `timezone`.
    start: datetime | None
    end: datetime | None
    priority: int | None
    queue: str | None


_KINDS = {"cron": "cron_expression", "every": "interval_s", "at": "run_at"}
_FIELDS = {
    **_KINDS,
    "catch_up_window": "catch_up_window_s",
    "grace": "grace_s",
    "jitter": "jitter_s",
    "start": "start_at",
    "end": "end_at",
}
_ENUMS: dict[str, type[CatchUp | Overlap]] = {"catch_up": CatchUp, "overlap": Overlap}


def _fields(options: ScheduleOptions, zone: str) -> dict[str, Any]:
    """Give options as fields of a schedule, parameters left out. Raises InvalidArguments, InvalidValue."""
    known = ScheduleOptions.__annotations__
    for name in options:
        if name not in known:
            message = f"a schedule has no option {name!r}. Nothing was changed."
            raise InvalidArguments(message, hint=f"There are: {', '.join(sorted(known))}.")
    zone = options.get("timezone", zone)
    return {_FIELDS.get(name, name): _value(name, value, zone) for name, value in options.items() if name != "params"}


def _value(name: str, value: Any, zone: str) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return time_in(value, zone, name)
    if name in _ENUMS:
        try:
            return _ENUMS[name](value)
        except ValueError:
            raise InvalidValue(f"{name}: {value!r} is not one of {', '.join(_ENUMS[name])}.", field=name) from None
    return value


def _aim(app: Holdfast, target: Target, params: Mapping[str, Any]) -> dict[str, Any]:
    """Give what a target means for a schedule: where its jobs come from, their options and parameters."""
    if isinstance(target, Template):
        made_from = target.record()
        fields, task, defaults = {"template_id": target.id}, made_from.job_type, made_from.default_params
    elif isinstance(target, str):
        fields, task, defaults = {"job_type": target}, target, NULL
    elif isinstance(target, Task):
        fields, task, defaults = {"job_type": target.name}, target.name, NULL
    elif isinstance(target, Workflow):
        given = packed_input(target.definition, params)
        target.definition.codec.unpack(laid_over(given))  # a call that is not whole is refused now, not each time
        return {"workflow": target.name, "param_overrides": given}
    else:
        raise InvalidValue(
            f"target: {target!r:.80} is no task, workflow, template or name of a task.",
            hint="Put @hf.task or @hf.workflow on the function.",
            field="target",
        )
    given = packed(app, task, params)
    demand_call(app, task, defaults, given)
    options = standing_options(target.chosen) if isinstance(target, Task) else JobOptions()
    return {**fields, "param_overrides": given, "options": options}


def packed_input(definition: Definition | None, params: Mapping[str, Any]) -> msgspec.Raw:
    """Give some arguments of a workflow as JSON, typed where it is known here. Raises InvalidArguments."""
    if not isinstance(params, Mapping):
        raise InvalidArguments(f"params: {params!r:.80} is no mapping of names to values. Nothing was changed.")
    codec = None if definition is None else definition.codec
    return codec.pack_some(params) if isinstance(codec, SignatureCodec) else pack(dict(params))


def declare(app: Holdfast, name: str, target: Target, options: ScheduleOptions) -> Schedule:
    """Make the schedule of that name, or give it this content; what is the same changes nothing."""
    fields = {**_aim(app, target, options.get("params", {})), **_fields(options, "UTC")}
    engine = app.engine
    new = NewSchedule(name=name, namespace=app.namespace, **fields)
    saved = engine.ask(PutSchedule(schedule_id=engine.new_id(), schedule=new, replace=True))
    assert isinstance(saved, Saved)
    return Schedule(app, saved.id, name)


def declared(task: Task[..., Any], namespace: str, cron: str, timezone: str) -> NewSchedule:
    """Give the schedule that a task's decorator declares.

    Raises InvalidValue for what is no expression or zone, InvalidArguments if the task needs arguments.
    """
    parse_cron(cron)
    parse_zone(timezone)
    task.codec.check(EMPTY)
    return NewSchedule(
        name=task.name,
        namespace=namespace,
        job_type=task.name,
        cron_expression=cron,
        timezone=timezone,
        options=standing_options(task.chosen),
        source="code",
    )


def synchronise(engine: Engine, declared: Sequence[NewSchedule]) -> None:
    """Make the schedules that code declares what it says they are. What is the same writes nothing.

    A coordinator lets only admins do that. Whoever works there with less leaves them as they are, and says so.
    """
    for new in declared:
        try:
            engine.ask(PutSchedule(schedule_id=engine.new_id(), schedule=new, replace=True))
        except Forbidden:
            log.warning("schedule.forbidden", extra={"schedule": new.name})


def report_undeclared(engine: Engine, namespace: str, declared: Sequence[NewSchedule]) -> list[str]:
    """Name the schedules that some code declared once and this code does not; they go on until someone removes them."""
    names = {new.name for new in declared}
    with engine.read() as view:
        left = [
            found.name
            for found in view.all(Record)
            if found.source == "code" and found.namespace == namespace and found.name not in names
        ]
    for name in left:
        log.warning("schedule.undeclared", extra={"schedule": name})
    return left


class Schedule:
    """A handle on one schedule."""

    def __init__(self, app: Holdfast, schedule_id: str, name: str) -> None:
        """Hold the schedule of that id."""
        self._app = app
        self.id = schedule_id
        self.name = name

    def __repr__(self) -> str:
        """Show the name."""
        return f"<Schedule {self.name}>"

    def record(self) -> Record:
        """Read it as it is now. Raises ScheduleNotFound."""
        with self._app.engine.read() as view:
            found = view.get(Record, self.id)
        if found is None:
            raise ScheduleNotFound(f"there is no schedule {self.name}.", schedule_id=self.id)
        return found

    def preview(self, n: int = 10, *, after: datetime | None = None) -> list[Preview]:
        """Give its next `n` nominal fires, in UTC and in local time, with a note where a day is odd."""
        record = self.record()
        start = None if after is None else time_in(after, record.timezone, "after")
        return preview(record, self._app.engine.look().now, n, start)

    def trigger(self, **params: Any) -> Job[Any] | Instance[Any]:
        """Make a job now, or begin an instance, beside its timetable; the arguments are laid over the schedule's."""
        engine, record = self._app.engine, self.record()
        if record.workflow is not None:
            return self._begin(record.workflow, params)
        task, defaults = self._target(record)
        given = packed(self._app, task, params)
        demand_call(self._app, task, defaults, record.param_overrides, given)
        job_id = JobId(engine.new_id())
        engine.ask(Trigger(schedule_id=self.id, job_id=job_id, params=given))
        return Job(self._app, job_id, self._app.codecs.get(task))

    def _begin(self, workflow: str, params: Mapping[str, Any]) -> Instance[Any]:
        engine, definition = self._app.engine, self._app.workflows.get(workflow)
        instance = JobId(engine.new_id())
        engine.ask(Trigger(schedule_id=self.id, job_id=instance, params=packed_input(definition, params)))
        return Instance(self._app, instance, definition)

    def latest(self) -> Instance[Any] | None:
        """Give the instance that its last fire began, else one that is not over; None if it begins no workflow."""
        record = self.record()
        with self._app.engine.read() as view:
            found = None if record.workflow is None else latest_instance(view, record)
        return None if found is None else self._app.instance(found)

    def _target(self, record: Record) -> tuple[str, msgspec.Raw]:
        """Give the task its jobs run, and what the template between them has for it."""
        if record.template_id is None:
            return record.job_type or "", NULL
        with self._app.engine.read() as view:
            template = view.get(TemplateRecord, record.template_id)
        assert template is not None  # a template is not deleted while a schedule uses it
        return template.job_type, template.default_params

    def backfill(self, start: datetime, end: datetime, *, id: str | None = None) -> int:  # noqa: A002 - the word of all handles
        """Make the jobs of nominal times from `start` on and before `end`; give how many were new.

        The same `id` again adds nothing, also after an interruption.
        """
        record = self.record()
        since, until = (time_in(when, record.timezone, "start, end") for when in (start, end))
        engine = self._app.engine
        return backfill(engine, record, since, until, engine.new_id() if id is None else id)

    def count(self, start: datetime, end: datetime) -> int:
        """Count the nominal times that a backfill would deal with."""
        record = self.record()
        since, until = (time_in(when, record.timezone, "start, end") for when in (start, end))
        return backfill_size(record, since, until)

    def update(self, *, version: int | None = None, **options: Unpack[ScheduleOptions]) -> None:
        """Change what is named. Raises VersionConflict if a `version` is given that is no longer the present one."""
        record = self.record()
        fields = _fields(options, record.timezone)
        for kind in _KINDS.values():
            if kind not in fields and any(name in options for name in _KINDS):
                fields[kind] = None
        if "params" in options and record.workflow is not None:
            fields["param_overrides"] = packed_input(self._app.workflows.get(record.workflow), options["params"])
        elif "params" in options:
            task, defaults = self._target(record)
            fields["param_overrides"] = given = packed(self._app, task, options["params"])
            demand_call(self._app, task, defaults, given)
        changes = ScheduleChanges(**fields)
        self._app.engine.ask(UpdateSchedule(schedule_id=self.id, changes=changes, version=version))

    def pause(self, reason: str = "") -> None:
        """Fire no more; jobs that were made go on."""
        self._app.engine.ask(PauseSchedule(schedule_id=self.id, reason=reason))

    def resume(self) -> None:
        """Fire again, from now on."""
        self._app.engine.ask(ResumeSchedule(schedule_id=self.id))

    def reset(self) -> None:
        """Plan the next fire from now on, after a clock that had run ahead."""
        self._app.engine.ask(ResetSchedule(schedule_id=self.id))

    def delete(self) -> None:
        """Remove it; its jobs stay."""
        self._app.engine.ask(DeleteSchedule(schedule_id=self.id))

    @property
    def aio(self) -> AioSchedule:
        """The same calls, to be awaited."""
        from holdfast.app.aio.schedules import AioSchedule  # noqa: PLC0415 - only programs that await pay for it

        return AioSchedule(self)


def backfill(
    engine: Engine, schedule: Record, since: Timestamp, until: Timestamp, backfill_id: str, *, actor: str = ""
) -> int:
    """Send a backfill until all is made; give how many jobs were new."""
    count = 0
    at: Timestamp | None = since
    while at is not None:
        command = Backfill(
            schedule_id=schedule.schedule_id, backfill_id=backfill_id, since=at, until=until, actor=actor
        )
        outcome = engine.ask(command)
        assert isinstance(outcome, Backfilled)
        count += outcome.count
        at = outcome.next_since
    return count
