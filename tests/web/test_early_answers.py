"""An answer that comes before the body has arrived reaches who still sends; and nobody is listened to for long."""

from __future__ import annotations

import http.client
import socket
import time
from urllib.parse import urlsplit

import pytest
from rawhttp import dial

from holdfast.web.server import http_protocol


def _posted(coordinator, body):
    place = urlsplit(coordinator.url)
    line = http.client.HTTPConnection(place.hostname, place.port, timeout=20)
    try:
        line.request("POST", "/api/v1/jobs", body, {"Content-Type": "application/json"})
        return line.getresponse().status
    finally:
        line.close()


def test_who_sends_all_of_a_body_that_is_too_large_reads_that_it_is(coordinator):
    body = b"x" * (20 << 20)
    assert [_posted(coordinator, body) for _ in range(5)] == [413] * 5


HEAD = b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n"


def test_who_sends_without_end_is_cut_after_so_many_bytes(coordinator, monkeypatch):
    monkeypatch.setattr(http_protocol, "LINGER_S", 1000.0)
    with dial(coordinator.url) as line:
        line.sendall(HEAD)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            line.sendall(b"x" * (200 << 20))


def test_who_sends_nothing_more_is_cut_after_a_while(coordinator, monkeypatch):
    monkeypatch.setattr(http_protocol, "LINGER_S", 0.2)
    with dial(coordinator.url) as line:
        line.sendall(HEAD)
        text = b""
        while more := line.recv(65536):
            text += more
        assert text.startswith(b"HTTP/1.1 413 ")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            _sent_until_refused(line)


def _sent_until_refused(line: socket.socket) -> None:
    # Each waits for the other side to say something, which it never does: it only goes.
    line.settimeout(0.05)
    until = time.monotonic() + 20
    while time.monotonic() < until:
        line.sendall(b"x")
        try:
            line.recv(1)
        except TimeoutError:
            continue


def test_a_connection_that_lingers_ends_with_the_other_side(coordinator):
    with dial(coordinator.url) as line:
        line.sendall(HEAD)
        while line.recv(65536):
            pass
    assert _posted(coordinator, b'{"job_type": "t"}') == 201
