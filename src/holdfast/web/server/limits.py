"""What one coordinator takes on at most. Sizes in bytes, times in seconds; each can be set with `serve --limit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from holdfast.errors import InvalidValue
from holdfast.stores.http.wire import MOST_BLOB, MOST_BYTES

_Count = Annotated[int, msgspec.Meta(ge=1)]
_Amount = Annotated[float, msgspec.Meta(gt=0)]


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a request is refused, or cut."""

    #: Of a body; of a blob; of a request's line and headers together.
    body: _Count = MOST_BYTES
    blob: _Count = MOST_BLOB
    head: _Count = 16 << 10
    #: Of all bodies that are arriving. Beyond it those with more than 64 KiB are refused, the smaller ones never.
    bodies: _Count = 256 << 20
    #: Open at a time. One more closes the one that has been idle for longest.
    connections: _Count = 4096
    #: Requests that wait for something to happen, streams among them: altogether, and of one access token.
    long_polls: _Count = 1000
    long_polls_each: _Count = 64
    #: Workers that are remembered; one more, and the one that was silent for longest is forgotten. What one says of
    #: itself.
    workers: _Count = 5000
    note: _Count = 256 << 10
    #: Requests a second of one access token; as many may come at once after a pause. Whoever needs none has no limit.
    rate: _Amount = 200.0
    #: For a whole request and its answer. Of blobs and streams: for the next piece.
    request_s: _Amount = 40.0
    #: For the head of a request, from its first byte, or from the connection's beginning, on.
    head_s: _Amount = 10.0
    #: Between two requests of one connection.
    idle_s: _Amount = 60.0


def limits_of(words: Sequence[str]) -> Limits:
    """Read NAME=VALUE words. Raises InvalidValue, saying which names there are."""
    given = {name.strip(): value.strip() for name, _, value in (word.partition("=") for word in words)}
    try:
        return msgspec.convert(given, Limits, strict=False)
    except msgspec.ValidationError as problem:
        names = ", ".join(f"{field.name}={field.default:.12g}" for field in msgspec.structs.fields(Limits))
        raise InvalidValue(
            f"limit: {problem}. Nothing was started.", hint=f"There are: {names}.", field="limit"
        ) from problem
