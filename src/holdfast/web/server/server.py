"""The server under a coordinator: uvicorn, with an order of its own for beginning and end.

The port is open first; then what is to be offered is made ready. At the end nobody new is let in, those who wait are
let go, requests under way are answered, and then what was offered is closed. A signal is a wish to end; the next one
ends the process at once, as a crash would: nothing that was acknowledged is lost by it.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Protocol

import uvicorn

from holdfast.web.server.connections import Connections
from holdfast.web.server.http_protocol import Conversation
from holdfast.web.server.limits import Limits
from holdfast.web.server.tls_handshake import Handshake

#: Seconds that requests under way are given at the end.
DRAIN_S = 10
#: Seconds between two looks at who has not gone yet, at the end.
_FAREWELL_S = 0.1
#: Connections taken in at a time, before those already there are looked at: a rush must not use up all descriptors.
ACCEPTED = 64
#: Connections that may wait to be taken in.
WAITING = 1024
#: Ticks of uvicorn's loop, a tenth of a second each, between two looks at all connections.
_LOOK_EVERY = 10


class Offer(Protocol):
    """What is offered by a server, told in its event loop what happens."""

    async def begin(self) -> None:
        """Become ready; requests are answered already. Whatever it raises ends the server."""
        ...

    def let_go(self) -> None:
        """Let those go who wait."""
        ...

    async def end(self) -> None:
        """Close; no request is under way any more. Not called if `begin` has raised."""
        ...


class Server(uvicorn.Server):
    """One server."""

    def __init__(self, config: uvicorn.Config, limits: Limits, most: int, offer: Offer) -> None:
        """Serve an offer, on at most so many connections at a time."""
        super().__init__(config)
        self._offer = offer
        self._app, self._longest = config.loaded_app, limits.head
        self._connections = Connections(most, limits.head_s, limits.idle_s)
        self.servers: list[asyncio.base_events.Server] = []
        self._beginning: asyncio.Task[None] | None = None
        #: What the offer could not begin for.
        self.failure: Exception | None = None

    def finish(self) -> None:
        """Begin to end. For any thread."""
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the ports, and begin."""
        loop = asyncio.get_running_loop()

        def conversation() -> Conversation:
            return Conversation(self._app, self.server_state, self._connections, self._longest)

        def handshake() -> Handshake:
            assert tls is not None
            return Handshake(conversation, tls, self._connections)

        tls = self.config.ssl
        for one in sockets or ():
            made = await loop.create_server(handshake if tls else conversation, sock=one, backlog=ACCEPTED)
            # The loop takes one figure for both.
            one.listen(WAITING)
            self.servers.append(made)
        self._beginning = asyncio.create_task(self._begin())
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End, in our order."""
        self._offer.let_go()
        farewell = asyncio.create_task(self._see_off())
        try:
            await super().shutdown(sockets)
        finally:
            farewell.cancel()
        # A recovery that is under way is finished: only then can its store be closed in order.
        assert self._beginning is not None
        await self._beginning
        if self.failure is None:
            await self._offer.end()

    async def _see_off(self) -> None:
        """Let everybody go who is here, also who came at the last moment, and wait for nobody's goodbye."""
        loop = asyncio.get_running_loop()
        while True:
            for one in list(self.server_state.connections):
                one.shutdown()
            self._connections.part(loop.time())
            await asyncio.sleep(_FAREWELL_S)

    async def _begin(self) -> None:
        try:
            await self._offer.begin()
        except Exception as failure:  # noqa: BLE001 - the caller of `run` is told, whatever it is
            self.failure = failure
            self.finish()

    async def on_tick(self, counter: int) -> bool:
        """Look after connections, now and then."""
        if counter % _LOOK_EVERY == 0:
            self._connections.sweep(asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Hear signals in the main thread; others cannot. They are not raised again afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._heard) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _heard(self, _number: int, _frame: FrameType | None) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        self.finish()
