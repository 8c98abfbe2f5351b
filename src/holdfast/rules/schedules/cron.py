"""Cron expressions: the grammar we accept, and the local times that fit. Knows no zone and no clock.

Five fields: minute, hour, day of month, month, day of week. If neither day field begins with `*`, either may match;
otherwise both must. What two programs would read differently is refused, with its position and what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

from cronsim import CronSim

from holdfast.errors import InvalidValue
from holdfast.rules.field_checks import MAX_DURATION_S

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_DAY = timedelta(days=1)
_INSTANT = timedelta(microseconds=1)
_EVERY = re.compile(r"@every (\d+)([smhd])", re.IGNORECASE | re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
#: The longest expression that is read: lists of every value of every field are a third of it. Characters.
LONGEST = 1000
#: An expression that fits no time within so many years is taken for a mistake.
YEARS = 10
#: Any start would do: a day that is rarer than once in ten years is a mistake, too.
_SOME_START = datetime(2023, 12, 31, 23, 59)  # noqa: DTZ001 - local time of no zone


class _Field(NamedTuple):
    title: str
    low: int
    high: int
    names: tuple[str, ...] = ()


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 7, _DAYS),
)


class _Place(NamedTuple):
    """What is being read, for whoever must be told of a mistake in it."""

    expression: str
    field: _Field
    #: Characters before it.
    at: int


class Every(NamedTuple):
    """`@every`: an interval, blind to zones."""

    seconds: int


class Cron(NamedTuple):
    """An expression that is known to be good."""

    #: Five fields in capitals, one blank between them, as the library is given them.
    text: str
    #: Its hour set has all 24 values, so that it follows the clock wherever that goes.
    every_hour: bool
    #: The times of a day that fits: each of these minutes in each of these hours, both in order.
    minutes: tuple[int, ...]
    hours: tuple[int, ...]

    def after(self, local: datetime) -> Iterator[datetime]:
        """Walk the local times later than `local` that fit, in order. Ends where the calendar does."""
        return CronSim(self.text, local)

    def tally(self, after: datetime, until: datetime) -> tuple[int, datetime | None]:
        """Count the local times in (after, until] that fit, and give the last; whole days are counted as such."""
        first, last = _midnight(after + _DAY), _midnight(until)
        if first >= last:
            return _counted(self.after(after), until)
        count, found = _counted(self.after(after), first - _INSTANT)
        _, _, *days = self.text.split(" ")
        once_a_day = CronSim(" ".join([str(self.minutes[0]), str(self.hours[0]), *days]), first - _INSTANT)
        number, day = _counted(once_a_day, last - _INSTANT)
        if day is not None:
            count += number * len(self.minutes) * len(self.hours)
            found = day.replace(hour=self.hours[-1], minute=self.minutes[-1])
        rest, latest = _counted(self.after(last - _INSTANT), until)
        return count + rest, latest or found


def _midnight(local: datetime) -> datetime:
    return local.replace(hour=0, minute=0, second=0, microsecond=0)


def _counted(times: Iterator[datetime], until: datetime) -> tuple[int, datetime | None]:
    count, last = 0, None
    for at in takewhile(lambda at: at <= until, times):
        count, last = count + 1, at
    return count, last


@lru_cache(4096)
def parse_cron(expression: str) -> Cron | Every:
    """Read an expression. Raises InvalidValue, saying where and what is wrong."""
    if len(expression) > LONGEST:
        raise _refused(expression, f"{len(expression):,} characters", f"At most {LONGEST:,} are read.")
    text = " ".join(expression.split())
    if text.startswith("@"):
        every = _EVERY.fullmatch(text)
        if every is not None:
            return _interval(expression, int(every[1]) * _SECONDS[every[2].lower()])
        if text.lower() not in _NAMED:
            raise _refused(expression, f"{text} is not known", "Known are " + ", ".join([*_NAMED, "@every 15m"]) + ".")
        return parse_cron(_NAMED[text.lower()])
    found = [(part[0].upper(), part.start()) for part in re.finditer(r"\S+", expression)]
    if len(found) != len(_FIELDS):
        hint = "Write minute, hour, day of month, month, day of week."
        if len(found) == len(_FIELDS) + 1:
            hint = "Seconds are not supported; leave the first field out, or use an interval."
        raise _refused(expression, f"{len(found)} fields instead of {len(_FIELDS)}", hint)
    read = [_values(_Place(expression, field, at), part) for field, (part, at) in zip(_FIELDS, found, strict=True)]
    sets = [values for values, _ in read]
    minutes, hours = (tuple(sorted(values)) for values in sets[:2])
    cron = Cron(" ".join(plain for _, plain in read), len(hours) == 24, minutes, hours)
    _demand_a_fire(expression, cron, sets[2], sets[3])
    return cron


def _interval(expression: str, seconds: int) -> Every:
    if not 1 <= seconds <= MAX_DURATION_S:
        raise _refused(
            expression, "an interval has at least one second, and ten years at most", "Write for example @every 15m."
        )
    return Every(seconds)


def _values(place: _Place, part: str) -> tuple[set[int], str]:
    """Give the values of a field, and the field as the library is given it."""
    values: set[int] = set()
    plain: list[str] = []
    for term in part.split(","):
        found = _term(place, term)
        values |= found
        # The library takes a range of one with a step for one without end.
        plain.append(str(*found) if len(found) == 1 and not term.startswith("*") else term)
        place = place._replace(at=place.at + len(term) + 1)
    return values, ",".join(plain)


def _term(place: _Place, term: str) -> set[int]:
    body, slash, step_text = term.partition("/")
    low_text, dash, high_text = body.partition("-")
    field, step = place.field, 1
    if slash:
        if not (step_text.isascii() and step_text.isdigit()) or int(step_text) == 0:
            raise _bad(place, term, "a step is a number from 1 on")
        step = int(step_text)
    if body == "*":
        low, high = field.low, field.high
    else:
        low = _number(place, term, low_text)
        high = _number(place, term, high_text) if dash else low
        if slash and not dash:
            raise _bad(place, term, f"write {low}-{field.high}/{step} for every {step} from {low} on")
        if high < low:
            raise _bad(place, term, "a range does not wrap around; write it as two")
    return set(range(low, high + 1, step))


def _number(place: _Place, term: str, text: str) -> int:
    field = place.field
    if text in field.names:
        return field.names.index(text) + field.low
    if not (text.isascii() and text.isdigit()):
        raise _bad(place, term, _instead(text))
    number = int(text)
    if not field.low <= number <= field.high:
        raise _bad(place, term, f"{field.low} to {field.high} are possible")
    return number


def _instead(text: str) -> str:
    if any(mark in text for mark in "LW#?"):
        return "L, W, # and ? are not supported"
    return "use numbers, names, ranges, lists and steps of `*` or a range"


def _demand_a_fire(expression: str, cron: Cron, days: set[int], months: set[int]) -> None:
    """Refuse the thirtieth of February."""
    try:
        first = next(cron.after(_SOME_START), None)
    except Exception:  # noqa: BLE001 - the library refuses some impossible days by itself
        first = None
    if first is None or first > _SOME_START + timedelta(days=366 * YEARS):
        raise _refused(
            expression,
            f"it fits no day within {YEARS} years",
            f"Is there a day {min(days)} in month {', '.join(map(str, sorted(months)))}?",
        )


def _bad(place: _Place, term: str, why: str) -> InvalidValue:
    what = f"{place.field.title} {term!r} at character {place.at + 1}"
    return _refused(place.expression, what, f"{why[0].upper()}{why[1:]}.")


def _refused(expression: str, what: str, hint: str) -> InvalidValue:
    return InvalidValue(f"cron {expression!r:.80}: {what}.", hint=hint, field="cron_expression")
