"""`holdfast groups`: jobs that belong together, how far they are, and an end to them. They are made in Python."""

from __future__ import annotations

import click
import msgspec

from holdfast.cli.param_types import Word
from holdfast.cli.render import group_rows
from holdfast.cli.render.output import LIST_FORMS, output_for, output_options
from holdfast.cli.render.terminal import safe, say
from holdfast.cli.render.watch import Shown, WatchCommand, show, watch_option
from holdfast.cli.store_access.ids import find_group
from holdfast.cli.store_access.mutations import actor, confirm, dry_run_option, reason_option, yes_option
from holdfast.cli.store_access.target import now, store_options, target
from holdfast.cli.store_access.visibility import reasons_seen
from holdfast.engine.views.groups import full_group, group_row, last_members
from holdfast.model.commands import CancelGroup
from holdfast.model.groups import GroupStatus
from holdfast.model.outcomes import GroupCancelled, Refusal
from holdfast.stores.protocol import GroupQuery, Store, View

#: Members that a page shows unless told otherwise.
SHOWN = 50

_id = click.argument("group_id", metavar="ID")


@click.group()
def groups() -> None:
    """Look at jobs that belong together, cancel them.

    An ID may be shortened as long as it stays unambiguous.
    """


@groups.command(cls=WatchCommand)
@click.option("--status", type=Word(GroupStatus), help="Only these.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@watch_option
@output_options(*LIST_FORMS)
@store_options
def ls(*, status: GroupStatus | None, limit: int, watch: float | None, output: str) -> None:
    """List groups, newest first, each with how far it is."""
    place, out = target(), output_for(output)
    query = GroupQuery(namespace=place.name, status=status, limit=limit)

    def look(view: View, store: Store) -> Shown:
        del store
        found, at = view.groups(query), now()
        records = [msgspec.structs.asdict(group_row(group)) for group in found]
        return records, lambda: group_rows.group_table(found, at, out.screen)

    show(place, out, watch, look, key="group_id")


@groups.command("show", cls=WatchCommand)
@_id
@click.option("--limit", type=click.IntRange(0, 10_000), help=f"So many members; {SHOWN} on a page, all in JSON.")
@watch_option
@output_options("table", "json", "jsonl")
@store_options
def show_group(*, group_id: str, limit: int | None, watch: float | None, output: str) -> None:
    """Show a group: how far it is, and its members in their order, each by the last of its retries."""
    place, out = target(), output_for(output)
    most = limit if limit is not None else SHOWN if out.form == "table" else None

    def look(view: View, store: Store) -> Shown:
        at = now()
        group = find_group(view, place, group_id)
        reasons = reasons_seen(view, store, at)
        last = last_members(view, group.group_id)
        members = [(job, reasons.of(job)) for job in last[:most]]
        record = msgspec.structs.asdict(full_group(group, members))
        return [record], lambda: group_rows.group_page(group, members, at, out.screen)

    show(place, out, watch, look, key="group_id", one=True)


@groups.command()
@_id
@click.option("--running", is_flag=True, help="Ask the members that run to stop, too.")
@reason_option
@yes_option
@dry_run_option
@output_options("table", "json", "jsonl")
@store_options
def cancel(*, group_id: str, running: bool, reason: str, yes: bool, dry_run: bool, output: str) -> None:
    """End the members of a group that wait. Those that run go on, unless --running is given."""
    place, out = target(), output_for(output)
    with place.look() as view:
        group = find_group(view, place, group_id)
    if not dry_run:
        confirm("Cancel", [group.group_id], yes=yes, noun="group")
    command = CancelGroup(group_id=group.group_id, running=running, reason=reason, actor=actor())
    (outcome,) = place.send([command], dry_run=dry_run)
    if isinstance(outcome, Refusal):
        raise outcome.error()
    assert isinstance(outcome, GroupCancelled)
    record = {"group_id": group.group_id, "cancelled": outcome.cancelled, "requested": outcome.requested}
    told = f"{safe(group.group_id)}  {outcome.cancelled} cancelled, {outcome.requested} asked to stop"
    out.record({**record, **({"dry_run": True} if dry_run else {})}, lambda: [told])
    if dry_run:
        say("Nothing was changed: --dry-run.")
