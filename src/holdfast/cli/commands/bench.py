"""`holdfast bench`: how fast a store of this kind is in this place. One short run on a temporary store.

Benchmarks that compare Holdfast with other systems are in `benchmarks/` of the repository, not in the package.
"""

from __future__ import annotations

import os
import platform
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from holdfast.cli.render.output import encoded, output_for, output_options
from holdfast.cli.render.tables import Column, lines
from holdfast.cli.render.terminal import put, safe
from holdfast.cli.store_access.target import store_option, target
from holdfast.errors import InvalidOperation, NotFound
from holdfast.model.workflows.instances import InstanceStatus
from holdfast.stores.opening import StoreUrl, parse_url

if TYPE_CHECKING:
    from holdfast.workers.worker import Worker

#: Bytes of one write before a sync.
BLOCK = 4096
#: Jobs in one call of `enqueue_many`.
MANY = 1000
#: Seconds between two looks at how much a worker has done.
LOOK_S = 0.05
#: Seconds that a worker may take to stop.
STOP_S = 30.0


class Row(NamedTuple):
    """One measurement."""

    name: str
    rate: float
    unit: str
    meaning: str


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.1, max=600),
    default=2.0,
    show_default=True,
    help="How long one measurement takes, at most.",
)
@output_options("table", "json")
@store_option
def bench(*, seconds: float, output: str) -> None:
    """Measure how many syncs, enqueues, jobs and workflows a second a store like this one does.

    It measures a temporary store of the same kind beside the named one, and removes it. The named store is not opened
    and need not exist.
    """
    from holdfast.journal.filesystem import filesystem_kind  # noqa: PLC0415 - `--help` starts without it

    url = target().url
    where = _place(url)
    rows = list(_measure(where, url.partition("?")[2], seconds))
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}"
    filesystem = None if where.scheme == "memory" else filesystem_kind(_directory(where))
    if output == "json":
        measured = [row._asdict() for row in rows]
        put(encoded({"store": url, "machine": machine, "filesystem": filesystem, "rows": measured}))
        return
    put(", ".join(filter(None, (safe(url), filesystem, machine))))
    columns = (Column("MEASURED"), Column("RATE", right=True), Column("MEANING"))
    cells = [[row.name, f"{row.rate:,.0f} {row.unit}", row.meaning] for row in rows]
    for line in lines(columns, cells, output_for(output).screen):
        put(line)


def _place(url: str) -> StoreUrl:
    """Take the URL apart. Raises InvalidOperation for a coordinator, NotFound if its directory does not exist."""
    where = parse_url(url)
    if where.is_elsewhere:
        raise InvalidOperation(
            f"{url} is a coordinator; `bench` measures a store on this machine. Nothing was done.",
            hint="Run it on the coordinator's machine, with the URL that `holdfast serve` was given.",
        )
    if where.scheme != "memory" and not _directory(where).is_dir():
        raise NotFound(f"Directory {_directory(where)} not found. Nothing was done.", hint="Check the path.")
    return where


def _directory(where: StoreUrl) -> Path:
    return Path(where.path).parent


# --- measurements -----------------------------------------------------------------------------------------------------


def _measure(where: StoreUrl, options: str, seconds: float) -> Iterator[Row]:
    if where.scheme == "memory":
        yield from _jobs("memory:", seconds)
        yield _workflows("memory:", seconds)
        return
    with tempfile.TemporaryDirectory(prefix=".holdfast-bench-", dir=_directory(where)) as folder:
        yield _syncs(folder, seconds)
        yield from _jobs(f"{where.scheme}:{folder}/jobs?{options}", seconds)
        yield _workflows(f"{where.scheme}:{folder}/workflows?{options}", seconds)


def _syncs(folder: str, seconds: float) -> Row:
    from holdfast.journal.filesystem import OsFS  # noqa: PLC0415 - `--help` starts without it

    fs, block = OsFS(folder), b"x" * BLOCK
    handle = fs.open("syncs", "create")

    def write() -> None:
        fs.write(handle, block)
        fs.sync(handle, metadata=False)

    count, took = _repeat(write, seconds)
    fs.close(handle)
    return Row("disk sync", count / took, "syncs/s", "4 KB written and synced, one after the other")


def _jobs(url: str, seconds: float) -> Iterator[Row]:
    from holdfast.app.application import Holdfast  # noqa: PLC0415 - `--help` starts without it

    with Holdfast(url) as hf:
        task = hf.task(name="nothing")(_nothing)
        single, took = _repeat(task.enqueue, seconds)
        yield Row("enqueue", single / took, "jobs/s", "one job a call, from one thread")
        calls, took = _repeat(lambda: task.enqueue_many([()] * MANY), seconds)
        yield Row("enqueue_many", MANY * calls / took, "jobs/s", f"{MANY:,} jobs a call, from one thread")
        worker = hf.worker()
        rate = _worked(worker, lambda: worker.pump.reported, single + MANY * calls, seconds)
        yield Row("drain", rate, "jobs/s", "one worker process completes those jobs")


def _workflows(url: str, seconds: float) -> Row:
    from holdfast.app.application import Holdfast  # noqa: PLC0415 - `--help` starts without it

    with Holdfast(url) as hf:

        @hf.workflow(name="one-step")
        async def one_step() -> int:
            return await hf.step(_nothing)

        def ended() -> int:
            with hf.engine.read() as view:
                return view.flow_totals().instances.get(InstanceStatus.COMPLETED, 0)

        started, _ = _repeat(one_step.start, seconds)
        rate = _worked(hf.worker(), ended, started, seconds)
    return Row("workflows", rate, "workflows/s", "one worker process runs workflows of one step")


def _nothing() -> int:
    return 1


def _repeat(work: Callable[[], object], seconds: float) -> tuple[int, float]:
    """Call `work` for so many seconds, at least once. Return how often, and how long it took."""
    count, began = 0, time.perf_counter()
    while not count or time.perf_counter() - began < seconds:
        work()
        count += 1
    return count, time.perf_counter() - began


def _worked(worker: Worker, done: Callable[[], int], total: int, seconds: float) -> float:
    """Run a worker until `total` are done or so many seconds have passed, at least until one is. Return the rate."""
    pause, began = threading.Event(), time.perf_counter()
    worker.start()
    while True:
        pause.wait(LOOK_S)
        worker.join(0)  # raises what a worker that failed ended with
        count, took = done(), time.perf_counter() - began
        if count >= total or (count and took >= seconds):
            break
    worker.stop()
    worker.join(STOP_S)
    return count / took
