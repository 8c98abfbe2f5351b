"""One connection: HTTP/1.1 read by httptools, one request answered after the other.

The parser is strict: what two readers could read differently is no request, and is told so in our words. It keeps no
limits of its own, so those are here: bytes that lead to nothing, be they of a head that does not end or around a body,
and requests sent ahead. After what is no request nothing is read any more. Knows since when a head is waited for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from http import HTTPStatus
from typing import cast
from urllib.parse import unquote

import httptools
from starlette.types import ASGIApp
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl
from uvicorn.server import ServerState

from holdfast.errors import InvalidValue
from holdfast.web.middleware.security_headers import safely
from holdfast.web.problems import response_to
from holdfast.web.server.connections import Connections
from holdfast.web.server.http_exchange import Exchange
from holdfast.web.server.write_buffer import Outlet

#: Requests of one connection that may wait behind the one that is being answered.
AHEAD = 16
#: What the parser says of a version it has not read yet, and those it reads on with.
_READABLE = frozenset({"0.0", "0.9", "1.0", "1.1"})
#: What a sender expects who waits with the body of a request.
_CONTINUE = b"100-continue"


#: Seconds, and bytes, for which the rest of a body is thrown away that was answered before it had arrived. Closing on
#: bytes that nobody has read makes the system drop the answer, too.
LINGER_S, LINGER = 1.0, 32 << 20


class _TooManyAhead(Exception):
    """One more request than may be sent without waiting for answers."""


class Conversation(asyncio.Protocol):
    """Requests of one connection, one after the other."""

    def __init__(self, app: ASGIApp, state: ServerState, connections: Connections, longest: int) -> None:
        """Hand requests whose heads have at most so many bytes to an application."""
        self._app = app
        self._state = state
        self._open = connections
        self._longest = longest
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport = cast("asyncio.Transport", None)  # there from `connection_made` on
        self._outlet = cast("Outlet", None)  # the same
        self.head_since: float | None = None
        #: Not answered yet, oldest first: the first of them is being answered, the last may still be arriving.
        self._asked: deque[Exchange] = deque()
        self._is_paused = False
        #: Nothing is read any more.
        self._is_deaf = False
        #: Ends a connection that throws away what arrives, and bytes it may still throw away.
        self._lingering: asyncio.TimerHandle | None = None
        self._left = LINGER
        #: Bytes since something came of them: a head, a piece of a body, an end.
        self._vain = 0
        self._target = b""
        #: None outside of a head. What stands behind a body is none, and counts for nothing.
        self._headers: list[tuple[bytes, bytes]] | None = None

    # --- for who looks after connections ------------------------------------------------------------------------------

    @property
    def is_closing(self) -> bool:
        """Whether it only sends what is left."""
        return self._outlet.is_closing

    @property
    def unsent(self) -> int:
        """Bytes of answers that wait to be fetched."""
        return self._outlet.unsent

    def cut(self) -> None:
        """End it at once."""
        self._outlet.cut()

    def shutdown(self) -> None:
        """End it after what is being answered; called by uvicorn."""
        if self._asked:
            self._asked[0].is_last = True
        elif self._lingering is None:  # that one ends by itself, and soon
            self.close()

    # --- for the event loop -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin: the first head is waited for."""
        self._transport = cast("asyncio.Transport", transport)  # of a stream
        self._outlet = Outlet(self._transport)
        self._state.connections.add(self)  # type: ignore[arg-type]  # it has what uvicorn asks of its own
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "server": get_local_addr(self._transport),
            "client": get_remote_addr(self._transport),
            "scheme": "https" if is_ssl(self._transport) else "http",
            "root_path": "",
        }
        self.head_since = self._loop.time()
        self._open.join(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        del exc
        self._open.leave(self)
        self._state.connections.discard(self)
        for exchange in self._asked:
            exchange.leave()
        self._asked.clear()
        self._outlet.drop()
        self._is_deaf = True
        if self._lingering is not None:
            self._lingering.cancel()
        del self._parser  # which knows this connection

    def data_received(self, data: bytes) -> None:
        """Take what arrived; outside of a request it begins the next head."""
        if self._is_deaf:
            self._left -= len(data)
            if self._lingering is not None and self._left < 0:
                self.close()
            return
        if self.head_since is None and not self._asked:
            self.head_since = self._loop.time()
        self._vain += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._is_deaf = True  # what follows is not for us; the request itself is one like others, and the last
        except httptools.HttpParserError:
            self._refuse(400 if self._parser.get_http_version() in _READABLE else 505)
        else:
            if self._vain > self._longest:
                self._refuse(431)

    def pause_writing(self) -> None:
        """Write no more until it is fetched."""
        self._outlet.pause()

    def resume_writing(self) -> None:
        """Go on writing."""
        self._outlet.resume()

    # --- for the parser -----------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a head."""
        if len(self._asked) > AHEAD:
            raise _TooManyAhead
        self._vain = 0
        self._target, self._headers = b"", []

    def on_url(self, part: bytes) -> None:
        """Read what is asked for."""
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """Read a header."""
        if self._headers is not None:
            self._headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """Begin a request."""
        self._vain = 0
        headers, self._headers = self._headers or [], None
        raw, _, query = self._target.partition(b"?")
        path, version = raw.decode("ascii"), self._parser.get_http_version()
        scope = {
            **self._scope,
            "http_version": version,
            "method": self._parser.get_method().decode("ascii"),
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw,
            "query_string": query,
            "headers": headers,
        }
        is_last = version != "1.1" or self._parser.should_upgrade() or not self._parser.should_keep_alive()
        is_asking = version == "1.1" and any(one[0] == b"expect" and one[1].lower() == _CONTINUE for one in headers)
        self._asked.append(Exchange(scope, self, is_last=is_last, is_asking=is_asking))
        if len(self._asked) == 1:
            self._begin()
        elif not self._asked[0].is_watching:
            self._pause()

    def on_body(self, part: bytes) -> None:
        """Hand on a piece of a body."""
        self._vain = 0
        if self._asked[-1].take(part):
            self._pause()

    def on_message_complete(self) -> None:
        """Note the end of a request."""
        self._vain = 0
        self._asked[-1].end()

    # --- for its exchanges --------------------------------------------------------------------------------------------

    @property
    def common(self) -> list[tuple[bytes, bytes]]:
        """What every answer says in its head: the date, as uvicorn has it."""
        return self._state.default_headers

    @property
    def is_full(self) -> bool:
        """Whether the other side does not fetch what was written."""
        return self._outlet.is_full

    def write(self, part: bytes) -> None:
        """Send something."""
        self._outlet.write(part)

    async def drain(self) -> None:
        """Wait until the other side has fetched most of what was sent."""
        await self._outlet.drain()

    def listen(self) -> None:
        """Read on."""
        if self._is_paused and not self._outlet.is_closing:
            self._is_paused = False
            self._transport.resume_reading()

    def close(self) -> None:
        """Send what was written, then end."""
        self._is_deaf = True
        self._pause()
        self._outlet.close()

    def answered(self, exchange: Exchange) -> None:
        """Rest, or go on with what was asked meanwhile."""
        self._state.total_requests += 1
        self._asked.popleft()
        self._open.rest(self)
        if exchange.is_last and exchange.has_arrived:
            self.close()
        elif exchange.is_last:
            self._linger()
        elif self._asked:
            self._begin()
        else:
            self.head_since = None if self._headers is None else self._loop.time()
            self.listen()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self.head_since = None
        self._open.work(self)
        task = self._loop.create_task(self._asked[0].run(self._app))
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)

    def _linger(self) -> None:
        """Send what was written, and end when the other side does, or has sent enough for nothing."""
        self._is_deaf = True
        self._outlet.close(lingers=True)
        self._lingering = self._loop.call_later(LINGER_S, self.close)
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    def _pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def _refuse(self, status: int) -> None:
        """Answer what is no request, and listen no more. What was asked whole before it is answered first."""
        self._is_deaf = True
        if self._asked and not self._asked[-1].has_arrived:
            broken = self._asked.pop()
            broken.leave()
            if broken.has_begun:  # in the middle of an answer there is nothing to say
                self.close()
                return
        if self._asked:
            self._asked[-1].is_last = True
            return
        answer = response_to(InvalidValue("this is no HTTP/1.1 request. Nothing was done."), status)
        fields = [*self.common, *safely(answer.raw_headers), (b"connection", b"close")]
        head = b"".join(b"%b: %b\r\n" % field for field in fields)
        first = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()
        self.write(b"%b%b\r\n%b" % (first, head, bytes(answer.body)))
        self.close()
