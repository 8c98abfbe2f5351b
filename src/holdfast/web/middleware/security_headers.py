"""Headers of every answer: the coordinator's time, and what keeps browsers from making more of an answer than it is."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.stores.http.wire import NOW_HEADER
from holdfast.web.coordinator.request_coalescing import Shared

#: Set where an answer does not say otherwise. Nothing here is a page, nor for caches, nor for frames of others.
SAFE = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_NOW = NOW_HEADER.lower().encode()
#: By what an answer says itself: most say the same.
_missing = lru_cache(64)(lambda said: tuple(one for one in SAFE if one[0] not in said))


def safely(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Add what is missing."""
    return [*headers, *_missing(tuple(name for name, _ in headers))]


class Headed:
    """Sets them."""

    def __init__(self, app: ASGIApp, now: Callable[[], str]) -> None:
        self._app = app
        self._now = Shared(now)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with them."""

        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*safely(list(message.get("headers", ()))), (_NOW, self._now().encode())]
            await send(message)

        await self._app(scope, receive, headed if scope["type"] == "http" else send)
