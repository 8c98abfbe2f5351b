"""Plain values of typed ones, as msgspec makes them, with sets in one order.

A set has another order in each process. What is written down of it is compared when code is run again, or when the
same is asked for twice: so its members stand in the order of their own JSON.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode


def plain_of(value: Any, enc_hook: Callable[[Any], Any] | None = None, *, str_keys: bool = False) -> Any:
    """Give a value as dicts, lists, tuples and what JSON has. Raises TypeError, and what `enc_hook` raises."""
    return _ordered(value, msgspec.to_builtins(value, enc_hook=enc_hook, str_keys=str_keys))


def _ordered(value: Any, plain: Any) -> Any:
    """Put the members of sets in order, within what was made of a value."""
    if isinstance(plain, dict):
        inner = (
            zip(plain, value.values(), strict=True)
            if isinstance(value, Mapping)
            else ((name, getattr(value, field)) for field, name in _fields(value) if name in plain)
        )
        return plain | {name: _ordered(given, plain[name]) for name, given in inner}
    if not isinstance(plain, list | tuple):
        return plain
    head = 0
    if isinstance(value, msgspec.Struct):  # one that is written as an array, behind its tag if it has one
        head = value.__struct_config__.tag is not None
        value = [getattr(value, field) for field in value.__struct_fields__]
    if not isinstance(value, list | tuple | AbstractSet):
        return plain  # made by the hook, which knows its own order
    members = [*plain[:head], *map(_ordered, value, plain[head:])]
    if isinstance(value, AbstractSet):
        members.sort(key=_encode)
    return members if isinstance(plain, list) else tuple(members)


def members_of(value: Any) -> Iterator[tuple[object, Any]]:
    """Walk what a value contains, each by its name, key or index; nothing for a set, whose members have no place."""
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, list | tuple):
        yield from enumerate(value)
    else:
        for field, name in _fields(value):
            yield name, getattr(value, field)


def _fields(value: Any) -> Iterable[tuple[str, str]]:
    """Give the fields of an object, and the names they have in its plain form."""
    if isinstance(value, msgspec.Struct):
        return zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ((field.name, field.name) for field in dataclasses.fields(value))
    return ((field.name, field.name) for field in getattr(value, "__attrs_attrs__", ()))
