"""`holdfast worker APP`: run the jobs of an application until told to stop."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli.app_loader import load
from holdfast.cli.render.errors import INTERRUPTED, tell
from holdfast.cli.render.log_format import show_events
from holdfast.cli.render.terminal import safe, say
from holdfast.errors import Forbidden, StoreError

if TYPE_CHECKING:
    from holdfast.app.application import Holdfast
    from holdfast.workers.worker import Worker

#: Found after it stopped: jobs that are still leased to it. Refused to start: code it lacks.
FOUND, REFUSED = 1, 6


@click.command()
@click.argument("app")
@click.option("--queues", help="Names, separated by commas; default: those its tasks name.")
@click.option("--concurrency", type=click.IntRange(1, 1000), help="Jobs at a time; default: four per core, at most 32.")
@click.option("--name", default="", help="Shown in lists; only one live worker of a store has it.")
@click.option(
    "--grace", type=click.FloatRange(0), default=30.0, show_default=True, help="Seconds to end by themselves."
)
@click.option("--strict", is_flag=True, help="Do not start while jobs or instances need code that APP lacks.")
@click.option("--until-idle", is_flag=True, help="Stop when nothing runs and nothing is due.")
def worker(
    app: str,
    *,
    queues: str | None,
    concurrency: int | None,
    name: str,
    grace: float,
    strict: bool,
    until_idle: bool,
) -> None:
    """Run the jobs of APP, given as MODULE:NAME of its Holdfast object, for example `app:hf`.

    The first SIGTERM or SIGINT stops leasing and lets handlers end within --grace; what is left is released, so that
    others take over at once. The second one releases everything now.
    """
    found = load(app)
    show_events()  # only now: the application may have set up logging by itself
    names = None if queues is None else [queue.strip() for queue in queues.split(",")]
    hired = found.worker(names, concurrency, name=name, until_idle=until_idle)
    try:
        if not _knows_all(hired, strict=strict) and strict:
            say("not started: --strict")
            sys.exit(REFUSED)
        sys.exit(_run(hired, grace, f"{hired.worker_id} works on {safe(found.url)}: {_known(found)}"))
    finally:
        found.close()


def _known(app: Holdfast) -> str:
    tasks, workflows = len(app.tasks.names()), len(app.workflows.all())
    more = f", {workflows} workflow{'s' * (workflows != 1)}" if workflows else ""
    return f"{tasks} task{'s' * (tasks != 1)}{more}"


def _knows_all(hired: Worker, *, strict: bool) -> bool:
    """Name the tasks that jobs wait for, and the workflows that instances need, and that this worker lacks."""
    try:
        tasks = hired.strangers()
    except Forbidden:  # the role of a worker sees what it does, and nothing else
        if strict:
            raise
        return True
    if tasks:
        say(f"jobs wait in its queues for tasks it does not know: {safe(', '.join(tasks))}")
    # Where one without workflows runs beside others that have them, nothing is wrong, unless all is asked for.
    codes = hired.lacking_code() if strict or hired.has_workflows else {}
    if codes:
        named = ", ".join(f"{code} ({len(ids):,})" for code, ids in codes.items())
        say(f"instances need workflows it does not have: {safe(named)}")
    return not tasks and not codes


def _run(hired: Worker, grace: float, greeting: str) -> int:
    def heard() -> None:
        running = len(hired.slots.held())
        what = "leaving now" if hired.was_interrupted else f"stopping within {grace:g} s"
        say(f"{what}: {running} jobs still run" if running else what)

    try:
        hired.run(grace, heard, lambda: say(greeting))
    except StoreError as problem:
        if not hired.is_draining:
            raise
        tell(problem, sys.argv)
        say(f"stopped, but {hired.left} jobs stay leased until their leases lapse")
        return FOUND
    released = hired.pump.released
    say(f"stopped; {released} jobs were released unfinished" if released else "stopped")
    return INTERRUPTED if hired.was_interrupted else 0
