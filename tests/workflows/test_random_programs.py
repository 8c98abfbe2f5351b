"""Programs nobody thought of: random trees of asyncio, the same events resident or replayed, no difference on crashes.

What such a program gives may depend on the order in which things complete; that it gives the same on every replay may
not. Each is made from a seed alone, which the failure names.
"""

import asyncio
import contextlib
import random

import pytest
from flowskit import SOAK, events, replay_prefixes, run

from holdfast.errors import WorkFailed
from holdfast.workflows.api import context as hf

PROGRAMS = 1000 if SOAK else 24


def program(number):
    """Give a build function for one random program."""

    def build(world):
        def work(x: int) -> int:
            if x % 5 == 3:
                raise ValueError(f"no {x}")
            return 2 * x

        work = world.activity(work)

        async def small(n: int) -> int:
            await asyncio.sleep(n % 3)
            if n % 4 == 1:
                raise KeyError(n)
            return await work.call(n * 5)

        small = world.workflow(small)

        async def main() -> str:
            tree = Tree(number, work, small)
            return str(await asyncio.gather(tree.node("0", 4), tree.node("1", 3), return_exceptions=True))

        world.from_outside = [lambda n=n: world.signal(random.Random(n).choice("ab"), n) for n in range(number % 7)]
        if number % 5 == 0:
            world.from_outside.append(lambda: world.cancel("enough"))
        return world.workflow(main, timeout_s=5000 if number % 3 == 0 else None)

    return build


class Tree:
    """One program: what each node does is drawn from the seed and the node's place in the tree."""

    def __init__(self, number, work, small):
        self.number, self.work, self.small = number, work, small
        self.places = asyncio.Semaphore(2)

    async def node(self, path, depth):
        chance = random.Random(f"{self.number}/{path}")
        kinds = LEAVES if depth == 0 or chance.random() < 0.2 else BRANCHES
        children = [(f"{path}.{n}", depth - 1) for n in range(chance.randint(2, 3))]
        return await getattr(self, chance.choice(kinds))(chance, children)

    def each(self, children):
        return [self.node(*child) for child in children]

    # --- leaves

    async def activity(self, chance, _children):
        with contextlib.suppress(ValueError):
            return await self.work.call(chance.randint(0, 20))
        return "failed"

    async def failing(self, chance, _children):
        return await self.work.call(chance.randint(0, 20))

    async def step(self, chance, _children):
        return await hf.step(abs, -chance.randint(0, 9))

    async def sleep(self, chance, _children):
        await asyncio.sleep(chance.choice([0, 0.5, 1, 60]))
        return hf.now().second

    async def signal(self, chance, _children):
        try:
            return await asyncio.wait_for(hf.signal(chance.choice("ab")), chance.randint(1, 90))
        except TimeoutError:
            return "no signal"

    async def decision(self, chance, _children):
        return await hf.decision("Go?", ["yes", "no"], timeout=chance.randint(1, 90), default="no")

    async def child(self, chance, _children):
        try:
            return await self.small.call(chance.randint(0, 9))
        except WorkFailed as problem:
            return problem.type_name

    async def publish(self, chance, _children):
        hf.set_status(chance.randint(0, 9))
        hf.kv.set("last", chance.randint(0, 9))
        is_new = hf.patched(f"p{chance.randint(0, 3)}")
        return [hf.kv.get("last"), hf.random(), str(hf.uuid()), is_new]

    # --- branches

    async def sequence(self, _chance, children):
        return [await self.node(*child) for child in children]

    async def gather(self, _chance, children):
        return await asyncio.gather(*self.each(children), return_exceptions=True)

    async def group(self, _chance, children):
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self.node(*child)) for child in children]
        except* Exception as problem:  # noqa: BLE001 - random programs raise anything
            tasks = [asyncio.create_task(asyncio.sleep(0, len(problem.exceptions)))]
        return [await task for task in tasks]

    async def race(self, _chance, children):
        tasks = [asyncio.create_task(self.node(*child)) for child in children]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return [str(task.exception() or task.result()) for task in done if not task.cancelled()]

    async def timeout(self, chance, children):
        try:
            async with asyncio.timeout(chance.choice([0.2, 2, 100])):
                return [await self.node(*child) for child in children]
        except TimeoutError:
            return "late"

    async def shield(self, _chance, children):
        task = asyncio.create_task(self.node(*children[0]))
        waiting = asyncio.create_task(asyncio.wait_for(asyncio.shield(task), 1))
        await asyncio.wait([waiting])
        return [type(waiting.exception()).__name__, *await asyncio.gather(task, return_exceptions=True)]

    async def clean_up(self, _chance, children):
        story = []
        try:
            story.append(await self.node(*children[0]))
        finally:
            story.append(await hf.step(len, story))
        return story

    async def limited(self, _chance, children):
        async with asyncio.timeout(1000):
            await self.places.acquire()
        try:
            return [await self.work.call(5)]
        finally:
            self.places.release()

    async def generated(self, _chance, children):
        async def results():
            for child in children:
                yield await self.node(*child)

        async with contextlib.aclosing(results()) as source:
            return [found async for found in source]

    async def in_turn(self, _chance, children):
        return [await one for one in hf.as_completed(self.each(children), timeout=500)]


LEAVES = ["activity", "failing", "step", "sleep", "signal", "decision", "child", "publish"]
BRANCHES = [
    "sequence",
    "gather",
    "group",
    "race",
    "timeout",
    "shield",
    "clean_up",
    "limited",
    "generated",
    "in_turn",
    "gather",
    "group",
]


@pytest.mark.parametrize("part", range(6))
def test_a_random_program_is_the_same_resident_replayed_and_after_crashes(part):
    for number in range(part, PROGRAMS, 6):
        build = program(number)
        resident = run(build, number)
        replayed = run(build, number, sticky=False)
        assert events(replayed) == events(resident), f"program {number}"
        assert replayed.commit_log == resident.commit_log, f"program {number}"
        commits = resident.commits
        for crash in {0, commits // 3, commits // 2, commits - 1}:  # each for itself; their order is nothing
            for when in ("before", "after"):
                crashed = run(build, number, sticky=number % 2 == 0, crashes=[(crash, when)])
                assert crashed.rows["i"].status != "Running", f"program {number}, crash {when} commit {crash}"
        if number % 5 == 0:
            history = resident.history()
            replay_prefixes(build, "i", 1, history)
