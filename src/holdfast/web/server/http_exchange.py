"""One request and its answer, between its connection and the application, as ASGI has them.

The head of an answer leaves together with the first piece of its body: a packet, and a call of the system, less. That
of a stream leaves at once, for its first piece may be long in coming. Whatever is answered before its body has arrived
ends the connection: the rest of it is nobody's next request.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable
from http import HTTPStatus
from itertools import chain
from typing import Protocol

from starlette.types import ASGIApp, Message, Scope

log = logging.getLogger("holdfast.serve.http")

#: Bytes of a body that wait to be read, before no more are taken from the connection.
ENOUGH = 64 << 10
_STATUS = {one.value: f"HTTP/1.1 {one.value} {one.phrase}\r\n".encode() for one in HTTPStatus}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
#: Answers without a body, whatever their headers say.
_EMPTY = frozenset({204, 304})
#: In a header these would begin another one, or be read differently by different readers.
_ILLEGAL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


class Wire(Protocol):
    """The connection, as its exchanges know it."""

    @property
    def is_full(self) -> bool:
        """Whether the other side does not fetch what was written."""
        ...

    @property
    def common(self) -> Iterable[tuple[bytes, bytes]]:
        """What every answer says in its head."""
        ...

    def write(self, part: bytes) -> None:
        """Send something."""
        ...

    async def drain(self) -> None:
        """Wait until the other side has fetched most of it."""
        ...

    def listen(self) -> None:
        """Take more from the other side."""
        ...

    def close(self) -> None:
        """Send what was written, then end."""
        ...

    def answered(self, exchange: Exchange) -> None:
        """Go on with the next one, if there may be one."""
        ...


class Exchange:
    """A request that is arriving or has arrived, and what was answered so far."""

    def __init__(self, scope: Scope, wire: Wire, *, is_last: bool, is_asking: bool) -> None:
        self.scope = scope
        #: The connection ends with it.
        self.is_last = is_last
        #: All of the body is here; something of the answer has been said; all of it.
        self.has_arrived = self.has_begun = self.is_answered = False
        #: Nobody waits for the answer any more.
        self.is_gone = False
        #: The application wants to know when that is so: of who is not listened to nobody learns it.
        self.is_watching = False
        self._wire = wire
        #: The other side sends no body before it is told to.
        self._is_asking = is_asking
        self._parts: list[bytes] = []
        self._size = 0
        #: Set when there is something to receive.
        self._news = asyncio.Event()
        #: Written, and held back for the first piece of the body.
        self._head = b""
        #: Bytes of the answer's body still to come; None if nobody knows.
        self._left: int | None = None
        self._is_empty = self._is_chunked = False

    # --- for the connection -------------------------------------------------------------------------------------------

    def take(self, part: bytes) -> bool:
        """Take a piece of the body; tell whether that is enough for now."""
        self._parts.append(part)
        self._size += len(part)
        self._news.set()
        return self._size > ENOUGH

    def end(self) -> None:
        """Note that the body is whole."""
        self.has_arrived = True
        self._news.set()

    def leave(self) -> None:
        """Note that the other side has gone."""
        self.is_gone = True
        self._news.set()

    async def run(self, app: ASGIApp) -> None:
        """Have it answered."""
        try:
            if not self.is_gone:
                await app(self.scope, self.receive, self.send)
        except Exception as problem:
            log.exception("serve.broken", extra={"problem": repr(problem)})
        finally:
            if not self.is_answered and not self.is_gone:
                self._wire.close()  # an answer that is not whole must not look as if it were

    # --- for the application ------------------------------------------------------------------------------------------

    async def receive(self) -> Message:
        """Give the next piece of the body, or that the other side has gone."""
        if self._is_asking and not self.has_begun:
            self._wire.write(_CONTINUE)
        self._is_asking = False
        self.is_watching = self.has_arrived and not self._news.is_set()
        if self.is_watching or not self.has_arrived:
            self._wire.listen()
        if not self._news.is_set():
            await self._news.wait()
        if self.is_gone or self.is_answered:
            return {"type": "http.disconnect"}
        self._news.clear()
        parts, self._parts, self._size = self._parts, [], 0
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        return {"type": "http.request", "body": body, "more_body": not self.has_arrived}

    async def send(self, message: Message) -> None:
        """Send the head, then pieces of the body."""
        if self._wire.is_full:
            await self._wire.drain()
        if self.is_gone:
            return
        is_head = message["type"] == "http.response.start"
        if is_head is self.has_begun or self.is_answered:
            raise RuntimeError(f"{message['type']} at the wrong time")
        if is_head:
            self._begin(message["status"], message.get("headers", ()))
        else:
            self._go_on(message.get("body", b""), is_whole=not message.get("more_body", False))

    def _begin(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.has_begun = True
        self.is_last = self.is_last or not self.has_arrived
        lines = [_STATUS.get(status) or f"HTTP/1.1 {status} \r\n".encode()]
        fields = [*self._wire.common, *headers]
        if _ILLEGAL.search(b"".join(chain.from_iterable(fields))):
            raise RuntimeError(f"these are no headers: {fields!r:.200}")
        for name, value in fields:
            if name == b"content-length":
                self._left = int(value)
            if name == b"connection":
                self.is_last = self.is_last or value.lower() == b"close"
            else:
                lines.append(b"%b: %b\r\n" % (name, value))
        self._is_empty = status in _EMPTY or self.scope["method"] == "HEAD"
        if self._left is None and not self._is_empty:
            # HTTP/1.0 knows no chunks: there the end of the connection is that of the body, and it is always the last.
            self._is_chunked = self.scope["http_version"] == "1.1"
            if self._is_chunked:
                lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"connection: close\r\n\r\n" if self.is_last else b"\r\n")
        self._head = b"".join(lines)
        if self._left is None:
            self._write(b"")

    def _go_on(self, body: bytes, *, is_whole: bool) -> None:
        if self._is_empty:
            body = b""
        elif self._is_chunked:
            body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"0\r\n\r\n" if is_whole else b"")
        elif self._left is not None:
            self._left -= len(body)
            if self._left < 0 or (is_whole and self._left):
                raise RuntimeError("the answer has another length than its head says")
        self._write(body)
        if is_whole:
            self.is_answered = True
            self._news.set()
            self._wire.answered(self)

    def _write(self, part: bytes) -> None:
        if self._head or part:
            self._wire.write(self._head + part)
            self._head = b""
