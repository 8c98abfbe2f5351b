"""The commands of `python -m benchmarks`: one for each benchmark, with its options and its output."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

import click

from benchmarks import Row, machine
from holdfast.cli.render.output import encoded, output_options
from holdfast.cli.render.terminal import put
from holdfast.journal.filesystem import filesystem_kind


@click.group()
def benchmarks() -> None:
    """Measure Holdfast beside peers, or beside the bare limit of this machine, in the same run."""


def _where(directory: str | None) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix=".holdfast-bench-", dir=directory or ".")


def _print(title: str, rows: Iterable[Row]) -> None:
    click.echo(f"{title}   {machine()}")
    click.echo(Row.heading())
    for row in rows:
        click.echo(row.line())


_dir = click.option("--dir", "directory", type=click.Path(exists=True), help="Where to write; default: here.")


@benchmarks.command()
@_dir
def journal(directory: str | None) -> None:
    """Group commit, replay, snapshots: ours beside a bare loop with the same bytes and syncs."""
    from benchmarks.journal import run  # noqa: PLC0415 - imported when called

    with _where(directory) as place:
        _print("journal", run(Path(place)))


@benchmarks.command()
@_dir
@click.option("--jobs", type=int, default=20_000, show_default=True, help="Jobs in each measurement.")
@click.option("--full", is_flag=True, help="Also with 1,000,000 queued jobs: cost, memory, opening. Takes minutes.")
def store(directory: str | None, jobs: int, full: bool) -> None:  # noqa: FBT001 - a flag of the command line
    """Enqueue, lease and complete on each store: ours beside the same bytes or SQL without our layers."""
    from benchmarks.store import run  # noqa: PLC0415 - imported when called

    with _where(directory) as place:
        _print("store", run(Path(place), jobs=jobs, full=full))


@benchmarks.command(name="dir")
@_dir
@click.option("--commits", type=click.IntRange(min=10), default=200, show_default=True, help="Commits of each kind.")
@click.option("--full", is_flag=True, help="Also with 100,000 files. Takes a minute or two.")
def dir_(directory: str | None, commits: int, full: bool) -> None:  # noqa: FBT001 - a flag of the command line
    """Measure commits, opening, memory and leasing of `dir:`, with the floors its format promises."""
    from benchmarks.dir import run  # noqa: PLC0415 - imported when called

    with _where(directory) as place:
        sizes = (1_000, 10_000, 100_000) if full else (1_000, 10_000)
        _print(f"dir   {filesystem_kind(place)}", run(Path(place), commits=commits, sizes=sizes))


@benchmarks.command()
@_dir
@click.option(
    "--schedules",
    "count",
    type=click.IntRange(min=2000),
    default=100_000,
    show_default=True,
    help="Schedules there are.",
)
def schedules(directory: str | None, count: int) -> None:
    """Measure what a tick costs with many schedules, beside a hundredth of them: as much as is due, no more."""
    from benchmarks.schedules import run  # noqa: PLC0415 - imported when called

    with _where(directory) as place:
        _print("schedules", run(Path(place), count=count))


@benchmarks.command()
@_dir
@click.option("--jobs", "count", type=click.IntRange(min=50), default=10_000, show_default=True, help="Jobs in a turn.")
@click.option("--turns", type=click.IntRange(min=1), default=3, show_default=True, help="Turns of each party.")
@click.option("--idle", type=float, default=10.0, show_default=True, help="Seconds to watch idle workers.")
@output_options("table", "json")
def jobs(directory: str | None, count: int, turns: int, idle: float, output: str) -> None:
    """Enqueue to completed, enqueue to start, and idling: one worker process, beside Huey if it is installed."""
    from benchmarks.jobs import Sizes, peer, run  # noqa: PLC0415 - imported when called

    sizes = Sizes(turns=turns, many=count, single=count // 5, latency=count // 50, idle_s=idle)
    with _where(directory) as place:
        kind, other = filesystem_kind(place), peer()
        rows = list(run(Path(place), sizes))
    if output == "json":
        measured = [{**row._asdict(), "ratio": row.ratio} for row in rows]
        put(encoded({"machine": machine(), "filesystem": kind, "beside": other, "rows": measured}))
        return
    put(f"jobs   {machine()}, {kind}")
    put("beside " + (other or "nothing: Huey is not installed (`pip install huey`)"))
    put(Row.heading("Huey" if other else ""))
    for row in rows:
        put(row.line())


@benchmarks.command()
@_dir
@click.option(
    "--workflows", "count", type=click.IntRange(min=100), default=3000, show_default=True, help="Workflows in a turn."
)
@click.option("--turns", type=click.IntRange(min=1), default=3, show_default=True, help="Turns of each party.")
@click.option("--scale", is_flag=True, help="Instead: one of 10,000 steps beside one of 10, a month, a long history.")
@output_options("table", "json")
def workflows(directory: str | None, count: int, turns: int, scale: bool, output: str) -> None:  # noqa: FBT001 - a flag
    """Workflows from start to end with steps and activities: one worker process, beside DBOS if it is installed."""
    from benchmarks.workflows import Sizes, peer, run  # noqa: PLC0415 - imported when called

    if scale:
        _scale(directory, output)
        return
    with _where(directory) as place:
        kind, other = filesystem_kind(place), peer()
        rows = list(run(Path(place), Sizes(turns=turns, many=count)))
    if output == "json":
        measured = [{**row._asdict(), "ratio": row.ratio} for row in rows]
        put(encoded({"machine": machine(), "filesystem": kind, "beside": other, "rows": measured}))
        return
    put(f"workflows   {machine()}, {kind}")
    put("beside " + (other or "nothing: DBOS is not installed (`pip install dbos`)"))
    put(Row.heading("DBOS" if other else ""))
    for row in rows:
        put(row.line())


@benchmarks.command()
@_dir
@click.option(
    "--jobs", "count", type=click.IntRange(min=256), default=20_480, show_default=True, help="Jobs in a measurement."
)
@click.option("--soak", "soak_s", type=float, metavar="SECONDS", help="Instead: watch memory for so long, each store.")
@output_options("table", "json")
def serve(directory: str | None, count: int, soak_s: float | None, output: str) -> None:
    """Measure a coordinator over HTTP: enqueues in batches and alone, workers, wake-ups, bytes, memory."""
    from benchmarks import serve as measured  # noqa: PLC0415 - imported when called

    with _where(directory) as place:
        kind = filesystem_kind(place)
        if soak_s is not None:
            rows = list(measured.soak(Path(place), measured.Sizes(soak_s=soak_s)))
        else:
            sizes = measured.Sizes(batched=count, alone=count // 3, threads=count // 6, worked=count // 6)
            rows = list(measured.run(Path(place), sizes))
    if output == "json":
        shown = [{**row._asdict(), "ratio": row.ratio} for row in rows]
        put(encoded({"machine": machine(), "filesystem": kind, "rows": shown}))
        return
    put(f"serve   {machine()}, {kind}")
    put(Row.heading("local"))
    for row in rows:
        put(row.line())


def _scale(directory: str | None, output: str) -> None:
    from benchmarks import flowscale  # noqa: PLC0415 - imported when called

    with _where(directory) as place:
        kind, rows = filesystem_kind(place), flowscale.run(Path(place), flowscale.Sizes())
        if output == "json":
            measured = [{**row._asdict(), "ratio": row.ratio} for row in rows]
            put(encoded({"machine": machine(), "filesystem": kind, "rows": measured}))
            return
        put(f"workflows by size   {machine()}, {kind}")
        put(Row.heading("of 10"))
        for row in rows:
            put(row.line())
