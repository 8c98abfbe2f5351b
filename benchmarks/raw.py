"""A thin HTTP client for measuring a coordinator: connections on asyncio's streams, one request in flight on each.

It does what HTTP asks for and nothing more, so that what is measured is the server. It counts the bytes it moves.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from holdfast.stores.http.wire import ROOT


class Answered(NamedTuple):
    """One answer."""

    status: int
    body: bytes


class Connection:
    """One connection to a coordinator, kept open."""

    def __init__(self, url: str, access_token: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._common = f"Host: {parts.netloc}\r\nContent-Type: application/json\r\nAccept: application/json\r\n" + (
            f"Authorization: Bearer {access_token}\r\n" if access_token else ""
        )
        #: Bytes of requests, of answers, heads included.
        self.sent = self.received = 0

    async def __aenter__(self) -> Self:
        """Connect."""
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def __aexit__(self, *error: object) -> None:
        """Hang up."""
        self._writer.close()
        await self._writer.wait_closed()

    async def send(self, method: str, path: str, body: bytes = b"") -> None:
        """Send a request without waiting for its answer."""
        head = f"{method} {ROOT}{path} HTTP/1.1\r\n{self._common}Content-Length: {len(body)}\r\n\r\n".encode()
        self._writer.write(head + body)
        self.sent += len(head) + len(body)
        await self._writer.drain()

    async def answer(self) -> Answered:
        """Wait for the answer to what was sent."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        _, _, rest = head.lower().partition(b"content-length:")
        body = await self._reader.readexactly(int(rest.partition(b"\r\n")[0])) if rest else b""
        self.received += len(head) + len(body)
        return Answered(int(head.split(b" ", 2)[1]), body)

    async def ask(self, method: str, path: str, body: bytes = b"") -> Answered:
        """Send a request and wait for its answer, whatever it is."""
        await self.send(method, path, body)
        return await self.answer()

    async def post(self, path: str, body: bytes) -> bytes:
        """Send a body and give the answer's. Raises RuntimeError for any other status than 200."""
        status, found = await self.ask("POST", path, body)
        if status != 200:
            raise RuntimeError(f"{path} was answered {status}: {found[:200]!r}")
        return found
