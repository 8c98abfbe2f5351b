"""From local times to the instants at which a schedule fires: one rule for clocks that are put forward and back.

- A local time that does not exist: an expression that names its hours fires once, at the first instant after the gap,
  however many of its times lie in it; one that runs every hour does not fire for it.
- A local time that occurs twice: the first one fires; of an expression that runs every hour, both.

Pure: the zone's rules come in as a `tzinfo`, and what comes out is kept in events.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import takewhile
from zoneinfo import ZoneInfo

from holdfast.errors import InvalidValue
from holdfast.model.times import Timestamp, stamp
from holdfast.rules.schedules.cron import Cron

#: Changes of a zone's offset are looked for at this distance, and lie further apart.
_STRIDE = timedelta(hours=6)
_DAY = timedelta(days=1)
_INSTANT = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)


#: Files that lie beside the zones. They mean something else on each machine, or nothing.
_NO_ZONES = ("localtime", "posixrules", "Factory", "posix/", "right/")


def parse_zone(name: str) -> ZoneInfo:
    """Find an IANA time zone. Raises InvalidValue."""
    if not name.startswith(_NO_ZONES):
        with suppress(OSError, ValueError, KeyError):  # a missing key, a name that is a path, a directory
            return ZoneInfo(name)
    raise InvalidValue(
        f"timezone: {name!r:.80} is not a time zone.", hint="Use a name such as Europe/Berlin.", field="timezone"
    )


def fires_after(cron: Cron, zone: tzinfo, after: datetime) -> Iterator[datetime]:
    """Walk the instants (UTC) later than `after` at which a cron expression fires, in order."""
    at, offset = after, _offset(zone, after)
    while True:
        # From `at` up to the next change of the zone, all its times are `offset` away from UTC.
        quiet, change = at, None
        for local in cron.after(_naive(at, offset)):
            found = local.replace(tzinfo=UTC) - offset
            while quiet < found and change is None:
                change = _first_change(zone, quiet, offset)
                quiet += _STRIDE
            if change is not None and change <= found:
                break
            if cron.every_hour or not _is_second(zone, found):
                yield found
        else:
            return
        before, offset = offset, _offset(zone, change)
        missing = offset > before and not cron.every_hour and _fits_between(cron, change, before, offset)
        if missing:
            yield change
        # Just before the change, seen with the offset after it: a time at the change itself is found next.
        at = change if missing else change - _INSTANT


def count_fires(cron: Cron, zone: tzinfo, after: datetime, until: datetime) -> tuple[int, datetime | None]:
    """Count the instants (UTC) in (after, until] at which a cron expression fires, and give the last.

    Only days around a change of the zone are walked; in between, whole days are counted as such.
    """
    count, last, at = 0, None, after
    for change in [*_changes(zone, after - _DAY, until + _DAY), None]:
        calm = until if change is None else min(until, change - _DAY)
        if calm > at:
            offset = _offset(zone, at)
            number, local = cron.tally(_naive(at, offset), _naive(calm, offset))
            if local is not None:
                count, last = count + number, local.replace(tzinfo=UTC) - offset
            at = calm
        if change is not None:
            rough = min(until, change + _DAY)
            for found in takewhile(lambda found: found <= rough, fires_after(cron, zone, at)):  # noqa: B023 - used up here
                count, last = count + 1, found
            at = max(at, rough)
    return count, last


def _changes(zone: tzinfo, after: datetime, until: datetime) -> Iterator[datetime]:
    """Walk the instants after `after` and up to `until` from which on the zone has another offset."""
    low, offset = after, _offset(zone, after)
    while low < until:
        change = _first_change(zone, low, offset)
        if change is None:
            low += _STRIDE
        else:
            yield change
            low, offset = change, _offset(zone, change)


def instant_of(local: datetime, zone: tzinfo) -> datetime:
    """Give the instant (UTC) of a local time: the first of two, or the first after the gap it lies in."""
    first = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if first.astimezone(zone).replace(tzinfo=None) == local:
        return first
    # Read with the offset before the gap, it lies behind the gap by as much as it lay inside.
    change = _first_change(zone, first - _DAY, _offset(zone, first - _DAY), within=2 * _DAY)
    assert change is not None
    return change


def time_in(when: datetime, timezone: str, field: str) -> Timestamp:
    """Give a time as it is kept; without offset it is local to `timezone`. Raises InvalidValue."""
    zone = parse_zone(timezone)
    try:
        return stamp(when if when.tzinfo is not None else instant_of(when, zone))
    except OverflowError:
        raise InvalidValue(f"{field}: {when} lies beyond the calendar.", field=field) from None


def _fits_between(cron: Cron, change: datetime, before: timedelta, offset: timedelta) -> bool:
    """Tell whether a fitting local time lies in the gap, or just at its end, where it is the same instant."""
    local = next(cron.after(_naive(change - _INSTANT, before)), None)
    return local is not None and local <= _naive(change, offset)


def _naive(at: datetime, offset: timedelta) -> datetime:
    return at.replace(tzinfo=None) + offset


def _offset(zone: tzinfo, at: datetime) -> timedelta:
    offset = at.astimezone(zone).utcoffset()
    assert offset is not None
    return offset


def _is_second(zone: tzinfo, at: datetime) -> bool:
    """Tell whether the local time of an instant has occurred before."""
    return at.astimezone(zone).fold == 1


def _first_change(zone: tzinfo, after: datetime, offset: timedelta, within: timedelta = _STRIDE) -> datetime | None:
    """Give the first instant after `after` from which on the zone has another offset, if it lies `within`."""
    low = after
    while low < after + within:
        if _offset(zone, low + _STRIDE) != offset:
            return _bisect(zone, low, low + _STRIDE, offset)
        low += _STRIDE
    return None


def _bisect(zone: tzinfo, low: datetime, high: datetime, offset: timedelta) -> datetime:
    """Narrow a change down to its second; zones change at whole ones."""
    low = low.replace(microsecond=0)
    while high - low > _SECOND:
        middle = low + timedelta(seconds=(high - low) // _SECOND // 2)
        if _offset(zone, middle) == offset:
            low = middle
        else:
            high = middle
    return high
