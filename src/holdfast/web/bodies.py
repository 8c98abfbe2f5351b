"""Bodies in and out: read up to a limit, decoded into one struct, written with the coordinator's time."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import InvalidValue, PayloadTooLarge
from holdfast.stores.http.wire import MOST_BYTES, encode

T = TypeVar("T")


async def body_of(request: Request, most: int = MOST_BYTES) -> bytes:
    """Read a body. Raises PayloadTooLarge as soon as it is, whatever its headers say."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise PayloadTooLarge(f"the body has more than {most:,} bytes. Nothing was done.", hint="Send it in parts.")
        parts.append(part)
    return b"".join(parts)


async def decoded(request: Request, kind: type[T]) -> T:
    """Read a body as one struct. Raises InvalidValue for what is none."""
    try:
        return msgspec.json.decode(await body_of(request), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise InvalidValue(f"the body cannot be read: {problem}. Nothing was done.") from problem


def answer(content: object, status: int = 200) -> Response:
    """Write an answer."""
    return Response(encode(content), status, {"Cache-Control": "no-store"}, media_type="application/json")


def number(request: Request, name: str, default: float, most: float) -> float:
    """Read a number from the query, between 0 and `most`. Raises InvalidValue."""
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= most:
        raise InvalidValue(f"{name}: {text!r:.40} is not a number from 0 to {most:g}.", field=name)
    return found
