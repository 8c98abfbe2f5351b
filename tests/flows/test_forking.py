"""A new instance from a point of an old history."""

import asyncio

import pytest
from flowskit import kinds_of

from holdfast.errors import InvalidValue, NondeterminismError
from holdfast.flows import face as hf
from holdfast.flows.forking import fork
from holdfast.model import workitems
from holdfast.model.history import Status
from holdfast.testing.flows import World


def story_in(world):
    def double(x: int) -> int:
        return 2 * x

    double = world.activity(double)

    async def child() -> str:
        return await hf.signal("go")

    child = world.workflow(child)

    async def main() -> list:
        first = await double.call(1)
        second = await hf.step(int, "5")
        await asyncio.sleep(60)
        word, third = await asyncio.gather(child.call(), double.call(2))
        return [first, second, word, third]

    return world.workflow(main)


def forked(world, until, instance="copy"):
    commit = fork(
        world.definitions,
        world.history(),
        until=until,
        instance=instance,
        execution_id=1,
        now_ms=world.now_ms,
        kv_snapshot={},
    )
    world._apply(world._row(instance), commit)
    return commit


@pytest.fixture
def world():
    world = World()
    world.start(story_in(world))
    world.settle()
    world.signal("go", "old", instance="i::sub::1-7")
    world.settle()
    assert world.result() == [2, 5, "old", 4]
    return world


def test_a_fork_at_any_event_comes_to_the_same_end_with_work_of_its_own(world):
    length = len(world.history())
    for until in range(1, length + 1):
        name = f"copy-{until}"
        forked(world, until, name)
        world.settle()
        child = next((one for one in world.rows if one.startswith(f"{name}::sub::")), None)
        if child is not None:
            world.signal("go", "new", instance=child)
            world.settle()
        assert world.rows[name].status is Status.COMPLETED
        assert world.result(name) == [2, 5, "old" if child is None else "new", 4], f"until {until}"
    assert len(world.history()) == length


def test_open_work_is_sent_off_anew_and_the_old_instance_is_left_alone(world):
    until = kinds_of(world.history()).index("TimerFired") + 3
    commit = forked(world, until)
    assert [type(one).__name__ for one in commit.worker_items] == ["ActivityExecute"]
    (child,) = [one for one in commit.orchestrator_items if isinstance(one, workitems.StartOrchestration)]
    assert child.instance == "copy::sub::1-7"
    assert all(event.instance == "copy" for event in commit.history_delta)


def test_a_fork_that_its_code_does_not_follow_is_refused(world):
    other = World()

    async def main() -> None:
        await asyncio.sleep(1)

    other.workflow(main)
    other.rows = world.rows
    with pytest.raises(NondeterminismError):
        forked(other, 3)
    assert "copy" not in world.rows


def test_a_fork_at_no_event_or_without_code_is_refused(world):
    with pytest.raises(InvalidValue, match="events 1-"):
        forked(world, 99)
    empty = World()
    empty.rows = world.rows
    with pytest.raises(InvalidValue, match="no code"):
        forked(empty, 2)
