"""Types at run time: a struct built in Python is not checked, yet what is stored must be readable again.

`Release(begun=1)` would be written as a number and refused when the log is next read. So the exact types of a command's
fields are compared with its annotations before it is decided. What a value may be is judged elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from types import UnionType
from typing import Any, Literal, NewType, Union, get_args, get_origin, get_type_hints

import msgspec

#: Gives the name of what does not fit inside a field, or "" for the field itself; None if all fits.
Check = Callable[[Any], str | None]


class _Plan:
    """How one kind of struct is checked."""

    __slots__ = ("allowed", "deeper", "known", "latest", "names", "values_of")

    def __init__(self, kind: type) -> None:
        hints = get_type_hints(kind)
        self.names: tuple[str, ...] = kind.__struct_fields__  # type: ignore[attr-defined]  # every msgspec.Struct has it
        self.values_of = attrgetter(*self.names)
        #: Types each field takes.
        self.allowed = tuple(frozenset(_exact(hints[name])) for name in self.names)
        #: Combinations of types found right before, and the latest of them: nearly every struct has that one.
        self.known: set[tuple[type, ...]] = set()
        self.latest: tuple[type, ...] = ()
        #: Fields with something inside, or with a closed list of words.
        checks = ((index, _inside(hints[name])) for index, name in enumerate(self.names))
        self.deeper = [(index, check) for index, check in checks if check is not None]


_plans: dict[type, _Plan] = {}


def misfit(struct: msgspec.Struct) -> str | None:
    """Give the name of the first field whose value is not of its type, or None. Structs have two fields or more."""
    kind = type(struct)
    plan = _plans.get(kind)
    if plan is None:
        plan = _plans[kind] = _Plan(kind)
    values = plan.values_of(struct)
    types = tuple(map(type, values))
    if types != plan.latest and types not in plan.known:
        for name, found, allowed in zip(plan.names, types, plan.allowed, strict=True):
            if found not in allowed:
                return name
        plan.known.add(types)
    plan.latest = types
    for index, check in plan.deeper:
        value = values[index]
        if not value and type(value) is not str:
            continue  # nothing is inside; only a text is one of a closed list although it is empty
        inner = check(value)
        if inner is not None:
            return inner or plan.names[index]
    return None


def _parts(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _exact(hint: Any) -> set[type]:
    """Give the exact types a field takes: no subclass, and no bool for an int. A whole number will do for a float."""
    found: set[type] = set()
    for part in _parts(hint):
        while isinstance(part, NewType):
            part = part.__supertype__  # noqa: PLW2901 - what the name stands for
        origin = get_origin(part)
        if part is float:
            found |= {float, int}
        elif origin is Literal:
            found.add(str)
        else:
            found.add(origin or part)
    return found


def _inside(hint: Any) -> Check | None:
    """Give the check of what is inside a field, or None if there is nothing to check."""
    for part in _parts(hint):
        origin, inner = get_origin(part), get_args(part)
        if origin is Literal:
            return lambda value: None if value is None or value is msgspec.UNSET or value in inner else ""
        if origin is dict:
            return _in_pairs
        if origin is tuple:
            kinds = frozenset(_exact(inner[0]))
            return lambda value: _in_tuple(value, kinds)
        if isinstance(part, type) and issubclass(part, msgspec.Struct):
            return _in_struct
    return None


def _in_pairs(value: Any) -> str | None:
    if type(value) is not dict:
        return None
    return None if all(type(name) is str and type(text) is str for name, text in value.items()) else ""


def _in_tuple(value: Any, kinds: frozenset[type[Any]]) -> str | None:
    for each in value or ():
        kind = type(each)
        if kind not in kinds:
            return ""
        name = None if kind is str or kind is int else misfit(each)
        if name is not None:
            return name
    return None


#: The struct found right last: a default is one and the same object everywhere.
_right: Any = None


def _in_struct(value: Any) -> str | None:
    global _right  # noqa: PLW0603 - a memory of one, for speed
    if value is _right or not isinstance(value, msgspec.Struct):
        return None
    name = misfit(value)
    if name is None:
        _right = value
    return name
