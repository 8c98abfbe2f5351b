"""`holdfast worker APP`: run the jobs of an application until told to stop."""

from __future__ import annotations

import click

from holdfast.cli.loading import load
from holdfast.cli.terminal import say


@click.command()
@click.argument("app")
@click.option("--queues", help="Names, separated by commas; default: those its tasks name.")
@click.option("--concurrency", type=click.IntRange(1, 1000), help="Jobs at a time; default: four per core, at most 32.")
@click.option(
    "--grace", type=click.FloatRange(0), default=30.0, show_default=True, help="Seconds to end by themselves."
)
@click.option("--until-idle", is_flag=True, help="Stop when nothing runs and nothing is due.")
def worker(app: str, queues: str | None, concurrency: int | None, grace: float, until_idle: bool) -> None:  # noqa: FBT001 - a flag of the command line
    """Run the jobs of APP, given as MODULE:NAME of its Holdfast object, for example `app:hf`.

    The first SIGTERM or SIGINT stops leasing and lets handlers end within --grace; what is left is released, so that
    others take over at once. The second one releases everything now.
    """
    found = load(app)
    names = None if queues is None else [name.strip() for name in queues.split(",")]
    hired = found.worker(names, concurrency, until_idle=until_idle)
    say(f"{hired.worker_id} works on {found.url}: {len(found.tasks.names())} tasks")
    try:
        hired.run(grace)
    finally:
        found.close()
    say("stopped")
