"""`holdfast feed tail`: what happened in a store, in order, and what happens while one looks.

JSON lines are the entries of `GET /feed`, whole; the table says of each when, what, to which thing and by whom.
"""

from __future__ import annotations

from typing import Any

import click
import msgspec

from holdfast.cli.render.output import encoded, output_for, output_options
from holdfast.cli.render.terminal import Screen, put, safe
from holdfast.cli.store_access.target import Reader, store_option, target
from holdfast.engine.views.feed import published_feed
from holdfast.errors import InvalidValue
from holdfast.stores.protocol import Entry

#: Seconds of one wait, so that a signal is heard in time on every system.
PAUSE_S = 15.0
#: What an event is about, the narrowest first; some hold it in the record they carry.
_SUBJECTS = ("job_id", "instance_id", "group_id", "schedule_id", "template_id", "webhook_id", "reservation_id", "queue")
_RECORDS = ("job", "instance", "group", "schedule", "template", "webhook", "reservation")


@click.group()
def feed() -> None:
    """Read what happened in a store, event by event."""


@feed.command()
@click.option("-n", "count", type=click.IntRange(0), default=10, show_default=True, help="The last so many events.")
@click.option("--after", type=click.IntRange(0), help="All events above this number, in place of the last ones.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens, until interrupted.")
@output_options("table", "jsonl")
@store_option
def tail(*, count: int, after: int | None, follow: bool, output: str) -> None:
    """Print events in order. Whoever keeps the number of the last one can go on behind it with --after."""
    out = output_for(output)
    with target().reading() as reader:
        with reader.look() as view:
            position = _before_last(reader, count, view.seq) if after is None else after
        while True:
            with reader.look():
                for entry in published_feed(reader.store, position):
                    put(_shown(entry, out.screen) if out.form == "table" else encoded(entry))
                    position = entry.seq
            if not follow:
                return
            reader.wait(position, PAUSE_S)


def _before_last(reader: Reader, count: int, last: int) -> int:
    """Give the number behind which the last `count` events are. Not every number is an event's: some are a store's."""
    position, reach = last, count
    while position > 0 and count:
        position = max(0, last - reach)
        try:
            found = [entry.seq for entry in reader.store.feed(position)]
        except InvalidValue:
            kept = _earliest(reader, position + 1, last)
            found = [entry.seq for entry in reader.store.feed(kept)]
            return found[-count] - 1 if len(found) > count else kept
        if len(found) >= count:
            return found[-count] - 1
        reach *= 4
    return position


def _earliest(reader: Reader, low: int, high: int) -> int:
    """Give the lowest number from `low` to `high` behind which nothing was pruned; by halves, as only trying tells."""
    while low < high:
        middle = (low + high) // 2
        try:
            reader.store.feed(middle)
        except InvalidValue:
            low = middle + 1
        else:
            high = middle
    return low


def _shown(entry: Entry, screen: Screen) -> str:
    facts: dict[str, Any] = msgspec.json.decode(entry.event)
    at = entry.ts[11:23] if screen.is_terminal else entry.ts
    actor = facts.get("actor")
    said = [f"{entry.seq:>8}", screen.faint(safe(at)), safe(str(facts["type"])).ljust(20), safe(_subject(facts))]
    return "  ".join([*said, f"by {safe(str(actor))}"] if actor else said).rstrip()


def _subject(facts: dict[str, Any]) -> str:
    inner = next((record for name in _RECORDS if isinstance(record := facts.get(name), dict)), {})
    return next((str(found) for name in _SUBJECTS if (found := facts.get(name, inner.get(name)))), "")
