"""The proxy itself: what it is told to do to a request is what happens to it, and the same again for the same seed."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress

import pytest

from support.faultproxy import Fault, FaultProxy, Weather, first_time, seeded

ASKED = b"POST /x HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nworld"


@contextmanager
def server(answer=ANSWER):
    """Answer every request the same; give what arrived, connection by connection."""
    listening = socket.create_server(("127.0.0.1", 0))
    arrived = []

    def serve(connection, mine):
        with connection:
            while chunk := _received(connection):
                mine.append(chunk)
                if b"".join(mine).endswith(b"hello"):
                    with suppress(OSError):  # who was healed away does not wait for it
                        connection.sendall(answer)

    def accept():
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            arrived.append([])
            threading.Thread(target=serve, args=(connection, arrived[-1]), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", arrived
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def _received(connection):
    try:
        return connection.recv(65536)
    except OSError:
        return b""


def ask(proxy, *, answer=ANSWER):
    """Ask once; give what came back until it was all, or the end."""
    with socket.create_connection(("127.0.0.1", proxy.port)) as connection:
        connection.settimeout(20)
        connection.sendall(ASKED)
        came = b""
        while len(came) < len(answer) and (chunk := _received(connection)):
            came += chunk
        return came


@pytest.mark.parametrize(
    ("fault", "came", "passed_on"),
    [
        (Fault.NONE, ANSWER, ASKED),
        (Fault.LOSE_REQUEST, b"", b""),
        (Fault.LOSE_ANSWER, b"", ASKED),
        (Fault.CUT_ANSWER, ANSWER[: len(ANSWER) // 2], ASKED),
        (Fault.TWICE, ANSWER, ASKED + ASKED),
    ],
)
def test_a_request_fares_as_the_script_says(fault, came, passed_on):
    with server() as (url, arrived), FaultProxy(url, lambda *_: Weather(fault)) as proxy:
        assert ask(proxy) == came
        # A connection of which nothing is passed on may not have been heard of yet.
        assert b"".join(b"".join(one) for one in arrived) == passed_on
        assert proxy.requests == ["POST /x HTTP/1.1"]


def test_a_request_is_cut_where_it_is_told():
    with server() as (url, arrived), FaultProxy(url, lambda *_: Weather(Fault.CUT_REQUEST, after=7)) as proxy:
        assert ask(proxy) == b""
        # A reset may throw away what was on its way, and the connection with it.
        assert all(ASKED[:7].startswith(b"".join(one)) for one in arrived)


def test_a_stream_without_an_end_is_cut_after_its_bytes():
    stream = b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1000
    with server(stream) as (url, _), FaultProxy(url, lambda *_: Weather(Fault.CUT_ANSWER, after=300)) as proxy:
        assert ask(proxy, answer=stream) == stream[:300]


def test_what_is_slow_arrives_whole():
    with server() as (url, _), FaultProxy(url, lambda *_: Weather(delay_s=0.01, rate=2000)) as proxy:
        assert ask(proxy) == ANSWER


def test_the_first_time_is_the_first_time_of_the_same_bytes():
    script = first_time(Fault.TWICE, only=b"hello")
    assert [script(0, ASKED).fault, script(1, ASKED).fault] == [Fault.TWICE, Fault.NONE]
    assert script(2, b"GET /y HTTP/1.1\r\n\r\n").fault is Fault.NONE


def test_the_same_seed_does_the_same():
    falls = [[seeded(7, {Fault.TWICE, Fault.LOSE_ANSWER}, 0.5)(n, ASKED) for n in range(1)] for _ in range(2)]
    assert falls[0] == falls[1]
    script = seeded(7, {Fault.TWICE, Fault.LOSE_ANSWER}, 0.5)
    assert {script(n, ASKED).fault for n in range(50)} == {Fault.TWICE, Fault.LOSE_ANSWER, Fault.NONE}


@pytest.mark.parametrize("way", [Fault.HOLE_REQUEST, Fault.HOLE_ANSWER])
def test_what_was_swallowed_is_lost_when_the_line_is_healed(way):
    with server() as (url, _), FaultProxy(url) as proxy:
        proxy.partition(way)
        lost = []
        asking = threading.Thread(target=lambda: lost.append(ask(proxy)))
        asking.start()
        while not proxy.requests:
            asking.join(0.01)
        proxy.heal()
        asking.join(20)
        assert lost == [b""]
        assert ask(proxy) == ANSWER


def test_who_is_refused_gets_nothing_until_it_is_healed():
    with server() as (url, _), FaultProxy(url) as proxy:
        proxy.refuse()
        with suppress(OSError):  # it may be reset before it has said anything
            assert ask(proxy) == b""
        proxy.heal()
        assert ask(proxy) == ANSWER
