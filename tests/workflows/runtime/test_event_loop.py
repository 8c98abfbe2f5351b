"""The loop: first in first out, time from history, and the same names and hashes on every replay."""

import asyncio
import gc

import pytest
from flowskit import kinds_of, run

from holdfast.workflows.api import context as hf
from support.flows import START_MS, World


def result_of(main, **options):
    world = World(**options)
    return world.run(world.workflow(main))


def test_ready_callbacks_run_in_the_order_they_were_asked_for():
    async def main() -> list[int]:
        story = []
        loop = asyncio.get_running_loop()
        for n in range(5):
            loop.call_soon(story.append, n)
        loop.call_later(0, story.append, 5)
        loop.call_later(-1, story.append, 6)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return story

    assert result_of(main) == [0, 1, 2, 3, 4, 5, 6]


def test_sleep_zero_only_yields():
    async def main() -> None:
        await asyncio.sleep(0)

    world = run(lambda world: world.workflow(main))
    assert kinds_of(world.history()) == ["OrchestrationStarted", "OrchestrationCompleted"]


def test_time_is_that_of_the_last_event_and_constant_between_events():
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        times = [loop.time(), hf.now().timestamp()]
        await asyncio.sleep(0)
        times.append(loop.time())
        await asyncio.sleep(2.5)
        return [*times, loop.time(), hf.now().timestamp()]

    begin = START_MS / 1000
    assert result_of(main) == [begin, begin, begin, begin + 2.5, begin + 2.5]


@pytest.mark.parametrize(
    ("seconds", "milliseconds"), [(0.0001, 1), (0.001, 1), (0.0011, 2), (0.1, 100), (86400.3, 86400300)]
)
def test_a_timer_is_rounded_up_to_the_millisecond(seconds, milliseconds):
    async def main() -> None:
        await asyncio.sleep(seconds)

    world = run(lambda world: world.workflow(main))
    assert world.history()[1].kind.fire_at_ms == START_MS + milliseconds


def test_a_clock_that_steps_back_does_not_take_time_back():
    async def main() -> list[float]:
        times = []
        for _ in range(3):
            await hf.signal("tick")
            times.append(hf.now().timestamp())
        return times

    world = World(batches=False)
    world.start(world.workflow(main))
    for step in (0, 60, -120, 30):
        world.advance(step)
        world.signal("tick")
        world.settle(world.now_ms)
    assert world.result() == sorted(world.result())
    stamps = [event.timestamp_ms for event in world.history()]
    assert stamps == sorted(stamps)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 101 * 366 * 86_400.0])
def test_a_delay_that_is_no_number_or_too_long_is_refused_and_nothing_is_written(seconds):
    async def main() -> str:
        try:
            await asyncio.sleep(seconds)
        except ValueError as problem:  # ours, or that of a newer interpreter
            return str(problem)
        return ""

    world = run(lambda world: world.workflow(main))
    assert "100 years" in world.result() or "NaN" in world.result()
    assert kinds_of(world.history()) == ["OrchestrationStarted", "OrchestrationCompleted"]


def test_tasks_are_named_alike_on_every_replay():
    async def main() -> list[str]:
        async def name() -> str:
            await hf.signal("never") if False else await asyncio.sleep(1)
            return asyncio.current_task().get_name()

        return await asyncio.gather(name(), name(), asyncio.create_task(name(), name="mine"))

    first, second = result_of(main), result_of(main, sticky=False)
    assert first == second
    assert first[2] == "mine"


def test_sets_of_tasks_and_futures_iterate_alike_on_every_run():
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        tasks = [asyncio.create_task(asyncio.sleep(1, n)) for n in range(40)]
        futures = [loop.create_future() for _ in range(40)]
        gathers = [asyncio.gather(asyncio.sleep(1, n)) for n in range(40)]
        done, _ = await asyncio.wait([*tasks, *gathers])
        order = {future: n for n, future in enumerate(futures)}
        return [
            *(one.result() if isinstance(one.result(), int) else one.result()[0] for one in done),
            *(order[one] for one in set(futures)),
        ]

    padding = [object() for _ in range(1000)]  # other addresses for what follows
    first = result_of(main)
    del padding[::3]
    assert result_of(main) == first


def test_a_task_nobody_holds_is_not_lost_to_the_garbage_collector():
    async def main() -> list[int]:
        found = []

        async def work(n: int) -> None:
            await asyncio.sleep(10)
            found.append(n)

        for n in range(3):
            asyncio.create_task(work(n))  # noqa: RUF006 - nobody holds it, on purpose
        await asyncio.sleep(0)
        gc.collect()
        await asyncio.sleep(20)
        return found

    assert result_of(main) == [0, 1, 2]


def test_an_abandoned_generator_is_closed_by_the_end_and_never_by_chance():
    story = []

    async def numbers():
        try:
            for n in range(10):
                yield n
        finally:
            story.append("closed")

    async def main() -> list[str]:
        async for _ in numbers():
            break
        gc.collect()
        await asyncio.sleep(1)
        return list(story)

    assert result_of(main) == []
    assert story == ["closed"]


def test_many_tasks_and_generators_that_ended_are_let_go():
    async def main() -> int:
        async def one(n: int):
            yield n

        total = 0
        for n in range(500):
            total += await asyncio.create_task(asyncio.sleep(0, n))
            async for found in one(n):
                total += found
        loop = asyncio.get_running_loop()
        assert len(loop._tasks) < 200
        assert len(loop._generators) < 200
        return total

    assert result_of(main) == 2 * sum(range(500))


def test_a_lost_exception_is_logged_once_and_not_in_replay(caplog):
    async def main() -> None:
        async def breaks() -> None:
            raise ValueError("nobody looks")

        asyncio.create_task(breaks())  # noqa: RUF006 - nobody looks at it, on purpose
        for _ in range(3):
            await asyncio.sleep(1)

    world = World(sticky=False)
    world.start(world.workflow(main))
    while world.move() or world._jump(None):
        gc.collect()
    assert [record.message for record in caplog.records].count("workflow.exception_lost") <= 1
