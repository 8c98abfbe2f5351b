"""Values as they are typed: durations, times, tags, payloads. What they may be is checked by the rules."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Any

import click
import msgspec

from holdfast.clock import SystemClock
from holdfast.errors import InvalidValue
from holdfast.model.payloads import admit_object
from holdfast.model.times import UNITS, Timestamp, parse_duration, parse_timestamp, stamp
from holdfast.rules.random_source import Draws


class Duration(click.ParamType):  # type: ignore[type-arg]  # older versions of click know no parameter here
    """Seconds, or a number with ms, s, m, h or d."""

    name = "duration"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it as seconds."""
        if isinstance(value, int | float):
            return value
        found = parse_duration(value)
        if found is None:
            self.fail(f"{value!r} is no duration such as 90, 1.5s, 5m, 2h or 1d.", param, ctx)
        return found


class Rate(click.ParamType):  # type: ignore[type-arg]  # the same
    """How many in which time, such as 100/60s or 5/m."""

    name = "rate"

    def convert(
        self, value: str | tuple[int, float], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, float]:
        """Read it as a number and seconds."""
        if isinstance(value, tuple):
            return value
        count, _, period = value.partition("/")
        if not (count.isascii() and count.isdigit() and len(count) < 16 and period):
            self.fail(f"{value!r} is no rate such as 100/60s or 5/m.", param, ctx)
        return int(count), Duration().convert(f"1{period}" if period in UNITS else period, param, ctx)


class OrNone(click.ParamType):  # type: ignore[type-arg]  # the same
    """A value of another kind, or the word none."""

    #: The word, for telling it from an option that was not given.
    WORD = "none"

    def __init__(self, kind: click.ParamType) -> None:  # type: ignore[type-arg]  # the same
        self._kind = kind
        self.name = f"{kind.name}|{self.WORD}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Leave the word, and read everything else."""
        return value if value == self.WORD else self._kind.convert(value, param, ctx)


class Moment(click.ParamType):  # type: ignore[type-arg]  # the same
    """A time with its offset, such as 2026-01-06T10:15:30Z."""

    name = "time"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Read it in the house format."""
        if value == "now":
            return value
        try:
            return parse_timestamp(value, "time")
        except InvalidValue as problem:
            self.fail(problem.message, param, ctx)


class Word(click.Choice):  # type: ignore[type-arg]  # the same
    """One of the words of a closed set, in any case."""

    def __init__(self, kind: type[StrEnum]) -> None:
        super().__init__([member.value for member in kind], case_sensitive=False)
        self._kind = kind

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> StrEnum:
        """Read it as a member of the set."""
        return self._kind(super().convert(value, param, ctx))


def moment_or_none(value: str | None) -> Timestamp | None:
    """Give a time that was typed; `now` is no time at all, for nothing is waited for."""
    return None if value in (None, "now") else Timestamp(str(value))


def tags_of(words: tuple[str, ...]) -> dict[str, str]:
    """Read NAME=VALUE words."""
    pairs = [word.partition("=") for word in words]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise InvalidValue(f"--tag: {name!r} is not NAME=VALUE. Nothing was stored.", field="tags")
    return {name: value for name, _, value in pairs}


def payload_of(text: str) -> msgspec.Raw:
    """Check parameters that were typed; `-` reads them from stdin."""
    raw = sys.stdin.buffer.read() if text == "-" else text.encode(errors="surrogateescape")
    return admit_object(raw)


def new_ids() -> Draws:
    """Give a source of new ids, each behind the one before."""
    import secrets  # noqa: PLC0415 - a slow import that only new ids need

    return Draws(stamp(SystemClock().now()), secrets.randbits(64))


def new_id() -> str:
    """Make a new time-ordered id."""
    return new_ids().new_id()
