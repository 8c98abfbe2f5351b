"""`holdfast top`: what goes on, while it goes on. In a pipe: once.

One thread looks at the store, woken by its feed; one reads keys; the command's own draws. Only the first touches the
store. While nothing happens the page is drawn anew every few seconds, so that ages move.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from types import FrameType
from typing import Literal

import click

from holdfast.cli.render.output import Output, Record, output_for, output_options
from holdfast.cli.render.top_page import SORTS, Wishes, page
from holdfast.cli.render.worker_rows import worker_record
from holdfast.cli.store_access.rates import Pulse
from holdfast.cli.store_access.snapshot import Scene, gather, scene_record
from holdfast.cli.store_access.target import Target, store_options, target
from holdfast.cli.store_access.visibility import say_left_out
from holdfast.clock import SystemClock

#: Seconds between two looks at least: four redraws a second.
REST_S = 0.25
#: A look at a store that is slow to look at is followed by a rest that many times as long.
EASE = 2
#: Seconds between two looks at most: while something runs, and while nothing does.
BUSY_S, IDLE_S = 1.0, 5.0
#: An arrow or function key, or an answer of the terminal; they mean nothing here.
_SEQUENCE = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|O.)")
_ENTER, _ESC, _RUBOUT = ("\r", "\n"), "\x1b", ("\x7f", "\b")

#: What the drawing thread is told: what was seen, a key, that the window has another size, or why it is over.
Event = Scene | str | BaseException | None


@click.command()
@output_options("table", "json")
@store_options
def top(*, output: str) -> None:
    """Watch rates, backlog, running jobs and workers. On a terminal: / filters, s sorts, q quits; in a pipe: once."""
    place, out = target(), output_for(output)
    if out.form == "table" and out.screen.can_redraw:
        _watch(place, out)
        return
    with place.reading() as reader, reader.look() as view:
        scene = gather(view, reader.store, place, Pulse())
    say_left_out(*scene.left_out())
    out.record(_record(scene), lambda: page(scene, Wishes(), out.screen), key="store")


def _record(scene: Scene) -> Record:
    jobs = [
        {
            "job_id": held.job.job_id,
            "job_type": held.job.job_type,
            "queue": held.job.queue,
            "worker_id": held.job.worker_id,
            "started_at": held.since,
            "lease_expires_at": held.job.lease_expires_at,
            "progress": scene.progress.get(held.job.job_id),
        }
        for held in scene.running
    ]
    staff = None if scene.staff is None else [worker_record(one) for one in scene.staff]
    return {"as_of": scene.at, **scene_record(scene), "rates": scene.rates, "running_jobs": jobs, "staff": staff}


def _watch(place: Target, out: Output) -> None:
    from rich.console import Console  # noqa: PLC0415 - slow to import, and only needed here
    from rich.live import Live  # noqa: PLC0415 - the same
    from rich.text import Text  # noqa: PLC0415 - the same

    colours: Literal["truecolor", "standard"] = "truecolor" if out.screen.true_colour else "standard"
    console = Console(color_system=colours if out.screen.colour else None, highlight=False, force_terminal=True)
    events: SimpleQueue[Event] = SimpleQueue()
    # Both hold nothing that would have to be given back, and end with the process.
    threading.Thread(target=_look, args=(place, events), name="top-look", daemon=True).start()
    scene, wishes = None, Wishes()
    with _keys(events), Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            for event in _batch(events):
                match event:
                    case Scene():
                        scene = event
                    case BaseException():
                        raise event
                    case "q" if not wishes.typing:
                        return
                    case str():
                        wishes = pressed(wishes, event)
                    case None:
                        pass
            if scene is not None:
                size = shutil.get_terminal_size()
                drawn = page(scene, wishes, out.screen._replace(width=size.columns), size.lines)
                text = Text("\n", no_wrap=True, overflow="crop").join(Text.from_ansi(line) for line in drawn)
                live.update(text, refresh=True)


def _batch(events: SimpleQueue[Event]) -> Iterator[Event]:
    """Give what has come, having waited for the first of it."""
    yield events.get()
    while not events.empty():
        yield events.get()


def pressed(wishes: Wishes, key: str) -> Wishes:
    """Give the viewer's wishes after a key."""
    if not wishes.typing:
        match key:
            case "/":
                return wishes._replace(typing=True, sought="")
            case "s":
                return wishes._replace(sort=SORTS[(SORTS.index(wishes.sort) + 1) % len(SORTS)])
            case "\x1b":
                return wishes._replace(sought="")
            case _:
                return wishes
    if key in _ENTER:
        return wishes._replace(typing=False)
    if key == _ESC:
        return wishes._replace(typing=False, sought="")
    if key in _RUBOUT:
        return wishes._replace(sought=wishes.sought[:-1])
    return wishes._replace(sought=wishes.sought + key) if key.isprintable() else wishes


def _look(place: Target, events: SimpleQueue[Event]) -> None:
    """Look at the store again and again, as often as something happens."""
    clock, rest, pulse = SystemClock(), threading.Event(), Pulse()
    try:
        with place.reading() as reader:
            while True:
                began = clock.monotonic()
                with reader.look() as view:
                    scene = gather(view, reader.store, place, pulse)
                took = clock.monotonic() - began
                events.put(scene)
                reader.wait(scene.seq, BUSY_S if scene.running else IDLE_S)
                rest.wait(max(REST_S, EASE * took))
    except BaseException as error:  # noqa: BLE001 - raised again by the thread that draws, once the screen is restored
        events.put(error)


@contextmanager
def _keys(events: SimpleQueue[Event]) -> Iterator[None]:
    """Hear each key as it is pressed, and of a window that changes; afterwards the terminal is as it was."""

    def resized(_number: int, _frame: FrameType | None) -> None:
        events.put(None)  # a SimpleQueue may be filled from a signal handler

    fd = sys.stdin.fileno() if sys.stdin.isatty() else None
    mode = None if fd is None else termios.tcgetattr(fd)
    heard = signal.signal(signal.SIGWINCH, resized)
    try:
        if fd is not None:
            tty.setcbreak(fd)
            threading.Thread(target=_read, args=(fd, events), name="top-keys", daemon=True).start()
        yield
    finally:
        signal.signal(signal.SIGWINCH, heard)
        if fd is not None and mode is not None:
            termios.tcsetattr(fd, termios.TCSADRAIN, mode)


def _read(fd: int, events: SimpleQueue[Event]) -> None:
    with suppress(OSError):
        while found := os.read(fd, 64):
            for key in _SEQUENCE.sub("", found.decode(errors="ignore")):
                events.put(key)
