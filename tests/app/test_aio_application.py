"""The awaitable face is the same face: same names, same answers."""

import asyncio
import inspect
import threading

import pytest

from holdfast import Holdfast
from holdfast.app.aio.application import AioHoldfast
from holdfast.app.aio.groups import AioGroup
from holdfast.app.aio.jobs import AioJob, AioTask
from holdfast.app.aio.queues import AioDispatch, AioQueue, AioReservation
from holdfast.app.aio.schedules import AioSchedule, AioTemplate
from holdfast.app.aio.workflows import AioDecision, AioInstance, AioWorkflow
from holdfast.app.handles.group import Group
from holdfast.app.handles.job import Job
from holdfast.app.handles.queue import Dispatch, Queue
from holdfast.app.handles.reservation import Reservation
from holdfast.app.handles.schedule import Schedule
from holdfast.app.handles.template import Template
from holdfast.app.tasks.task import Task
from holdfast.app.workflows.decisions import Decision
from holdfast.app.workflows.handle import Instance
from holdfast.app.workflows.workflow import Workflow
from holdfast.errors import JobCancelled, JobNotFound, RunNotFound, StoreClosed
from holdfast.failpoints import listening
from holdfast.model.logs import LogLine


@pytest.fixture(params=["memory", "wal", "sqlite"])
def hf(request, tmp_path):
    urls = {"memory": "memory:", "wal": f"wal:{tmp_path / 'journal'}", "sqlite": f"sqlite:{tmp_path / 'jobs.db'}"}
    with Holdfast(urls[request.param]) as app:
        yield app


@pytest.fixture
def echo(hf):
    @hf.task
    async def echo(word: str) -> str:
        return word

    return echo


async def awaited(hf, count):
    while len(hf.lookout()._awaited) < count:  # noqa: ASYNC110 - the lookout tells nobody who awaits
        await asyncio.sleep(0)


def test_a_job_is_enqueued_waited_for_and_read_by_awaiting(hf, echo):
    async def story():
        job = await echo.aio.enqueue("a")
        more = await echo.aio.enqueue_many([("b",), {"word": "c"}])
        waiting = asyncio.gather(*(one.aio.result(timeout=20) for one in (job, *more)))
        await asyncio.to_thread(hf.work, until_idle=True)
        assert await waiting == ["a", "b", "c"]
        assert (await job.aio.wait()).status == "COMPLETED"
        assert (await job.aio.refresh()).attempts == 1
        assert await job.aio.status() == "COMPLETED"
        runs = await job.aio.runs()
        assert [run.status for run in runs] == ["COMPLETED"]
        assert await hf.aio.run(runs[0].run_id) == runs[0]
        assert (await job.aio.explain()).code == "ended"
        assert await job.aio.progress() is None

    asyncio.run(story())


def test_a_job_is_changed_cancelled_retried_and_buried_by_awaiting(echo):
    async def story():
        job, other = await echo.aio.enqueue_many([("a",), ("b",)])
        await other.aio.move(to="first")
        await job.aio.update(priority=3)
        assert (job.refresh().priority, other.refresh().position) == (3, 0)
        assert await job.aio.cancel("no") == "cancelled"
        with pytest.raises(JobCancelled):
            await job.aio.result()
        again = await job.aio.retry()
        await again.aio.bury("poison")
        assert (job.status, again.status) == ("CANCELLED", "DEAD")

    asyncio.run(story())


def test_queues_dispatch_and_lists_are_awaited_too(hf, echo):
    async def story():
        job = await echo.aio.enqueue("a")
        queue = hf.aio.queue("default")
        await queue.pause("inventory")
        assert ((await queue.settings()).pause_reason, await queue.counts()) == ("inventory", {"QUEUED": 1})
        await queue.resume()
        await queue.normalize()
        await hf.aio.dispatch.pause("fire")
        assert (await job.aio.explain()).code == "dispatch_paused"
        await hf.aio.dispatch.resume()
        assert [one.id for one in await hf.aio.jobs(status="QUEUED")] == [job.id]
        assert (await hf.aio.job(job.id)).id == job.id
        assert await hf.aio.workers() == []
        with pytest.raises(RunNotFound):
            await hf.aio.run("none")

    asyncio.run(story())


def test_the_store_is_closed_by_awaiting_and_opened_again_when_needed(tmp_path):
    async def story():
        with Holdfast(f"sqlite:{tmp_path / 'jobs.db'}") as hf:
            job = await hf.task(name="t")(lambda: None).aio.enqueue()
            await hf.aio.close()
            assert hf._engine is None
            assert await job.aio.status() == "QUEUED"

    asyncio.run(story())


def test_waiting_for_nothing_is_refused(hf):
    async def story():
        await Job(hf, "nobody").aio.wait()

    with pytest.raises(JobNotFound):
        asyncio.run(story())


def test_a_wait_that_ran_out_says_why_and_changes_nothing(hf, echo):
    async def story():
        job = await echo.aio.enqueue("a")
        with pytest.raises(TimeoutError, match="no live worker knows task"):
            await job.aio.result(timeout=0)
        with pytest.raises(TimeoutError, match=r"is QUEUED after 0\.01 s: no live worker"):
            await job.aio.wait(0.01)
        assert await job.aio.status() == "QUEUED"

    asyncio.run(story())


def test_a_thousand_jobs_are_awaited_by_one_thread(hf, echo):
    async def story():
        jobs = await echo.aio.enqueue_many([(str(n),) for n in range(1000)])
        waiting = [asyncio.ensure_future(job.aio.result()) for job in jobs]
        await awaited(hf, 1000)
        assert [thread.name for thread in threading.enumerate()].count("holdfast-lookout") == 1
        await asyncio.to_thread(hf.work, until_idle=True)
        assert await asyncio.gather(*waiting) == [str(n) for n in range(1000)]
        assert hf.lookout()._awaited == set()

    asyncio.run(story())


def test_a_job_that_ends_just_before_it_is_awaited_is_seen(hf, echo):
    """The end falls between the first look and the wait: registering comes first, so nothing is missed."""

    async def story():
        job = await echo.aio.enqueue("a")
        lookout = hf.lookout()
        look = lookout._look

        def late(view, found):
            lookout._look = look
            threading.Thread(target=job.cancel).start()  # waits for this view, on some stores
            look(view, found)

        lookout._look = late
        assert (await job.aio.wait(timeout=20)).status == "CANCELLED"

    asyncio.run(story())


def test_an_awaiting_task_that_is_cancelled_leaves_the_engine_and_the_others_alone(hf, echo):
    async def story():
        job = await echo.aio.enqueue("a")
        first, second = (asyncio.ensure_future(job.aio.result()) for _ in range(2))
        await awaited(hf, 2)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await asyncio.to_thread(hf.work, until_idle=True)
        assert await second == "a"

    asyncio.run(story())


def test_a_command_whose_sender_was_cancelled_is_decided_all_the_same(hf, echo):
    reached, go_on = threading.Event(), threading.Event()

    def hold():
        reached.set()
        assert go_on.wait(20)

    async def story():
        await asyncio.to_thread(lambda: hf.engine)
        with listening("engine.decided", hold):
            sending = asyncio.ensure_future(echo.options(id="mine").aio.enqueue("a"))
            await asyncio.to_thread(reached.wait, 20)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            go_on.set()
            # The next command waits for the one that was left alone.
            await echo.aio.enqueue("b")
        assert {job.refresh().job_id for job in hf.jobs()} >= {"mine"}

    asyncio.run(story())


def test_closing_the_store_tells_everybody_who_awaits(hf, echo):
    async def story():
        job = await echo.aio.enqueue("a")
        waiting = asyncio.ensure_future(job.aio.wait())
        await awaited(hf, 1)
        hf.close()
        with pytest.raises(StoreClosed):
            await waiting

    asyncio.run(story())


def test_the_lines_of_a_run_are_followed_until_the_job_has_ended(hf):
    started, go_on = threading.Event(), threading.Event()

    @hf.task
    def slow() -> None:
        started.set()
        assert go_on.wait(20)

    async def story():
        job = await slow.aio.enqueue()
        worker = hf.worker()
        worker.start()
        await asyncio.to_thread(started.wait, 20)
        run_id = (await job.aio.runs())[0].run_id
        at = hf.engine.look().now
        hf.engine.store.logs.add([(run_id, LogLine(at, "log", "INFO", "first"))])
        got = []
        async for line in job.aio.log(follow=True):
            got.append(line.text)
            if line.text == "first":
                hf.engine.store.logs.add([(run_id, LogLine(at, "stdout", "", "second"))])
                go_on.set()
        worker.drain()
        await asyncio.to_thread(worker.join, 20)
        assert [text for text in got if text in ("first", "second")] == ["first", "second"]
        assert [line.text async for line in job.aio.log(1)] == got

    asyncio.run(story())


def _parameters(kind, name):
    found = inspect.getattr_static(kind, name)
    return (
        [] if isinstance(found, property) else [name for name in inspect.signature(found).parameters if name != "self"]
    )


@pytest.mark.parametrize(
    ("twin", "of"),
    [
        (AioJob, Job),
        (AioTask, Task),
        (AioQueue, Queue),
        (AioDispatch, Dispatch),
        (AioSchedule, Schedule),
        (AioTemplate, Template),
        (AioInstance, Instance),
        (AioWorkflow, Workflow),
        (AioDecision, Decision),
        (AioGroup, Group),
        (AioReservation, Reservation),
        (AioHoldfast, Holdfast),
    ],
)
def test_every_awaitable_call_has_its_twin_with_the_same_parameters(twin, of):
    calls = [name for name in vars(twin) if not name.startswith("_")]
    assert calls
    for name in calls:
        assert _parameters(twin, name) == _parameters(of, name)


@pytest.mark.parametrize(
    ("twin", "of", "here_only"),
    [
        (AioJob, Job, {"app", "id", "created", "outcome", "aio"}),
        (AioTask, Task, {"app", "name", "spec", "options", "job", "job_of", "aio", "chosen", "codec", "call", "begin"}),
        (AioQueue, Queue, {"name", "aio"}),
        (AioDispatch, Dispatch, {"aio"}),
        (AioSchedule, Schedule, {"aio"}),
        (AioTemplate, Template, {"aio"}),
        (AioInstance, Instance, {"aio", "app", "id", "created", "look", "seen", "late", "outcome"}),
        (AioWorkflow, Workflow, {"aio", "options"}),
        (AioDecision, Decision, {"aio", "id"}),
        (AioGroup, Group, {"app", "id", "created", "outcomes", "aio"}),
        (
            AioReservation,
            Reservation,
            {"acquire", "go_inside", "go_outside", "when_idle", "is_of", "demand_not_in_the_way", "aio"},
        ),
    ],
)
def test_everything_that_asks_the_store_can_be_awaited(twin, of, here_only):
    assert {name for name in vars(of) if not name.startswith("_")} - here_only <= set(vars(twin))
