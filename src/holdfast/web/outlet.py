"""The way out of a connection: what is written in one turn of the event loop leaves in one piece.

An answer is written as a head, a body and an end. Each would be a call of the system, during which the thread that
commits takes the interpreter, and a packet of its own.
"""

from __future__ import annotations

import asyncio
from typing import Any

#: Bytes that wait for the end of the turn at most; beyond them the transport says when it has enough.
MOST = 64 << 10


class Outlet:
    """A transport that gathers. Everything but writing and closing is the transport's own."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, part: bytes) -> None:
        """Send something, together with what else is written now."""
        if not part:
            return
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(part)
        self._size += len(part)
        if self._size > MOST:
            self._flush()

    def close(self) -> None:
        """Send what is there, then close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._parts:
            parts, self._parts, self._size = self._parts, [], 0
            self._transport.write(b"".join(parts))

    def __getattr__(self, name: str) -> Any:
        """Give what is the transport's own."""
        return getattr(self._transport, name)
