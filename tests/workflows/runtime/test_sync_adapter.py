"""`def` workflows: the same history, the same rules, in a thread that runs in lockstep."""

import asyncio
import threading

import pytest
from flowskit import assert_alike, events, kinds_of, run

from holdfast.errors import ActivityError, WorkflowNotAllowed
from holdfast.workflows.api import context as hf
from holdfast.workflows.runtime import sync_adapter
from holdfast.workflows.runtime.sync_adapter import Evicted
from support.flows import START_MS, World


def double_in(world):
    def double(x: int) -> int:
        if x == 13:
            raise ValueError("unlucky")
        return 2 * x

    return world.activity(double)


def sequence(world):
    double = double_in(world)

    def main() -> list:
        found = [double.call(1), hf.step(int, "7")]
        hf.sleep(60)
        found.append(hf.now().timestamp() - hf.info().started_at.timestamp())
        try:
            double.call(13)
        except ValueError as problem:
            found.append(isinstance(problem, ActivityError))
        return found

    return world.workflow(main)


def parallel(world):
    double = double_in(world)

    def main() -> list:
        pending = [double.begin(n) for n in range(5)]
        done, rest = hf.wait(pending, first=True)
        assert len(done) + len(rest) == 5
        hf.wait(pending)
        return [one.result() for one in pending]

    return world.workflow(main)


@pytest.mark.parametrize("build", [sequence, parallel], ids=["sequence", "parallel"])
def test_it_comes_out_alike_in_every_order_and_through_every_crash(build):
    assert_alike(build, 10)


def test_the_calls_block_and_give_results():
    assert run(sequence).result() == [2, 7, 60.0, True]


def test_its_history_is_that_of_an_async_workflow():
    def build_async(world):
        double = double_in(world)

        async def main() -> int:
            found = await double.call(1)
            await asyncio.sleep(5)
            return found + await hf.step(int, "7")

        return world.workflow(main)

    def build_def(world):
        double = double_in(world)

        def main() -> int:
            found = double.call(1)
            hf.sleep(5)
            return found + hf.step(int, "7")

        return world.workflow(main)

    one, other = run(build_async), run(build_def)
    assert kinds_of(one.history()) == kinds_of(other.history())
    assert events(one).keys() == events(other).keys()


def test_signals_decisions_and_children_block_too():
    world = World()

    def child(n: int) -> int:
        return n + 1

    child = world.workflow(child)

    def main() -> list:
        word = hf.signal("word")
        answer = hf.decision("Go?", ["yes", "no"])
        return [word, answer, child.call(4)]

    world.start(world.workflow(main))
    world.signal("word", "hello")
    world.settle()
    world.answer(3, "yes")
    world.settle()
    assert world.result() == ["hello", "yes", 5]


def test_a_timed_wait_gives_what_is_done():
    world = World()

    def child(n: int) -> int:
        hf.sleep(n)
        return n

    child = world.workflow(child)

    def main() -> list:
        pending = [child.begin(n) for n in (1, 100)]
        done, rest = hf.wait(pending, timeout=10)
        for one in rest:
            one.cancel()
        return [len(done), len(rest), done[0].result()]

    assert world.run(world.workflow(main)) == [1, 1, 1]
    assert world.now_ms < START_MS + 50_000


def test_cancellation_is_raised_at_the_blocking_call():
    world = World()

    def main() -> str:
        try:
            hf.signal("never")
        except asyncio.CancelledError as stop:
            hf.sleep(5)
            return f"{stop} {hf.step(str, 'swept')}"
        return ""

    world.start(world.workflow(main))
    world.cancel("enough")
    world.settle()
    assert world.result() == "enough swept"


def test_eviction_ends_the_thread_where_it_blocks():
    world = World()
    story = []

    def main() -> None:
        try:
            hf.signal("go")
        except Evicted:
            story.append("evicted")
            raise
        finally:
            try:
                hf.step(int, 1)
            except BaseException as problem:  # noqa: BLE001 - whichever it is
                story.append(type(problem).__name__)

    before = threading.active_count()
    world.start(world.workflow(main))
    world.settle()
    assert threading.active_count() == before + 1
    world.forget()
    assert threading.active_count() == before
    assert story[0] == "evicted"
    assert len(story) == 2


def test_a_thread_that_catches_even_its_eviction_is_left_to_wait(monkeypatch):
    monkeypatch.setattr(sync_adapter, "PATIENCE", 0.1)
    world = World()
    tries = []

    def main() -> None:
        while len(tries) < 100_000:
            try:
                hf.signal("go")
            except BaseException:  # noqa: BLE001 - what is tried here
                tries.append("again")

    world.start(world.workflow(main))
    world.settle()
    world.forget()
    assert len(tries) <= sync_adapter.MANY_REFUSALS + 1


def test_threads_are_refused_in_there_too():
    world = World(guarded=True)

    def main() -> str:
        try:
            threading.Thread(target=print).start()
        except WorkflowNotAllowed as problem:
            return str(problem)
        return ""

    assert "hf.step" in world.run(world.workflow(main))


def test_continue_as_new_ends_the_thread():
    world = World()

    def main(n: int = 0) -> int:
        if n < 3:
            hf.continue_as_new(n + 1)
        return n

    before = threading.active_count()
    assert world.run(world.workflow(main)) == 3
    assert threading.active_count() == before


def test_async_workflows_are_told_what_to_use():
    world = World()
    double = double_in(world)

    async def main() -> list[str]:
        found = []
        for wrong in (lambda: double.begin(1), lambda: hf.wait([])):
            try:
                wrong()
            except WorkflowNotAllowed as problem:
                found.append(str(problem))
        return found

    begin, wait = world.run(world.workflow(main))
    assert "create_task" in begin
    assert "asyncio.wait" in wait
