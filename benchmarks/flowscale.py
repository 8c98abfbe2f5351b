"""What size does to workflows: a step in ten and in ten thousand, an activity beside ten and beside five thousand.

Each is one worker's time from start to end on a fresh store, by itself, one instance after the other; the ratio of the
large to the small is what travels. Beside them: a month of daily timers and a daily cron on a clock that jumps, and a
long history that another worker opens by replay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks import Row, seconds
from holdfast.app.application import Holdfast
from holdfast.app.workflows.workflow import Workflow
from holdfast.testing.worlds import virtual

#: Seconds after which a measurement that hangs is given up.
PATIENCE_S = 1800.0
DAY_S = 86_400
DAYS = 30
#: Events that one turn of the long history makes.
AT_ONCE = 10_000
#: How much more the large may cost, and how long a month may take, seconds.
FACTOR, MONTH_S = 2.0, 1.0


class Sizes(NamedTuple):
    """How large is large."""

    #: Instances of ten steps or activities that stand for the small.
    small: int = 50
    steps: int = 10_000
    activities: int = 5_000
    events: int = 100_000


def run(directory: Path, sizes: Sizes, schemes: tuple[str, ...] = ("sqlite", "wal", "dir")) -> Iterator[Row]:
    """Measure everything; takes some minutes with the usual sizes."""
    taken = month()
    yield Row(f"{DAYS} days, daily timer and cron, virtual", taken, "s", None, f"<= {MONTH_S:g} s", taken <= MONTH_S)
    for scheme in schemes:
        for kind, size in (("steps", sizes.steps), ("activities", sizes.activities)):
            small = each_s(f"{scheme}:{directory / f'{scheme}-{kind}-10'}", kind, 10, sizes.small)
            large = each_s(f"{scheme}:{directory / f'{scheme}-{kind}'}", kind, size, 1)
            name = f"{scheme}: one of {size:,} {kind}"
            yield Row(name, large * 1e6, "us", small * 1e6, f"<= {FACTOR:g}x one of 10", large <= FACTOR * small)
        taken = reopened(f"{scheme}:{directory / f'{scheme}-long'}", sizes.events)
        yield Row(f"{scheme}: replay of {sizes.events:,} events", taken, "s", None, "", holds=True)


def one() -> int:
    """Do nothing, as a step or activity."""
    return 1


def each_s(url: str, kind: str, size: int, count: int) -> float:
    """Give the seconds of one step or activity, in `count` instances of `size` each, one after the other."""
    app = Holdfast(url)
    activity = app.task(name="one")(one)

    @app.workflow(name="steps")
    async def steps(size: int) -> int:
        for _ in range(size):
            await app.step(one)
        return size

    @app.workflow(name="activities")
    async def activities(size: int) -> int:
        return len(await asyncio.gather(*(activity.call() for _ in range(size))))

    flow = steps if kind == "steps" else activities

    def work() -> None:
        for _ in range(count):
            flow.start(size).wait(PATIENCE_S)

    with app:
        worker = app.worker()
        worker.start()
        flow.start(1).wait(PATIENCE_S)
        taken = seconds(work)
        worker.stop()
        worker.join(PATIENCE_S)
    return taken / (size * count)


def month() -> float:
    """Give the seconds that a month takes where time jumps."""
    app = Holdfast("memory:")

    @app.workflow(name="report")
    async def report() -> None:
        await app.step(one)

    @app.workflow(name="month")
    async def days() -> int:
        for _ in range(DAYS):
            await asyncio.sleep(DAY_S)
            await app.step(one)
        return DAYS

    with virtual(app) as world:
        app.schedule("daily", report, cron="0 6 * * *")
        run = days.start()
        return seconds(lambda: world.run(run))


def reopened(url: str, events: int) -> float:
    """Give the seconds from the opening of a store until an instance with a long history has had its next turn."""
    app, flow = _long(url)
    with app:
        run = flow.start(events, id="long")
        for _ in range(0, events, AT_ONCE):
            run.signal("more")
        _settle(app)
        run.signal("more")
    app, _ = _long(url)

    def work() -> None:
        with app:
            _settle(app)

    taken = seconds(work)
    with app:
        app.instance("long").result(timeout=0)
    return taken


def _long(url: str) -> tuple[Holdfast, Workflow[[int], int]]:
    app = Holdfast(url)

    @app.workflow(name="long")
    async def long(events: int) -> int:
        for number in range(events):
            if number % AT_ONCE == 0:
                await app.signal("more")
            app.set_status(number)
        await app.signal("more")
        return events

    return app, long


def _settle(app: Holdfast) -> None:
    worker = app.worker(until_idle=True)
    worker.start()
    worker.join(PATIENCE_S)
