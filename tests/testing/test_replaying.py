"""`replay` shows where a history leads its code, and does nothing else."""

import asyncio

import pytest

from holdfast.errors import NondeterminismError
from holdfast.testing.replaying import replay
from holdfast.workflows.api import context as hf
from support.flows import World

ran = []


def note(n: int) -> int:
    ran.append(n)
    return n


def recorded(sleep=5):
    world = World()
    work = world.activity(note)

    async def main() -> int:
        first = await work.call(1)
        await asyncio.sleep(sleep)
        return first + await hf.step(note, 2)

    return world, world.workflow(main)


def test_a_whole_history_gives_its_result_without_side_effects():
    world, workflow = recorded()
    world.run(workflow)
    ran.clear()
    result = replay(world.history(), workflow)
    assert result.output == 3
    assert result.commands == ("activity 'note' queue 'default' input {\"n\":1}", "timer 5 s")
    assert result.pending == ()
    assert ran == []


def test_it_stops_where_it_is_told_and_says_what_is_waited_for():
    world, workflow = recorded()
    world.run(workflow)
    assert replay(world.history(), workflow, until=2).pending == ("activity 2 'note'",)
    assert replay(world.history(), workflow, until=5).pending == ("step 1 'note'",)


def test_changed_code_is_found_out_or_noted():
    world, workflow = recorded()
    world.run(workflow)
    _, slower = recorded(sleep=9)
    assert replay(world.history(), slower).notes == ("event 4: the timer is now +4 s; the recorded time holds",)

    async def main() -> int:
        return 3

    other = World().workflow(main)
    with pytest.raises(NondeterminismError):
        replay(world.history(), other)


def test_a_failure_comes_out_as_data():
    async def main() -> None:
        raise ValueError("no")

    world = World()
    workflow = world.workflow(main)
    world.run(workflow)
    assert replay(world.history(), workflow).error.type_name == "ValueError"
