"""What handlers run within: entered for every call, left whatever happens, also for tasks that come later."""

import asyncio
from contextlib import contextmanager

import pytest

from holdfast import Holdfast
from holdfast.testing import drain
from holdfast.workers.handlers.handler_wrapper import surrounded


@pytest.fixture
def story():
    return []


def surrounding(story, name):
    @contextmanager
    def enter():
        story.append(f"into {name}")
        try:
            yield
        finally:
            story.append(f"out of {name}")

    return enter


def test_a_function_is_called_within_and_left_also_when_it_fails(story):
    def divide(by):
        story.append("called")
        return 1 / by

    run = surrounded(divide, surrounding(story, "a"))
    assert run(1) == 1
    with pytest.raises(ZeroDivisionError):
        run(0)
    assert story == ["into a", "called", "out of a"] * 2


def test_a_coroutine_function_stays_one_and_is_awaited_within(story):
    async def wait():
        await asyncio.sleep(0)
        story.append("awaited")

    run = surrounded(wait, surrounding(story, "a"))
    assert asyncio.iscoroutinefunction(run)
    asyncio.run(run())
    assert story == ["into a", "awaited", "out of a"]


def test_tasks_there_are_and_those_to_come_have_the_same_surroundings(story):
    with Holdfast("memory:") as hf:
        before = hf.task(name="before")(lambda: story.append("called"))
        hf.tasks.surround(surrounding(story, "inner"))
        hf.tasks.surround(surrounding(story, "outer"))
        after = hf.task(name="after")(lambda: story.append("called"))
        before.enqueue()
        after.enqueue()
        drain(hf)
        whole = ["into outer", "into inner", "called", "out of inner", "out of outer"]
        assert story == whole * 2
        story.clear()
        before()
        assert story == ["called"]  # a plain call stays one
