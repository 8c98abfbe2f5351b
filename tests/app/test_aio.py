"""The awaitable face is the same face: same names, same answers."""

import asyncio
import inspect

import pytest

from holdfast import Holdfast
from holdfast.app.aio import AioJob, AioTask
from holdfast.app.jobs import Job
from holdfast.app.tasks import Task


@pytest.fixture
def hf():
    with Holdfast("memory:") as app:
        yield app


@pytest.fixture
def echo(hf):
    @hf.task
    async def echo(word: str) -> str:
        return word

    return echo


def test_a_job_is_enqueued_waited_for_and_read_by_awaiting(hf, echo):
    async def story():
        job = await echo.aio.enqueue("a")
        more = await echo.aio.enqueue_many([("b",), {"word": "c"}])
        waiting = asyncio.gather(*(one.aio.result(timeout=20) for one in (job, *more)))
        await asyncio.to_thread(hf.work, until_idle=True)
        assert await waiting == ["a", "b", "c"]
        assert (await job.aio.wait()).status == "COMPLETED"
        assert (await job.aio.refresh()).attempts == 1
        assert [run.status for run in await job.aio.runs()] == ["COMPLETED"]

    asyncio.run(story())


def test_a_job_is_cancelled_retried_and_buried_by_awaiting(hf, echo):
    async def story():
        job = await echo.aio.enqueue("a")
        assert await job.aio.cancel("no") == "cancelled"
        again = await job.aio.retry()
        await again.aio.bury("poison")
        assert (job.status, again.status) == ("CANCELLED", "DEAD")

    asyncio.run(story())


@pytest.mark.parametrize(("twin", "of"), [(AioJob, Job), (AioTask, Task)])
def test_every_awaitable_call_has_its_twin_with_the_same_parameters(twin, of):
    calls = [name for name in vars(twin) if not name.startswith("_")]
    assert calls
    for name in calls:
        assert inspect.iscoroutinefunction(getattr(twin, name))
        here, there = (inspect.signature(getattr(kind, name)).parameters for kind in (twin, of))
        assert list(here) == list(there)
