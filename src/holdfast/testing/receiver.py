"""A receiver of webhooks on this machine: remembers what it was sent, and answers as it is told.

Deliveries to it need `webhook_allow=["127.0.0.0/8"]`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple, Self

#: What a worker must be allowed to send to a receiver.
LOOPBACK = "127.0.0.0/8"
LONG_S = 30.0


class Received(NamedTuple):
    """One delivery as it arrived."""

    path: str
    headers: Mapping[str, str]
    body: bytes


class Receiver:
    """Listens while it is entered."""

    def __init__(self, answer: Callable[[Received], int] = lambda _received: 200) -> None:
        """Answer each delivery with the status that `answer` gives."""
        self._answer = answer
        self._changed = threading.Condition()
        #: All that came, oldest first.
        self.received: list[Received] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        #: Where to send to.
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(outer._take(Received(self.path, dict(self.headers), body)))
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_args: object) -> None:
                """Say nothing."""

        return Handler

    def _take(self, received: Received) -> int:
        status = self._answer(received)
        with self._changed:
            self.received.append(received)
            self._changed.notify_all()
        return status

    def wait(self, count: int) -> list[Received]:
        """Wait until so many deliveries have come, and give them. Raises TimeoutError after half a minute."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.received) >= count, LONG_S):
                raise TimeoutError(f"{len(self.received)} of {count} deliveries came")
            return list(self.received)

    def __enter__(self) -> Self:
        """Begin to listen."""
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="receiver", daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()
