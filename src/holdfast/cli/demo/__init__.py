"""`holdfast demo`: kill a worker with SIGKILL in the middle of its jobs, and prove from outside that nothing was lost.

`task` is what the workers run, `crew` starts and kills them, `story` plays it, `proof` judges the evidence, `stage`
shows it. The verdict comes from the store *and* from a file the handlers write to beside it; it can be against us.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from holdfast.cli.output import output_for, output_options
from holdfast.cli.terminal import say


@click.command()
@click.option("--jobs", type=click.IntRange(1, 100_000), default=200, show_default=True, help="How many to run.")
@click.option("--workers", type=click.IntRange(2, 16), default=3, show_default=True, help="Processes; one is killed.")
@click.option(
    "--within", type=click.FloatRange(0.1), default=3.0, show_default=True, help="Seconds others have to take over."
)
@click.option("--store", metavar="URL", help="A store to use instead of a temporary SQLite file.")
@click.option("--keep", is_flag=True, help="Leave the temporary directory, to look at it.")
@output_options("table", "json")
@click.pass_context
def demo(
    ctx: click.Context, *, jobs: int, workers: int, within: float, store: str | None, keep: bool, output: str
) -> None:
    """Run jobs, kill a worker with SIGKILL, watch the others take over, count everything.

    Exits 0 only if it was verified that every acknowledged job is done, that each repeated execution is explained by a
    LOST run, and that the jobs of the dead worker were taken over in time.
    """
    from holdfast.cli.demo.proof import judge  # noqa: PLC0415 - the engine is loaded when the demo runs, not for help
    from holdfast.cli.demo.stage import stage, tell  # noqa: PLC0415 - so is rich
    from holdfast.cli.demo.story import Plan, play  # noqa: PLC0415 - the same

    with _place(keep=keep) as place:
        url = store or f"sqlite:{place / 'jobs.db'}"
        plan = Plan(url=url, record=place / "executions.jsonl", jobs=jobs, workers=workers)
        with stage(url) as shown:
            evidence = play(plan, shown)
        verdict = judge(evidence, within)
        tell(evidence, verdict, output_for(output))
        if keep:
            say(f"kept: {place}")
    ctx.exit(1 if verdict.problems else 0)


@contextmanager
def _place(*, keep: bool) -> Iterator[Path]:
    if keep:
        yield Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    else:
        with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as place:
            yield Path(place)
