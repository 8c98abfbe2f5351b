"""Flat cost: the next step or activity costs a worker as much after thousands as after a few, on every store.

Counted, so that no load on the machine changes it: calls of Python functions in all threads, bytes that are written,
and the work of SQLite. How long it takes is `python -m benchmarks workflows --scale`'s matter.

The long form (`HOLDFAST_SOAK=1`) does 10,000 steps and 5,000 activities on each store, and prints what one of them cost
on the way.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path
from typing import NamedTuple, Self

import pytest

from holdfast import Holdfast
from holdfast.stores.sqlite import connections

SOAK = os.environ.get("HOLDFAST_SOAK") == "1"
#: Seconds after which a run that hangs is called broken.
LONG = 3500 if SOAK else 60
#: Events there are already, and activities that are open already, when a step or turn is measured.
FEW, EVENTS, OPEN = 10, 20_000 if SOAK else 1_500, 5_000 if SOAK else 400
#: Steps and activities in a row that are measured, behind some that are not.
STEPS, TURNS, WARM = 25, 8, 5
#: How many steps in a row, and activities at once, are done to their end; and where on the way they are measured.
IN_A_ROW = (FEW, 100, 1_000, 10_000) if SOAK else (STEPS, 2 * STEPS)
AT_ONCE = (FEW, 100, 1_000, 5_000) if SOAK else (FEW, STEPS)
#: How much more it may be. SQLite's pages are more, and a little deeper, where there is more.
FACTOR = 2
STORES = ["memory", "wal", "sqlite", "dir"]
#: Store, events, open activities. `dir:` looks at each file that waits, for people may edit them: as often as time asks
#: for it, not as often as something is done. So it is not counted beside many.
CASES = [*((store, EVENTS, 0) for store in STORES), *((store, 0, OPEN) for store in STORES if store != "dir")]


class Work(NamedTuple):
    """How much was done so far."""

    #: Python functions that were called.
    calls: int
    #: Hundreds of instructions of SQLite's machine.
    instructions: int
    #: Bytes written.
    written: int

    def since(self, before: Work, times: int) -> Work:
        """Give the work of each time."""
        return Work(*((now - then) // times for now, then in zip(self, before, strict=True)))


class Meter:
    """Counts while it is on, whatever thread works."""

    def __init__(self) -> None:
        self._calls: dict[int, int] = {}
        self._instructions = 0

    def __enter__(self) -> Self:
        threading.setprofile(self._called)
        return self

    def __exit__(self, *_exception: object) -> None:
        threading.setprofile(None)
        sys.setprofile(None)

    def _called(self, _frame: object, event: str, _found: object) -> None:
        if event == "call":
            me = threading.get_ident()
            self._calls[me] = self._calls.get(me, 0) + 1

    def watch(self, db) -> None:
        """Count what SQLite does on a connection."""
        db.set_progress_handler(self._worked, 100)

    def _worked(self) -> int:
        self._instructions += 1
        return 0

    def read(self) -> Work:
        io = Path("/proc/self/io")
        written = int(io.read_text().split("wchar:")[1].split()[0]) if io.exists() else 0
        return Work(sum(list(self._calls.values())), self._instructions, written)


@pytest.fixture(params=STORES)
def hf(request, tmp_path, monkeypatch):
    connect = connections.connect

    def watched(path, mode):
        db = connect(path, mode)
        hf.meter.watch(db)
        return db

    monkeypatch.setattr(connections, "connect", watched)
    hf = Holdfast("memory:" if request.param == "memory" else f"{request.param}:{tmp_path / 'flows'}")
    hf.meter = Meter()
    with hf, hf.meter:
        yield hf


def work(hf, workflow, *args):
    """Run one instance to its end, in one worker; give what its sampling saw."""
    run = workflow.start(*args)
    worker = hf.worker(until_idle=True, concurrency=1)
    worker.start()
    assert worker.join(LONG)
    return run.result(timeout=0)


def assert_as_much(many: Work, few: Work) -> None:
    assert few.calls > 0, "nothing was counted"
    # What is near nothing may be twice as near.
    slack = Work(calls=50, instructions=3, written=200)
    assert all(more <= FACTOR * less + some for more, less, some in zip(many, few, slack, strict=True)), (few, many)


def stepping(hf, samples):
    """Make a workflow of many events and then many steps, each of which samples the work done so far."""

    @hf.workflow
    async def stepping(before: int, steps: int) -> int:
        for number in range(before):
            hf.set_status(number)
        for _ in range(steps):
            await hf.step.options(name="sample")(lambda: samples.append(hf.meter.read()))
        return steps

    return stepping


def test_a_step_costs_the_same_behind_a_long_history(hf):
    samples: list[Work] = []
    workflow = stepping(hf, samples)
    costs = []
    for before in (FEW, EVENTS):
        samples.clear()
        assert work(hf, workflow, before, WARM + STEPS) == WARM + STEPS
        costs.append(samples[-1].since(samples[WARM - 1], STEPS))
    assert_as_much(costs[1], costs[0])


@pytest.mark.parametrize(("hf", "events", "others"), CASES, indirect=["hf"])
def test_a_turn_costs_the_same_behind_a_long_history_and_beside_many_open_activities(hf, events, others):
    samples: list[Work] = []

    @hf.task(name="sample")
    def sample() -> None:
        samples.append(hf.meter.read())

    @hf.workflow
    async def busy(events: int, others: int) -> int:
        for number in range(events):
            hf.set_status(number)
        waiting = [asyncio.ensure_future(sample.options(queue="nobody").call()) for _ in range(others)]
        for _ in range(WARM + TURNS):
            await sample.call()
        return len(waiting)

    costs = []
    for many in (False, True):
        samples.clear()
        assert work(hf, busy, events if many else FEW, others if many else 0) == (others if many else 0)
        costs.append(samples[-1].since(samples[WARM - 1], TURNS))
    assert_as_much(costs[1], costs[0])


def assert_flat(what: str, costs: dict[int, Work]) -> None:
    """Demand that none costs more than the first, and say what each did."""
    first, *_ = costs.values()
    for number, cost in costs.items():
        print(
            f"{what}, {number:,}: {cost.calls:,} calls, {cost.instructions:,} x 100 of SQLite, {cost.written:,} bytes"
        )
        assert_as_much(cost, first)


def test_the_last_of_many_steps_cost_as_much_as_the_first(hf):
    samples: list[Work] = []
    assert work(hf, stepping(hf, samples), 0, IN_A_ROW[-1]) == IN_A_ROW[-1]
    costs = {}
    for number in IN_A_ROW:
        apart = min(number, STEPS) - WARM
        costs[number] = samples[number - 1].since(samples[number - 1 - apart], apart)
    assert_flat("steps", costs)


def test_one_of_many_activities_at_once_costs_no_more_than_one_of_few(hf):
    samples: list[Work] = []

    @hf.task(name="sample")
    def sample() -> None:
        samples.append(hf.meter.read())

    @hf.workflow
    async def fan(count: int) -> int:
        return len(await asyncio.gather(*(sample.call() for _ in range(count))))

    costs = {}
    for count in AT_ONCE:
        samples.clear()
        assert work(hf, fan, count) == count
        costs[count] = samples[-1].since(samples[0], count - 1)
    assert_flat("activities", costs)
