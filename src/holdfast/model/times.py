"""Times as text: UTC, always 27 characters, `2026-01-06T10:15:30.000000Z`.

The one form used in records, events, SQL columns and JSON, so that text order is time order everywhere and nothing is
converted on the way. Arithmetic goes through `datetime` and back; nobody here asks what time it is.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NewType

from holdfast.errors import InvalidValue

#: A moment as fixed-width UTC text. Compare with <, <=, ==.
Timestamp = NewType("Timestamp", str)

#: Ends of the calendar; sums that leave it become these.
FOREVER = Timestamp("9999-12-31T23:59:59.999999Z")
FIRST = Timestamp("0001-01-01T00:00:00.000000Z")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?", re.ASCII)
#: Seconds of each unit that may be typed.
UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}


def stamp(moment: datetime) -> Timestamp:
    """Write an aware moment in the house format."""
    return Timestamp(moment.astimezone(UTC).isoformat(timespec="microseconds")[:26] + "Z")


def moment(when: Timestamp) -> datetime:
    """Read a time of the house format as an aware UTC datetime."""
    return datetime.fromisoformat(when)


@lru_cache(64)  # all commands of a batch share one `now`, and most of them the seconds
def later(when: Timestamp, seconds: float) -> Timestamp:
    """Give the moment `seconds` after `when` (before it, if negative), within the calendar."""
    try:
        return stamp(moment(when) + timedelta(seconds=seconds))
    except OverflowError:
        # Never the other end: a limit far in the past must not become one that nothing is older than.
        return FOREVER if seconds > 0 else FIRST


def seconds_between(earlier: Timestamp, after: Timestamp) -> float:
    """Give the seconds from `earlier` to `after`; negative if they are the other way round."""
    return (moment(after) - moment(earlier)).total_seconds()


def milliseconds(when: Timestamp) -> int:
    """Give the whole milliseconds since 1970."""
    return (moment(when) - _EPOCH) // timedelta(milliseconds=1)


def at_milliseconds(unix_ms: int) -> Timestamp:
    """Give the moment that is so many milliseconds after 1970, within the calendar."""
    try:
        return stamp(_EPOCH + timedelta(milliseconds=unix_ms))
    except OverflowError:
        return FOREVER if unix_ms > 0 else FIRST


def microseconds(when: Timestamp) -> int:
    """Give the microseconds since 1970."""
    return (moment(when) - _EPOCH) // timedelta(microseconds=1)


def parse_timestamp(text: str, field: str) -> Timestamp:
    """Accept any RFC 3339 time that names its offset, and write it in the house format.

    Raises InvalidValue, naming `field`, for anything else.
    """
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return stamp(found)
    except (ValueError, OverflowError):
        pass
    raise InvalidValue(f"{field}: {text!r:.80} is not a time such as 2026-01-06T10:15:30Z.", field=field)


def parse_duration(text: str) -> float | None:
    """Read a number with ms, s, m, h or d, or of seconds, as seconds; None for anything else."""
    found = _DURATION.fullmatch(text)
    return None if found is None else float(found[1]) * UNITS[found[2] or "s"]


def is_timestamp(text: str) -> bool:
    """Tell whether `text` is exactly of the house format."""
    if len(text) != 27 or text[10:11] != "T" or text[26] != "Z":
        return False
    try:
        return stamp(datetime.fromisoformat(text)) == text
    except (ValueError, OverflowError):
        return False
