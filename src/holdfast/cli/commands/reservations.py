"""`holdfast reservations`: who keeps which queue to himself, and an end to it. They are made in Python."""

from __future__ import annotations

from itertools import islice

import click

from holdfast.cli.render import reservation_rows
from holdfast.cli.render.output import LIST_FORMS, output_for, output_options
from holdfast.cli.render.terminal import safe, say
from holdfast.cli.render.watch import Shown, WatchCommand, show, watch_option
from holdfast.cli.store_access.ids import find_reservation
from holdfast.cli.store_access.mutations import actor, confirm, dry_run_option, yes_option
from holdfast.cli.store_access.target import now, store_options, target
from holdfast.engine.views.reservations import active, newest
from holdfast.model.commands import ReleaseReservation
from holdfast.model.outcomes import Refusal, Reserved
from holdfast.stores.protocol import Store, View


@click.group()
def reservations() -> None:
    """Look at who keeps a queue to himself, end it.

    An ID may be shortened as long as it stays unambiguous.
    """


@reservations.command(cls=WatchCommand)
@click.option("--all", "every", is_flag=True, help="Those that have ended, too, newest first.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@watch_option
@output_options(*LIST_FORMS)
@store_options
def ls(*, every: bool, limit: int, watch: float | None, output: str) -> None:
    """List the reservations that have not ended, by their expiry, each with its holder and what runs there."""
    place, out = target(), output_for(output)

    def look(view: View, store: Store) -> Shown:
        del store
        at = now()
        listed = newest(view) if every else active(view)
        mine = (one for one in listed if one.namespace == place.name)
        found = [reservation_rows.seen(view, one) for one in islice(mine, limit)]
        return [one.record(at) for one in found], lambda: reservation_rows.table(found, at, out.screen)

    show(place, out, watch, look, key="reservation_id")


@reservations.command()
@click.argument("reservation_id", metavar="ID")
@yes_option
@dry_run_option
@output_options("table", "json", "jsonl")
@store_options
def release(*, reservation_id: str, yes: bool, dry_run: bool, output: str) -> None:
    """End a reservation: its queue is dispatched again. What its holder runs directly goes on, and is waited for."""
    place, out = target(), output_for(output)
    with place.look() as view:
        found = find_reservation(view, place, reservation_id)
    if not dry_run:
        confirm("Release", [f"{found.queue}, held by {found.reserved_by}"], yes=yes, noun="queue")
    (outcome,) = place.send([ReleaseReservation(reservation_id=found.reservation_id, actor=actor())], dry_run=dry_run)
    if isinstance(outcome, Refusal):
        raise outcome.error()
    assert isinstance(outcome, Reserved)
    status = outcome.status.value
    record = {"reservation_id": found.reservation_id, "queue": found.queue, "status": status}
    told = f"{safe(found.reservation_id)}  {status}"
    out.record({**record, **({"dry_run": True} if dry_run else {})}, lambda: [told], key="reservation_id")
    if dry_run:
        say("Nothing was changed: --dry-run.")
