"""The types of what a caller hands over: every field of an item, an event or an option, at any depth.

Structs are not checked when they are built, and JSON turns bytes, dates and UUIDs into text. So each value is compared
with the annotation of its field before anything is encoded. Which values of a type are allowed is judged by the rules,
but for what no field takes: numbers beyond 64 bits or below 0, numbers that are not finite, text with a lone surrogate.
"""

from __future__ import annotations

import math
from enum import Enum
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from holdfast.rules.field_checks import shown

#: Whole numbers are below it, and not below 0 unless they are named here.
MAX_INT = 1 << 63
SIGNED = frozenset({"priority"})

_PLAIN: frozenset[type] = frozenset({str, int, bool, NoneType})
SURROGATE = "a lone surrogate cannot be stored"


class FieldError(NamedTuple):
    """A field that does not take its value."""

    #: From the struct down: `details.cause.message`, `carry_forward_events[0]`.
    path: str
    complaint: str


def find_field_error(struct: msgspec.Struct, path: str = "") -> FieldError | None:
    """Return the first field of a struct that does not take its value, or None. `path` is put before its name."""
    for field in _fields(type(struct)):
        value = getattr(struct, field.name)
        if not field.takes_plain(value):
            found = _find_error(value, field.hint, f"{path}{field.name}")
            if found is not None:
                return found
    return None


class _Field(NamedTuple):
    name: str
    hint: Any
    #: Plain types among its annotation's.
    plain: frozenset[type]
    least: int

    def takes_plain(self, value: Any) -> bool:
        """Return True for most values, without a closer look; False says nothing."""
        kind = type(value)
        if kind not in self.plain:
            return False
        if kind is str:
            return bool(value.isascii())
        return kind is not int or self.least <= value < MAX_INT


@lru_cache
def _fields(kind: type[msgspec.Struct]) -> tuple[_Field, ...]:
    hints = get_type_hints(kind)
    return tuple(
        _Field(name, hints[name], _PLAIN.intersection(_parts(hints[name])), _least(name))
        for name in kind.__struct_fields__
    )


def _find_error(value: Any, hint: Any, path: str) -> FieldError | None:
    """Compare a value with the annotation of its field."""
    if isinstance(value, msgspec.Struct):
        return find_field_error(value, f"{path}.") if isinstance(value, _parts(hint)) else _other(path, hint, value)
    for part in _parts(hint):
        origin = get_origin(part)
        if part is NoneType and value is None:
            return None
        if origin is tuple and isinstance(value, tuple | list):
            return _find_error_among(value, get_args(part), path)
        if part is str and (type(value) is str or (isinstance(value, str) and isinstance(value, Enum))):
            return None if is_writable(value) else FieldError(path, SURROGATE)
        if part is int and type(value) is int:
            return _out_of_range(value, path)
        if part is float and type(value) in {int, float}:
            return _not_finite(value, path)
        if part is bool and type(value) is bool:
            return None
        if origin is Literal and value in get_args(part):
            return None
        if isinstance(part, type) and issubclass(part, Enum) and value in list(part):
            return None
    return _other(path, hint, value)


def _find_error_among(values: Any, kinds: tuple[Any, ...], path: str) -> FieldError | None:
    """Compare each of several values with the annotation of its place; `...` repeats the one before it."""
    if kinds[-1] is not ... and len(values) != len(kinds):
        return FieldError(path, f"must have {len(kinds)} parts, has {len(values)}")
    for at, value in enumerate(values):
        found = _find_error(value, kinds[0 if kinds[-1] is ... else at], f"{path}[{at}]")
        if found is not None:
            return found
    return None


def _out_of_range(number: int, path: str) -> FieldError | None:
    least = _least(path.rpartition(".")[2])
    if least <= number < MAX_INT:
        return None
    return FieldError(path, f"must be between {'-2**63' if least else 0} and 2**63 - 1, is {shown(number)}")


def _least(name: str) -> int:
    return -MAX_INT if name in SIGNED else 0


def _not_finite(number: float, path: str) -> FieldError | None:
    # Of a large int not even this could be asked.
    fits = -MAX_INT < number < MAX_INT if isinstance(number, int) else math.isfinite(number)
    return None if fits else FieldError(path, f"must be a finite number, is {shown(number)}")


def is_writable(text: str) -> bool:
    """Tell whether a text can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _other(path: str, hint: Any, value: Any) -> FieldError:
    """Say what a field takes instead."""
    wanted = " or ".join(dict.fromkeys(_named(part) for part in _parts(hint)))
    found = f"{value!r:.80}" if isinstance(value, str) else _kind(value)
    return FieldError(path, f"must be {wanted}, is {found}")


def _kind(value: object) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"


def _parts(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)


_NAMES = {str: "text", int: "a whole number", float: "a number", bool: "true or false", NoneType: "None"}


def _named(part: Any) -> str:
    """Name what an annotation stands for."""
    origin = get_origin(part)
    if origin is tuple:
        return "a list"
    if origin is Literal:
        return ", ".join(map(repr, get_args(part)))
    if issubclass(part, Enum):
        return ", ".join(repr(member.value) for member in part)
    return _NAMES.get(part) or f"a {part.__name__}"
