"""The timetable of a schedule: its nominal fires, the next one with its jitter, and what to do about those that passed.

One decision covers a whole outage, so that a machine that wakes up makes as many jobs as the policy says, never a
burst. Fires of one schedule only grow: none happens twice, whatever the clock does.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain, count, islice, takewhile
from typing import NamedTuple

from holdfast.errors import InvalidValue
from holdfast.model.schedules import CatchUp, Schedule
from holdfast.model.times import FIRST, Timestamp, later, moment, seconds_between, stamp
from holdfast.rules.schedules.cron import Cron, Every, parse_cron
from holdfast.rules.schedules.fire_times import count_fires, fires_after, parse_zone

#: Missed fires made up for in one commit.
AT_ONCE = 100
#: How far back `all` looks unless it is told, in seconds.
WINDOW_S = 86_400.0
#: Fires one preview shows.
MAX_PREVIEW = 1000
#: Fires lie in these years: with the offset of a zone and a day more they are still in the calendar.
_BEGINNING = Timestamp("0002-01-01T00:00:00.000000Z")
_END = Timestamp("9999-01-01T00:00:00.000000Z")


class Planned(NamedTuple):
    """The next fire: its nominal time, and that time with its jitter. Both None when there is none any more."""

    fire_at: Timestamp | None
    trigger_at: Timestamp | None


class Round(NamedTuple):
    """What one decision does about the fires that are due."""

    #: Nominal times that make a job, oldest first.
    fires: tuple[Timestamp, ...]
    #: How many passed without.
    missed: int
    #: The last nominal time that is dealt with; the next fire lies after it.
    until: Timestamp


def nominal(schedule: Schedule, after: Timestamp) -> Iterator[Timestamp]:
    """Walk the nominal fires later than `after`, within [start_at, end_at), in order."""
    end = _END if schedule.end_at is None else min(schedule.end_at, _END)
    return takewhile(lambda at: at < end, _to_the_end(_times(schedule, max(after, _BEGINNING))))


def _to_the_end(times: Iterator[Timestamp]) -> Iterator[Timestamp]:
    try:
        yield from times
    except OverflowError:  # the search for the next one has left the calendar
        return


def _times(schedule: Schedule, after: Timestamp) -> Iterator[Timestamp]:
    start = schedule.start_at
    if schedule.run_at is not None:
        return iter([schedule.run_at] if schedule.run_at > after and (start or FIRST) <= schedule.run_at else [])
    rule = _rule_of(schedule)
    if isinstance(rule, timedelta):
        return _steps(schedule, rule, after)
    if start is not None and start > after:
        after = later(start, -1e-6)  # at start_at itself, if that fits
    return (stamp(at) for at in fires_after(rule, parse_zone(schedule.timezone), moment(after)))


def _steps(schedule: Schedule, step: timedelta, after: Timestamp) -> Iterator[Timestamp]:
    """Walk anchor + k · interval: from start_at itself, or from one interval after the creation."""
    anchor = moment(schedule.start_at or schedule.created_at)
    first = max(0 if schedule.start_at is not None else 1, (moment(after) - anchor) // step + 1)
    return (stamp(anchor + number * step) for number in count(first))


def plan(schedule: Schedule, after: Timestamp, chance: float) -> Planned:
    """Give the next fire later than `after`, put off by its jitter; `chance` in [0, 1) decides by how much."""
    fire_at = next(nominal(schedule, after), None)
    if fire_at is None:
        return Planned(None, None)
    most = _jitter(schedule, fire_at)
    return Planned(fire_at, later(fire_at, most * chance) if most else fire_at)


def _jitter(schedule: Schedule, fire_at: Timestamp) -> float:
    """Give the most seconds that a fire is put off: no more than half the way to the following one."""
    if not schedule.jitter_s:
        return 0.0
    following = next(nominal(schedule, fire_at), None)
    return schedule.jitter_s if following is None else min(schedule.jitter_s, seconds_between(fire_at, following) / 2)


def due(schedule: Schedule, now: Timestamp) -> Round | None:
    """Say what is to be done at `now`, or None if nothing is due.

    A fire within its grace is on time. One that is later begins an outage, which ends now: one decision covers it all,
    so that of the fires that would each be on time only the policy's number is made.
    """
    fire_at, trigger_at = schedule.next_fire_at, schedule.next_trigger_at
    if not schedule.enabled or fire_at is None or trigger_at is None or trigger_at > now:
        return None
    if not is_late(schedule, now):
        return Round((fire_at,), 0, fire_at)
    oldest = _oldest(schedule, now)
    if schedule.catch_up is CatchUp.ALL:
        return _each(schedule, fire_at, oldest, now)
    number, until = _passed(schedule, fire_at, now)
    # Awake all the time, it might have put off until now what it has not drawn yet.
    is_made = until >= oldest or (until > fire_at and later(until, _jitter(schedule, until)) >= oldest)
    return Round((until,), number - 1, until) if is_made else Round((), number, until)


def is_late(schedule: Schedule, now: Timestamp) -> bool:
    """Tell whether the next fire is later than its grace allows, so that others may have passed, too."""
    trigger_at = schedule.next_trigger_at
    return trigger_at is not None and seconds_between(trigger_at, now) > schedule.grace_s


def _each(schedule: Schedule, fire_at: Timestamp, oldest: Timestamp, now: Timestamp) -> Round:
    """Make up for each fire since `oldest`, a portion at a time; the rest is due again at once."""
    missed, until, first = 0, fire_at, fire_at
    if fire_at < oldest:
        missed, until = _passed(schedule, fire_at, later(oldest, -1e-6))
        following = next(nominal(schedule, until), None)
        if following is None or following > now:
            return Round((), missed, until)
        first = following
    times = chain([first], takewhile(lambda at: at <= now, nominal(schedule, first)))
    fires = tuple(islice(times, AT_ONCE))
    return Round(fires, missed, fires[-1])


def _passed(schedule: Schedule, first: Timestamp, until: Timestamp) -> tuple[int, Timestamp]:
    """Count the fires from `first` up to `until`, and give the last of them. `first` is one, whatever the time."""
    if schedule.run_at is not None:
        return 1, first
    if schedule.end_at is not None:
        until = min(until, later(schedule.end_at, -1e-6))
    rule = _rule_of(schedule)
    if isinstance(rule, Cron):
        more, last = count_fires(rule, parse_zone(schedule.timezone), moment(first), moment(until))
        return 1 + more, first if last is None else stamp(last)
    more = max(0, (moment(until) - moment(first)) // rule)
    return 1 + more, stamp(moment(first) + more * rule)


def how_many(schedule: Schedule, since: Timestamp, until: Timestamp, most: int) -> int:
    """Count the nominal fires in [since, until) without walking them; beyond `most` it stops soon."""
    total, span_s = 0, 30 * 86_400.0
    while since < until and total <= most:
        end = min(until, later(since, span_s))
        first = next(nominal(schedule, later(since, -1e-6)), None)
        if first is None:
            break
        total += _passed(schedule, first, later(end, -1e-6))[0] if first < end else 0
        since, span_s = end, span_s * 2
    return total


def _rule_of(schedule: Schedule) -> Cron | timedelta:
    """Give the expression of a schedule, or its interval."""
    if schedule.cron_expression is None:
        assert schedule.interval_s is not None
        return timedelta(seconds=schedule.interval_s)
    cron = parse_cron(schedule.cron_expression)
    return timedelta(seconds=cron.seconds) if isinstance(cron, Every) else cron


def _oldest(schedule: Schedule, now: Timestamp) -> Timestamp:
    """Give the oldest time that is made up for. What is within its grace is on time, whatever the window."""
    window_s = schedule.catch_up_window_s
    if schedule.catch_up is CatchUp.NONE:
        window_s = 0.0
    elif window_s is None:
        window_s = WINDOW_S if schedule.catch_up is CatchUp.ALL else None
    return FIRST if window_s is None else later(now, -max(window_s, schedule.grace_s))


def after_a_pause(schedule: Schedule, now: Timestamp) -> Timestamp:
    """Give the time from which on fires count again: what passed while paused is not missed, and none comes twice."""
    last = schedule.last_fire_at
    return now if last is None or last < now else last


def passes_over(schedule: Schedule, now: Timestamp) -> Timestamp | None:
    """Give the first fire after `now` that will not come, or None.

    The clock had run ahead: the schedule has fired, or counted as missed, what lies in the future now.
    """
    planned = schedule.next_fire_at
    if not schedule.enabled or (planned is not None and planned <= now):
        return None
    first = begun_ahead(schedule, now) or next(nominal(schedule, now), None)
    return first if first is not None and (planned is None or first < planned) else None


def begun_ahead(schedule: Schedule, now: Timestamp) -> Timestamp | None:
    """Give when an interval would fire first if it were made now, where it was made by a clock that had run ahead."""
    if schedule.run_at is not None or schedule.start_at is not None or schedule.created_at <= now:
        return None
    rule = _rule_of(schedule)
    return later(now, rule.total_seconds()) if isinstance(rule, timedelta) else None


class Preview(NamedTuple):
    """One fire to come, for people."""

    fire_at: Timestamp
    #: The same in the schedule's zone.
    local: datetime
    #: What is odd about it, or nothing.
    note: str


def preview(schedule: Schedule, now: Timestamp, n: int, after: Timestamp | None = None) -> list[Preview]:
    """Give the next `n` nominal fires later than now, or than `after` if that is later. Raises InvalidValue."""
    if not 1 <= n <= MAX_PREVIEW:
        raise InvalidValue(f"n: {n} is not between 1 and {MAX_PREVIEW}.", field="n")
    times = nominal(schedule, now if after is None else max(now, after))
    return [Preview(fire_at, *local_note(schedule, fire_at)) for fire_at in islice(times, n)]


def local_note(schedule: Schedule, fire_at: Timestamp) -> tuple[datetime, str]:
    """Give a fire's local time, and what is odd about it, for people."""
    at = moment(fire_at)
    zone = parse_zone(schedule.timezone)
    local = at.astimezone(zone)
    before, after = (at - _MINUTE).astimezone(zone), local
    jump = (after.replace(tzinfo=None) - before.replace(tzinfo=None)) - _MINUTE
    if jump > timedelta() and schedule.cron_expression is not None:
        return local, f"{_clock(before + _MINUTE)} to {_clock(after)} does not exist on this day"
    twice = local.replace(fold=1 - local.fold).astimezone(UTC) != at
    return local, f"{_clock(local)} occurs twice on this day" if twice else ""


_MINUTE = timedelta(minutes=1)


def _clock(local: datetime) -> str:
    return f"{local:%H:%M}"
