"""One measurement of `bench workflows`, in a process of its own: so many workflows from start to end.

Ours: a worker with its defaults, and eight threads that start workflows, each start durable when it returns; or all of
them started before the worker. DBOS: the same eight threads call its workflows, or one thread does, whatever is faster;
on SQLite with its defaults. A call returns when the workflow has ended.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from holdfast import Holdfast
from holdfast.model.instances import InstanceStatus

#: Threads that start workflows.
STARTERS = 8
#: Seconds after which a measurement that hangs is given up.
PATIENCE_S = 120.0


def one() -> int:
    """Do nothing, as a step or activity."""
    return 1


def ours(url: str, kind: str, size: int, count: int, *, waiting: bool) -> float:
    """Give workflows per second."""
    app = Holdfast(url)
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
    flow.start(size)
    worker = app.worker()
    if not waiting:
        worker.start()
        _wait(app, 1)
    began = time.perf_counter()
    _in_threads(lambda: flow.start(size), count)
    if waiting:
        began = time.perf_counter()
        worker.start()
    _wait(app, count + 1)
    ended = time.perf_counter()
    worker.stop()
    worker.join(PATIENCE_S)
    app.close()
    return count / (ended - began)


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
LOOK_S = 0.01


def dbos(path: str, size: int, count: int) -> float:
    """Give workflows per second of DBOS."""
    from dbos import DBOS  # type: ignore[import-not-found]  # noqa: PLC0415 - only who has it can measure it

    DBOS(config={"name": "bench", "system_database_url": f"sqlite:///{path}", "log_level": "ERROR"})
    step = DBOS.step()(one)

    @DBOS.workflow()  # type: ignore[untyped-decorator]  # theirs
    def steps() -> int:
        for _ in range(size):
            step()
        return size

    DBOS.launch()
    steps()
    rates = []
    for run in (_in_threads, _one_by_one):
        began = time.perf_counter()
        run(steps, count)
        rates.append(count / (time.perf_counter() - began))
    DBOS.destroy()
    return max(rates)


def main(party: str, path: str, kind: str, size: int, count: int) -> None:
    """Measure once, and print the rate."""
    if party == "dbos":
        rate = dbos(path, size, count)
    else:
        scheme, _, waiting = party.partition("-")
        rate = ours(f"{scheme}:{Path(path)}", kind, size, count, waiting=bool(waiting))
    print(json.dumps(rate), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
