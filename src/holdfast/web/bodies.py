"""Bodies in and out: read up to a limit, decoded into one struct, written with the coordinator's time."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import wraps
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from holdfast.errors import InvalidValue, PayloadTooLarge
from holdfast.stores.http.compression import unpacked
from holdfast.stores.http.wire import encode
from holdfast.web.field_validation import read_as
from holdfast.web.middleware.auth import limits_for, quotas_for

T = TypeVar("T")
_Handler = Callable[[Request], Awaitable[Response]]

#: Digits, no more than the largest number has that is counted here.
_WHOLE = re.compile(r"[0-9]{1,19}")


async def body_of(request: Request) -> bytes:
    """Read a body, packed or not. Raises PayloadTooLarge as soon as it is, whatever its headers say.

    Raises StoreBusy if there is no place for it beside the others that are arriving.
    """
    most, parts = limits_for(request).body, []
    with quotas_for(request).arrival() as grow:
        async for part in pieces_of(request, most):
            grow(len(part))
            parts.append(part)
        arrived = b"".join(parts)
    return unpacked(arrived, request.headers.get("content-encoding", ""), most)


async def pieces_of(request: Request, most: int) -> AsyncIterator[bytes]:
    """Walk a body as it arrives. Raises PayloadTooLarge before the first piece, if its head says so, or as it is."""
    told = request.headers.get("content-length", "")
    size = int(told) if told.isdecimal() else 0
    if size <= most:
        size = 0
        more = True
        # Not `request.stream()`: a second generator around each piece costs as much as decoding a command.
        while more:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            more = message.get("more_body", False)
            part = message.get("body", b"")
            size += len(part)
            if size > most:
                break
            if part:
                yield part
    if size > most:
        raise PayloadTooLarge(f"the body has more than {most:,} bytes. Nothing was done.", hint="Send it in parts.")


async def decoded(request: Request, kind: type[T]) -> T:
    """Read a body as one struct. Raises InvalidValue, with the path of the field, for what is none or says more."""
    return read_as(await body_of(request), kind)


def answer(content: object, status: int = 200) -> Response:
    """Write an answer."""
    return Response(encode(content), status, media_type="application/json")


def asks(*names: str) -> Callable[[_Handler], _Handler]:
    """Say what may be asked for in the query of an endpoint; anything else, or one twice, is refused first."""

    def asking(handler: _Handler) -> _Handler:
        @wraps(handler)
        async def asked(request: Request) -> Response:
            if request.scope["query_string"]:
                _demand_query(request, names)
            return await handler(request)

        return asked

    return asking


def _demand_query(request: Request, names: Sequence[str]) -> None:
    left = list(names)
    for name, _ in request.query_params.multi_items():
        if name not in left:
            why = "is given twice" if name in names else "there is no such parameter here"
            raise InvalidValue(f"{name[:200]}: {why}. Nothing was done.", field=name[:200])
        left.remove(name)


def whole(request: Request, name: str, default: int, most: int) -> int:
    """Read a whole number from the query, from 0 to `most`. Raises InvalidValue."""
    text = request.query_params.get(name, str(default))
    # Not by way of a float, which has no number for each of those beyond 2**53.
    if _WHOLE.fullmatch(text) is None or int(text) > most:
        raise InvalidValue(f"{name}: {text!r:.40} is not a whole number from 0 to {most}.", field=name)
    return int(text)


def seconds(request: Request, name: str, most: float) -> float:
    """Read seconds from the query, from 0, also if there are none, to `most`. Raises InvalidValue."""
    text = request.query_params.get(name, "0")
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= most:
        raise InvalidValue(f"{name}: {text!r:.40} is not a number from 0 to {most:g}.", field=name)
    return found
