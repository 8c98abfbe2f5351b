"""How much a tick costs: in proportion to the schedules that are due, whatever number there is.

Each measurement is made with many schedules and, beside it, with a hundredth of them. The clock is set by hand, so that
exactly so many are due as were asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from benchmarks import Row, median, seconds, seconds_of
from holdfast.engine.engine import Engine
from holdfast.engine.maintenance import next_wake
from holdfast.engine.schedule_rounds import fire_due
from holdfast.model.commands import PutSchedule
from holdfast.model.schedules import NewSchedule, Overlap
from holdfast.model.times import stamp
from holdfast.stores.opening import open_store
from holdfast.testing.clock import START, ManualClock

#: Schedules made with one commit.
BATCH = 500
#: Due at once in a measurement.
DUE = 100
#: A hundred times the schedules may cost so much more: trees are deeper, and caches smaller than what there is.
SLACK = 3.0


def run(directory: Path, *, count: int = 100_000) -> Iterator[Row]:
    """Measure each store."""
    for scheme in ("wal", "sqlite"):
        few = _Stand(directory, scheme, max(DUE * 20, count // 100))
        many = _Stand(directory, scheme, count)
        yield Row(f"{scheme}: make {count:,} schedules", many.made, "/s", few.made, "", holds=True)
        for name, measure in (("nothing due", _Stand.idle), ("next wake", _Stand.wake), (f"{DUE} due", _Stand.fire)):
            ours, bare = measure(many) * 1e6, measure(few) * 1e6
            title = f"{scheme}: {name}, {count:,} schedules"
            yield Row(title, ours, "us", bare, f"<= {SLACK:g} x {few.count:,} schedules", ours <= SLACK * bare)
        few.engine.close()
        many.engine.close()


class _Stand:
    """A store with schedules of which one fires each second, each once a week."""

    def __init__(self, directory: Path, scheme: str, count: int) -> None:
        self.clock = ManualClock()
        self.count = count
        self.engine = Engine(
            open_store(f"{scheme}:{directory / f'{scheme}-{count}'}", clock=self.clock), clock=self.clock
        )
        puts = [
            PutSchedule(
                schedule_id=f"s-{number:07}",
                schedule=NewSchedule(
                    name=f"s-{number:07}",
                    job_type="send",
                    interval_s=7 * 86_400,
                    start_at=stamp(START + timedelta(seconds=number + 1)),
                    overlap=Overlap.ALLOW,
                ),
            )
            for number in range(count)
        ]
        batches = [puts[at : at + BATCH] for at in range(0, count, BATCH)]
        self.made = count / seconds(lambda: [self.engine.submit_many(batch) for batch in batches])

    def idle(self) -> float:
        """Time a round in which nothing is due."""
        return median(lambda: seconds_of(lambda: fire_due(self.engine)), 21)

    def wake(self) -> float:
        """Time the question when to wake."""
        return median(lambda: seconds_of(lambda: next_wake(self.engine)), 21)

    def fire(self) -> float:
        """Time a round in which so many are due, for each of them."""

        def once() -> float:
            self.clock.advance(DUE)
            return seconds_of(self._fire) / DUE

        return median(once, 11)

    def _fire(self) -> None:
        found = fire_due(self.engine)
        assert found == (DUE, 0, False), found
