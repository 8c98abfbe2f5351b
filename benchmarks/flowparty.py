"""One measurement of `benchmarks workflows`, in a process of its own: so many workflows from start to end.

Ours: a worker with its defaults, and eight threads that start workflows, each start durable when it returns; or all of
them started before the worker. The threads are those of another process, as a web server would be, where a store takes
two; else of the worker's. DBOS: the same eight threads call its workflows, or one thread does, whatever is faster; on
SQLite with its defaults. A call returns when the workflow has ended.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from benchmarks import child_env
from holdfast import Holdfast
from holdfast.model.workflows.instances import InstanceStatus

#: Threads that start workflows.
STARTERS = 8
#: What a process is that starts them for the worker of another one.
STARTER = "starter"
#: Seconds after which a measurement that hangs is given up.
PATIENCE_S = 120.0


def one() -> int:
    """Do nothing, as a step or activity."""
    return 1


class Measured(NamedTuple):
    """What one measurement gives."""

    #: Workflows in a second.
    rate: float
    #: Microseconds of processor that this process spent on each, in all its threads: of others at work it knows little.
    cpu_us: float


def _flow(app: Holdfast, kind: str, size: int) -> Callable[[], object]:
    """Register a workflow of so many steps or activities; give what starts one."""
    activity = app.task(name="one")(one)

    @app.workflow(name="steps")
    async def steps(size: int) -> int:
        for _ in range(size):
            await app.step(one)
        return size

    @app.workflow(name="activities")
    async def activities(size: int) -> int:
        for _ in range(size):
            await activity.call()
        return size

    flow = steps if kind == "steps" else activities
    return lambda: flow.start(size)


def ours(url: str, kind: str, size: int, count: int, *, waiting: bool) -> Measured:
    """Measure a worker of ours."""
    app = Holdfast(url)
    start = _flow(app, kind, size)
    start()
    worker = app.worker()
    apart = not waiting and app.engine.store.promises.many_processes
    with _starter(url, kind, size, count) if apart else nullcontext(lambda: _in_threads(start, count)) as start_all:
        if not waiting:
            worker.start()
            _wait(app, 1)
        began = _times()
        start_all()
        if waiting:
            began = _times()
            worker.start()
        _wait(app, count + 1)
        measured = _since(began, count)
    worker.stop()
    worker.join(PATIENCE_S)
    app.close()
    return measured


@contextmanager
def _starter(url: str, kind: str, size: int, count: int) -> Iterator[Callable[[], None]]:
    """Give what makes another process, which is ready by then, start them all; it does not wait for that."""
    words = [sys.executable, "-m", "benchmarks.flowparty", STARTER, url, kind, str(size), str(count)]
    with subprocess.Popen(  # noqa: S603 - our own interpreter and module
        words, env=child_env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        yield process.stdin.close  # what it waits for


def _start_when_told(url: str, kind: str, size: int, count: int) -> None:
    """Be that process."""
    app = Holdfast(url)
    start = _flow(app, kind, size)
    with app.engine.read():
        print("ready", flush=True)  # noqa: T201 - the answer
    sys.stdin.read()
    _in_threads(start, count)
    app.close()


def _times() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _since(began: tuple[float, float], count: int) -> Measured:
    wall, cpu = _times()
    return Measured(count / (wall - began[0]), (cpu - began[1]) / count * 1e6)


def _in_threads(work: Callable[[], object], count: int) -> None:
    with ThreadPoolExecutor(STARTERS) as pool:
        for done in [pool.submit(work) for _ in range(count)]:
            done.result()


def _one_by_one(work: Callable[[], object], count: int) -> None:
    for _ in range(count):
        work()


def _wait(app: Holdfast, count: int) -> None:
    """Sleep in the store until so many have ended."""
    store = app.engine.store
    while True:
        with app.engine.read() as view:
            seq, ended = view.seq, view.flow_totals().instances.get(InstanceStatus.COMPLETED, 0)
        if ended >= count:
            return
        store.wait(seq, PATIENCE_S)
        time.sleep(LOOK_S)  # noqa: TID251 - not at every event: whoever looks takes time from those who work


#: Seconds between two looks at how many have ended.
LOOK_S = 0.05


def dbos(path: str, size: int, count: int) -> Measured:
    """Measure DBOS."""
    from dbos import DBOS  # noqa: PLC0415 - only who has it can measure it

    DBOS(config={"name": "bench", "system_database_url": f"sqlite:///{path}", "log_level": "ERROR"})
    step = DBOS.step()(one)

    @DBOS.workflow()  # type: ignore[untyped-decorator]  # theirs
    def steps() -> int:
        for _ in range(size):
            step()
        return size

    DBOS.launch()
    steps()
    found = []
    for run in (_in_threads, _one_by_one):
        began = _times()
        run(steps, count)
        found.append(_since(began, count))
    DBOS.destroy()
    return max(found)


def main(party: str, path: str, kind: str, size: int, count: int) -> None:
    """Measure once, and print it."""
    if party == STARTER:
        _start_when_told(path, kind, size, count)
        return
    if party == "dbos":
        measured = dbos(path, size, count)
    else:
        scheme, _, waiting = party.partition("-")
        measured = ours(f"{scheme}:{Path(path)}", kind, size, count, waiting=bool(waiting))
    print(json.dumps(measured), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
