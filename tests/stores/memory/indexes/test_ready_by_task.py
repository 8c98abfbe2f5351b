"""Jobs of some tasks are found at the same cost, however many of others wait before them, on every store.

Counted, so that no load on the machine changes it: calls of Python functions, and the work of SQLite. The long form
(`HOLDFAST_SOAK=1`) has 20,000 before them, and prints what was counted.
"""

from __future__ import annotations

import os
import sys
from contextlib import closing
from itertools import islice
from typing import NamedTuple

import msgspec
import pytest

from holdfast.engine import Engine
from holdfast.model.commands import Complete, Enqueue, Lease, NewJob
from holdfast.model.jobs import Job
from holdfast.stores.memory.indexes.ready_by_task import PASSED, PASSED_EACH, TaskLines
from holdfast.stores.memory.indexes.sorted_set import OrderedSet
from holdfast.stores.opening import open_store
from holdfast.stores.sqlite import connections

SOAK = os.environ.get("HOLDFAST_SOAK") == "1"
FEW, MANY = 10, 20_000 if SOAK else 2_000
STORES = ["memory", "wal", "dir", "sqlite"]
EMPTY = msgspec.Raw(b"{}")


class Work(NamedTuple):
    """How much was done."""

    #: Python functions, and built-in ones, that were called.
    calls: int
    #: Tens of instructions of SQLite's machine.
    instructions: int


class Meter:
    """Counts the work of one call in this thread."""

    def __init__(self):
        self.calls = self.instructions = 0

    def _called(self, _frame, event, _found):
        self.calls += event in ("call", "c_call")

    def worked(self):
        self.instructions += 1
        return 0

    def of(self, action):
        self.calls = self.instructions = 0
        sys.setprofile(self._called)
        try:
            action()
        finally:
            sys.setprofile(None)
        return Work(self.calls - self.instructions, self.instructions)  # `worked` was called, too


@pytest.fixture
def meter(monkeypatch):
    meter = Meter()
    connect = connections.connect

    def watched(path, mode):
        db = connect(path, mode)
        db.set_progress_handler(meter.worked, 10)
        return db

    monkeypatch.setattr(connections, "connect", watched)
    return meter


def fill(engine, *jobs):
    """Enqueue jobs of (how many, which task)."""
    for count, task in jobs:
        batch = tuple(NewJob(job_id=engine.new_id(), job_type=task, params=EMPTY) for _ in range(count))
        for at in range(0, count, 1_000):
            engine.ask(Enqueue(jobs=batch[at : at + 1_000]))


def costs(engine, meter):
    """Count what leases of the last ten cost, the look of one who waits, and the look of one who has nothing there."""

    def lease(n):
        ask = Lease(worker_id="w", n=n, job_types=("mine", "nothing"), session_id=engine.session_id)
        assert [grant.job.job_type for grant in engine.ask(ask).grants] == ["mine"] * n

    def look(task):
        with engine.read() as view:
            found = islice(view.ready("", ("default",), (task,), engine.look().now, free=True), 1)
            assert [job.job_type for job in found] == [task] * (task == "mine")

    lease(1)  # the first one in a queue makes its lines
    yield meter.of(lambda: lease(3))
    yield meter.of(lambda: lease(1))
    yield meter.of(lambda: look("mine"))
    yield meter.of(lambda: look("nothing"))


@pytest.mark.parametrize("kind", STORES)
def test_jobs_of_a_task_cost_the_same_behind_many_of_another(kind, tmp_path, meter):
    # A file for each job: `dir:` shows it with fewer. It is the same code as that of `memory:`.
    many = MANY // 10 if kind == "dir" else MANY
    found = []
    for others in (FEW, many):
        where = "memory:" if kind == "memory" else f"{kind}:{tmp_path / str(others)}"
        with closing(Engine(open_store(where))) as engine:
            fill(engine, (others, "other"), (10, "mine"))
            found.append(list(costs(engine, meter)))
    for what, few, more in zip(("three", "one", "look", "nothing there"), *found, strict=True):
        print(f"{kind}, {what}: {few} behind {FEW}, {more} behind {many:,}")
        assert few.calls > 0
        # Some of them are passed in any case.
        assert more.calls <= 2 * few.calls + 50, (few, more)
        assert more.instructions <= 2 * few.instructions, (few, more)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_worker_with_many_tasks_pays_for_those_that_have_something_to_do(kind, tmp_path, meter):
    where = "memory:" if kind == "memory" else f"{kind}:{tmp_path / 'jobs'}"
    with closing(Engine(open_store(where))) as engine:
        fill(engine, (200, "other"), (5, "mine"))
        tasks = ("mine", *(f"task-{number}" for number in range(199)))

        def look(names):
            with engine.read() as view:
                assert len(list(view.ready("", ("default",), names, engine.look().now))) == 5

        look(tasks)
        one, all_of_them = (meter.of(lambda names=names: look(names)) for names in (tasks[:1], tasks))
    assert all_of_them.calls <= one.calls + 20
    # A search in an index each, found or not.
    assert all_of_them.instructions <= one.instructions + 4 * len(tasks)


def of_two(places):
    """Lines in which every third place is mine, and what was looked at."""
    met: list[str] = []

    class Jobs(dict[str, Job]):
        def __getitem__(self, job_id):
            met.append(job_id)
            task = "mine" if int(job_id) % 3 == 0 else "other"
            return Job(job_id=job_id, job_type=task, params=EMPTY, created_at="")

    return TaskLines(Jobs()), met, OrderedSet(places)


PLACES = [(0, number, "", str(number)) for number in range(1_000)]
HERE = ("", "default")


def test_no_more_than_some_others_are_passed_before_the_way_goes_by_task():
    lines, met, line = of_two(PLACES)
    assert list(lines.walk(HERE, line, {"mine", "nothing"})) == PLACES[::3]
    met.clear()
    assert list(lines.walk(HERE, line, {"mine", "nothing"})) == PLACES[::3]
    assert len(met) == PASSED * 3 // 2
    met.clear()
    assert list(lines.walk(HERE, line, {"other", *map(str, range(29))})) == [key for key in PLACES if key[1] % 3]
    assert len(met) == 30 * PASSED_EACH * 3 - 2  # to begin many lines is worth passing more


def test_whoever_meets_few_others_begins_no_lines_and_whoever_asks_for_nothing_meets_nobody():
    lines, met, line = of_two(PLACES[: PASSED * 3 // 2 - 1])
    assert list(lines.walk(HERE, line, {"mine"})) == PLACES[: PASSED * 3 // 2 - 1 : 3]
    assert not lines
    met.clear()
    assert list(lines.walk(HERE, line, ())) == []
    assert not met


def test_a_queue_has_lines_until_it_is_empty():
    lines, _, line = of_two(PLACES)
    next(islice(lines.walk(HERE, line, {"nothing"}), 1), None)
    assert lines
    lines.add(HERE, "new", (1, 0, "", ""))
    lines.add(("", "another"), "new", (1, 0, "", ""))
    lines.discard(("", "another"), "new", (1, 0, "", ""))
    assert list(lines.walk(HERE, line, {"new"})) == [(1, 0, "", "")]
    lines.discard(HERE, "new", (1, 0, "", ""))
    for key in PLACES:
        assert lines
        lines.discard(HERE, "other" if key[1] % 3 else "mine", key)
    assert not lines


def test_a_queue_drained_by_task_is_followed_no_longer():
    with closing(Engine(open_store("memory:"))) as engine:
        fill(engine, (PASSED + 1, "other"), (1, "mine"))
        tables = engine.store._tables
        for task in ("mine", "other"):
            assert bool(tables._task_lines) == (task == "other")
            ask = Lease(worker_id="w", n=100, job_types=(task,), session_id=engine.session_id)
            for grant in engine.ask(ask).grants:
                engine.ask(Complete(job_id=grant.job.job_id, token=grant.token, result=EMPTY))
        assert not tables._task_lines
