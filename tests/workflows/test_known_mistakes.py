"""Mistakes known from other engines, on every store, with crashes all along: none of them is made here."""

import asyncio
import random

import pytest
from storekit import crashes, in_order, run_on, signal

from holdfast import Holdfast
from holdfast.app.tasks.signature_codec import SignatureCodec
from holdfast.errors import ActivityTimeout, NondeterminismError
from holdfast.testing import virtual
from holdfast.testing.crashsafe.cast import Cast
from holdfast.testing.crashsafe.faults import Fault, What
from holdfast.testing.crashsafe.grounds import STORES
from holdfast.workflows.api import context as hf
from holdfast.workflows.api.definitions import Definition
from holdfast.workflows.api.workflow import Workflow, activity

#: Commits between two crashes. Opening a store on disk again takes longer than all else.
APART = {"memory:": 3, "sqlite:": 29, "wal:": 23, "dir:": 31}


def workflow(function):
    return Workflow(Definition(function=function, codec=SignatureCodec(function), name=function.__name__))


def faults(store, seed=7):
    when = What.CRASH_AFTER if seed % 2 else What.CRASH_BEFORE
    return [in_order(seed), *crashes(when, seed % APART[store], APART[store], 5000), Fault(What.NO_RESIDENCY)]


@pytest.mark.parametrize("store", STORES)
def test_fifty_parallel_steps_that_end_in_any_order_keep_their_numbers_through_crashes(store):
    ended = []

    async def square(n: int) -> int:
        ended.append(n)
        return n * n

    @workflow
    async def wide() -> list[int]:
        found = await asyncio.gather(*(hf.step(square, n) for n in range(50)))
        return [*found, await hf.step(sum, found)]

    for seed in range(4 if store == "memory:" else 1):
        world, results = run_on(store, Cast(wide), faults(store, seed), lambda world: world.start(wide))
        assert results["i"] == [*(n * n for n in range(50)), 40425]
        assert world.crashed
    assert ended != sorted(ended)


@pytest.mark.parametrize("store", STORES)
def test_signals_sent_throughout_a_hundred_continuations_arrive_once_and_in_order(store):
    @workflow
    async def collector(times: int, got: list[int]) -> list[int]:
        got.append(await hf.signal("n", type=int))
        if times:
            hf.continue_as_new(times - 1, got)
        return [*got, *[await hf.signal("n", type=int) for _ in range(20)]]

    def begin(world):
        world.start(collector, 100, [])
        for n in range(121):
            signal(world, "n", n)

    world, results = run_on(store, Cast(collector), faults(store), begin)
    assert results["i"] == list(range(121))
    assert world.crashed


def test_five_hundred_unread_signals_go_on_without_a_cap():
    @workflow
    async def late(times: int) -> list[int]:
        if times:
            await hf.signal("go on")
            hf.continue_as_new(times - 1)
        return [await hf.signal("n", type=int) for _ in range(500)]

    def begin(world):
        world.start(late, 3)
        for n in range(500):
            signal(world, "n", n)
        for _ in range(3):
            signal(world, "go on", None)

    _, results = run_on("memory:", Cast(late), crashes(What.CRASH_AFTER, 490, 7, 5000), begin)
    assert results["i"] == list(range(500))


@pytest.mark.parametrize("store", STORES)
def test_signals_that_come_before_the_start_and_before_the_wait_are_kept(store):
    @workflow
    async def patient() -> list[int]:
        await asyncio.sleep(60)
        return [await hf.signal("n", type=int) for _ in range(6)]

    def begin(world):
        for n in range(6):
            signal(world, "n", n)
        world.start(patient)
        world._outside.sort(key=lambda found: type(found[1]).__name__ != "QueueMessage")  # the start comes last

    _, results = run_on(store, Cast(patient), faults(store), begin)
    assert results["i"] == list(range(6))


@pytest.mark.parametrize("store", STORES)
def test_a_parent_hears_children_that_continue_as_new_and_is_continued_itself(store):
    @workflow
    async def child(n: int, left: int) -> int:
        await asyncio.sleep(1)
        if left:
            hf.continue_as_new(n + 1, left - 1)
        if n < 0:
            raise ValueError("no")
        return n

    @workflow
    async def parent(times: int) -> list[int | str]:
        found = await asyncio.gather(*(child.call(n, 3) for n in (0, 10, -20)), return_exceptions=True)
        if times:
            hf.continue_as_new(times - 1)
        return [one if isinstance(one, int) else type(one).__name__ for one in found]

    def begin(world):
        world.start(parent, 2)

    world, results = run_on(store, Cast(parent, child), faults(store), begin)
    assert results["i"] == [3, 13, "ChildError"]
    assert world.crashed


@pytest.mark.parametrize("store", STORES)
def test_activities_of_an_execution_before_never_answer_the_next_one(store):
    def echo(n: int) -> int:
        return n

    echoed = activity(echo, SignatureCodec(echo), name="echo")

    @workflow
    async def hurried(times: int) -> int:
        left = [asyncio.create_task(echoed.call(100 * times + n)) for n in range(5)]
        found = await left[0]
        if times:
            hf.continue_as_new(times - 1)
        return found

    cast = Cast(hurried, stubs={"echo": echo})
    _, results = run_on(store, cast, faults(store), lambda world: world.start(hurried, 4))
    assert results["i"] == 0


def test_a_timed_out_attempt_is_tried_again_and_the_total_timeout_bounds_them_all():
    app = Holdfast("memory:")
    worlds, slow = [], []

    @app.task(name="slow", max_attempts=5)
    def crawl(seconds: float) -> str:
        slow.append(seconds)
        worlds[-1].clock.advance(seconds if len(slow) % 3 else 0)
        return "done"

    @app.workflow
    async def retried() -> str:
        return await crawl.options(timeout=60).call(100.0)

    @app.workflow
    async def bounded() -> str:
        try:
            return await crawl.options(timeout=60, total_timeout=150).call(100.0)
        except ActivityTimeout as late:
            return type(late).__name__

    with virtual(app) as world:
        worlds.append(world)
        assert world.run(retried.start()) == "done"
        assert len(slow) == 3
        assert world.run(bounded.start()) == "ActivityTimeout"


@pytest.mark.parametrize("seed", range(3))
def test_one_instance_that_cannot_go_on_keeps_nobody_else_from_it(seed):
    """Many instances, one of whose code changed under way and one whose activity fails: the rest come to their end."""
    app = Holdfast("memory:")
    state = {"changed": False}

    @app.task(name="work", max_attempts=1)
    def work(n: int) -> int:
        if n == 13:
            raise ValueError("unlucky")
        return n

    @app.workflow
    async def one(n: int) -> int:
        if n == 7 and state["changed"]:
            await asyncio.sleep(1)
        found = await work.call(n)
        await app.signal("go")
        return found

    with virtual(app) as world:
        runs = [one.start(n, id=f"r{n}") for n in range(20)]
        world.settle()
        world.crash()
        state["changed"] = True
        random.Random(seed).shuffle(runs)
        for run in runs:
            if run.id != "r13":
                run.signal("go")
        with pytest.raises(NondeterminismError, match="r7"):
            world.settle()
        world.settle()
        ended = {run.id: str(run.status().status) for run in runs}
        assert {name for name, status in ended.items() if status != "COMPLETED"} == {"r7", "r13"}
        assert (ended["r7"], ended["r13"]) == ("RUNNING", "FAILED")
        state["changed"] = False
        assert world.run(app.instance("r7")) == 7
