"""`holdfast templates`: tasks with parameters and options under a name, and jobs made from them."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from holdfast.cli.param_types import Duration, Word, new_id, payload_of, tags_of
from holdfast.cli.render import schedule_rows
from holdfast.cli.render.output import LIST_FORMS, output_for, output_options
from holdfast.cli.render.terminal import safe
from holdfast.cli.render.watch import Shown, WatchCommand, show, watch_option
from holdfast.cli.store_access.ids import find_named
from holdfast.cli.store_access.mutations import actor, confirm, dry_run_option, send, tell_made, yes_option
from holdfast.cli.store_access.target import store_options, target
from holdfast.engine.views.schedules import full_template, template_row
from holdfast.model.commands import ArchiveTemplate, DeleteTemplate, PutTemplate, UseTemplate
from holdfast.model.ids import JobId
from holdfast.model.jobs import RetryMode
from holdfast.model.payloads import NULL
from holdfast.model.templates import JobOptions, NewTemplate, Template
from holdfast.stores.protocol import Store, View

_name = click.argument("name")


def _content(command: Any) -> Any:
    """Give a command the options that say what a template is."""
    options = (
        click.option("--params", metavar="JSON", help="Parameters, a JSON object; - reads stdin."),
        click.option("--description", help="What it is for."),
        click.option("--queue", help="Where its jobs wait."),
        click.option("--priority", type=int, help="-100 to 100, higher first."),
        click.option("--delay", "delay_s", type=Duration(), help="Not before so long from their creation."),
        click.option("--ttl", "ttl_s", type=Duration(), help="Skipped unless started within it."),
        click.option("--timeout", "timeout_s", type=Duration(), help="Longest single execution."),
        click.option("--lease", "lease_s", type=Duration(), help="Length of a lease."),
        click.option("--max-attempts", type=int, help="Executions that may report, in total."),
        click.option("--max-expiries", type=int, help="Lost leases after which a job is DEAD."),
        click.option("--retry", "retry_mode", type=Word(RetryMode), help="What an automatic retry does."),
        click.option("--limit-key", help="Jobs with the same limit key share its places."),
        click.option("--key-limit", type=int, help="How many places."),
        click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", help="May be given often."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _found(word: str) -> Template:
    place = target()
    with place.look() as view:
        return find_named(view, place, Template, word)


@click.group()
def templates() -> None:
    """Look at templates, make and change them, make jobs from them."""


@templates.command(cls=WatchCommand)
@watch_option
@output_options(*LIST_FORMS)
@store_options
def ls(*, watch: float | None, output: str) -> None:
    """List templates."""
    place, out = target(), output_for(output)

    def look(view: View, store: Store) -> Shown:
        del store
        found = sorted((one for one in view.all(Template) if one.namespace == place.name), key=lambda one: one.name)
        records = [msgspec.structs.asdict(template_row(one)) for one in found]
        return records, lambda: schedule_rows.template_table(found, out.screen)

    show(place, out, watch, look, key="name")


@templates.command("show", cls=WatchCommand)
@_name
@watch_option
@output_options("table", "json", "jsonl")
@store_options
def show_template(*, name: str, watch: float | None, output: str) -> None:
    """Show a template whole."""
    place, out = target(), output_for(output)

    def look(view: View, store: Store) -> Shown:
        del store
        found = find_named(view, place, Template, name)
        return [msgspec.structs.asdict(full_template(found))], lambda: schedule_rows.template_page(found)

    show(place, out, watch, look, key="name", one=True)


@templates.command()
@_name
@click.argument("task")
@_content
@dry_run_option
@store_options
def add(
    *,
    name: str,
    task: str,
    params: str | None,
    description: str | None,
    tags: tuple[str, ...],
    dry_run: bool,
    **chosen: Any,
) -> None:
    """Make a template of a task; the store is made if there is none."""
    new = NewTemplate(
        name=name,
        namespace=target().name,
        job_type=task,
        default_params=NULL if params is None else payload_of(params),
        options=JobOptions(**chosen, tags=tags_of(tags) or None),
        description=description,
    )
    command = PutTemplate(template_id=new_id(), template=new, actor=actor())
    send(command, f"template {safe(name)} is made", dry_run=dry_run, create=True)


@templates.command()
@_name
@click.option("--task", "job_type", help="Another task.")
@click.option("--if-version", "version", type=int, help="Only if it still has this version.")
@_content
@dry_run_option
@store_options
def update(
    *,
    name: str,
    job_type: str | None,
    version: int | None,
    params: str | None,
    description: str | None,
    tags: tuple[str, ...],
    dry_run: bool,
    **chosen: Any,
) -> None:
    """Change a template; what is not named stays, and jobs that were made are not touched."""
    found = _found(name)
    given = {field: value for field, value in chosen.items() if value is not None}
    if tags:
        given["tags"] = tags_of(tags)
    new = NewTemplate(
        name=found.name,
        namespace=found.namespace,
        job_type=job_type or found.job_type,
        default_params=found.default_params if params is None else payload_of(params),
        options=msgspec.structs.replace(found.options, **given),
        description=found.description if description is None else description,
    )
    # What was read above is what is changed, and nothing that came in between.
    command = PutTemplate(
        template_id=found.template_id,
        template=new,
        replace=True,
        version=found.version if version is None else version,
        actor=actor(),
    )
    send(command, f"template {safe(name)} is changed", dry_run=dry_run)


@templates.command()
@_name
@click.option("--params", metavar="JSON", help="Laid over the template's parameters; - reads stdin.")
@dry_run_option
@output_options("ids", "table", "json", "jsonl")
@store_options
def enqueue(*, name: str, params: str | None, dry_run: bool, output: str) -> None:
    """Make a job from a template; its id is printed when it is durable."""
    found, out = _found(name), output_for(output)
    job_id = JobId(new_id())
    laid = NULL if params is None else payload_of(params)
    command = UseTemplate(template_id=found.template_id, job_id=job_id, params=laid, actor=actor())
    send(command, f"template {safe(name)} was used", dry_run=dry_run)
    tell_made(out, job_id, dry_run=dry_run)


@templates.command()
@_name
@dry_run_option
@store_options
def archive(*, name: str, dry_run: bool) -> None:
    """Make no more jobs from a template, and pause its schedules."""
    command = ArchiveTemplate(template_id=_found(name).template_id, actor=actor())
    send(command, f"template {safe(name)} is archived", dry_run=dry_run)


@templates.command()
@_name
@yes_option
@dry_run_option
@store_options
def rm(*, name: str, yes: bool, dry_run: bool) -> None:
    """Remove a template that no schedule uses; jobs made from it stay."""
    found = _found(name)
    if not dry_run:
        confirm("Remove", [found.name], yes=yes, noun="template")
    command = DeleteTemplate(template_id=found.template_id, actor=actor())
    send(command, f"template {safe(name)} is gone", dry_run=dry_run)
