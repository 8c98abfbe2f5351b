"""A proxy on loopback that is slow, deaf, rude or forgetful on request, between a worker and its coordinator.

It knows where a request and an answer end, and nothing else of them. What happens to each request is told by a script,
which is a function of the request's number and bytes; so the same script does the same again. A worker each behind a
proxy of its own can be cut off each alone, without any rights.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from random import Random
from typing import NamedTuple, Self
from urllib.parse import urlsplit

_HOST = "127.0.0.1"
_CHUNK = 1 << 16
#: Closing waits for nothing, and what was not sent is thrown away.
_AT_ONCE = struct.pack("ii", 1, 0)


class Fault(StrEnum):
    """What becomes of one request."""

    NONE = "none"
    #: It is not passed on; the connection is reset.
    LOSE_REQUEST = "lose_request"
    #: It is passed on and answered; the answer is thrown away, and the connection reset.
    LOSE_ANSWER = "lose_answer"
    #: A part of it is passed on; then both connections are reset.
    CUT_REQUEST = "cut_request"
    #: It is passed on, and a part of the answer comes back; then the connection is reset.
    CUT_ANSWER = "cut_answer"
    #: It is passed on and answered twice; the second answer comes back.
    TWICE = "twice"
    #: It is swallowed, and nothing is ever heard again.
    HOLE_REQUEST = "hole_request"
    #: It is passed on and answered; the answer is swallowed, and nothing is ever heard again.
    HOLE_ANSWER = "hole_answer"


class Weather(NamedTuple):
    """How one request fares."""

    fault: Fault = Fault.NONE
    #: Bytes that pass before a cut; None for half of them. Of an answer without a length, half is nothing.
    after: int | None = None
    #: Seconds until it is passed on.
    delay_s: float = 0.0
    #: Bytes a second of the answer.
    rate: float | None = None


FINE = Weather()
#: Number of a request, from 0 on, and its bytes → how it fares.
Script = Callable[[int, bytes], Weather]


def calm(_number: int, _request: bytes) -> Weather:
    """Let everything pass."""
    return FINE


def first_time(fault: Fault, *, only: bytes = b"") -> Script:
    """Let every request whose bytes have `only` in them meet `fault` when it comes first; the same again passes."""
    seen: set[bytes] = set()

    def script(_number: int, request: bytes) -> Weather:
        if request in seen or only not in request:
            return FINE
        seen.add(request)
        return Weather(fault)

    return script


def seeded(seed: int, faults: Collection[Fault], share: float) -> Script:
    """Let a share of all requests meet one of `faults`, by dice that fall the same for the same seed."""
    dice, choices = Random(seed), sorted(faults)

    def script(_number: int, _request: bytes) -> Weather:
        return Weather(dice.choice(choices)) if dice.random() < share else FINE

    return script


class FaultProxy:
    """Passes requests on to one server, as a script says. From entering to leaving."""

    def __init__(self, upstream: str, script: Script = calm, *, port: int = 0) -> None:
        """Stand before the server at the URL `upstream`."""
        parts = urlsplit(upstream)
        self._upstream = (parts.hostname or _HOST, parts.port or 80)
        #: May be replaced at any time.
        self.script = script
        #: The first line of every request that came.
        self.requests: list[str] = []
        self._listening = socket.create_server((_HOST, port), backlog=256)
        self.port: int = self._listening.getsockname()[1]
        self.url = f"http://{_HOST}:{self.port}"
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._deaf: Fault | None = None
        self._is_refusing = False
        #: Set when what is being swallowed has to end.
        self._healed = threading.Event()

    def __enter__(self) -> Self:
        """Begin to pass on."""
        threading.Thread(target=self._accept, name="fault-proxy", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        """Cut everything."""
        with suppress(OSError):  # wakes the thread that accepts
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.heal()

    # --- the weather for all ------------------------------------------------------------------------------------------

    def partition(self, way: Fault = Fault.HOLE_REQUEST) -> None:
        """Swallow everything from now on: requests, or only the answers to them."""
        with self._lock:
            self._deaf = way

    def refuse(self) -> None:
        """Reset every connection, and every new one at once."""
        self._is_refusing = True
        self._reset_all()

    def heal(self) -> None:
        """Let everything pass again. What was swallowed is lost, and its connections are reset."""
        with self._lock:
            self._is_refusing, self._deaf = False, None
            self._healed.set()
            self._healed = threading.Event()
        self._reset_all()

    def _reset_all(self) -> None:
        with self._lock:
            found = list(self._open)
        for one in found:
            with suppress(OSError):  # whoever reads it wakes, and closes it
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
                one.shutdown(socket.SHUT_RDWR)

    # --- one connection -----------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            if self._is_refusing:
                _reset(client)
                continue
            threading.Thread(target=self._serve, args=(client,), name="fault-proxy", daemon=True).start()

    @contextmanager
    def _kept(self, one: socket.socket) -> Iterator[socket.socket]:
        with self._lock:
            self._open.add(one)
        try:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield one
        finally:
            with self._lock:
                self._open.discard(one)
            one.close()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError, ValueError), self._kept(client):
            reader = _Reader(client)
            try:
                with self._kept(socket.create_connection(self._upstream)) as server:
                    answers = _Reader(server)
                    while (request := reader.request()) and self._pass_on(request, client, server, answers):
                        pass
            finally:
                _reset(client)

    def _pass_on(self, request: bytes, client: socket.socket, server: socket.socket, answers: _Reader) -> bool:
        """Let one request fare as the script says; tell whether the connection lives on."""
        with self._lock:
            weather = self.script(len(self.requests), request)
            self.requests.append(request.partition(b"\r\n")[0].decode("latin-1"))
            fault = self._deaf or weather.fault
            healed = self._healed
        if weather.delay_s:
            threading.Event().wait(weather.delay_s)
        if fault is Fault.HOLE_REQUEST:
            healed.wait()
            return False
        if fault is Fault.LOSE_REQUEST:
            return False
        if fault is Fault.CUT_REQUEST:
            server.sendall(request[: len(request) // 2 if weather.after is None else weather.after])
            _reset(server)
            return False
        head = request.startswith(b"HEAD ")
        server.sendall(request)
        if fault is Fault.TWICE:
            answers.whole(head=head)
            server.sendall(request)
        if fault in {Fault.LOSE_ANSWER, Fault.HOLE_ANSWER}:
            answers.whole(head=head)
            if fault is Fault.HOLE_ANSWER:
                healed.wait()
            return False
        return self._bring_back(client, answers, weather._replace(fault=fault), head=head)

    def _bring_back(self, client: socket.socket, answers: _Reader, weather: Weather, *, head: bool) -> bool:
        answer, is_whole = answers.answer(head=head)
        is_cut = weather.fault is Fault.CUT_ANSWER
        left = len(answer) + (1 << 62) * (not is_whole)
        if is_cut:
            left = weather.after if weather.after is not None else len(answer) // 2
        while answer and left > 0:
            _send(client, answer[:left], weather.rate)
            left -= len(answer)
            answer = b"" if is_whole or left <= 0 else answers.some()
            if self._deaf is not None:
                self._healed.wait()
                return False
        return is_whole and not is_cut


class _Reader:
    """Reads messages of HTTP/1.1 off a connection."""

    def __init__(self, source: socket.socket) -> None:
        self._source = source
        self._kept = b""

    def request(self) -> bytes:
        """Give the next request; nothing if there is none."""
        head = self._head()
        return head + self._exactly(_length(head) or 0) if head else b""

    def answer(self, *, head: bool) -> tuple[bytes, bool]:
        """Give the next answer, and whether that is all of it; of one without a length, its beginning."""
        found = self._head()
        if head or found.split(b" ", 2)[1:2] == [b"204"]:
            return found, True
        length = _length(found)
        return (found, False) if length is None else (found + self._exactly(length), True)

    def whole(self, *, head: bool) -> bytes:
        """Give the next answer, whole. Raises ValueError for one without a length, which has no end."""
        found, is_whole = self.answer(head=head)
        if not is_whole:
            raise ValueError("a stream has no end")
        return found

    def some(self) -> bytes:
        """Give what comes next."""
        found, self._kept = self._kept or self._source.recv(_CHUNK), b""
        return found

    def _head(self) -> bytes:
        while b"\r\n\r\n" not in self._kept:
            more = self._source.recv(_CHUNK)
            if not more:
                return b""
            self._kept += more
        head, _, self._kept = self._kept.partition(b"\r\n\r\n")
        return head + b"\r\n\r\n"

    def _exactly(self, length: int) -> bytes:
        while len(self._kept) < length:
            more = self._source.recv(_CHUNK)
            if not more:
                raise ValueError("it ended in the middle")
            self._kept += more
        found, self._kept = self._kept[:length], self._kept[length:]
        return found


def _length(head: bytes) -> int | None:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    return None


def _send(target: socket.socket, content: bytes, rate: float | None) -> None:
    if rate is None:
        target.sendall(content)
        return
    step = max(1, int(rate / 20))
    for at in range(0, len(content), step):
        target.sendall(content[at : at + step])
        threading.Event().wait(step / rate)


def _reset(one: socket.socket) -> None:
    """End a connection so that the other side sees an error, not a polite end."""
    with suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        one.close()
