"""A catalogue of asyncio programs, each with what it must come to in every order, on every store, through every crash.

They stand in a module so that another process finds them. What they give may not depend on the order in which their
activities, steps, timers and signals complete: that is what makes them comparable, and what asyncio makes easy.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.app.tasks.signature_codec import SignatureCodec
from holdfast.workflows.api import context as hf
from holdfast.workflows.api.definitions import Definition
from holdfast.workflows.api.workflow import Workflow, activity
from support.flows import World


class Program(NamedTuple):
    workflow: Workflow[..., Any]
    #: What it returns.
    result: Any
    #: Name and data, sent from outside in this order.
    signals: Sequence[tuple[str, Any]]

    @property
    def name(self) -> str:
        return self.workflow.name

    def __call__(self, world: World) -> Workflow[..., Any]:
        """Take part in a world in memory."""
        world.definitions.add(self.workflow.definition)
        world.activities.update({name: (function, CODECS[name]) for name, function in STUBS.items()})
        world.from_outside = [lambda one=one: world.signal(*one) for one in self.signals]  # type: ignore[attr-defined]
        return self.workflow


PROGRAMS: list[Program] = []


def program(result: Any, signals: Sequence[tuple[str, Any]] = ()):
    def register(function):
        definition = Definition(function=function, codec=SignatureCodec(function), name=function.__name__)
        PROGRAMS.append(Program(Workflow(definition), result, signals))
        return PROGRAMS[-1].workflow

    return register


def _double(x: int) -> int:
    return 2 * x


def _fail(x: int) -> int:
    raise ValueError(f"no {x}")


STUBS = {"double": _double, "fail": _fail}
CODECS = {name: SignatureCodec(function) for name, function in STUBS.items()}
double = activity(_double, CODECS["double"], name="double")
fail = activity(_fail, CODECS["fail"], name="fail")


@program([0, 2, 4, 6, 8])
async def gather() -> list[int]:
    return await asyncio.gather(*(double.call(n) for n in range(5)))


async def long_branch(n: int) -> int:
    first = await double.call(n)
    await asyncio.sleep(n)
    second = await hf.step(abs, -first)
    return await double.call(second)


@program([4, 8, 12, 8])
async def gather_of_long_branches() -> list[int]:
    inner = asyncio.gather(long_branch(1), long_branch(2))
    outer = await asyncio.gather(inner, long_branch(3), double.call(4))
    return [*outer[0], *outer[1:]]


@program(["2", "ActivityError True", "6", "ActivityError True"])
async def gather_with_exceptions() -> list[str]:
    found = await asyncio.gather(double.call(1), fail.call(2), double.call(3), fail.call(4), return_exceptions=True)
    return [
        f"{type(one).__name__} {isinstance(one, ValueError)}" if not isinstance(one, int) else str(one) for one in found
    ]


@program([0, 2, 4, 6, 8, 10, 12])
async def task_group() -> list[int]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(double.call(n)) for n in range(4)]
        async with asyncio.TaskGroup() as inner:
            tasks.extend(inner.create_task(double.call(n)) for n in range(4, 7))
    return [task.result() for task in tasks]


@program(["ActivityError"])
async def task_group_with_failures() -> list[str]:
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


@program([0, 2, 4, 6, 8, 10])
async def wait_for_the_first() -> list[int]:
    pending = {asyncio.create_task(double.call(n)) for n in range(6)}
    found = []
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        found.extend(task.result() for task in done)
        await hf.step(int)
    return sorted(found)


@program([5, 10, 1, 2])
async def wait_with_timeout() -> list[int]:
    tasks = [asyncio.create_task(asyncio.sleep(seconds, seconds)) for seconds in (5, 10, 20)]
    done, pending = await asyncio.wait(tasks, timeout=12)
    for task in pending:
        task.cancel()
    await asyncio.wait(pending)
    assert all(task.cancelled() for task in pending)
    return [*sorted(task.result() for task in done), len(pending), await double.call(1)]


@program(32)
async def wait_over_gathers() -> int:
    groups = [asyncio.gather(double.call(n), double.call(n + 1)) for n in range(4)]
    done, _ = await asyncio.wait(groups)
    return sum(sum(group.result()) for group in done)


@program(["2", "late"])
async def wait_for() -> list[str]:
    found = [str(await asyncio.wait_for(double.call(1), 60))]
    try:
        await asyncio.wait_for(hf.signal("never"), 60)
    except TimeoutError:
        found.append("late")
    return found


@program(["inner", "6", "outer", "100.0"])
async def timeouts_within_timeouts() -> list[str]:
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


@program(8)
async def shield() -> int:
    kept = asyncio.create_task(double.call(4))
    outer = asyncio.create_task(asyncio.wait_for(asyncio.shield(kept), 5))
    await asyncio.sleep(0)
    outer.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await outer
    return await kept


@program([0, 2, 4])
async def event() -> list[int]:
    opened = asyncio.Event()

    async def wait(n: int) -> int:
        await opened.wait()
        return await double.call(n)

    waiting = [asyncio.create_task(wait(n)) for n in range(3)]
    await double.call(9)
    opened.set()
    return [await task for task in waiting]


@program([0, 2, 4, 6, 8, 10, 12])
async def queue() -> list[int]:
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


@program([0, 2, 4, 6, 8, 10, 2])
async def semaphore() -> list[int]:
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


@program(["in 0", "out 0", "in 1", "out 1", "in 2", "out 2", "in 3", "out 3"])
async def lock() -> list[str]:
    mutex, story = asyncio.Lock(), []

    async def one(n: int) -> None:
        async with mutex:
            story.append(f"in {n}")
            await double.call(n)
            story.append(f"out {n}")

    await asyncio.gather(*(one(n) for n in range(4)))
    return story


@program(20)
async def condition() -> int:
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


@program([3, 3, 3])
async def barrier() -> list[int]:
    together = asyncio.Barrier(3)
    reached = 0

    async def one(n: int) -> int:
        nonlocal reached
        await double.call(n)
        reached += 1
        async with together:
            return reached

    return await asyncio.gather(*(one(n) for n in range(3)))


@program([0, 2, 4, 6, 7])
async def async_generator() -> list[int]:
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


@program(["borrowed 2", "borrowed 4", "returned 4", "returned 2", "ActivityError"])
async def async_context_manager() -> list[str]:
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


async def failing_branch(n: int) -> int:
    try:
        return await fail.call(n)
    except ValueError as problem:
        raise KeyError(n) from problem


@program(["KeyError(1) from ActivityError", "KeyError(3)", "KeyError(4)"])
async def exceptions_of_branches() -> list[str]:
    story = []
    try:
        await asyncio.gather(failing_branch(1), double.call(2))
    except KeyError as problem:
        story.append(f"{problem!r} from {type(problem.__cause__).__name__}")
    results = await asyncio.gather(failing_branch(3), failing_branch(4), return_exceptions=True)
    return [*story, *map(repr, results)]


depth: contextvars.ContextVar[int] = contextvars.ContextVar("depth", default=0)


async def deeper(n: int) -> list[int]:
    depth.set(depth.get() + n)
    await double.call(n)
    return [depth.get(), *([] if n == 0 else await asyncio.create_task(deeper(n - 1)))]


@program([[101, 101], [102, 103, 103], [100]])
async def context_variables() -> list[list[int]]:
    depth.set(100)
    return [*await asyncio.gather(deeper(1), deeper(2)), [depth.get()]]


@program([0, 2, 4, 6, 8])
async def as_completed() -> list[int]:
    return sorted([await one for one in hf.as_completed([double.call(n) for n in range(5)])])


async def later(n: int) -> int:
    return n * n


@program([0, 1, 4, 9, 16, 25, 36, 49, 64, 81])
async def parallel_steps() -> list[int]:
    return await asyncio.gather(*(hf.step(later, n) for n in range(10)))


@program(["stopped 0 0", "stopped 1 2", "stopped 2 4"])
async def cancelled_tasks() -> list[str]:
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


@program([[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]], signals=[(name, n) for n in range(5) for name in ("left", "right")])
async def signals() -> list[list[int]]:
    names = ("left", "right")
    found = await asyncio.gather(*(_collect(name) for name in names), double.call(1))
    return list(found[:2])


async def _collect(name: str) -> list[int]:
    return [await hf.signal(name, type=int) for _ in range(5)]


@program(["ActivityError", True])
async def wait_for_the_first_exception() -> list[Any]:
    tasks = [asyncio.create_task(double.call(n)) for n in range(3)]
    tasks += [asyncio.create_task(fail.call(3)), asyncio.create_task(asyncio.sleep(10_000))]
    _, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    return [type(tasks[3].exception()).__name__, tasks[4].cancelled()]


@program(["ActivityError", "ActivityError", "KeyError", "over"])
async def groups_of_exceptions() -> list[str]:
    story: list[str] = []

    async def stubborn(n: int) -> None:
        try:
            await asyncio.sleep(10_000)
        finally:
            raise KeyError(n)

    async def inner() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail.call(1))
            group.create_task(stubborn(2))

    try:
        async with asyncio.TaskGroup() as outer:
            outer.create_task(inner())
            outer.create_task(asyncio.sleep(10_000))
    except* ValueError as group_of:
        story.extend(type(one).__name__ for one in _leaves(group_of))
        try:
            await fail.call(3)
        except ValueError as problem:
            story.append(type(problem).__name__)
    except* KeyError as group_of:
        story.extend(type(one).__name__ for one in _leaves(group_of))
    return [*story, "over"]


def _leaves(group: BaseExceptionGroup) -> list[BaseException]:
    found: list[BaseException] = []
    for one in group.exceptions:
        found.extend(_leaves(one) if isinstance(one, BaseExceptionGroup) else [one])
    return found


@program(["tried", "kept 10", "freed"])
async def shield_within_timeout() -> list[str]:
    story: list[str] = []
    freed = asyncio.Event()

    async def slow() -> int:
        await asyncio.sleep(30)
        found = await double.call(5)
        freed.set()
        return found

    kept = asyncio.create_task(slow())
    try:
        async with asyncio.timeout(10):
            await asyncio.shield(kept)
    except TimeoutError:
        story.append("tried")
    story.append(f"kept {await kept}")
    await freed.wait()
    return [*story, "freed"]


@program([1, [0, 2, 4, 6]])
async def bounded_places_and_a_queue_in_order_of_rank() -> list[Any]:
    ranked: asyncio.PriorityQueue[int] = asyncio.PriorityQueue()
    place, inside, most = asyncio.BoundedSemaphore(1), 0, 0

    async def one(n: int) -> None:
        nonlocal inside, most
        found = await double.call(n)
        async with place:
            inside += 1
            most = max(most, inside)
            await hf.step(abs, n)
            inside -= 1
        await ranked.put(found)

    async with asyncio.TaskGroup() as group:
        for n in range(4):
            group.create_task(one(n))
    return [most, [ranked.get_nowait() for _ in range(4)]]
