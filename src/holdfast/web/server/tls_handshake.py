"""A connection until it is secured by TLS: one like others, counted and cut with them.

The loop's own way tells of a connection when its handshake is done. Whoever never does that was seen by nobody, and
could use up all descriptors without a word, the store's among them.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

from holdfast.web.server.connections import Connections

#: Seconds of a handshake, if heads have more.
HANDSHAKE_S = 10.0
#: Seconds after which the loop would cut a connection that is closed, even while its last answer is being fetched.
#: Ours are cut before, by `Connections`, if it is not.
_FAREWELL_S = 3600.0


class Handshake(asyncio.Protocol):
    """Stands before a conversation, and hands on to it what arrives from the first secured byte on."""

    def __init__(
        self, conversation: Callable[[], asyncio.Protocol], tls: ssl.SSLContext, connections: Connections
    ) -> None:
        self._conversation = conversation
        self._tls = tls
        self._open = connections
        self._loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", None)  # there from `connection_made` on
        self._securing: asyncio.Task[None] | None = None
        self.head_since: float | None = None
        #: Arrived together with the end of the handshake.
        self._arrived: list[bytes] = []
        self._is_lost = False

    # --- for who looks after connections ------------------------------------------------------------------------------

    @property
    def is_closing(self) -> bool:
        """Whether it only sends what is left."""
        return self._transport.is_closing()

    @property
    def unsent(self) -> int:
        """Nothing was answered yet."""
        return 0

    def cut(self) -> None:
        """End it at once."""
        self._transport.abort()

    # --- for the event loop -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin. Nothing is read before it is TLS."""
        self._transport = cast("asyncio.Transport", transport)  # of a stream
        self._transport.pause_reading()
        self.head_since = self._loop.time()
        self._open.join(self)
        self._securing = self._loop.create_task(self._secure())

    def data_received(self, data: bytes) -> None:
        """Keep what the conversation is to have."""
        self._arrived.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        del exc
        self._is_lost = True

    async def _secure(self) -> None:
        try:
            if self._transport.is_closing():
                return
            secured = await self._loop.start_tls(
                self._transport,
                self,
                self._tls,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=_FAREWELL_S,
            )
        except OSError:  # no TLS, too slow, or gone; errors of TLS are among them
            return
        finally:
            self._open.leave(self)
        # One that was cut meanwhile has none.
        if secured is None or self._is_lost or self._transport.is_closing():
            return
        conversation = self._conversation()
        secured.set_protocol(conversation)
        conversation.connection_made(secured)
        for data in self._arrived:
            conversation.data_received(data)
