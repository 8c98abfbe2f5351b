"""Answers made smaller for who accepts it. Streams are left alone: each event leaves as it is made."""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.stores.http.compression import WORTH, chosen, packed

#: Content that becomes smaller, as its type begins.
_TEXT = ("application/json", "application/problem+json", "text/plain")


class Packing:
    """Packs answers that come in one piece."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, in fewer bytes if that is worth it."""
        accepted = dict(scope["headers"]).get(b"accept-encoding") if scope["type"] == "http" else None
        encoding = None if accepted is None else chosen(accepted.decode("latin-1"))
        if encoding is None or scope["method"] == "HEAD":
            await self._app(scope, receive, send)
            return
        head: Message | None = None

        async def pack(message: Message) -> None:
            nonlocal head
            if message["type"] == "http.response.start":
                if Headers(raw=message["headers"]).get("content-type", "").startswith(_TEXT):
                    head = message
                    return
                # The head of a stream leaves at once, for its first event may be long in coming.
                await send(message)
                return
            if head is not None:
                start, head = head, None
                headers = MutableHeaders(scope=start)
                body = message.get("body", b"")
                if not message.get("more_body", False) and len(body) >= WORTH:
                    message = {**message, "body": (smaller := packed(body, encoding))}
                    headers["content-length"] = str(len(smaller))
                    headers["content-encoding"] = encoding
                    headers.add_vary_header("Accept-Encoding")
                await send(start)
            await send(message)

        await self._app(scope, receive, pack)
