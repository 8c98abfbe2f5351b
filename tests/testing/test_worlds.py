"""A virtual world: store, tasks, schedules and timers on one clock that jumps, in process."""

import asyncio
import time

import pytest

from holdfast import Holdfast
from holdfast.errors import WorkflowFailed
from holdfast.testing import virtual

DAY = 86_400


def built():
    hf = Holdfast("memory:")
    hf.ticks = []
    hf.tries = []

    @hf.task(schedule="0 6 * * *", name="daily")
    def daily() -> None:
        hf.ticks.append(1)

    @hf.task(name="flaky", max_attempts=3)
    def flaky(n: int) -> int:
        hf.tries.append(n)
        if len(hf.tries) < 3:
            raise OSError("not yet")
        return n

    @hf.workflow
    async def month() -> int:
        days = 0
        for _ in range(30):
            await asyncio.sleep(DAY)
            days += await hf.step(lambda: 1)
        return days

    @hf.workflow
    async def stubborn() -> int:
        return await flaky.call(7)

    @hf.workflow
    async def patient() -> str:
        return await hf.signal("go", type=str)

    @hf.workflow
    async def broken() -> None:
        raise ValueError("no")

    return hf, month, stubborn, patient, broken


def test_a_month_of_daily_timers_and_a_daily_schedule_pass_by_jumps():
    hf, month, *_ = built()
    with virtual(hf) as world:
        run = month.start()
        assert world.run(run) == 30
        assert len(hf.ticks) in (30, 31)
        assert world.clock.monotonic() >= 30 * DAY


def test_retries_wait_by_the_clock_of_the_world():
    hf, _, stubborn, *_ = built()
    with virtual(hf) as world:
        assert world.run(stubborn.start()) == 7
        assert hf.tries == [7, 7, 7]
        assert world.clock.monotonic() > 0


def test_time_moves_on_request_and_a_crash_loses_nothing():
    hf, _, _, patient, _ = built()
    with virtual(hf) as world:
        run = patient.start()
        world.advance(2 * DAY)
        assert len(hf.ticks) == 2
        world.crash()
        run.signal("go", "now")
        assert world.run(run) == "now"


def test_a_wait_for_what_never_comes_ends_and_says_so():
    hf, _, _, patient, broken = built()
    with virtual(hf) as world:
        with pytest.raises(TimeoutError, match="signal"):
            world.run(patient.start(), timeout=DAY)
        with pytest.raises(WorkflowFailed, match="no"):
            world.run(broken.start())


def test_workflow_code_that_reads_a_clock_is_warned_of_once_with_its_line():
    hf = Holdfast("memory:")

    @hf.workflow
    async def hasty() -> int:
        for _ in range(3):
            time.time()  # noqa: TID251 - the mistake in question
            await asyncio.sleep(1)
        return await hf.step(lambda: int(time.time() > 0))  # noqa: TID251 - in a step it is none

    with virtual(hf) as world, pytest.warns(UserWarning, match=r"hf\.now\(\)") as told:
        assert world.run(hasty.start()) == 1
    assert len(told) == 1
    assert "test_worlds.py:" in str(told[0].message)


def test_two_worlds_have_two_clocks():
    one, *_ = built()
    other, *_ = built()
    with virtual(one) as first, virtual(other) as second:
        first.advance(10)
        assert second.clock.monotonic() == 0


def test_the_fixture_is_a_world_around_the_applications_one(holdfast_world):
    hf = holdfast_world.app

    @hf.workflow
    async def nap() -> float:
        before = hf.now()
        await asyncio.sleep(DAY)
        return (hf.now() - before).total_seconds()

    assert holdfast_world.run(nap.start()) == DAY
