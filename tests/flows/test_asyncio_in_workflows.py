"""Plain asyncio in workflows: the same result in every order of completion, from memory or history, through crashes."""

import asyncio
import contextlib
import contextvars

import pytest
from flowskit import ORDERS, assert_alike, run

from holdfast.flows import face as hf


def double_in(world):
    def double(x: int) -> int:
        return 2 * x

    return world.activity(double)


def fail_in(world):
    def fail(x: int) -> int:
        raise ValueError(f"no {x}")

    return world.activity(fail)


def gather(world):
    double = double_in(world)

    async def main() -> list[int]:
        return await asyncio.gather(*(double.call(n) for n in range(5)))

    return world.workflow(main)


def gather_of_long_branches(world):
    double = double_in(world)

    async def branch(n: int) -> int:
        first = await double.call(n)
        await asyncio.sleep(n)
        second = await hf.step(abs, -first)
        return await double.call(second)

    async def main() -> list[int]:
        inner = asyncio.gather(branch(1), branch(2))
        outer = await asyncio.gather(inner, branch(3), double.call(4))
        return [*outer[0], *outer[1:]]

    return world.workflow(main)


def gather_with_exceptions(world):
    double, fail = double_in(world), fail_in(world)

    async def main() -> list[str]:
        found = await asyncio.gather(double.call(1), fail.call(2), double.call(3), fail.call(4), return_exceptions=True)
        return [
            f"{type(one).__name__} {isinstance(one, ValueError)}" if not isinstance(one, int) else str(one)
            for one in found
        ]

    return world.workflow(main)


def task_group(world):
    double = double_in(world)

    async def main() -> list[int]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(double.call(n)) for n in range(4)]
            async with asyncio.TaskGroup() as inner:
                tasks.extend(inner.create_task(double.call(n)) for n in range(4, 7))
        return [task.result() for task in tasks]

    return world.workflow(main)


def task_group_with_failures(world):
    double, fail = double_in(world), fail_in(world)

    async def main() -> list[str]:
        found = []
        try:
            async with asyncio.TaskGroup() as group:
                for n in range(3):
                    group.create_task(double.call(n))
                group.create_task(fail.call(7))
                group.create_task(asyncio.sleep(1000))
        except* ValueError as group_of:
            found = [type(one).__name__ for one in group_of.exceptions]
        return found

    return world.workflow(main)


def wait_for_the_first(world):
    double = double_in(world)

    async def main() -> list[int]:
        pending = {asyncio.create_task(double.call(n)) for n in range(6)}
        found = []
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            found.extend(task.result() for task in done)
            await hf.step(int)
        return sorted(found)

    return world.workflow(main)


def wait_with_timeout(world):
    double = double_in(world)

    async def main() -> list[int]:
        tasks = [asyncio.create_task(asyncio.sleep(seconds, seconds)) for seconds in (5, 10, 20)]
        done, pending = await asyncio.wait(tasks, timeout=12)
        for task in pending:
            task.cancel()
        await asyncio.wait(pending)
        assert all(task.cancelled() for task in pending)
        return [*sorted(task.result() for task in done), len(pending), await double.call(1)]

    return world.workflow(main)


def wait_over_gathers(world):
    double = double_in(world)

    async def main() -> int:
        groups = [asyncio.gather(double.call(n), double.call(n + 1)) for n in range(4)]
        done, _ = await asyncio.wait(groups)
        return sum(sum(group.result()) for group in done)

    return world.workflow(main)


def wait_for(world):
    double = double_in(world)

    async def main() -> list[str]:
        found = [str(await asyncio.wait_for(double.call(1), 60))]
        try:
            await asyncio.wait_for(hf.signal("never"), 60)
        except TimeoutError:
            found.append("late")
        return found

    return world.workflow(main)


def timeouts_within_timeouts(world):
    double = double_in(world)

    async def main() -> list[str]:
        found = []
        try:
            async with asyncio.timeout(100):
                try:
                    async with asyncio.timeout(10):
                        await asyncio.sleep(50)
                except TimeoutError:
                    found.append("inner")
                found.append(str(await double.call(3)))
                await hf.signal("never")
        except TimeoutError:
            found.append("outer")
        found.append(str(hf.now().timestamp() - hf.info().started_at.timestamp()))
        return found

    return world.workflow(main)


def shield(world):
    double = double_in(world)

    async def main() -> int:
        kept = asyncio.create_task(double.call(4))
        outer = asyncio.create_task(asyncio.wait_for(asyncio.shield(kept), 5))
        await asyncio.sleep(0)
        outer.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await outer
        return await kept

    return world.workflow(main)


def event(world):
    double = double_in(world)

    async def main() -> list[int]:
        opened = asyncio.Event()

        async def wait(n: int) -> int:
            await opened.wait()
            return await double.call(n)

        waiting = [asyncio.create_task(wait(n)) for n in range(3)]
        await double.call(9)
        opened.set()
        return [await task for task in waiting]

    return world.workflow(main)


def queue(world):
    double = double_in(world)

    async def main() -> list[int]:
        numbers: asyncio.Queue[int] = asyncio.Queue(maxsize=2)
        found: list[int] = []

        async def consume() -> None:
            while True:
                n = await numbers.get()
                found.append(await double.call(n))
                numbers.task_done()

        consumers = [asyncio.create_task(consume()) for _ in range(3)]
        for n in range(7):
            await numbers.put(n)
        await numbers.join()
        for consumer in consumers:
            consumer.cancel()
        return sorted(found)

    return world.workflow(main)


def semaphore(world):
    double = double_in(world)

    async def main() -> list[int]:
        places, most, inside = asyncio.Semaphore(2), 0, 0

        async def one(n: int) -> int:
            nonlocal most, inside
            async with places:
                inside += 1
                most = max(most, inside)
                result = await double.call(n)
                inside -= 1
            return result

        return [*await asyncio.gather(*(one(n) for n in range(6))), most]

    return world.workflow(main)


def lock(world):
    double = double_in(world)

    async def main() -> list[str]:
        mutex, story = asyncio.Lock(), []

        async def one(n: int) -> None:
            async with mutex:
                story.append(f"in {n}")
                await double.call(n)
                story.append(f"out {n}")

        await asyncio.gather(*(one(n) for n in range(4)))
        return story

    return world.workflow(main)


def condition(world):
    double = double_in(world)

    async def main() -> int:
        changed, total = asyncio.Condition(), 0

        async def add(n: int) -> None:
            nonlocal total
            found = await double.call(n)
            async with changed:
                total += found
                changed.notify_all()

        adding = [asyncio.create_task(add(n)) for n in range(5)]
        async with changed:
            await changed.wait_for(lambda: total == 20)
        await asyncio.gather(*adding)
        return total

    return world.workflow(main)


def barrier(world):
    double = double_in(world)

    async def main() -> list[int]:
        together = asyncio.Barrier(3)
        reached = 0

        async def one(n: int) -> int:
            nonlocal reached
            await double.call(n)
            reached += 1
            async with together:
                return reached

        return await asyncio.gather(*(one(n) for n in range(3)))

    return world.workflow(main)


def async_generator(world):
    double = double_in(world)

    async def main() -> list[int]:
        closed = []

        async def numbers():
            try:
                for n in range(10):
                    yield await double.call(n)
            finally:
                closed.append(await hf.step(int, 7))

        async with contextlib.aclosing(numbers()) as source:
            found = [n async for n in _until(source, 6)]
        return [*found, *closed]

    async def _until(source, end):
        async for n in source:
            yield n
            if n >= end:
                return

    return world.workflow(main)


def async_context_manager(world):
    double, fail = double_in(world), fail_in(world)

    async def main() -> list[str]:
        story = []

        @contextlib.asynccontextmanager
        async def borrowed(n: int):
            story.append(f"borrowed {await double.call(n)}")
            try:
                yield n
            finally:
                story.append(f"returned {await double.call(n)}")

        try:
            async with borrowed(1), contextlib.AsyncExitStack() as stack:
                await stack.enter_async_context(borrowed(2))
                await fail.call(3)
        except ValueError as problem:
            story.append(type(problem).__name__)
        return story

    return world.workflow(main)


def exceptions_of_branches(world):
    double, fail = double_in(world), fail_in(world)

    async def branch(n: int) -> int:
        try:
            return await fail.call(n)
        except ValueError as problem:
            raise KeyError(n) from problem

    async def main() -> list[str]:
        story = []
        try:
            await asyncio.gather(branch(1), double.call(2))
        except KeyError as problem:
            story.append(f"{problem!r} from {type(problem.__cause__).__name__}")
        results = await asyncio.gather(branch(3), branch(4), return_exceptions=True)
        return [*story, *map(repr, results)]

    return world.workflow(main)


def context_variables(world):
    double = double_in(world)
    depth: contextvars.ContextVar[int] = contextvars.ContextVar("depth", default=0)

    async def branch(n: int) -> list[int]:
        depth.set(depth.get() + n)
        await double.call(n)
        return [depth.get(), *([] if n == 0 else await asyncio.create_task(branch(n - 1)))]

    async def main() -> list[list[int]]:
        depth.set(100)
        return [*await asyncio.gather(branch(1), branch(2)), [depth.get()]]

    return world.workflow(main)


def as_completed(world):
    double = double_in(world)

    async def main() -> list[int]:
        return sorted([await one for one in hf.as_completed([double.call(n) for n in range(5)])])

    return world.workflow(main)


def parallel_steps(world):
    async def later(n: int) -> int:
        return n * n

    async def main() -> list[int]:
        return await asyncio.gather(*(hf.step(later, n) for n in range(10)))

    return world.workflow(main)


def cancelled_tasks(world):
    double = double_in(world)

    async def main() -> list[str]:
        story = []

        async def worker(n: int) -> None:
            try:
                await hf.signal("never")
            except asyncio.CancelledError:
                story.append(f"stopped {n} {await double.call(n)}")
                raise

        tasks = [asyncio.create_task(worker(n)) for n in range(3)]
        await asyncio.sleep(1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return sorted(story)

    return world.workflow(main)


def signals(world):
    double = double_in(world)

    async def main() -> list[list[int]]:
        names = ("left", "right")
        found = await asyncio.gather(*(_collect(name) for name in names), double.call(1))
        return list(found[:2])

    async def _collect(name: str) -> list[int]:
        return [await hf.signal(name, type=int) for _ in range(5)]

    world.from_outside = [lambda n=n, name=name: world.signal(name, n) for n in range(5) for name in ("left", "right")]
    return world.workflow(main)


FEATURES = [
    gather,
    gather_of_long_branches,
    gather_with_exceptions,
    task_group,
    task_group_with_failures,
    wait_for_the_first,
    wait_with_timeout,
    wait_over_gathers,
    wait_for,
    timeouts_within_timeouts,
    shield,
    event,
    queue,
    semaphore,
    lock,
    condition,
    barrier,
    async_generator,
    async_context_manager,
    exceptions_of_branches,
    context_variables,
    as_completed,
    parallel_steps,
    cancelled_tasks,
    signals,
]


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.__name__)
def test_it_comes_out_alike_in_every_order_and_through_every_crash(feature):
    assert_alike(feature, ORDERS)


def test_what_the_features_give_is_what_asyncio_gives():
    found = {feature.__name__: run(feature).result() for feature in FEATURES}
    assert found == {
        "gather": [0, 2, 4, 6, 8],
        "gather_of_long_branches": [4, 8, 12, 8],
        "gather_with_exceptions": ["2", "ActivityError True", "6", "ActivityError True"],
        "task_group": [0, 2, 4, 6, 8, 10, 12],
        "task_group_with_failures": ["ActivityError"],
        "wait_for_the_first": [0, 2, 4, 6, 8, 10],
        "wait_with_timeout": [5, 10, 1, 2],
        "wait_over_gathers": 32,
        "wait_for": ["2", "late"],
        "timeouts_within_timeouts": ["inner", "6", "outer", "100.0"],
        "shield": 8,
        "event": [0, 2, 4],
        "queue": [0, 2, 4, 6, 8, 10, 12],
        "semaphore": [0, 2, 4, 6, 8, 10, 2],
        "lock": ["in 0", "out 0", "in 1", "out 1", "in 2", "out 2", "in 3", "out 3"],
        "condition": 20,
        "barrier": [3, 3, 3],
        "async_generator": [0, 2, 4, 6, 7],
        "async_context_manager": ["borrowed 2", "borrowed 4", "returned 4", "returned 2", "ActivityError"],
        "exceptions_of_branches": ["KeyError(1) from ActivityError", "KeyError(3)", "KeyError(4)"],
        "context_variables": [[101, 101], [102, 103, 103], [100]],
        "as_completed": [0, 2, 4, 6, 8],
        "parallel_steps": [0, 1, 4, 9, 16, 25, 36, 49, 64, 81],
        "cancelled_tasks": ["stopped 0 0", "stopped 1 2", "stopped 2 4"],
        "signals": [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]],
    }
