"""Thirty days of a workflow with daily timers, beside a cron that begins another every day, by a clock that jumps.

Counted is the work, which decides how long it takes; `python -m benchmarks workflows --scale` measures the time.
"""

from __future__ import annotations

import asyncio
import sys

from holdfast import Holdfast
from holdfast.failpoints import listening
from holdfast.testing import virtual

DAY = 86_400
DAYS = 30
#: What one day may cost: a timer, a step, a fire, another workflow with a signal and an activity. A million calls of
#: Python functions take some seconds, so that a month stays below its one.
COMMITS, CALLS = 25, 12_000


def application() -> Holdfast:
    hf = Holdfast("memory:")

    @hf.task(name="post")
    def post(day: int) -> int:
        return day

    @hf.workflow
    async def report() -> int:
        """Is begun by the cron, every day."""
        hf.send_signal("month", "reported", hf.now().day)
        return await post.call(hf.now().day)

    @hf.workflow
    async def month() -> list[int]:
        days = []
        for _ in range(DAYS):
            async with asyncio.timeout(2 * DAY):
                await asyncio.sleep(DAY)
                days.append(await hf.signal("reported", type=int))
            await hf.step(lambda: None)
        return days

    hf.month, hf.report = month, report
    return hf


def test_a_month_of_daily_timers_and_a_daily_cron_pass_in_a_moment():
    hf = application()
    commits = calls = 0

    def committed() -> None:
        nonlocal commits
        commits += 1

    def called(_frame, event, _found) -> None:
        nonlocal calls
        calls += event == "call"

    with virtual(hf) as world:
        hf.schedule("daily", hf.report, cron="0 6 * * *")
        begun_at = world.clock.now()
        run = hf.month.start(id="month")
        with listening("engine.committed", committed):
            sys.setprofile(called)
            try:
                days = world.run(run)
            finally:
                sys.setprofile(None)
        reports = hf.instances(workflow="report", limit=1000)
        assert len(days) == DAYS
        assert len(set(days)) >= 28, "one report a day"
        assert len(reports) in (DAYS, DAYS + 1)
        assert {one.status().status for one in reports} == {"COMPLETED"}
        assert DAYS * DAY <= (world.clock.now() - begun_at).total_seconds() <= (DAYS + 1) * DAY
    print(f"{commits / DAYS:.1f} commits and {calls / DAYS:.0f} calls a day")
    assert 0 < commits <= DAYS * COMMITS
    assert 0 < calls <= DAYS * CALLS
