"""`holdfast status`: the store on one page."""

from __future__ import annotations

import click
import msgspec

from holdfast.cli.output import Record, output_for, output_options
from holdfast.cli.queues import queue_rows, queue_table
from holdfast.cli.target import existing, now, store_options, target
from holdfast.cli.terminal import safe
from holdfast.cli.watching import Shown, WatchCommand, show, watch_option
from holdfast.model.jobs import JobStatus
from holdfast.model.records import AUTHORITY, Authority
from holdfast.stores.protocol import Durability, Store, View


@click.command(cls=WatchCommand)
@watch_option
@output_options("table", "json", "jsonl")
@store_options
def status(*, watch: float | None, output: str) -> None:
    """Tell whether work is dispatched, how much there is by queue and status, and how durable an answer is."""
    place, out = target(), output_for(output)
    relaxed = existing(place.url).relaxed

    def look(view: View, store: Store) -> Shown:
        del store
        rows = queue_rows(view, place.namespace)
        authority = view.get(Authority, AUTHORITY) or Authority()
        counts = {status.value: sum(row.counts[status.value] for row in rows) for status in JobStatus}
        durability = Durability.RELAXED if relaxed else Durability.SYNC
        record: Record = {
            "store": place.url,
            "dispatching": not authority.dispatch_paused,
            "dispatch_reason": authority.dispatch_reason,
            "durability": durability,
            "seq": view.seq,
            "running": counts[JobStatus.RUNNING.value],
            "counts": counts,
            "queues": [msgspec.structs.asdict(row) for row in rows],
        }

        def page() -> list[str]:
            because = f": {authority.dispatch_reason}" if authority.dispatch_reason else ""
            said = {
                "store": place.url,
                "dispatch": f"paused{because}" if authority.dispatch_paused else "on",
                "durability": durability.value,
                "feed": str(view_seq),
                "running": str(counts[JobStatus.RUNNING.value]),
                "clock": now(),
            }
            head = [f"{out.screen.faint(title.ljust(10))}  {safe(text)}" for title, text in said.items()]
            return [*head, "", *queue_table(rows, out.screen)] if rows else head

        view_seq = view.seq
        return [record], page

    show(place, out, watch, look, key="store", one=True)
