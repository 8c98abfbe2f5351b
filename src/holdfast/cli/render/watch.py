"""`-w [SECONDS]`: a read that goes on. Redrawn on a terminal; elsewhere JSON lines, one for each record that changed.

Woken by the store's feed; SECONDS is the longest pause between two looks. It ends when interrupted.
"""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from holdfast.cli.render.output import Output, Record, encoded
from holdfast.cli.render.terminal import put
from holdfast.cli.store_access.target import Target
from holdfast.stores.protocol import Store, View

F = TypeVar("F", bound=Callable[..., Any])

#: What is looked at: its records, and the lines that show them.
Shown = tuple[Sequence[Record], Callable[[], list[str]]]
#: Looks at one state of a store, and at what the store keeps beside its records.
Look = Callable[[View, Store], Shown]

#: Longest pause between two looks if none was given, in seconds: ages move on a terminal though nothing happens.
PAUSE_S = 2.0
#: Shortest pause, in seconds: nobody reads faster, and a busy store is not asked without end.
REST_S = 0.2
#: A number after `-w`. Longer ones are the beginning of an id.
_SECONDS = re.compile(r"\d{1,5}(\.\d+)?")
# Home, each line cleared to its end, then everything below: no flicker.
_HOME, _LINE_END, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


class WatchCommand(click.Command):
    """A command that knows `-w` with and without a number."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take `-w` for `-w SECONDS` only if a number follows."""
        words: list[str] = []
        for at, word in enumerate(args):
            if word in ("-w", "--watch") and not (at + 1 < len(args) and _SECONDS.fullmatch(args[at + 1])):
                words.append(f"--watch={PAUSE_S}")
            else:
                words.append(word)
        return super().parse_args(ctx, words)


def watch_option(command: F) -> F:
    """Give a reading command `-w`."""
    return click.option(
        "-w",
        "--watch",
        type=click.FloatRange(min=0.1),
        metavar="[SECONDS]",
        help="Go on: redraw when something happens, and at least so often.",
    )(command)


def show(target: Target, output: Output, watch: float | None, look: Look, *, key: str, one: bool = False) -> None:
    """Write what `look` sees, once or for as long as it is watched. `one` is a single record."""
    with target.reading() as reader:
        seen: dict[str, str] = {}
        rest = threading.Event()
        while True:
            with reader.look() as view:
                seq = view.seq
                records, table = look(view, reader.store)
            if watch is None:
                if one:
                    output.record(records[0], table, key)
                else:
                    output.records(records, table, key)
                return
            if output.form == "table" and output.screen.is_terminal:
                _draw(output, table())
            else:
                _print_changes(records, key, seen)
            reader.wait(seq, watch)
            rest.wait(REST_S)


def _draw(output: Output, lines: list[str]) -> None:
    if output.screen.can_redraw:
        room = shutil.get_terminal_size().lines - 1
        if len(lines) > room:
            lines = [*lines[: room - 1], f"and {len(lines) - room + 1} more lines"]
        put(_HOME + (_LINE_END + "\n").join(lines) + _LINE_END + _BELOW)
    else:
        put("\n".join([*lines, ""]))


def _print_changes(records: Sequence[Record], key: str, seen: dict[str, str]) -> None:
    """Write each record that is new or other than when it was last written."""
    for record in records:
        line = encoded(record)
        name = str(record[key])
        if seen.get(name) != line:
            seen[name] = line
            put(line)
