"""Pace: a request and its answer take their time and no more.

An ordinary request has a number of seconds for all of it. A blob or a stream may last, but each piece has as long, and
what comes drop by drop is cut. Whatever is answered before its body has arrived ends the connection: the rest of it
could be endless, and is nobody's next request.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.errors import InvalidValue, StoreBusy
from holdfast.stores.http.wire import ROOT
from holdfast.web.middleware.auth import STREAMS
from holdfast.web.problems import response_to
from holdfast.web.server.limits import Limits

#: Bytes of a blob that must arrive in the time of an ordinary request; fewer are no flow.
FLOW = 64 << 10
_BLOBS = f"{ROOT}/blobs/"


class _TooSlow(Exception):
    """The other side takes too long."""


class Pace:
    """Cuts who is too slow."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._request_s = limits.request_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request in time."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send, self._request_s)
        lasts = scope["path"] in STREAMS or scope["path"].startswith(_BLOBS)
        try:
            async with asyncio.timeout(None if lasts else self._request_s) as whole:
                if lasts:
                    await self._app(scope, exchange.flowing, exchange.sending)
                else:
                    await self._app(scope, exchange.receiving, exchange.send)
        except _TooSlow:
            await exchange.cut(self._request_s)
        except TimeoutError:
            if not whole.expired():
                raise
            await exchange.cut(self._request_s)


class _Exchange:
    """One request and its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, piece_s: float) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._piece_s = piece_s
        self._has_begun = False
        headers = dict(scope["headers"])
        #: Nothing of the body is to come.
        self._has_arrived = b"transfer-encoding" not in headers and headers.get(b"content-length", b"0") == b"0"
        #: Bytes of the body since then, by the loop's clock.
        self._bytes, self._since = 0, asyncio.get_running_loop().time()

    async def receiving(self) -> Message:
        """Give the next piece of the body, or that the other side has gone."""
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            self._has_arrived = True
        return message

    async def flowing(self) -> Message:
        """Give the next piece of a body that may take long, as long as it flows."""
        if self._has_arrived:
            return await self.receiving()
        try:
            async with asyncio.timeout(self._piece_s):
                message = await self.receiving()
        except TimeoutError:
            raise _TooSlow from None
        self._bytes += len(message.get("body", b""))
        now = asyncio.get_running_loop().time()
        if now - self._since > self._piece_s:
            if self._bytes < FLOW and not self._has_arrived:
                raise _TooSlow
            self._bytes, self._since = 0, now
        return message

    async def send(self, message: Message) -> None:
        """Send a piece of the answer."""
        if message["type"] == "http.response.start":
            self._has_begun = True
            if not self._has_arrived:
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
        await self._send(message)

    async def sending(self, message: Message) -> None:
        """Send a piece of an answer that may take long; whoever does not read it is not waited for."""
        try:
            async with asyncio.timeout(self._piece_s):
                await self.send(message)
        except TimeoutError:
            raise _TooSlow from None

    async def cut(self, after_s: float) -> None:
        """Say that it took too long, if anything can still be said, and to who reads it."""
        if self._has_begun:
            return  # the server ends the connection, for the answer is not whole
        with suppress(_TooSlow):
            await self._too_late(after_s)(self._scope, self._receive, self.sending)

    def _too_late(self, after_s: float) -> Response:
        if not self._has_arrived:
            late = InvalidValue(f"the request did not arrive within {after_s:g} s. Nothing was done.")
            return response_to(late, 408)
        busy = StoreBusy(
            f"there was no answer within {after_s:g} s. Whether anything was done is not known.",
            hint="Send the same again, with the same ids: that settles it.",
        )
        return response_to(busy)
