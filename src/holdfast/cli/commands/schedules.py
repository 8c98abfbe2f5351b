"""`holdfast schedules`: look at what runs by the clock, make it, change it, make up for it."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import Any

import click
import msgspec

from holdfast.app.handles.schedule import backfill as backfill_all
from holdfast.cli.param_types import Duration, OrNone, Word, new_id, payload_of
from holdfast.cli.render import schedule_rows
from holdfast.cli.render.output import LIST_FORMS, output_for, output_options
from holdfast.cli.render.terminal import safe, say
from holdfast.cli.render.watch import Shown, WatchCommand, show, watch_option
from holdfast.cli.store_access.ids import find_named
from holdfast.cli.store_access.mutations import (
    actor,
    confirm,
    dry_run_option,
    reason_option,
    send,
    tell_made,
    yes_option,
)
from holdfast.cli.store_access.target import now, store_options, target
from holdfast.engine.views.schedules import fire_to_come, full_schedule, schedule_row
from holdfast.errors import InvalidArguments, InvalidValue
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
from holdfast.model.payloads import NULL
from holdfast.model.schedules import CatchUp, NewSchedule, Overlap, Schedule, ScheduleChanges
from holdfast.model.templates import Template
from holdfast.model.times import Timestamp, later
from holdfast.rules.schedules.fire import backfill_size
from holdfast.rules.schedules.fire_times import time_in
from holdfast.rules.schedules.next_fire import nominal
from holdfast.rules.schedules.next_fire import preview as fires_to_come
from holdfast.rules.schedules.overlaps import latest_instance
from holdfast.rules.schedules.validation import fault_in_itself
from holdfast.stores.protocol import Store, View

_name = click.argument("name")
_LOCAL_HELP = "a time with its offset, or a local one of the schedule's zone"


def _times(command: Any) -> Any:
    """Give a command the options that say when a schedule fires."""
    options = (
        click.option("--cron", "cron_expression", help="Five fields, a name such as @daily, or '@every 15m'."),
        click.option("--every", "interval_s", type=Duration(), help="The time from one fire to the next."),
        click.option("--at", "run_at", metavar="TIME", help=f"The one time: {_LOCAL_HELP}."),
        click.option("--timezone", help="IANA name; by default UTC."),
        click.option("--start", "start_at", metavar="TIME|NONE", help=f"First possible fire: {_LOCAL_HELP}; or none."),
        click.option("--end", "end_at", metavar="TIME|NONE", help=f"No fire from then on: {_LOCAL_HELP}; or none."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _definition(command: Any) -> Any:
    """Give a command the options that say what a schedule is."""
    options = (
        click.option("--params", metavar="JSON", help="The task's parameters, a JSON object; - reads stdin."),
        click.option("--catch-up", type=Word(CatchUp), help="What becomes of fires nobody was there for."),
        click.option("--catch-up-window", "catch_up_window_s", type=OrNone(Duration()), help="How far back; or none."),
        click.option("--overlap", type=Word(Overlap), help="A fire while a job of the schedule is not over."),
        click.option("--grace", "grace_s", type=Duration(), help="A fire this late is still on time."),
        click.option("--jitter", "jitter_s", type=Duration(), help="Each fire is put off by a random part of it."),
        click.option("--queue", help="Where its jobs wait; or none for that of the task or template."),
        click.option("--priority", type=OrNone(click.INT), help="-100 to 100, higher first; or none."),
    )
    for option in reversed(options):
        command = option(command)
    return _times(command)


def _fields(chosen: dict[str, Any], zone: str) -> dict[str, Any]:
    """Give options as fields of a schedule; what was not given is left out."""
    zone = chosen.get("timezone") or zone
    fields: dict[str, Any] = {}
    for name, value in chosen.items():
        if value is None:
            continue
        if value == OrNone.WORD and name not in ("cron_expression", "timezone", "run_at"):
            fields[name] = None
        elif name in ("run_at", "start_at", "end_at"):
            fields[name] = _moment(f"--{name.removesuffix('_at').replace('run', 'at')}", value, zone)
        else:
            fields[name] = value
    return fields


def _moment(name: str, text: str, zone: str) -> Timestamp:
    try:
        return time_in(datetime.fromisoformat(text), zone, name)
    except InvalidValue:
        raise
    except ValueError:
        message = f"{name}: {text!r:.80} is no time such as 2026-01-06T10:15 or 2026-01-06T10:15:30Z."
        raise InvalidValue(f"{message} Nothing was changed.", field=name) from None


def _found(word: str) -> Schedule:
    place = target()
    with place.look() as view:
        return find_named(view, place, Schedule, word)


def _until_the_next_start(schedule: Schedule) -> str:
    """Say who has the last word."""
    return ", until the application starts again: its code declares it" if schedule.source == "code" else ""


def _template(word: str) -> str:
    place = target()
    with place.look() as view:
        return find_named(view, place, Template, word).template_id


def _template_names(view: View) -> dict[str, str]:
    return {template.template_id: template.name for template in view.all(Template)}


@click.group()
def schedules() -> None:
    """Look at what runs by the clock, make it, change it."""


# --- looking ----------------------------------------------------------------------------------------------------------


@schedules.command(cls=WatchCommand)
@watch_option
@output_options(*LIST_FORMS)
@store_options
def ls(*, watch: float | None, output: str) -> None:
    """List schedules with their next fire."""
    place, out = target(), output_for(output)

    def look(view: View, store: Store) -> Shown:
        del store
        found = sorted((one for one in view.all(Schedule) if one.namespace == place.name), key=lambda one: one.name)
        names = _template_names(view)
        records = [msgspec.structs.asdict(schedule_row(one)) for one in found]
        return records, lambda: schedule_rows.schedule_table(found, names, now(), out.screen)

    show(place, out, watch, look, key="name")


@schedules.command("show", cls=WatchCommand)
@_name
@watch_option
@output_options("table", "json", "jsonl")
@store_options
def show_schedule(*, name: str, watch: float | None, output: str) -> None:
    """Show a schedule whole, with its next fires."""
    place, out = target(), output_for(output)

    def look(view: View, store: Store) -> Shown:
        del store
        found, at = find_named(view, place, Schedule, name), now()
        fires = schedule_rows.to_come(found, at)
        names = _template_names(view)
        latest = None if found.workflow is None else latest_instance(view, found)
        record = msgspec.structs.asdict(full_schedule(found, latest, fires))
        return [record], lambda: schedule_rows.schedule_page(found, names, fires, at, out.screen, instance=latest)

    show(place, out, watch, look, key="name", one=True)


@schedules.command()
@click.argument("name", required=False)
@click.option("-n", "--count", "n", type=click.IntRange(1, 1000), default=10, show_default=True, help="So many fires.")
@click.option("--after", metavar="TIME", help=f"Only fires after this: {_LOCAL_HELP}.")
@_times
@output_options("table", "json", "jsonl")
@store_options
def preview(*, name: str | None, n: int, after: str | None, output: str, **chosen: Any) -> None:
    """Show the next fires of a schedule, as it is or with other times; without NAME of one that is not made yet."""
    out, at = output_for(output), now()
    new = Schedule(schedule_id="new", name="new", created_at=at, job_type="x")
    found = new if name is None else _found(name)
    fields = _fields(chosen, found.timezone)
    found = msgspec.structs.replace(found, **_exchanged(fields))
    fault = fault_in_itself(found)
    if fault is not None:
        raise fault.error()
    start = None if after is None else _moment("--after", after, found.timezone)
    fires = fires_to_come(found, at, n, start)
    records = [msgspec.structs.asdict(fire_to_come(fire)) for fire in fires]
    out.records(records, lambda: schedule_rows.preview_table(fires, out.screen), key="fire_at")


def _exchanged(fields: dict[str, Any]) -> dict[str, Any]:
    """Take the other kinds of time away if one is given."""
    kinds = ("cron_expression", "interval_s", "run_at")
    given = any(kind in fields for kind in kinds)
    return {**{kind: None for kind in kinds if given and kind not in fields}, **fields}


# --- making and changing ----------------------------------------------------------------------------------------------


@schedules.command()
@_name
@click.option("--task", "job_type", help="The task its jobs run.")
@click.option("--template", help="The template its jobs are made from.")
@click.option("--workflow", help="The workflow it begins instances of.")
@_definition
@dry_run_option
@store_options
def add(
    *,
    name: str,
    job_type: str | None,
    template: str | None,
    workflow: str | None,
    params: str | None,
    dry_run: bool,
    **chosen: Any,
) -> None:
    """Make a schedule of a --task, a --template or a --workflow, by --cron, --every or --at.

    The store is made if there is none.
    """
    place = target()
    fields = _fields(chosen, "UTC")
    if template is not None:
        fields["template_id"] = _template(template)
    new = NewSchedule(
        name=name,
        namespace=place.name,
        job_type=job_type,
        workflow=workflow,
        param_overrides=NULL if params is None else payload_of(params),
        **fields,
    )
    command = PutSchedule(schedule_id=new_id(), schedule=new, actor=actor())
    send(command, f"schedule {safe(name)} is made", dry_run=dry_run, create=True)


@schedules.command()
@_name
@click.option("--task", "job_type", help="The task its jobs run, instead of what they ran.")
@click.option("--template", help="The template its jobs are made from, instead of what they ran.")
@click.option("--workflow", help="The workflow it begins instances of, instead of what it did.")
@click.option("--rename", "new_name", metavar="NAME", help="Another name.")
@click.option("--if-version", "version", type=int, help="Only if it still has this version.")
@_definition
@dry_run_option
@store_options
def update(
    *,
    name: str,
    job_type: str | None,
    template: str | None,
    workflow: str | None,
    new_name: str | None,
    version: int | None,
    params: str | None,
    dry_run: bool,
    **chosen: Any,
) -> None:
    """Change a schedule; what is not named stays, jobs that were made are not touched. Other times count from now."""
    found = _found(name)
    fields = _exchanged(_fields(chosen, found.timezone))
    if params is not None:
        fields["param_overrides"] = payload_of(params)
    if any(other is not None for other in (job_type, template, workflow)):
        made_from = None if template is None else _template(template)
        fields |= {"job_type": job_type, "template_id": made_from, "workflow": workflow}
    if new_name is not None:
        fields["name"] = new_name
    if not fields:
        raise InvalidArguments("name at least one thing to change. Nothing was changed.")
    command = UpdateSchedule(
        schedule_id=found.schedule_id, changes=ScheduleChanges(**fields), version=version, actor=actor()
    )
    send(command, f"schedule {safe(name)} is changed{_until_the_next_start(found)}", dry_run=dry_run)


@schedules.command()
@_name
@click.option("--params", metavar="JSON", help="Laid over the schedule's parameters; - reads stdin.")
@dry_run_option
@output_options("ids", "table", "json", "jsonl")
@store_options
def trigger(*, name: str, params: str | None, dry_run: bool, output: str) -> None:
    """Make a job of a schedule, or begin an instance, now, beside its timetable; its id is printed."""
    found, out = _found(name), output_for(output)
    job_id = JobId(new_id())
    laid = NULL if params is None else payload_of(params)
    command = Trigger(schedule_id=found.schedule_id, job_id=job_id, params=laid, actor=actor())
    send(command, f"schedule {safe(name)} was triggered", dry_run=dry_run)
    tell_made(out, job_id, dry_run=dry_run)


@schedules.command()
@_name
@click.argument("since", metavar="FROM")
@click.argument("until", metavar="TO")
@click.option("--id", "backfill_id", help="Names the backfill: the same again adds nothing. By default a new one.")
@yes_option
@dry_run_option
@store_options
def backfill(*, name: str, since: str, until: str, backfill_id: str | None, yes: bool, dry_run: bool) -> None:
    """Make the jobs, or begin the instances, of nominal times in [FROM, TO), oldest first; how many is told first."""
    found = _found(name)
    start, end = _moment("FROM", since, found.timezone), _moment("TO", until, found.timezone)
    times = list(islice(nominal(found, later(start, -1e-6)), backfill_size(found, start, end)))
    say(f"{len(times)} fires of {safe(name)} between {start} and {end}")
    chosen = new_id() if backfill_id is None else backfill_id
    if dry_run:
        send(Backfill(schedule_id=found.schedule_id, backfill_id=chosen, since=start, until=end), "", dry_run=True)
        return
    confirm("Make the jobs of", times, yes=yes, noun="fire")
    with target().writing() as engine:
        count = backfill_all(engine, found, start, end, chosen, actor=actor())
    say(f"{count} jobs are made; --id {safe(chosen)}")


@schedules.command()
@_name
@reason_option
@dry_run_option
@store_options
def pause(*, name: str, reason: str, dry_run: bool) -> None:
    """Fire no more; jobs that were made go on."""
    command = PauseSchedule(schedule_id=_found(name).schedule_id, reason=reason, actor=actor())
    send(command, f"schedule {safe(name)} is paused", dry_run=dry_run)


@schedules.command()
@_name
@dry_run_option
@store_options
def resume(*, name: str, dry_run: bool) -> None:
    """Fire again, from now on; what passed meanwhile is not missed."""
    command = ResumeSchedule(schedule_id=_found(name).schedule_id, actor=actor())
    send(command, f"schedule {safe(name)} fires again", dry_run=dry_run)


@schedules.command()
@_name
@dry_run_option
@store_options
def reset(*, name: str, dry_run: bool) -> None:
    """Plan the next fire from now on, after a clock that had run ahead; a time that made its job makes no other."""
    command = ResetSchedule(schedule_id=_found(name).schedule_id, actor=actor())
    send(command, f"schedule {safe(name)} begins now", dry_run=dry_run)


@schedules.command()
@_name
@yes_option
@dry_run_option
@store_options
def rm(*, name: str, yes: bool, dry_run: bool) -> None:
    """Remove a schedule; its jobs stay."""
    found = _found(name)
    if not dry_run:
        confirm("Remove", [found.name], yes=yes, noun="schedule")
    command = DeleteSchedule(schedule_id=found.schedule_id, actor=actor())
    send(command, f"schedule {safe(name)} is gone{_until_the_next_start(found)}", dry_run=dry_run)
