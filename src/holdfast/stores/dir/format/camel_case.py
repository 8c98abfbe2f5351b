"""Records as JSON objects for people: the fields of their structs in camelCase, those at their default left out.

One plan a struct, worked out from its types: which field has which name, which ones hold structs of their own, and
which are times. Payloads inside are passed on as they are.
"""

from __future__ import annotations

from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from holdfast.errors import InvalidValue
from holdfast.model.times import Timestamp, is_timestamp, parse_timestamp
from holdfast.stores.dir.format.record_text import Unreadable

#: An object with its values as they stand in the text.
Fields = dict[str, msgspec.Raw]

encode = msgspec.json.Encoder().encode
_fields: msgspec.json.Decoder[Fields] = msgspec.json.Decoder(Fields)
_text = msgspec.json.Decoder(str)
NULL = b"null"


def camel(name: str) -> str:
    """Write a field's name as files have it."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


class Plan:
    """How one kind of struct is written and read."""

    def __init__(self, kind: type[msgspec.Struct]) -> None:
        hints = get_type_hints(kind)
        #: Field → its name in files, in the order of the struct.
        self.names = {name: camel(name) for name in kind.__struct_fields__}
        self._fields = {outside: name for name, outside in self.names.items()}
        self._inside = {
            name: plan_of(part) for name, hint in hints.items() for part in _parts(hint) if _is_struct(part)
        }
        self._times = {name for name, hint in hints.items() if Timestamp in _parts(hint)}
        # What the encoder takes for a default is the very object; here it is whatever equals it.
        self._defaults = {
            field.name: field.default
            for field in msgspec.structs.fields(kind)
            if field.default is not msgspec.NODEFAULT
        }
        self._decoder = msgspec.json.Decoder(kind)

    def write(self, record: msgspec.Struct) -> Fields:
        """Give a record's fields by their names in files, without those at their default."""
        found = _fields.decode(encode(record))
        for name in found.keys() & self._defaults.keys():
            if getattr(record, name) == self._defaults[name]:
                del found[name]
        return self._outside(found)

    def _outside(self, found: Fields) -> Fields:
        for name, plan in self._inside.items():
            if name in found and found[name] != NULL:
                inside = plan._outside(_fields.decode(found[name]))  # noqa: SLF001 - of its own kind
                found[name] = msgspec.Raw(encode(inside))
        return {self.names[name]: value for name, value in found.items()}

    def read(self, found: Fields) -> Any:
        """Give the record that such fields describe; names that are not its own are passed over. Raises Unreadable."""
        try:
            return self._decoder.decode(encode(self._within(found)))
        except (msgspec.MsgspecError, InvalidValue) as problem:
            raise Unreadable(str(problem)) from None

    def _within(self, found: Fields) -> Fields:
        known = {self._fields[name]: value for name, value in found.items() if name in self._fields}
        for name in self._times & known.keys():
            known[name] = _moment(name, known[name])
        for name, plan in self._inside.items():
            if name in known and known[name] != NULL:
                known[name] = msgspec.Raw(encode(plan._within(fields_of(known[name]))))  # noqa: SLF001 - the same
        return known

    def unknown(self, found: Fields) -> Fields:
        """Give the fields that are none of this kind."""
        return {name: value for name, value in found.items() if name not in self._fields}


@cache
def plan_of(kind: type[msgspec.Struct]) -> Plan:
    """Give the plan of a kind of struct."""
    return Plan(kind)


def fields_of(text: bytes | msgspec.Raw) -> Fields:
    """Take an object apart. Raises Unreadable if it is none."""
    try:
        return _fields.decode(text)
    except (msgspec.MsgspecError, RecursionError) as problem:
        raise Unreadable(str(problem)) from None


def text_in(found: Fields, name: str) -> str | None:
    """Take a text out of the fields; None if it is not there. Raises Unreadable if it is no text."""
    raw = found.get(name)
    if raw is None or raw == NULL:
        return None
    try:
        return _text.decode(raw)
    except msgspec.MsgspecError:
        raise Unreadable(f"{name}: is no text") from None


def _moment(name: str, raw: msgspec.Raw) -> msgspec.Raw:
    """Give any RFC 3339 time in the form of the house."""
    if raw == NULL:
        return raw
    try:
        text = _text.decode(raw)
    except msgspec.MsgspecError:
        raise Unreadable(f"{camel(name)}: is no time") from None
    return raw if is_timestamp(text) else msgspec.Raw(encode(parse_timestamp(text, camel(name))))


def _parts(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _is_struct(part: Any) -> bool:
    return isinstance(part, type) and issubclass(part, msgspec.Struct)
