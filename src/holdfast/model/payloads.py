"""Payloads: JSON that every store can keep and give back unchanged. The one validator before every store.

Accepted is JSON text that means the same to every reader: no duplicate names, no NaN or infinity, integers from -2**63
to 2**63 - 1, no lone surrogates, at most 64 levels. Kept is its compact form. Types are the application's affair.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import msgspec

from holdfast.errors import InvalidValue, PayloadTooLarge

#: No payload, and the payload None: one and the same. (msgspec cannot decode `Raw | None`.)
NULL = msgspec.Raw(b"null")
#: No parameters.
EMPTY = msgspec.Raw(b"{}")
#: Bytes of one payload.
MAX_BYTES = 256 << 20
#: Bytes of one payload inside a record. Larger content lies beside it, as a blob.
MAX_INLINE = 64 << 10
#: Bytes of what is kept inside a record whatever its size: the list of a run's artifacts, its progress.
MAX_LISTED = 1 << 20
#: Bytes of parameters that a template or a schedule keeps, and of those laid over them by a call: what is made of a
#: template's, a schedule's and a call's together still fits a record.
MAX_STANDING = 16 << 10
MAX_LAID_OVER = 32 << 10
#: Levels of nesting.
MAX_DEPTH = 64
_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"
#: Characters of a path inside a value, in a message.
MAX_PATH = 300
#: Bytes of an error text; longer ones lose their middle.
MAX_ERROR = 16 * 1024

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_names: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
#: A payload that is a reference: exactly this form, and nothing else.
_REF = re.compile(rb'\{"\$blob":"([0-9a-f]{64})","size":(\d{1,12})\}')
_SHORTEST, _LONGEST = 85, 96
#: Could be an integer beyond 64 bits: worth the slow look.
_LONG_NUMBER = re.compile(rb"\d{19}")
#: Brackets, and texts whole, so that brackets inside them do not count. Possessive: a long text costs no memory.
_BRACKET = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


def pack(value: Any, field: str = "params", limit: int = MAX_BYTES, around: int = 0) -> msgspec.Raw:
    """Encode plain Python values (dict, list, str, int, float, bool, None) as a payload.

    `around` is the number of levels that may lie around a payload of full depth; -1: it is kept one level down itself.

    Raises InvalidValue for anything JSON cannot give back as it was, naming `field` and the path inside the value;
    PayloadTooLarge beyond `limit` bytes.
    """
    try:
        _walk(value, -around)
        encoded = _encode(value)
    except (_Refused, TypeError) as problem:
        path, refused = _located(value, _refused(value, problem), -around)
        raise refused_at(field, path, str(refused), hint=refused.hint) from None
    return _within(encoded, field, limit)


def refused_at(field: str, path: str, text: str, after: str = "", hint: str = "") -> InvalidValue:
    """Make the refusal of what lies at `path` inside the value of `field`."""
    where = f"{field}{path:.{MAX_PATH}}"
    return InvalidValue(f"{where}: {text}.{after}", hint=hint, field=field, path=where)


def path_step(step: object) -> str:
    """Write one step of a path inside a value: `.name` of a field or of a text, else `[3]`."""
    if not isinstance(step, str):
        return f"[{step!r:.{MAX_PATH}}]"
    return "." + step[:MAX_PATH].encode("utf-8", "backslashreplace").decode()


def cannot_be_encoded(value: object) -> str:
    """Say that a value has no form in JSON."""
    return f"object of type {type(value).__name__} cannot be encoded as JSON"


def _refused(value: Any, problem: _Refused | TypeError) -> _Refused:
    """Say why a value is refused: TypeError is raised for a subclass of a plain type, or a mapping that is no dict."""
    return problem if isinstance(problem, _Refused) else _Refused(cannot_be_encoded(value))


def _located(value: Any, refused: _Refused, depth: int) -> tuple[str, _Refused]:
    """Return the path to what is refused in a value, and why; the path is empty if it is the value itself. Slow."""
    if depth == MAX_DEPTH or not isinstance(value, Mapping | list):
        return "", refused
    for step, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
        try:
            _walk(inner, depth + 1)
            _encode(inner)
        except (_Refused, TypeError) as problem:
            path, refused = _located(inner, _refused(inner, problem), depth + 1)
            return path_step(step) + path, refused
    return "", refused


def admit(text: bytes | msgspec.Raw, field: str = "params", limit: int = MAX_BYTES, around: int = 0) -> msgspec.Raw:
    """Check JSON text from outside and give it back in compact form; for `around` see `pack`.

    Raises InvalidValue or PayloadTooLarge, naming `field`; the text is then not stored.
    """
    _refuse_large(memoryview(text).nbytes, field, limit)
    raw = bytes(text)
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH + around:
        _refuse_depth(raw, field, MAX_DEPTH + around)
    try:
        # What survives a round trip unchanged has no duplicate names, no odd numbers and no blanks. Nearly all does.
        if not _LONG_NUMBER.search(raw) and _encode(_decode(raw)) == raw:
            return msgspec.Raw(raw)
    except (ValueError, RecursionError):
        pass
    return pack(_parse(raw, field), field, limit, around)


def admit_object(text: bytes | msgspec.Raw, field: str = "params") -> msgspec.Raw:
    """Check that JSON text from outside is an object, such as a task's parameters."""
    payload = admit(text, field)
    if bytes(payload)[:1] != b"{":
        raise InvalidValue(f"{field}: must be a JSON object of parameter names.", field=field)
    return payload


def laid_over(*layers: msgspec.Raw) -> msgspec.Raw:
    """Join objects: a later value replaces the whole value of that name. NULL is an object without names."""
    found = [layer for layer in layers if layer != NULL]
    if len(found) < 2:
        return found[0] if found else EMPTY
    names: dict[str, msgspec.Raw] = {}
    for layer in found:
        names.update(_names.decode(layer))
    return msgspec.Raw(_encode(names))


def names_in(raw: msgspec.Raw) -> frozenset[str]:
    """Give the names of an object; NULL has none."""
    return frozenset() if raw == NULL else frozenset(_names.decode(raw))


class BlobRef(NamedTuple):
    """What a record keeps of content that lies beside it."""

    #: SHA-256 in hex.
    digest: str
    #: Bytes.
    size: int


def blob_ref(digest: str, size: int) -> msgspec.Raw:
    """Write a reference to a blob, as a record keeps it in place of the content."""
    return msgspec.Raw(b'{"$blob":"%s","size":%d}' % (digest.encode(), size))


def ref_in(raw: msgspec.Raw) -> BlobRef | None:
    """Give the reference a payload is, or None if it is content."""
    # Nearly every payload is told apart by its length alone.
    if not _SHORTEST <= memoryview(raw).nbytes <= _LONGEST:
        return None
    found = _REF.fullmatch(bytes(raw))
    return None if found is None else BlobRef(found[1].decode(), int(found[2]))


def refs_within(raw: msgspec.Raw) -> set[str]:
    """Give the digests of all references in a JSON text, at whatever depth. What stands in a text is none."""
    # Inside a JSON string the quotation marks would be escaped, and the form would not fit.
    return {found[1].decode() for found in _REF.finditer(raw)} if b'"$blob"' in bytes(raw) else set()


def shorten_error(text: str) -> str:
    """Make an error text storable: lone surrogates escaped, the middle cut beyond MAX_ERROR bytes."""
    raw = text.encode("utf-8", "backslashreplace")
    if len(raw) <= MAX_ERROR:
        return raw.decode()
    half = MAX_ERROR // 2 - 32  # leaves room for the line between the halves
    head, tail = raw[:half].decode(errors="ignore"), raw[-half:].decode(errors="ignore")
    return f"{head}\n… {len(raw) - 2 * half} bytes cut …\n{tail}"


def _within(raw: bytes, field: str, limit: int) -> msgspec.Raw:
    _refuse_large(len(raw), field, limit)
    return msgspec.Raw(raw)


def _refuse_large(size: int, field: str, limit: int) -> None:
    if size > limit:
        raise PayloadTooLarge(
            f"{field}: {size:,} bytes are more than the {limit:,} that are kept. Nothing was stored.",
            hint="Keep large content in a file or database and pass a reference.",
            field=field,
        )


def _refuse_depth(raw: bytes, field: str, most: int) -> None:
    depth = 0
    for found in _BRACKET.finditer(raw):
        mark = found.group()
        if mark in b"[{":
            depth += 1
            if depth > most:
                raise _too_deep(field)
        elif mark in b"]}":
            depth -= 1


def _too_deep(field: str) -> InvalidValue:
    return InvalidValue(f"{field}: {_TOO_DEEP}.", field=field)


def _parse(raw: bytes, field: str) -> Any:
    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        names = dict(found)
        if len(names) != len(found):
            raise InvalidValue(f"{field}: a name occurs twice in one object.", field=field)
        return names

    def constant(name: str) -> NoReturn:
        raise InvalidValue(f"{field}: {name} is not JSON.", field=field)

    try:
        return json.loads(raw.decode("utf-8"), object_pairs_hook=pairs, parse_constant=constant)
    except InvalidValue:
        raise
    except RecursionError:
        raise _too_deep(field) from None
    except ValueError as problem:
        raise InvalidValue(f"{field}: not JSON: {problem}.", field=field) from None


class _Refused(Exception):
    """Why a value is refused; where in it is found afterwards."""

    def __init__(self, text: str, hint: str = "") -> None:
        """Say why, and what to do instead."""
        super().__init__(text)
        self.hint = hint


def _walk(value: Any, depth: int) -> None:
    """Refuse what JSON would change on the way there or back; `depth` counts the brackets around the value."""
    match value:
        case None | bool():
            return
        case str():
            _refuse_surrogates(value)
        case int():
            if not -(1 << 63) <= value < 1 << 63:
                raise _Refused(_too_large(value), "Pass it as text, and convert it where it is used.")
        case float():
            if not math.isfinite(value):
                raise _Refused(
                    f"{value} is not JSON; only finite numbers are. Nothing was stored", "Pass null, or text."
                )
        case Mapping() | list() if depth == MAX_DEPTH:
            raise _Refused(_TOO_DEEP)
        case Mapping():
            for name, inner in value.items():
                if not isinstance(name, str):
                    raise _Refused(f"the name {name!r} is not text")
                _refuse_surrogates(name)
                _walk(inner, depth + 1)
        case list():
            for inner in value:
                _walk(inner, depth + 1)
        case _:
            raise _Refused(cannot_be_encoded(value))


def _too_large(value: int) -> str:
    """Say that an integer is not kept: not every reader of JSON, and no column of a store, gives it back as it was."""
    # Very long ones are not written out: that takes its time, and nobody would read it.
    shown = f"the integer {value}" if value.bit_length() <= 128 else f"an integer of {value.bit_length()} bits"
    return f"{shown} is outside the 64 bits that are kept, -2**63 to 2**63 - 1. Nothing was stored"


def _refuse_surrogates(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise _Refused("text with a lone surrogate cannot be stored") from None
