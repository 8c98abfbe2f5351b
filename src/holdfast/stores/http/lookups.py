"""The look-ups of a `View` as they travel. Made from the protocol itself, so that there is no second list of them.

Arguments become a struct of the same names; a kind of record is written as the name of its table. Records whose kind
the look-up's type leaves open travel with that name beside them. A walk (an `Iterator`) travels in pages.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from types import UnionType
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from holdfast.errors import InvalidValue
from holdfast.model.records import TABLES, Record
from holdfast.model.webhooks import Webhook
from holdfast.stores.http.lookup_validation import demand_number, judge_of
from holdfast.stores.http.wire import PAGE, Look, Seen, encode
from holdfast.stores.protocol import View

T = TypeVar("T")

_NAMES: dict[type, str] = {kind: name for name, kind in TABLES.items()}
#: Made while there is one thread: of two that read the first of a kind at once, one would find its class half read.
_READERS: dict[str, msgspec.json.Decoder[Record]] = {name: msgspec.json.Decoder(kind) for name, kind in TABLES.items()}
_KEYWORD = inspect.Parameter.KEYWORD_ONLY
#: A record of any kind: the name of its table, and itself.
_Described = tuple[str, msgspec.Raw]


class LookUp(NamedTuple):
    """One method of the view."""

    name: str
    signature: inspect.Signature
    #: Its arguments, as a struct.
    arguments: type[msgspec.Struct]
    #: The arguments that are kinds of records, and the tables each may name.
    kinds: Mapping[str, Collection[str]]
    #: What is read on the other side, a list of it for a walk; and what reads it.
    result: Any
    reader: msgspec.json.Decoder[Any]
    is_walk: bool
    #: Records come with the names of their tables.
    is_described: bool

    # --- asking -------------------------------------------------------------------------------------------------------

    def ask(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> msgspec.Raw:
        """Write the arguments of a call."""
        bound = self.signature.bind(None, *args, **kwargs)
        bound.apply_defaults()
        given = {name: value for name, value in bound.arguments.items() if name != "self"}
        for name in self.kinds:
            given[name] = _NAMES[given[name]]
        return msgspec.Raw(encode(given))

    def read(self, found: msgspec.Raw) -> Any:
        """Read what was found; of a walk, one page."""
        value = self.reader.decode(found)
        if not self.is_described:
            return value
        if self.is_walk:
            return [_record(one) for one in value]
        return None if value is None else _record(value)

    # --- answering ----------------------------------------------------------------------------------------------------

    def given(self, look: Look) -> dict[str, Any]:
        """Read the arguments. Raises InvalidValue for what is none of its own, and for what makes no sense."""
        try:
            arguments = msgspec.json.decode(look.given, type=self.arguments)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            raise InvalidValue(f"{self.name}: {problem}. Nothing was looked up.", field="given") from problem
        given = {name: getattr(arguments, name) for name in self.arguments.__struct_fields__}
        judge = judge_of(self.arguments)
        if judge is not None:
            judge(arguments, "given")
        demand_number(look.skip, "skip")
        for name, kinds in self.kinds.items():
            if given[name] not in kinds:
                raise InvalidValue(f"{self.name}: there is no table {given[name]!r:.80} of these.", field=name)
            given[name] = TABLES[given[name]]
        return given

    def find(self, view: View, given: Mapping[str, Any]) -> Any:
        """Do the look-up."""
        by_keyword = {one: value for one, value in given.items() if self._parameter(one).kind is _KEYWORD}
        return getattr(view, self.name)(*(given[one] for one in given if one not in by_keyword), **by_keyword)

    def seen(self, view: View, found: Any, skip: int = 0) -> Seen:
        """Write what was found; of a walk one page, behind those that were passed over. None: nothing."""
        if not self.is_walk:
            return Seen(seq=view.seq, found=self._write(found))
        page = list(islice(() if found is None else found, skip, min(skip + PAGE + 1, sys.maxsize)))
        return Seen(seq=view.seq, found=self._write(page[:PAGE]), more=len(page) > PAGE)

    def _parameter(self, name: str) -> inspect.Parameter:
        return self.signature.parameters[name]

    def _write(self, found: Any) -> msgspec.Raw:
        if self.is_described and found is not None:
            found = [_described(one) for one in found] if self.is_walk else _described(found)
        elif not self.is_walk and self.result_is_list:
            found = [_without_secrets(one) for one in found or ()]
        return msgspec.Raw(encode(found))

    @property
    def result_is_list(self) -> bool:
        """Whether it gives several, at once."""
        return get_origin(self.result) is list


def look_up(name: str) -> LookUp:
    """Give the look-up of that name. Raises InvalidValue if there is none."""
    found = LOOK_UPS.get(name)
    if found is None:
        raise InvalidValue(f"there is no look-up {name!r:.80}.", field="look")
    return found


def _described(record: Record) -> _Described:
    return _NAMES[type(record)], msgspec.Raw(encode(_without_secrets(record)))


def _without_secrets(record: T) -> T:
    """Leave out what signs deliveries: the coordinator sends them itself."""
    return msgspec.structs.replace(record, secrets=()) if isinstance(record, Webhook) else record


def _record(described: _Described) -> Record:
    table, raw = described
    return _READERS[table].decode(raw)


# --- reading the protocol ---------------------------------------------------------------------------------------------


def _of(name: str, method: Callable[..., Any]) -> LookUp:
    signature, hints = inspect.signature(method), get_type_hints(method)
    kinds = {one: _tables(get_args(hint)[0]) for one, hint in hints.items() if get_origin(hint) is type}
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for one, parameter in signature.parameters.items():
        if one == "self":
            continue
        wire = str if one in kinds else hints[one]
        if parameter.default is parameter.empty:
            fields.append((one, wire))
        else:
            fields.append((one, wire, _NAMES[parameter.default] if one in kinds else parameter.default))
    result = hints["return"]
    is_walk, is_described = get_origin(result) is Iterator, _is_open(result)
    found = _wire_result(result, is_walk=is_walk, is_described=is_described)
    return LookUp(
        name=name,
        signature=signature,
        arguments=msgspec.defstruct(f"{name}_arguments", fields, frozen=True, kw_only=True, forbid_unknown_fields=True),
        kinds=kinds,
        result=found,
        reader=msgspec.json.Decoder(found),
        is_walk=is_walk,
        is_described=is_described,
    )


def _tables(hint: Any) -> Collection[str]:
    """Give the tables of the kinds that a type allows."""
    one_of = hint.__constraints__ or get_args(hint.__bound__) if isinstance(hint, TypeVar) else get_args(hint)
    return [_NAMES[kind] for kind in one_of]


def _wire_result(result: Any, *, is_walk: bool, is_described: bool) -> Any:
    if is_described:
        return list[_Described] if is_walk else _Described | None
    if is_walk or get_origin(result) in _SEVERAL:
        return list.__class_getitem__(get_args(result)[0])  # a type made from a type, at run time
    return result


def _is_open(hint: Any) -> bool:
    """Tell whether a type speaks of records without saying of which kind."""
    if isinstance(hint, TypeVar) or hint == Record:
        return True
    return get_origin(hint) in {Iterator, UnionType, typing.Union} and any(_is_open(one) for one in get_args(hint))


_SEVERAL = {typing.get_origin(one) for one in (typing.Sequence[int], typing.Collection[int])}
#: Name → look-up.
LOOK_UPS = {
    name: _of(name, method) for name, method in inspect.getmembers(View, inspect.isfunction) if not name.startswith("_")
}
