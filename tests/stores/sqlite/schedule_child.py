"""A scheduler in a process of its own. Run as a script: path, hours since the beginning. Tells each job it made."""

from __future__ import annotations

import sys

from holdfast.engine import Engine
from holdfast.model.commands import Fire
from holdfast.model.outcomes import Fired
from holdfast.model.schedules import Schedule
from holdfast.model.times import later, stamp
from holdfast.rules.state import Lane
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.clock import START, ManualClock

#: Few at a time, so that the processes meet often.
AT_ONCE = 7


def main(path: str, hours: str) -> None:
    clock = ManualClock()
    clock.advance(3600 * int(hours))
    engine = Engine(SqliteStore.open(path), clock=clock)
    print("open", flush=True)
    sys.stdin.readline()
    now = later(stamp(START), 3600 * int(hours))
    while True:
        with engine.read() as view:
            due = [found for _, found in zip(range(AT_ONCE), view.due(Lane.SCHEDULE, now), strict=False)]
        if not due:
            break
        asked = [
            Fire(schedule_id=found.schedule_id, expected=found.next_fire_at)
            for found in due
            if isinstance(found, Schedule) and found.next_fire_at is not None
        ]
        for outcome in engine.submit_many(asked):
            assert isinstance(outcome, Fired)
            print(*(job.job_id for job in outcome.jobs if job.created), flush=True)
    engine.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
