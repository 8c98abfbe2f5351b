"""`holdfast demo`: kill workers with SIGKILL in the middle of their work, and prove from outside that nothing was lost.

First one in the middle of a workflow (`order`), then one of several in the middle of its jobs: `task` is what those
run, `worker_processes` starts and kills them, `scenario` plays it, `verify` judges the evidence, `display` shows it.
The verdicts come from the store *and* from files that steps and handlers write to beside it (`record`); they can be
against us.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from holdfast.cli.render.output import output_for, output_options
from holdfast.cli.render.terminal import say


@click.command()
@click.option("--jobs", type=click.IntRange(1, 100_000), default=100, show_default=True, help="How many to run.")
@click.option("--workers", type=click.IntRange(2, 16), default=3, show_default=True, help="Processes; one is killed.")
@click.option(
    "--within", type=click.FloatRange(0.1), default=3.0, show_default=True, help="Seconds others have to take over."
)
@click.option("--store", metavar="URL", help="A store for the jobs instead of a temporary SQLite file.")
@click.option("--keep", is_flag=True, help="Leave the temporary directory, to look at it.")
@output_options("table", "json")
@click.pass_context
def demo(
    ctx: click.Context, *, jobs: int, workers: int, within: float, store: str | None, keep: bool, output: str
) -> None:
    """Kill workers with SIGKILL, in the middle of a workflow and in the middle of jobs, and count everything.

    Exits 0 only if it was verified that everything acknowledged is there: each step of the workflow recorded once, none
    that was recorded run again, every job done, each repeated execution explained by a LOST run, and the jobs of the
    dead worker taken over in time.
    """
    from holdfast.cli.demo.run import play  # noqa: PLC0415 - engine and rich are loaded when it runs, not for help
    from holdfast.cli.demo.scenario import Plan  # noqa: PLC0415 - the same

    with _place(keep=keep) as place:
        url = store or f"sqlite:{place / 'jobs.db'}"
        plan = Plan(url=url, record=place / "executions.jsonl", jobs=jobs, workers=workers)
        well = play(place, plan, within, output_for(output))
        if keep:
            say(f"kept: {place}")
    ctx.exit(0 if well else 1)


@contextmanager
def _place(*, keep: bool) -> Iterator[Path]:
    if keep:
        yield Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    else:
        with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as place:
            yield Path(place)
