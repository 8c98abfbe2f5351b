"""Ends from outside: what is open is read from the history alone."""

import asyncio

import msgspec
import pytest

from holdfast.model.error_details import Category
from holdfast.model.workflows.history import OrchestrationItem, Status
from holdfast.model.workflows.work_items import QueueMessage, SubOrchFailed
from holdfast.workflows.api import context as hf
from holdfast.workflows.runtime.completion import open_in, open_of, poison
from support.flows import World


def busy(world):
    def work(n: int) -> int:
        return n

    work = world.activity(work)

    async def child() -> None:
        await hf.signal("never")

    child = world.workflow(child)

    async def main() -> None:
        async with asyncio.timeout(5):
            await work.call(0)
        gone = asyncio.create_task(hf.decision("Go?", ["yes"], timeout=50))
        await asyncio.sleep(1)
        gone.cancel()
        await asyncio.gather(
            work.call(1), child.call(), asyncio.sleep(100), hf.decision("Why?", timeout=90), hf.signal("never")
        )

    return world.workflow(main, timeout_s=1000)


@pytest.fixture
def world():
    world = World()
    world.start(busy(world))
    while world.rows["i"].messages or world.move():
        world.settle(world.now_ms + 2000)
        if not world.move():
            break
    return world


def test_a_history_shows_what_its_execution_has_open(world):
    execution = world._residents["i"]
    known, read = open_of(execution), open_in(world.history())
    assert read.activities == known.activities
    assert read.children == known.children
    # A cancelled timer leaves no event; taking it back once more does no harm.
    assert set(read.timers) >= set(known.timers)


def test_poison_ends_the_instance_and_keeps_what_was_to_be_delivered(world):
    history = tuple(world.history())
    message = QueueMessage(instance="i", name="deadly", data="1")
    item = OrchestrationItem(
        instance="i", orchestration_name="main", execution_id=1, version="1.0.0", history=history, messages=(message,)
    )
    commit = poison(item, 11, world.now_ms)
    (event,) = commit.history_delta
    assert event.event_id == history[-1].event_id + 1
    details = event.kind.details
    assert details.category is Category.POISON
    assert details.attempt_count == 11
    assert msgspec.json.decode(details.data)["messages"][0]["name"] == "deadly"
    assert commit.metadata.status is Status.FAILED
    assert {one.instance for one in commit.orchestrator_items} == set(open_in(history).children)


def test_a_poisoned_child_tells_its_parent(world):
    child = next(name for name in world.rows if "::sub::" in name)
    item = OrchestrationItem(
        instance=child,
        orchestration_name="child",
        execution_id=1,
        version="1.0.0",
        history=tuple(world.history(child)),
        messages=(),
    )
    assert [type(one) for one in poison(item, 11, 0).orchestrator_items] == [SubOrchFailed]
