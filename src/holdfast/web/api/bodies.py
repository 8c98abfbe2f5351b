"""What requests may say: structs made of the model's own, which refuse every field they do not know.

A body is read into such a struct and becomes the model's by `as_model`, which also writes times in the house format.
"""

from __future__ import annotations

from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec

from holdfast.errors import InvalidValue
from holdfast.model.payloads import NULL, admit_object
from holdfast.model.times import Timestamp, parse_timestamp
from holdfast.web.field_validation import misread, read_as

T = TypeVar("T")

#: Struct that a body is read into → the model's struct it stands for.
_STANDS_FOR: dict[type, type[msgspec.Struct]] = {}


class Empty(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing."""


class ReasonBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why; kept with the change."""

    reason: str = ""


def strict(
    kind: type[msgspec.Struct],
    *,
    without: tuple[str, ...] = (),
    beside: dict[str, tuple[Any, Any]] | None = None,
) -> type[Any]:
    """Make the struct that a body of this kind is read into, without some fields and with others and their defaults."""
    others = beside or {}
    fields: list[Any] = [(field, *typed) for field, typed in others.items()]
    for field in msgspec.structs.fields(kind):
        if field.name in without or field.name in others:
            continue
        fields.append((field.name, _strict(field.type), *default_of(field)))
    made = msgspec.defstruct(
        f"{kind.__name__}Body",
        fields,
        namespace={"__doc__": kind.__doc__},
        module=__name__,
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )
    _STANDS_FOR[made] = kind
    return made


def default_of(field: msgspec.structs.FieldInfo) -> tuple[Any, ...]:
    """Give the default of a field as `defstruct` takes it; nothing for one that must be there."""
    if field.required:
        return ()
    is_made = field.default is msgspec.NODEFAULT
    return (msgspec.field(default_factory=field.default_factory) if is_made else field.default,)


@cache
def strict_whole(kind: type[msgspec.Struct]) -> type[Any]:
    """Make the struct that a whole one is read into; the same for the same kind."""
    return strict(kind)


def _strict(hint: Any) -> Any:
    """Give a type with every struct in it made strict."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return strict_whole(hint)
    if get_origin(hint) in (Union, UnionType):
        return reduce(or_, (_strict(part) for part in get_args(hint)))
    return hint


def as_model(body: Any, **beside: Any) -> Any:
    """Give what a body stands for, with values from elsewhere. Raises InvalidValue for a time that is none."""
    kind = _STANDS_FOR[type(body)]
    fields = {}
    for field in msgspec.structs.fields(kind):
        if field.name not in beside and field.name in type(body).__struct_fields__:
            fields[field.name] = _value(field.name, field.type, getattr(body, field.name))
    return kind(**fields, **beside)


def changes_of(body: Any, **beside: Any) -> Any:
    """Give the changes that a body stands for, as `as_model` does. Raises InvalidValue if there are none."""
    changes = as_model(body, **beside)
    if not changes.given():
        raise no_change()
    return changes


def no_change() -> InvalidValue:
    """Say that there is nothing to do."""
    return InvalidValue("there is nothing to change. Nothing was changed.", field="")


def object_or_null(raw: msgspec.Raw, field: str = "params") -> msgspec.Raw:
    """Give a payload that is an object, or NULL for none. Raises InvalidValue."""
    return NULL if bytes(raw) == b"null" else admit_object(raw, field)


def _value(name: str, hint: Any, value: Any) -> Any:
    if type(value) in _STANDS_FOR:
        return as_model(value)
    if isinstance(value, str) and Timestamp in (hint, *get_args(hint)):
        return parse_timestamp(value, name)
    return value


def body_of(raw: bytes, kind: type[T]) -> T:
    """Read a body; an empty one is an object without fields. Raises InvalidValue with the path of the field."""
    return read_as(raw or b"{}", kind)


def query_of(pairs: list[tuple[str, str]], kind: type[T]) -> T:
    """Read a query. Raises InvalidValue with the name of the parameter."""
    several = {field.encode_name for field in msgspec.structs.fields(kind) if get_origin(field.type) is tuple}  # type: ignore[arg-type]  # it is a struct
    given: dict[str, Any] = {}
    for name, value in pairs:
        if name in several:
            given.setdefault(name, []).append(value)
        elif name in given:
            raise InvalidValue(f"{name}: is given twice. Nothing was done.", field=name)
        else:
            given[name] = value
    try:
        found = msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as problem:
        raise misread("the query", problem) from None
    for name, text in given.items():
        # The word null would be read as nothing at all.
        if getattr(found, name) is None:
            raise InvalidValue(f"{name}: {text!r:.40} does not fit. Nothing was done.", field=name)
    return found
