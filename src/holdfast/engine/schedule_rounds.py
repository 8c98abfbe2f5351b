"""Rounds of firing: the schedules that are due, and those that newer rules of a zone have moved.

What is on time goes before what is made up for. A round lasts a moment, so that whoever runs it can report and lease in
between, and says whether there is more. One schedule that cannot be fired stops no other.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from holdfast.engine.engine import Engine
from holdfast.errors import InvalidValue, StoreError
from holdfast.model.commands import Fire, Replan
from holdfast.model.outcomes import Fired, Outcome
from holdfast.model.schedules import CatchUp, Schedule
from holdfast.model.times import Timestamp
from holdfast.rules.schedules.next_fire import after_a_pause, is_late, plan
from holdfast.rules.state import Lane

log = logging.getLogger(__name__)

#: Schedules looked at together, fired in one commit, and made up for in one commit: each of these makes many jobs.
SEEN = 1000
FIRES = 100
FEW = 5
#: No commit is begun later than so many seconds after the first.
ROUND_S = 0.25


class FireRound(NamedTuple):
    """What one round did."""

    #: Nominal times that came, or were made up for; and those that were missed.
    fired: int
    missed: int
    #: Something may still be due.
    more: bool


def fire_due(engine: Engine) -> FireRound:
    """Fire the schedules that are due, and nothing else.

    Others may do the same meanwhile: each nominal time makes one job, whoever asks first.
    """
    fired = missed = 0
    ends_at = engine.look().monotonic + ROUND_S
    before: list[Fire] = []
    while True:
        now = engine.look().now
        with engine.read() as view:
            due = [found for found in islice(view.due(Lane.SCHEDULE, now), SEEN) if isinstance(found, Schedule)]
        asked = _asked(due)
        if asked == before:
            # Nothing is due. Or nothing could be done: the clock was set back, or they are broken.
            return FireRound(fired, missed, more=False)
        before = asked
        for portion in _portions(due, now):
            for outcome in _fire(engine, _asked(portion)):
                if isinstance(outcome, Fired):
                    fired += sum(job.created for job in outcome.jobs)
                    missed += outcome.missed
            if engine.look().monotonic >= ends_at:
                return FireRound(fired, missed, more=True)


def _asked(due: Sequence[Schedule]) -> list[Fire]:
    return [
        Fire(schedule_id=schedule.schedule_id, expected=schedule.next_fire_at)
        for schedule in due
        if schedule.next_fire_at is not None
    ]


def _portions(due: Sequence[Schedule], now: Timestamp) -> Iterator[Sequence[Schedule]]:
    """Part schedules into commits, those that make many jobs last."""
    many = [schedule for schedule in due if schedule.catch_up is CatchUp.ALL and is_late(schedule, now)]
    heavy = {schedule.schedule_id for schedule in many}
    few = [schedule for schedule in due if schedule.schedule_id not in heavy]
    for schedules, size in ((few, FIRES), (many, FEW)):
        for at in range(0, len(schedules), size):
            yield schedules[at : at + size]


def _fire(engine: Engine, asked: Sequence[Fire]) -> list[Outcome]:
    try:
        return engine.submit_many(asked)
    except StoreError:
        raise
    except Exception as problem:  # noqa: BLE001 - a fault of ours in one schedule must not stop the others
        if len(asked) > 1:
            return [outcome for one in asked for outcome in _fire(engine, [one])]
        log.error("schedule.not_fired", extra={"schedule": asked[0].schedule_id, "error": repr(problem)})  # noqa: TRY400 - the tick comes again each second
        return []


def replan(engine: Engine) -> int:
    """Correct fires that lie in the future where the rules of a zone have changed; give how many. Run at start."""
    now = engine.look().now
    with engine.read() as view:
        planned = [schedule for schedule in view.all(Schedule) if _may_have_moved(schedule, now)]
    moved: list[Replan] = []
    known: dict[tuple[str | None, ...], Timestamp | None] = {}
    for schedule in planned:
        after = after_a_pause(schedule, now)
        # Many schedules have the same times; those of each kind are worked out once.
        times = (schedule.cron_expression, schedule.timezone, schedule.start_at, schedule.end_at, after)
        if times not in known:
            try:
                known[times] = plan(schedule, after, 0).fire_at
            except InvalidValue as problem:
                # Its next fire sets it aside, in everybody's sight.
                log.warning("schedule.not_planned", extra={"schedule": schedule.name, "error": problem.message})
                known[times] = schedule.next_fire_at
        if schedule.next_fire_at is not None and known[times] != schedule.next_fire_at:
            moved.append(Replan(schedule_id=schedule.schedule_id, expected=schedule.next_fire_at))
    for at in range(0, len(moved), FIRES):
        engine.submit_many(moved[at : at + FIRES])
    return len(moved)


def _may_have_moved(schedule: Schedule, now: Timestamp) -> bool:
    future = schedule.next_fire_at is not None and schedule.next_fire_at > now
    return future and schedule.cron_expression is not None and schedule.timezone != "UTC"
