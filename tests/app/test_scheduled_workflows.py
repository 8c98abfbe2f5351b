"""Schedules that begin instances, and how long instances are kept, as an application says it."""

import asyncio
import math

import pytest

from holdfast import Holdfast, Retention
from holdfast.errors import InvalidArguments, InvalidValue
from holdfast.model.workflows.instances import Instance as Record
from holdfast.testing import virtual

DAY = 86_400


@pytest.fixture
def hf():
    return Holdfast("memory:")


@pytest.fixture
def report(hf):
    @hf.workflow
    async def report(region: str, days: int = 1) -> str:
        await asyncio.sleep(days * DAY)
        return f"{region} {days}"

    return report


def test_a_schedule_begins_an_instance_each_day_with_its_arguments(hf, report):
    with virtual(hf) as world:
        nightly = hf.schedule("nightly", report, cron="0 3 * * *", params={"region": "eu"}, overlap="allow")
        assert nightly.latest() is None
        world.advance(3 * DAY)
        runs = hf.instances()
        assert len(runs) == 3
        assert nightly.latest().id in {run.id for run in runs}
        assert [run.result(timeout=0) for run in runs[1:]] == ["eu 1", "eu 1"]
        with hf.engine.read() as view:
            assert {one.schedule_id for one in view.all(Record)} == {nightly.id}


def test_while_one_is_not_over_none_is_begun(hf, report):
    with virtual(hf) as world:
        nightly = hf.schedule("nightly", report, cron="0 3 * * *", params={"region": "eu", "days": 2})
        world.advance(5 * DAY)
        # Begun in the first and the fourth night: in the third the first one ends only after the fire.
        assert len(hf.instances()) == 2
        assert nightly.record().fires == 5


def test_with_queue_they_take_turns(hf, report):
    with virtual(hf) as world:
        hf.schedule("nightly", report, cron="0 3 * * *", params={"region": "eu", "days": 2}, overlap="queue")
        world.advance(4 * DAY)
        states = [run.status() for run in hf.instances()]
        assert [state.status for state in states if state.has_begun] == ["RUNNING", "COMPLETED"]
        # Those that wait for the one before them are listed, too.
        waiting = [run for run in hf.instances() if not run.status().has_begun]
        assert [run.status().status for run in waiting] == ["RUNNING"] * 2
        assert all(run.explain().code for run in waiting)
        world.advance(5 * DAY)
        # One after the other, without a pause between them.
        states = [run.status() for run in hf.instances()]
        begun = sorted(state.created_at for state in states if state.has_begun)
        assert [one[:13] for one in begun] == [f"2026-01-{day:02}T03" for day in (1, 3, 5, 7, 9)]


def test_trigger_begins_one_now_with_other_arguments(hf, report):
    with virtual(hf) as world:
        nightly = hf.schedule("nightly", report, cron="0 3 * * *", params={"region": "eu"})
        run = nightly.trigger(region="us")
        assert world.run(run) == "us 1"


def test_a_trigger_can_be_awaited(hf, report):
    async def trigger():
        nightly = hf.schedule("nightly", report, cron="0 3 * * *", params={"region": "eu"})
        run = await nightly.aio.trigger(region="us")
        return run, await nightly.aio.latest()

    with virtual(hf) as world:
        run, latest = asyncio.run(trigger())
        assert latest.id == run.id
        assert world.run(run) == "us 1"


def test_arguments_that_do_not_fit_are_refused_when_it_is_declared(hf, report):
    with virtual(hf):
        for wrong in ({}, {"region": 7}, {"region": "eu", "colour": "red"}, [1]):
            with pytest.raises(InvalidArguments):
                hf.schedule("nightly", report, cron="0 3 * * *", params=wrong)
        with pytest.raises(InvalidValue, match="stands in no queue"):
            hf.schedule("nightly", report, cron="0 3 * * *", params={"region": "eu"}, queue="mail")
        assert hf.schedules() == []


def test_a_schedule_can_be_given_a_workflow_instead_of_a_task(hf, report):
    @hf.task
    def send() -> None: ...

    with virtual(hf) as world:
        hf.schedule("nightly", send, cron="0 3 * * *")
        hf.schedule("nightly", report, cron="0 3 * * *", params={"region": "eu"})
        world.advance(DAY)
        assert len(hf.instances()) == 1
        hf.schedule("nightly", send, cron="0 3 * * *")
        world.advance(DAY)
        assert len(hf.instances()) == 1
        assert len(hf.jobs()) == 1


def test_other_arguments_count_from_the_next_fire_on(hf, report):
    with virtual(hf) as world:
        nightly = hf.schedule("nightly", report, cron="0 3 * * *", params={"region": "eu"}, overlap="allow")
        world.advance(DAY)
        nightly.update(params={"region": "us"})
        world.advance(3 * DAY)
        results = [run.result(timeout=0) for run in hf.instances() if run.status().has_ended]
        assert sorted(results) == ["eu 1", "us 1", "us 1"]


def test_a_month_with_daily_timers_and_a_cron_can_be_lived_through(hf):
    @hf.workflow
    async def month() -> int:
        for _ in range(30):
            await asyncio.sleep(DAY)
        return 30

    @hf.workflow
    async def nightly() -> None:
        await asyncio.sleep(3600)

    with virtual(hf) as world:
        hf.schedule("nightly", nightly, cron="0 3 * * *")
        assert world.run(month.start()) == 30
        assert len(hf.instances(workflow="nightly")) == 30


# --- how long they are kept -------------------------------------------------------------------------------------------


def test_each_workflow_says_how_long_its_instances_are_kept():
    hf = Holdfast("memory:", retention=Retention(workflows_s=10 * DAY))

    def flow(name, **options):
        @hf.workflow(name=name, **options)
        async def ends() -> None: ...

        return ends

    kept = {"gone": {"retention": 0}, "week": {"retention": 7 * DAY}, "store": {}, "always": {"retention": None}}
    with virtual(hf) as world:
        for name, options in kept.items():
            world.run(flow(name, **options).start(id=name))

        def there():
            return sorted(run.id for run in hf.instances())

        world.settle()
        assert there() == ["always", "store", "week"]
        world.advance(7 * DAY)
        assert there() == ["always", "store"]
        world.advance(3 * DAY)
        assert there() == ["always"]
        world.advance(400 * DAY)
        assert there() == ["always"]


def test_a_store_may_keep_them_for_ever():
    hf = Holdfast("memory:", retention=Retention(workflows_s=math.inf))

    @hf.workflow
    async def ends() -> None: ...

    with virtual(hf) as world:
        world.run(ends.start(id="i"))
        world.advance(4000 * DAY)
        assert [run.id for run in hf.instances()] == ["i"]


def test_one_that_fails_or_is_cancelled_by_force_is_kept_as_its_workflow_says(hf):
    @hf.workflow(retention=None)
    async def stubborn() -> None:
        await hf.signal("never")

    @hf.workflow(retention=None)
    async def broken() -> None:
        raise RuntimeError("no")

    with virtual(hf) as world:
        stubborn.start(id="stubborn").cancel("enough", force=True)
        broken.start(id="broken")
        world.advance(90 * DAY)
        assert sorted(run.id for run in hf.instances()) == ["broken", "stubborn"]


@pytest.mark.parametrize(("options", "most", "left"), [({}, None, 10), ({"retention": None}, None, 15), ({}, 3, 3)])
def test_of_one_that_goes_on_as_new_the_last_executions_are_kept(options, most, left):
    hf = Holdfast("memory:", retention=Retention(executions_max=most))

    @hf.workflow(**options)
    async def loop(n: int) -> int:
        if n < 15:
            hf.continue_as_new(n + 1)
        return n

    with virtual(hf) as world:
        run = loop.start(1, id="i")
        assert world.run(run) == 15
        with hf.engine.read() as view:
            assert [one.execution_id for one in view.executions("i")] == list(range(16 - left, 16))


def test_a_retention_that_is_none_is_refused(hf):
    with pytest.raises(InvalidValue, match="retention must be"):
        hf.workflow(name="flow", retention=-1)(lambda: None)
    with pytest.raises(InvalidValue, match="executions_max"):
        Holdfast("memory:", retention=Retention(executions_max=0))
