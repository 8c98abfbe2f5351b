"""What a connection sends, handed to its transport piece by piece: the next one when the one before is being fetched.

A transport tells how much of what it was given waits to be fetched, but over TLS not: there it counts what waits to be
encrypted, which is nothing, however much lies below. What is still here has not been fetched for certain. So it shows
on every connection alike whether a large answer flows, up to the little that a transport takes before it says stop.
"""

from __future__ import annotations

import asyncio
from collections import deque

#: Bytes that are handed over at a time.
PIECE = 32 << 10
#: Bytes that wait to be fetched before writing pauses: a thousand streams that nobody reads must not hold much.
HELD = 4 << 10


class Outlet:
    """Bytes on their way to one transport. Belongs to its event loop."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._transport.set_write_buffer_limits(HELD)
        self._waiting: deque[memoryview] = deque()
        #: Bytes of them.
        self._size = 0
        #: The transport has enough.
        self._is_paused = False
        self._is_closed = False
        #: What the other side sends is still taken from the system, though the last was said.
        self._lingers = False
        self._writable = asyncio.Event()
        self._writable.set()

    @property
    def is_full(self) -> bool:
        """Whether what was written is not fetched."""
        return self._is_paused or self._size > 0

    @property
    def is_closing(self) -> bool:
        """Whether only what was written is sent."""
        return self._is_closed or self._transport.is_closing()

    @property
    def unsent(self) -> int:
        """Bytes that wait to be fetched, beside what the system holds, and over TLS the transport."""
        return self._size + self._transport.get_write_buffer_size()

    def write(self, part: bytes) -> None:
        """Send something, behind what was written before."""
        if self._size or len(part) > PIECE:
            self._waiting.append(memoryview(part))
            self._size += len(part)
            self._flow()
        else:
            self._transport.write(part)

    async def drain(self) -> None:
        """Wait until most of what was written has been fetched, or nobody is there any more."""
        while self.is_full:
            self._writable.clear()
            await self._writable.wait()

    def pause(self) -> None:
        """Hand over no more until it is fetched."""
        self._is_paused = True

    def resume(self) -> None:
        """Go on."""
        self._is_paused = False
        self._flow()

    def close(self, *, lingers: bool = False) -> None:
        """Send what was written, then end the connection; if it lingers, only say that this was the last."""
        self._is_closed = True
        self._lingers = lingers
        self._flow()

    def cut(self) -> None:
        """End the connection at once."""
        self.drop()
        self._transport.abort()

    def drop(self) -> None:
        """Forget what was not sent; nobody waits any more."""
        self._waiting.clear()
        self._size = 0
        self._is_paused = False
        self._writable.set()

    def _flow(self) -> None:
        # A transport that has enough, or whose other side has gone, shows it while it is given something.
        while self._waiting and not self._is_paused and not self._transport.is_closing():
            part = self._waiting.popleft()
            if len(part) > PIECE:
                self._waiting.appendleft(part[PIECE:])
            self._size -= min(len(part), PIECE)
            self._transport.write(part[:PIECE])
        if not self._waiting:
            if self._is_closed and not self._lingers:
                if not self._transport.is_closing():  # over TLS the second time would make it forget what it is
                    self._transport.close()
            elif self._is_closed and self._transport.can_write_eof():  # over TLS it cannot
                self._transport.write_eof()
            if not self._is_paused:
                self._writable.set()
