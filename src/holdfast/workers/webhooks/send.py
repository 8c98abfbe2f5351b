"""One try of one delivery: an HTTP request, and what came of it. Knows no store and decides no retry.

The answer is the status. Redirects are not followed, proxies are not asked; the body of the answer is read a little
way, out of politeness, and forgotten. Whatever the receiver does, it is over when the time is up.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from holdfast.clock import SystemClock
from holdfast.errors import InvalidValue
from holdfast.rules.webhooks.addresses import Network, Target, parse_url
from holdfast.version import __version__
from holdfast.workers.webhooks.connect import Deadline, Resolver, addresses_of, dial, secured

if TYPE_CHECKING:
    from typing_extensions import Buffer

#: Seconds until a connection stands, with name and TLS; and for everything together.
CONNECT_S, TOTAL_S = 5.0, 10.0
#: Bytes of an answer that are read.
MAX_REPLY = 64 * 1024
#: Statuses that another one follows.
_INTERIM = range(100, 200)


class Reply(NamedTuple):
    """What came of a try."""

    #: The HTTP status, if there was one.
    status: int | None
    #: Why there was none.
    error: str | None = None


@cache
def trusted() -> ssl.SSLContext:
    """Give the authorities that the system trusts; reading them takes a while, so it is done once."""
    return ssl.create_default_context()


class Sender(NamedTuple):
    """How deliveries are sent."""

    #: Networks that are not public and may be sent to all the same.
    allow: Sequence[Network] = ()
    resolve: Resolver = addresses_of
    tls: Callable[[], ssl.SSLContext] = trusted
    monotonic: Callable[[], float] = SystemClock().monotonic
    connect_s: float = CONNECT_S
    total_s: float = TOTAL_S

    def send(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Post a body to a URL; never raises because of what the receiver does."""
        whole = Deadline(self.monotonic, self.total_s)
        try:
            target = parse_url(url)
            with closing(self._connect(target)) as line:
                _post(line, target, headers, body, whole)
                return _reply(line, whole)
        except InvalidValue as problem:
            return Reply(None, problem.message)
        except TimeoutError as problem:
            return Reply(None, str(problem) or "timed out")
        except http.client.HTTPException as problem:
            return Reply(None, f"the answer is not HTTP: {type(problem).__name__}")
        except (OSError, UnicodeError) as problem:
            return Reply(None, f"{type(problem).__name__}: {problem}")

    def _connect(self, target: Target) -> socket.socket:
        deadline = Deadline(self.monotonic, min(self.connect_s, self.total_s))
        line = dial(target, self.allow, self.resolve, deadline)
        if target.scheme == "http":
            return line
        try:
            return secured(line, target, self.tls(), deadline)
        except BaseException:
            line.close()
            raise


def _post(line: socket.socket, target: Target, headers: Mapping[str, str], body: bytes, deadline: Deadline) -> None:
    fields = {
        "Host": target.host_header,
        "User-Agent": f"holdfast/{__version__}",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Connection": "close",
        **headers,
    }
    head = "".join(f"{name}: {text}\r\n" for name, text in fields.items())
    rest = memoryview(f"POST {target.path} HTTP/1.1\r\n{head}\r\n".encode("ascii") + body)
    while rest:
        line.settimeout(deadline.left("sending"))
        rest = rest[line.send(rest) :]


def _reply(line: socket.socket, deadline: Deadline) -> Reply:
    wire = _Wire(line, deadline)
    with closing(wire.reader):
        answer = _begun(wire)
        while answer.status in _INTERIM:
            # It is about to answer. What follows is read from the same line, so this one must not close it.
            answer.fp = None  # type: ignore[assignment]  # as after its end
            answer = _begun(wire)
        # The receiver has answered. Whether the rest arrives changes nothing.
        with suppress(OSError, http.client.HTTPException, ValueError):
            answer.read(MAX_REPLY)
        return Reply(answer.status)


def _begun(wire: _Wire) -> http.client.HTTPResponse:
    answer = http.client.HTTPResponse(wire)  # type: ignore[arg-type]  # it asks a socket for nothing but `makefile`
    answer.begin()
    return answer


class _Wire(io.RawIOBase):
    """What comes over a line: only so much of it, and until the deadline, however slowly it drips."""

    def __init__(self, line: socket.socket, deadline: Deadline) -> None:
        super().__init__()
        self._line = line
        self._deadline = deadline
        self._left = MAX_REPLY
        self.reader: io.BufferedReader = io.BufferedReader(self)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Give it the way a socket does; the same for every answer that comes over the line."""
        return self.reader

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        if not self._left:
            return 0
        self._line.settimeout(self._deadline.left("the answer"))
        count = self._line.recv_into(memoryview(buffer)[: self._left])
        self._left -= count
        return count
