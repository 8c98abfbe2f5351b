"""Workflows for `assert_crash_safe`: healthy ones, and five with a bug each; variables, so that others import them."""

from __future__ import annotations

import asyncio
import time

from holdfast.app.tasks.signature_codec import SignatureCodec
from holdfast.workflows.api import context as hf
from holdfast.workflows.api.definitions import Definition
from holdfast.workflows.api.workflow import Workflow, activity


def workflow(function, **options):
    return Workflow(Definition(function=function, codec=SignatureCodec(function), name=function.__name__, **options))


def double(n: int) -> int:
    return 2 * n


def greet(name: str) -> str:
    return f"hello {name}"


doubled = activity(double, SignatureCodec(double))
greeted = activity(greet, SignatureCodec(greet))
STUBS = {"double": double, "greet": greet}


# --- healthy ----------------------------------------------------------------------------------------------------------


@workflow
async def healthy(n: int) -> list[int]:
    first, second = await asyncio.gather(doubled.call(n), doubled.call(n + 1))
    third = await hf.step(double, first)
    await asyncio.sleep(3600)
    paid = await hf.signal("paid", type=int)
    hf.set_status("nearly")
    return [first, second, third, paid, await hf.step(double, paid)]


@workflow
async def in_order() -> list[str]:
    return [await greeted.call(name) for name in sorted({"ann", "bob", "cyd"})]


@workflow
async def hurried() -> str:
    try:
        async with asyncio.timeout(60):
            return await hf.signal("late", type=str)
    except TimeoutError:
        return "too late"


@workflow
async def branches() -> list[int]:
    async def branch(n: int) -> int:
        return await doubled.call(await hf.step(double, await doubled.call(n)))

    return await asyncio.gather(*(branch(n) for n in range(3)))


@workflow
async def grouped() -> list[int]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(doubled.call(n)) for n in range(4)]
    return [task.result() for task in tasks]


@workflow
async def sums_what_comes_first() -> int:
    pending, total = {asyncio.create_task(doubled.call(n)) for n in range(4)}, 0
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        total += sum(task.result() for task in done)
    return total


@workflow
async def shares_places() -> list[int]:
    places = asyncio.Semaphore(2)

    async def one(n: int) -> int:
        async with places:
            return await doubled.call(n)

    return await asyncio.gather(*(one(n) for n in range(4)))


@workflow
async def steps_at_once() -> list[int]:
    return await asyncio.gather(*(hf.step(double, n) for n in range(6)))


@workflow
async def draws() -> list[str]:
    return [str(hf.uuid()), str(hf.random()), await greeted.call(str(hf.rng().randint(1, 9)))]


@workflow
async def waits_long() -> str:
    begun = hf.now()
    await asyncio.sleep(86_400)
    return "a day" if (hf.now() - begun).total_seconds() >= 86_400 else "too soon"


@workflow
async def publishes() -> int:
    for n in range(3):
        hf.set_status(n)
        hf.kv.set("last", await doubled.call(n))
    return hf.kv.get("last")


@workflow
async def fails() -> None:
    await doubled.call(1)
    raise ValueError("no")


@workflow
async def goes_on(n: int = 0) -> int:
    if await doubled.call(n) < 6:
        hf.continue_as_new(n + 1)
    return n


HEALTHY = [
    "branches",
    "grouped",
    "sums_what_comes_first",
    "shares_places",
    "steps_at_once",
    "draws",
    "waits_long",
    "publishes",
    "fails",
    "goes_on",
]


# --- with a bug each --------------------------------------------------------------------------------------------------

charges = [0]


def charge() -> int:
    charges[0] += 1
    return charges[0]


@workflow
async def non_idempotent() -> int:
    await hf.step(charge)
    return 0


@workflow
async def reads_clock() -> int:
    at = time.time_ns()
    await doubled.call(at % 1_000_000_007)
    return 0


@workflow
async def unordered() -> int:
    for name in {"ann", "bob", "cyd", "dan", "eve"}:  # noqa: PLC0208 - the bug that is to be found
        await greeted.call(name)
    return 0


count = [0]


@workflow
async def counts_globally() -> int:
    count[0] += 1
    return await doubled.call(count[0])


@workflow
async def loses_signal() -> list[int]:
    got: list[int] = []
    while len(got) < 2:
        paid = asyncio.ensure_future(hf.signal("paid", type=int))
        tick = asyncio.ensure_future(doubled.call(1))
        done, _ = await asyncio.wait({paid, tick}, return_when=asyncio.FIRST_COMPLETED)
        # The bug: if the tick came first, `paid` is left behind and takes the next signal for nobody.
        if paid in done:
            got.append(paid.result())
        tick.cancel()
    return got
