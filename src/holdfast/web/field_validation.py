"""Fields of a body: each is known, and said once. A misspelt one is refused with its path, never lost in silence.

The structs of the model cannot see to it themselves: they also read what stores keep, where a field of a newer version
is passed over. So of each a twin is made that has its names and reads none of its values. What a payload says inside
is its owner's, and not looked at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec

from holdfast.errors import InvalidValue
from holdfast.version import __version__

T = TypeVar("T")

_NAMED = re.compile(r"field `(?P<name>[^`]{1,200})")
#: Escapes that no name has, and what stands in their place: that of the backslash first, so that each other backslash
#: begins one; then those of what ends a text, or may not stand in one. Of two, the last digit is left.
_NEUTRAL = (
    *((b"\\" + mark, b"--") for mark in (b"\\", b'"', b"/", b"b", b"f", b"n", b"r", b"t")),
    *((b"\\u" + digits, b"-" * len(digits)) for digits in (b"0022", b"005c", b"005C", b"000", b"001")),
)
#: No name has others than these.
_ASCII = bytes(byte if byte < 0x80 else ord("-") for byte in range(256))
#: Bytes up to which it is looked for where something is said twice: the interpreter makes a hundred of one byte.
_NAMED_BELOW = 128 << 10
_encode = msgspec.json.Encoder().encode


def read_as(raw: bytes, kind: type[T]) -> T:
    """Read a body as a kind. Raises InvalidValue, with the path of the field, for what is none or says more."""
    try:
        found = msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as problem:
        raise misread("the body", problem) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise _no_json(problem) from None
    demand_fields(raw, kind)
    return found


def demand_fields(raw: bytes, kind: Any) -> None:
    """Demand that a body which was read as a kind says nothing that was not heard. Raises InvalidValue."""
    twin, decoder = _reader(kind)
    try:
        named = decoder.decode(raw)
    except msgspec.ValidationError as problem:
        raise misread(
            "the body",
            problem,
            hint=f"Is it misspelt? This coordinator is version {__version__}; a newer one may know it.",
        ) from None
    except UnicodeDecodeError as problem:  # the name of a field: one that is not known is passed over before
        raise _no_json(problem) from None
    # Written again it is as long as it was, unless something was said twice, or with spaces or escapes between values.
    # So what is written tightly, as our own stores do it, is read no third time.
    if len(_encode(named)) == len(raw):
        return
    plain = _plain(msgspec.json.format(raw, indent=-1))
    if len(_encode(decoder.decode(plain))) == len(plain):
        return
    # Everybody waits for as long as this lasts.
    paths = _doubled(_pairs(raw), twin, "") if len(raw) <= _NAMED_BELOW else iter(("",))
    for path in paths:
        which = f"field `{path[:200]}`" if path else "a field"
        raise InvalidValue(f"the body does not fit: {which} is said twice. Nothing was done.", field=path[:200])


def _plain(tight: bytes) -> bytes:
    """Give JSON that names the same fields, as long again when it is written again: it has no escapes at all.

    What else its texts say is lost; nobody looks at it.
    """
    if b"\\" not in tight:
        return tight
    for escape, neutral in _NEUTRAL:
        tight = tight.replace(escape, neutral)
    return tight.translate(_ASCII).decode("unicode_escape").encode("ascii", "replace")


def misread(where: str, problem: msgspec.ValidationError, hint: str = "") -> InvalidValue:
    """Say what does not fit, and at which field."""
    said, at, path = str(problem).rpartition(" - at `")
    if not at:
        said, path = path, ""
    named = _NAMED.search(said[:1000])
    path = path.removesuffix("`").removeprefix("$").removeprefix(".")
    # They have chosen its name, and it may be as long as the body.
    field = ".".join(part for part in (path, named["name"] if named else "") if part)[:200]
    return InvalidValue(
        f"{where} does not fit: {said[:300]}{f', at {field}' if field else ''}. Nothing was done.",
        hint=hint,
        field=field,
    )


def _no_json(problem: Exception) -> InvalidValue:
    return InvalidValue(f"the body is not JSON: {problem}. Nothing was done.", field="")


# --- twins ------------------------------------------------------------------------------------------------------------


@cache
def _reader(kind: Any) -> tuple[Any, msgspec.json.Decoder[Any]]:
    twin = _twin(kind)
    return twin, msgspec.json.Decoder(twin)


def _twin(hint: Any) -> Any:
    """Give a type with twins in the place of structs, and of what holds none the bytes as they are."""
    if _is_struct(hint):
        return _struct(hint, is_told=False)
    if not _holds_struct(hint):
        return msgspec.Raw
    parts = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        # Beside a struct stands what JSON tells from one, such as a text; another struct is told by its tag.
        if sum(map(_is_struct, parts)) > 1:
            return reduce(or_, (_struct(part, is_told=True) if _is_struct(part) else part for part in parts))
        return reduce(or_, (_twin(part) if _holds_struct(part) else part for part in parts))
    return get_origin(hint)[tuple(part if part is ... or part is str else _twin(part) for part in parts)]


@cache
def _struct(kind: type[msgspec.Struct], *, is_told: bool) -> type[msgspec.Struct]:
    """Make the twin of a struct. Where nothing else is read, its tag may be left out: it is a field like others."""
    config = kind.__struct_config__
    names = [(field.encode_name, _twin(field.type), msgspec.UNSET) for field in msgspec.structs.fields(kind)]
    if not is_told and config.tag_field is not None:
        names.append((config.tag_field, msgspec.Raw, msgspec.UNSET))
    return msgspec.defstruct(
        f"{kind.__name__}Names",
        names,
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
        gc=False,
        tag=config.tag if is_told else None,
        tag_field=config.tag_field if is_told else None,
    )


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def _holds_struct(hint: Any) -> bool:
    return _is_struct(hint) or any(_holds_struct(part) for part in get_args(hint))


# --- what is said twice -----------------------------------------------------------------------------------------------


class _Object(list[tuple[str, Any]]):
    """An object as it was written: all its names, in order."""


def _pairs(raw: bytes) -> Any:
    try:
        # Numbers stay texts: values are nobody's business here. They may have more digits than are read, and what a
        # payload says need not be a text at all.
        return json.loads(raw.decode(errors="replace"), object_pairs_hook=_Object, parse_int=str, parse_float=str)
    except RecursionError:
        raise InvalidValue("the body is nested too deeply. Nothing was done.", field="") from None


def _doubled(value: Any, hint: Any, path: str) -> Iterator[str]:
    """Walk the paths of fields that are said more than once in an object that is read as a struct."""
    if isinstance(value, _Object):
        struct = _struct_for(value, hint)
        if struct is None:
            return
        hints = _hints(struct)
        seen: set[str] = set()
        for name, one in value:
            if name in seen:
                yield f"{path}{name}"
            seen.add(name)
            yield from _doubled(one, hints.get(name), f"{path}{name}.")
    elif isinstance(value, list):
        for number, one in enumerate(value):
            for part in _parts(hint, number):
                yield from _doubled(one, part, f"{path.removesuffix('.')}[{number}].")


def _struct_for(value: _Object, hint: Any) -> type[msgspec.Struct] | None:
    """Give the one of the structs in a type that an object is read as."""
    tags, by_tag = _structs(hint)
    if len(by_tag) < 2:
        return next(iter(by_tag.values()), None)
    return next(
        (by_tag[text] for name, text in value if name in tags and isinstance(text, str) and text in by_tag), None
    )


@cache
def _structs(hint: Any) -> tuple[set[str | None], dict[Any, type[msgspec.Struct]]]:
    """Give the structs in a type by their tags, and the fields that these stand in."""
    found = [one for one in (hint, *get_args(hint)) if isinstance(one, type) and issubclass(one, msgspec.Struct)]
    configs = [(one, one.__struct_config__) for one in found]
    return {config.tag_field for _, config in configs}, {config.tag: one for one, config in configs}


@cache
def _hints(struct: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(struct)}


def _parts(hint: Any, number: int) -> Iterator[Any]:
    """Give what an element of a list may be read as."""
    for one in (hint, *get_args(hint)):
        if get_origin(one) is list or (get_origin(one) is tuple and get_args(one)[-1] is ...):
            yield get_args(one)[0]
        elif get_origin(one) is tuple and number < len(get_args(one)):
            yield get_args(one)[number]
