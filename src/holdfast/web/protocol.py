"""One connection: uvicorn's HTTP/1.1, which also knows since when it waits and says in our words what is wrong."""

from __future__ import annotations

import asyncio
import logging
import sys
from http import HTTPStatus
from typing import cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from holdfast.errors import InvalidValue
from holdfast.web.connections import Connections
from holdfast.web.headers import safely
from holdfast.web.outlet import Outlet
from holdfast.web.problems import response_to

# What strangers send is no reason to write a line each: they could fill a disk. Errors of ours are told.
_quiet = logging.getLogger("holdfast.serve.http")
_quiet.setLevel(logging.ERROR)


class Conversation(H11Protocol):
    """Requests of one connection, one after the other."""

    def __init__(self, config: uvicorn.Config, state: ServerState, connections: Connections) -> None:
        super().__init__(config, state, {}, asyncio.get_running_loop())
        self.logger = _quiet
        self.head_since: float | None = None
        self._open = connections

    @property
    def is_closing(self) -> bool:
        """Whether it only sends what is left."""
        return self.transport.is_closing()

    def cut(self) -> None:
        """End it at once."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Begin: the first head is waited for."""
        super().connection_made(transport)
        # It has all that is used of a transport.
        self.transport = cast("asyncio.Transport", Outlet(transport, self.loop))
        self.head_since = self.loop.time()
        self._open.join(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._open.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what arrived; outside of a request it begins the next head."""
        if self.head_since is None and not self._is_asked:
            self.head_since = self.loop.time()
        super().data_received(data)

    def handle_events(self) -> None:
        """Do what has arrived whole."""
        super().handle_events()
        if self._is_asked:
            self.head_since = None
            self._open.work(self)

    def on_response_complete(self) -> None:
        """Rest, or go on with what was asked meanwhile."""
        self._open.rest(self)
        super().on_response_complete()

    @property
    def _is_asked(self) -> bool:
        # None before the first request, whatever its type says.
        return self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request. Called while its error is being handled, which knows the better status."""
        del msg
        problem = sys.exc_info()[1]
        status = problem.error_status_hint if isinstance(problem, h11.RemoteProtocolError) else 400
        if self.conn.our_state is not h11.IDLE and self.conn.our_state is not h11.SEND_RESPONSE:
            self.transport.close()  # in the middle of an answer there is nothing to say
            return
        answer = response_to(InvalidValue("this is no HTTP/1.1 request. Nothing was done."), status)
        headers = [*safely(answer.raw_headers), (b"connection", b"close")]
        reason = HTTPStatus(status).phrase.encode()
        said = [h11.Response(status_code=status, headers=headers, reason=reason), h11.Data(data=bytes(answer.body))]
        for event in (*said, h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
