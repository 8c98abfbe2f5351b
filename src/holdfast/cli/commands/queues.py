"""`holdfast queues`: how full they are, and whether anything is leased from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import click
import msgspec

from holdfast.cli.param_types import Duration, OrNone, Rate
from holdfast.cli.render import job_rows
from holdfast.cli.render.output import LIST_FORMS, output_for, output_options
from holdfast.cli.render.status_labels import HELD, READY
from holdfast.cli.render.tables import Column, lines
from holdfast.cli.render.terminal import Screen, safe
from holdfast.cli.render.watch import Shown, WatchCommand, show, watch_option
from holdfast.cli.store_access.mutations import actor, dry_run_option, reason_option, send
from holdfast.cli.store_access.target import now, store_options, target
from holdfast.cli.store_access.visibility import reasons_seen
from holdfast.engine.views.queues import HEAD, QueueRow, full_queue, listed_queue, queue_rows
from holdfast.errors import QueueNotFound
from holdfast.model.commands import Normalize, PauseQueue, ResumeQueue, SetQueue
from holdfast.model.events import QueueChanges
from holdfast.model.jobs import JobStatus
from holdfast.model.records import Queue, pair
from holdfast.model.retention import Retention
from holdfast.stores.protocol import Store, View


def queue_table(rows: list[QueueRow], screen: Screen) -> list[str]:
    """Lay out queues with their counts."""
    columns = (
        Column("QUEUE"),
        *(Column(status.value, right=True) for status in JobStatus),
        Column("STATE"),
    )
    return lines(columns, [_row(row, screen) for row in rows], screen)


def _row(row: QueueRow, screen: Screen) -> list[str]:
    name = f"{row.namespace}/{row.name}" if row.namespace else row.name
    held = list(_held(row))
    state = ", ".join((*(held or ["open"]), *_limits(row)))
    mark = (HELD if held else READY).glyph if screen.unicode else (HELD if held else READY).ascii
    return [safe(name), *(str(row.counts[status.value]) for status in JobStatus), f"{mark} {safe(state)}"]


def _held(row: QueueRow) -> Iterator[str]:
    """Say what keeps a queue from being leased from."""
    if row.paused:
        yield f"paused: {row.pause_reason}" if row.pause_reason else "paused"
    if row.reservation is not None:
        yield f"reserved by {row.reservation.reserved_by} until {row.reservation.expires_at}"
    elif row.direct is not None:
        yield f"job {row.direct} runs directly"


def _limits(row: QueueRow) -> Iterator[str]:
    """Say what limits a queue has."""
    if row.max_running is not None:
        yield f"{row.max_running} at a time"
    if row.rate_count is not None:
        yield f"{row.rate_count} in {row.rate_period_s:g} s{' for each key' if row.rate_scope == 'key' else ''}"
    if row.aging_s is not None:
        yield f"ages in {row.aging_s:g} s"
    if row.retention is not None:
        yield from _kept(row.retention)


def _kept(retention: Retention) -> Iterator[str]:
    """Say how long and how many of its ended jobs a queue keeps."""
    for what, seconds, most in (
        ("done", retention.done_s, retention.done_max),
        ("failed", retention.failed_s, retention.failed_max),
    ):
        parts = ([] if most is None else [f"{most}"]) + ([] if seconds is None else [f"for {seconds:g} s"])
        if parts:
            yield f"keeps {what} jobs: {' '.join(parts)}"


@click.group()
def queues() -> None:
    """Look at queues, pause and resume them, set their limits."""


@queues.command(cls=WatchCommand)
@watch_option
@output_options(*LIST_FORMS)
@store_options
def ls(*, watch: float | None, output: str) -> None:
    """List queues with the number of their jobs by status."""
    place, out = target(), output_for(output)

    def look(view: View, store: Store) -> Shown:
        del store
        at = now()
        rows = queue_rows(view, at, place.name)
        # Only programs are told how long somebody waits: it takes a look at each line.
        found = rows if out.form in ("table", "ids") else [listed_queue(row, view, at) for row in rows]
        return [msgspec.structs.asdict(one) for one in found], lambda: queue_table(rows, out.screen)

    show(place, out, watch, look, key="name")


@queues.command("show", cls=WatchCommand)
@click.argument("name")
@watch_option
@output_options("table", "json", "jsonl")
@store_options
def show_queue(*, name: str, watch: float | None, output: str) -> None:
    """Show a queue and the jobs at its head, in the order they will be leased."""
    place, out = target(), output_for(output)

    def look(view: View, store: Store) -> Shown:
        rows = [row for row in queue_rows(view, now(), place.name) if row.name == name]
        if not rows:
            raise QueueNotFound(
                f"queue {name} has no jobs and no settings.", hint="See `holdfast queues ls`.", queue=name
            )
        at = now()
        reasons = reasons_seen(view, store, at)
        head = list(reasons.ready(place.name, (name,), None, at))[:HEAD]
        found = [(job, reasons.of(job)) for job in head]
        record = msgspec.structs.asdict(full_queue(rows[0], reasons, at))

        def table() -> list[str]:
            listed = ["", *job_rows.job_table(found, at, out.screen)] if found else []
            return queue_table(rows, out.screen) + listed

        return [record], table

    show(place, out, watch, look, key="name", one=True)


@queues.command()
@click.argument("name")
@reason_option
@dry_run_option
@store_options
def pause(*, name: str, reason: str, dry_run: bool) -> None:
    """Stop leasing from a queue; what runs goes on, and jobs can be added."""
    send(
        PauseQueue(queue=name, namespace=target().name, reason=reason, actor=actor()),
        f"queue {safe(name)} is paused",
        dry_run=dry_run,
    )


@queues.command()
@click.argument("name")
@dry_run_option
@store_options
def resume(*, name: str, dry_run: bool) -> None:
    """Lease from a queue again."""
    send(
        ResumeQueue(queue=name, namespace=target().name, actor=actor()), f"queue {safe(name)} is open", dry_run=dry_run
    )


@queues.command()
@click.argument("name")
@click.option("--max-running", type=OrNone(click.INT), help="Jobs that may run at a time, in all processes; or none.")
@click.option("--rate", type=OrNone(Rate()), help="How many may start in which time, such as 100/60s; or none.")
@click.option("--rate-scope", type=click.Choice(["queue", "key"]), help="Count starts together, or by limit key.")
@click.option("--aging", type=OrNone(Duration()), help="Waiting that is worth one step of priority; or none.")
@dry_run_option
@store_options
def limit(
    *, name: str, max_running: Any, rate: Any, rate_scope: Literal["queue", "key"] | None, aging: Any, dry_run: bool
) -> None:
    """Set limits of a queue, or with `none` take them away; what is not named stays, and what runs goes on."""
    given = _given(max_running=max_running, rate=rate, rate_scope=rate_scope, aging_s=aging)
    if "rate" in given:
        given["rate_count"], given["rate_period_s"] = given.pop("rate") or (None, None)
    changes = QueueChanges(**given)
    send(
        SetQueue(queue=name, namespace=target().name, changes=changes, actor=actor()),
        f"queue {safe(name)} has new limits",
        dry_run=dry_run,
    )


@queues.command()
@click.argument("name")
@click.option("--done", "done_s", type=OrNone(Duration()), help="How long COMPLETED and CANCELLED jobs stay, as 7d.")
@click.option("--failed", "failed_s", type=OrNone(Duration()), help="How long FAILED and DEAD jobs stay, as 30d.")
@click.option("--done-max", type=OrNone(click.INT), help="How many COMPLETED and CANCELLED jobs stay, the newest.")
@click.option("--failed-max", type=OrNone(click.INT), help="How many FAILED and DEAD jobs stay, the newest.")
@dry_run_option
@store_options
def keep(*, name: str, dry_run: bool, **kept: Any) -> None:
    """Say how long, and how many of, a queue's ended jobs stay; with `none` as the store keeps them.

    What is not named stays as it is. Workers remove the rest.
    """
    given = _given(**kept)
    place = target()
    with place.look() as view:
        queue = view.get(Queue, pair(place.name, name)) or Queue(place.name, name)
    retention: Retention | None = msgspec.structs.replace(queue.retention or Retention(), **given)
    if retention == Retention():
        retention = None
    changes = QueueChanges(retention=retention) if given else QueueChanges()
    send(
        SetQueue(queue=name, namespace=place.name, changes=changes, actor=actor()),
        f"queue {safe(name)} keeps its jobs so",
        dry_run=dry_run,
    )


def _given(**typed: Any) -> dict[str, Any]:
    """Give the settings that were named; `none` takes one away."""
    return {field: None if value == OrNone.WORD else value for field, value in typed.items() if value is not None}


@queues.command()
@click.argument("name")
@dry_run_option
@store_options
def normalize(*, name: str, dry_run: bool) -> None:
    """Space the positions of a queue's jobs evenly again; their order stays."""
    send(
        Normalize(queue=name, namespace=target().name, actor=actor()),
        f"queue {safe(name)} is evenly spaced",
        dry_run=dry_run,
    )
