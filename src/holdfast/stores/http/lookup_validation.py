"""What is given with a look-up, judged before anything is looked up: whoever looks is one of ours, or imitates one.

Types say most, and are read by msgspec. What they leave open: numbers that no store can keep, times that are none, and
limits below nothing. What passes here finds something or nothing; if it makes a store stumble, that is our own fault.

A judge is made once for a type, and only of what there is to judge: most look-ups have nothing, and pay nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import UnionType
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints

import msgspec

from holdfast.errors import InvalidValue
from holdfast.model.times import Timestamp, is_timestamp

#: Whole numbers that every store keeps.
LOWEST, HIGHEST = -(2**63), 2**63 - 1
#: Say how many, or how many are passed over.
_COUNTS = frozenset({"keep", "limit", "skip"})

#: Takes a value and the name of the field it is in. Raises InvalidValue for what makes no sense.
Judge = Callable[[Any, str], None]


@cache
def judge_of(hint: Any) -> Judge | None:
    """Give who judges values of a type; None if there is nothing to judge."""
    if hint is Timestamp:
        return _demand_time
    if isinstance(hint, NewType):
        return judge_of(hint.__supertype__)
    if hint is int:
        return demand_number
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _fields(hint)
    origin, inner = get_origin(hint), [one for one in get_args(hint) if one not in (Ellipsis, type(None))]
    if origin in (UnionType, Union):
        judges = [judge for one in inner if (judge := judge_of(one)) is not None]
        return _unless_none(judges[0]) if judges else None
    if origin in (tuple, list, Sequence):
        return _elements([judge_of(one) for one in inner])
    return None


def demand_number(value: Any, field: str) -> None:
    """Demand a number that a store can keep, and none below nothing where it says how many."""
    lowest = 0 if field in _COUNTS else LOWEST
    if isinstance(value, int) and not lowest <= value <= HIGHEST:
        raise InvalidValue(f"{field}: {value} is not from {lowest} to {HIGHEST}. Nothing was looked up.", field=field)


def _demand_time(value: Any, field: str) -> None:
    if not is_timestamp(value):
        raise InvalidValue(f"{field}: {value!r:.80} is no time. Nothing was looked up.", field=field)


def _fields(kind: type[msgspec.Struct]) -> Judge | None:
    hints = get_type_hints(kind)
    judged = [(name, judge) for name in kind.__struct_fields__ if (judge := judge_of(hints[name])) is not None]

    def judge_each(value: Any, _field: str) -> None:
        for name, judge in judged:
            judge(getattr(value, name), name)

    return judge_each if judged else None


def _unless_none(judge: Judge) -> Judge:
    def judge_what_there_is(value: Any, field: str) -> None:
        if value is not None:
            judge(value, field)

    return judge_what_there_is


def _elements(judges: Sequence[Judge | None]) -> Judge | None:
    """Give who judges a sequence: by place in a tuple of several types, else all elements alike."""

    def judge_each(value: Any, field: str) -> None:
        for at, one in enumerate(value):
            judge = judges[min(at, len(judges) - 1)]
            if judge is not None:
                judge(one, field)

    return judge_each if any(judges) else None
