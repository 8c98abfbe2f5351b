"""A second, slow answer to "when does it fire": every minute of the range is looked at. Shares no code with ours.

Run as a program it prints the golden table anew, from the rows below: zone, expression, range, and what the row shows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]


def numbers(field: str, low: int, high: int, names: list[str] = (), first: int = 0) -> set[int]:  # type: ignore[assignment]
    found = set()
    for term in field.lower().split(","):
        span, _, step = term.partition("/")
        if span == "*":
            ends = [low, high]
        else:
            ends = [names.index(end) + first if end in names else int(end) for end in span.split("-")]
        found.update(range(ends[0], ends[-1] + 1, int(step or 1)))
    return found


class Expression:
    def __init__(self, text: str) -> None:
        named = {
            "@yearly": "0 0 1 1 *",
            "@annually": "0 0 1 1 *",
            "@monthly": "0 0 1 * *",
            "@weekly": "0 0 * * 0",
            "@daily": "0 0 * * *",
            "@midnight": "0 0 * * *",
            "@hourly": "0 * * * *",
        }
        minute, hour, day, month, weekday = named.get(text, text).split()
        self.minutes = numbers(minute, 0, 59)
        self.hours = numbers(hour, 0, 23)
        self.days = numbers(day, 1, 31)
        self.months = numbers(month, 1, 12, MONTHS, 1)
        self.weekdays = {number % 7 for number in numbers(weekday, 0, 7, DAYS)}
        self.either = not day.startswith("*") and not weekday.startswith("*")

    def fits(self, local: datetime) -> bool:
        day, weekday = local.day in self.days, local.isoweekday() % 7 in self.weekdays
        return (
            local.minute in self.minutes
            and local.hour in self.hours
            and local.month in self.months
            and ((day or weekday) if self.either else (day and weekday))
        )


def scan(zone: str, text: str, start: datetime, end: datetime) -> Iterator[datetime]:
    """Give the fires in (start, end)."""
    expression, rules = Expression(text), ZoneInfo(zone)
    follows = len(expression.hours) == 24
    at = start + MINUTE
    before = start.astimezone(rules).replace(tzinfo=None, fold=0)
    while at < end:
        local = at.astimezone(rules)
        wall = local.replace(tzinfo=None, fold=0)
        skipped = [before + n * MINUTE for n in range(1, (wall - before) // MINUTE)]
        fits = expression.fits(wall) and (follows or local.fold == 0)
        if fits or (not follows and any(expression.fits(minute) for minute in skipped)):
            yield at
        at, before = at + MINUTE, wall


ROWS = [
    ("UTC", "0 0 * * *", "2026-01-01T00:00", "2026-01-04T00:01", "midnight without a zone's doings"),
    ("UTC", "@daily", "2026-01-01T00:00", "2026-01-04T00:01", "the same by name"),
    ("UTC", "@midnight", "2026-01-01T00:00", "2026-01-03T00:01", "another name for it"),
    ("UTC", "@hourly", "2026-01-01T00:00", "2026-01-01T04:01", "each full hour"),
    ("UTC", "@weekly", "2026-01-01T00:00", "2026-01-20T00:01", "Sundays at midnight"),
    ("UTC", "@monthly", "2026-02-27T00:00", "2026-04-02T00:01", "each first of a month"),
    ("UTC", "@yearly", "2026-12-30T00:00", "2027-01-03T00:01", "the first of January"),
    ("UTC", "@annually", "2026-12-30T00:00", "2027-01-03T00:01", "another name for it"),
    ("UTC", "*/20 * * * *", "2026-01-01T00:00", "2026-01-01T02:00", "a step begins anew each hour"),
    ("UTC", "*/25 * * * *", "2026-01-01T00:00", "2026-01-01T02:00", "25 does not divide 60: 0, 25, 50, then 0 again"),
    ("UTC", "10-50/20 * * * *", "2026-01-01T00:00", "2026-01-01T02:00", "a step of a range"),
    ("UTC", "5,10,55 3 * * *", "2026-01-01T00:00", "2026-01-03T00:00", "a list"),
    ("UTC", "0 9-17/4 * * MON-FRI", "2026-01-02T12:00", "2026-01-06T12:00", "working hours; a weekend between"),
    ("UTC", "0 12 * * 0", "2026-01-01T00:00", "2026-01-15T00:00", "0 is Sunday"),
    ("UTC", "0 12 * * 7", "2026-01-01T00:00", "2026-01-15T00:00", "and so is 7"),
    ("UTC", "0 12 * * 5-7", "2026-01-01T00:00", "2026-01-08T00:00", "a range up to 7 ends on Sunday"),
    ("UTC", "0 12 * * sun,wed", "2026-01-01T00:00", "2026-01-09T00:00", "names in small letters"),
    ("UTC", "0 0 1 jun,jul *", "2026-05-30T00:00", "2026-07-02T00:00", "months by name"),
    ("UTC", "0 0 31 * *", "2026-03-30T00:00", "2026-06-01T00:00", "months without a 31st are left out"),
    ("UTC", "0 0 30 * *", "2026-01-29T00:00", "2026-03-31T00:01", "February has no 30th"),
    ("UTC", "0 0 29 2 *", "2028-02-25T00:00", "2028-03-03T00:00", "the leap day of 2028"),
    ("UTC", "0 0 28-31 2 *", "2028-02-26T00:00", "2028-03-02T00:00", "the end of February in a leap year"),
    ("UTC", "0 0 13 * 5", "2026-02-01T00:00", "2026-03-01T00:00", "both days are named: a 13th, or a Friday"),
    (
        "UTC",
        "0 0 */2 * 5",
        "2026-02-01T00:00",
        "2026-03-01T00:00",
        "a day field begins with *: an odd day that is a Friday",
    ),
    ("UTC", "0 0 1-7 * */7", "2026-02-01T00:00", "2026-03-08T00:01", "and the other way: the first Sunday of a month"),
    ("UTC", "59 23 31 12 *", "2026-12-30T00:00", "2027-01-01T00:00", "the last minute of a year"),
    (
        "UTC",
        "0 0 29 2 0-7",
        "2026-02-25T00:00",
        "2026-03-01T00:01",
        "every weekday is named, so every day of February fits",
    ),
    (
        "Europe/Paris",
        "30 2 * * *",
        "2026-03-28T00:00",
        "2026-03-30T12:00",
        "02:30 does not exist on the 29th: 03:00 local",
    ),
    ("Europe/Paris", "30 2 * * *", "2026-10-23T12:00", "2026-10-26T12:00", "02:30 occurs twice on the 25th: the first"),
    ("Europe/Paris", "*/15 2 * * *", "2026-03-28T12:00", "2026-03-29T12:00", "four missing times are one fire"),
    ("Europe/Paris", "*/15 2 * * *", "2026-10-24T12:00", "2026-10-25T12:00", "the first hour of the two"),
    ("Europe/Paris", "30 * * * *", "2026-03-29T00:00", "2026-03-29T03:00", "every hour: none is missed, none doubled"),
    ("Europe/Paris", "30 * * * *", "2026-10-25T00:00", "2026-10-25T03:00", "every hour: both halves past two"),
    (
        "Europe/Paris",
        "*/30 * * * *",
        "2026-10-24T23:45",
        "2026-10-25T02:15",
        "every half hour, through the doubled hour",
    ),
    ("Europe/Paris", "0 */2 * * *", "2026-03-28T22:00", "2026-03-29T05:00", "02:00 moves to 03:00, 04:00 stays"),
    ("Europe/Paris", "0 */2 * * *", "2026-10-24T22:00", "2026-10-25T05:00", "02:00 fires once"),
    ("Europe/Paris", "0 2,3 * * *", "2026-03-28T22:00", "2026-03-29T22:00", "02:00 and 03:00 are one instant"),
    ("Europe/Paris", "59 1 * * *", "2026-03-28T22:00", "2026-03-29T22:00", "the last minute before the gap"),
    ("Europe/Paris", "0 3 * * *", "2026-03-28T22:00", "2026-03-29T22:00", "the first minute after the gap"),
    ("Europe/Paris", "0 3 * * *", "2026-10-24T22:00", "2026-10-25T22:00", "after the overlap nothing is doubled"),
    ("Europe/Paris", "0 0 29 3 *", "2026-03-27T00:00", "2026-03-31T00:00", "midnight before a change"),
    ("Europe/Berlin", "0 9 * * MON-FRI", "2026-03-26T12:00", "2026-03-31T12:00", "nine in the office before and after"),
    ("Europe/London", "30 1 * * *", "2026-03-28T12:00", "2026-03-30T12:00", "the gap is an hour earlier here"),
    ("Europe/London", "30 1 * * *", "2026-10-24T12:00", "2026-10-26T12:00", "and the doubled hour as well"),
    ("America/New_York", "30 1 * * *", "2026-11-01T00:00", "2026-11-02T12:00", "01:30 twice on the 1st: the first"),
    ("America/New_York", "30 2 * * *", "2026-03-07T12:00", "2026-03-09T12:00", "02:30 missing on the 8th"),
    (
        "America/New_York",
        "0 2 * * 0",
        "2026-03-01T00:00",
        "2026-03-16T00:00",
        "Sundays at two; one of them has no two o'clock",
    ),
    (
        "America/Sao_Paulo",
        "0 0 * * *",
        "2018-11-02T12:00",
        "2018-11-05T12:00",
        "midnight was missing when summer time began",
    ),
    (
        "America/Sao_Paulo",
        "0 0 * * *",
        "2026-11-01T12:00",
        "2026-11-04T12:00",
        "and is there since summer time was given up",
    ),
    (
        "America/Santiago",
        "0 0 * * *",
        "2026-09-04T12:00",
        "2026-09-07T12:00",
        "the southern hemisphere: a missing midnight",
    ),
    ("America/Santiago", "30 23 * * *", "2026-04-03T12:00", "2026-04-06T12:00", "and 23:30 twice in autumn"),
    ("Africa/Cairo", "0 0 * * *", "2026-04-22T12:00", "2026-04-24T23:00", "midnight is missing"),
    ("Africa/Casablanca", "30 2 * * *", "2026-02-13T12:00", "2026-02-17T12:00", "clocks go back for Ramadan"),
    ("Africa/Casablanca", "30 2 * * *", "2026-03-20T12:00", "2026-03-24T12:00", "and forward after it"),
    ("Asia/Tehran", "0 0 * * *", "2022-03-20T12:00", "2022-03-24T12:00", "the last summer time began at midnight"),
    ("Asia/Kathmandu", "0 6 * * *", "2026-01-01T00:00", "2026-01-03T12:00", "an offset of 5:45"),
    ("Asia/Pyongyang", "0 0 * * *", "2015-08-13T00:00", "2015-08-16T12:00", "the zone changed: half an hour back"),
    ("Asia/Pyongyang", "45 23 * * *", "2018-05-03T00:00", "2018-05-06T12:00", "and half an hour forward, over 23:45"),
    ("Australia/Sydney", "30 2 * * *", "2026-10-02T12:00", "2026-10-05T12:00", "spring in October"),
    ("Australia/Sydney", "30 2 * * *", "2026-04-03T12:00", "2026-04-06T12:00", "autumn in April"),
    ("Australia/Lord_Howe", "15 2 * * *", "2026-10-02T12:00", "2026-10-04T16:00", "a gap of half an hour"),
    (
        "Australia/Lord_Howe",
        "0 * * * *",
        "2026-10-03T14:00",
        "2026-10-03T16:30",
        "every hour, by the clock on the wall",
    ),
    ("Australia/Lord_Howe", "45 1 * * *", "2026-04-03T12:00", "2026-04-06T12:00", "01:45 twice: the first"),
    ("Pacific/Apia", "0 9 * * *", "2011-12-29T12:00", "2011-12-30T20:00", "a whole day is missing"),
    ("Pacific/Apia", "0 */8 * * *", "2011-12-29T20:00", "2011-12-31T00:00", "three fires of that day are one"),
    ("Pacific/Chatham", "0 3 * * *", "2026-09-25T00:00", "2026-09-28T00:00", "02:45 becomes 03:45"),
    (
        "America/St_Johns",
        "0 0 * * *",
        "2006-10-28T00:00",
        "2006-10-31T00:00",
        "clocks went back at a minute past midnight",
    ),
    ("America/Caracas", "0 12 * * *", "2016-04-29T00:00", "2016-05-03T00:00", "half an hour forward for good"),
]


def table() -> list[dict[str, object]]:
    made = []
    for zone, text, start, end, shows in ROWS:
        first, last = (datetime.fromisoformat(when).replace(tzinfo=UTC) for when in (start, end))
        fires = [f"{at:%Y-%m-%dT%H:%M}" for at in scan(zone, text, first, last)]
        made.append({"zone": zone, "cron": text, "after": start, "before": end, "shows": shows, "fires": fires})
    return made


if __name__ == "__main__":
    print("[\n" + ",\n".join(json.dumps(row) for row in table()) + "\n]")
