"""What `holdfast serve` is told of retention: the fields of `Retention`, as words."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from holdfast.app.retention import checked
from holdfast.errors import InvalidValue
from holdfast.model.retention import Retention
from holdfast.model.times import parse_duration

#: Those that a coordinator sees to. How many executions an instance keeps is said with the turn that ends one.
NAMES = tuple(field.name for field in msgspec.structs.fields(Retention) if field.name != "executions_max")


def retention_of(words: Sequence[str]) -> Retention:
    """Read NAME=VALUE words. Raises InvalidValue, saying which names there are."""
    given: dict[str, float | int] = {}
    for word in words:
        name, _, text = (part.strip() for part in word.partition("="))
        if name == "executions_max":
            raise InvalidValue(
                "retention: executions_max is said where workflows run. Nothing was started.",
                hint="Give it to the Holdfast of the workers: Retention(executions_max=…).",
                field="retention",
            )
        value = _count(text) if name.endswith("_max") else _seconds(text)
        if name not in NAMES or name in given or value is None:
            why = "is said twice" if name in given else "does not fit"
            raise InvalidValue(
                f"retention: {word!r:.80} {why}. Nothing was started.",
                hint=f"There are: {', '.join(NAMES)}; times as 3600, 90m, 7d or inf, numbers as 1000.",
                field="retention",
            )
        given[name] = value
    return checked(Retention(**given))  # type: ignore[arg-type]  # of the type that its name says


def _seconds(text: str) -> float | None:
    return math.inf if text == "inf" else parse_duration(text)


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None
