"""What is given with a look-up, judged before anything is looked up: whoever looks is one of ours, or imitates one.

Types say most, and are read by msgspec. What they leave open: numbers that no store can keep, times that are none, and
limits below nothing. What passes here finds something or nothing; if it makes a store stumble, that is our own fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from holdfast.errors import InvalidValue
from holdfast.model.times import Timestamp, is_timestamp

#: Whole numbers that every store keeps.
LOWEST, HIGHEST = -(2**63), 2**63 - 1
#: Say how many, or how many are passed over.
_COUNTS = frozenset({"keep", "limit", "skip"})


def demand_sense(value: Any, hint: Any, field: str) -> None:
    """Demand that a value of the right type makes sense. Raises InvalidValue with the field it is in."""
    match value:
        case bool() | None:
            return
        case int():
            _demand_number(value, field)
        case str():
            if Timestamp in (hint, *get_args(hint)) and not is_timestamp(value):
                raise InvalidValue(f"{field}: {value!r:.80} is no time. Nothing was looked up.", field=field)
        case msgspec.Struct():
            hints = _hints(type(value))
            for name in value.__struct_fields__:
                demand_sense(getattr(value, name), hints[name], name)
        case list() | tuple():
            for at, one in enumerate(value):
                demand_sense(one, _hint_at(hint, at), field)
        case _:
            return


def _demand_number(value: int, field: str) -> None:
    lowest = 0 if field in _COUNTS else LOWEST
    if not lowest <= value <= HIGHEST:
        raise InvalidValue(f"{field}: {value} is not from {lowest} to {HIGHEST}. Nothing was looked up.", field=field)


def _hint_at(hint: Any, at: int) -> Any:
    """Give the type of one element of a sequence, or of nothing: of a tuple of several types that of its place."""
    sequences = [one for one in (hint, *get_args(hint)) if get_origin(one) in (tuple, list, Sequence)]
    inner = [one for one in get_args(sequences[0]) if one is not Ellipsis] if sequences else [None]
    return inner[min(at, len(inner) - 1)]


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)
