"""Whoever has not finished the handshake is a connection like others, and nobody's goodbye is waited for."""

from __future__ import annotations

import queue
import socket
import ssl

import pytest
from coordinators import running
from rawhttp import dial, head, hear

from holdfast.web.server import connections, tls_handshake
from holdfast.web.server.limits import Limits


@pytest.fixture
def patient(monkeypatch):
    """A handshake may take for ever."""
    monkeypatch.setattr(tls_handshake, "HANDSHAKE_S", 3600.0)


def secured(url, pair):
    return ssl.create_default_context(cafile=pair[0]).wrap_socket(dial(url), server_hostname="localhost")


def is_cut(line):
    """Wait for its end."""
    try:
        return line.recv(1) == b""
    except ConnectionResetError:
        return True


def test_who_never_finishes_the_handshake_keeps_nobody_out(pair, patient):
    """They used up all descriptors, those of the store among them, without a byte and without an access token."""
    limits = Limits(connections=3, head_s=3600.0)
    with running("memory:", tls_cert=pair[0], tls_key=pair[1], limits=limits) as serving:
        silent = [dial(serving.url) for _ in range(5)]
        try:
            assert is_cut(silent[0])
            assert is_cut(silent[1])
            with secured(serving.url, pair) as line:
                line.sendall(head())
                assert hear(line).status == 200
            assert is_cut(silent[2])
        finally:
            for one in silent:
                one.close()


def test_a_handshake_has_the_time_of_a_head(pair, patient):
    limits = Limits(head_s=0.001)
    with running("memory:", tls_cert=pair[0], tls_key=pair[1], limits=limits) as serving, dial(serving.url) as silent:
        assert is_cut(silent)


def test_what_arrives_with_the_end_of_the_handshake_is_heard(pair):
    with running("memory:", tls_cert=pair[0], tls_key=pair[1]) as serving, dial(serving.url) as line:
        context = ssl.create_default_context(cafile=pair[0])
        arrived, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        talk = context.wrap_bio(arrived, leaving, server_hostname="localhost")
        while True:
            try:
                talk.do_handshake()
                break
            except ssl.SSLWantReadError:
                line.sendall(leaving.read())
                arrived.write(line.recv(65536))
        talk.write(head(Connection="close"))
        line.sendall(leaving.read())
        text = b""
        while b"\r\n\r\nok" not in text:
            try:
                text += talk.read(65536)
            except ssl.SSLWantReadError:
                arrived.write(line.recv(65536))
        assert text.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"])
def test_what_is_no_handshake_ends_and_leaves_nothing_behind(pair, said):
    with running("memory:", tls_cert=pair[0], tls_key=pair[1]) as serving:
        with dial(serving.url) as line:
            line.sendall(said)
            line.shutdown(socket.SHUT_WR)
            assert is_cut(line)
        with secured(serving.url, pair) as line:
            line.sendall(head())
            assert hear(line).status == 200
            assert len(serving._server._connections) == 1


def test_a_coordinator_ends_without_the_goodbye_of_who_keeps_a_connection_for_later(pair, patient, monkeypatch, caplog):
    """A client that asks nothing reads nothing, and so does not say over TLS that it has heard of the end."""
    monkeypatch.setattr(connections, "GOODBYE_S", 0.0)
    with running("memory:", tls_cert=pair[0], tls_key=pair[1]) as serving:
        idle, unfinished = secured(serving.url, pair), dial(serving.url)
        idle.sendall(head())
        assert hear(idle).status == 200
        serving.stop()
        assert is_cut(unfinished)
        assert is_cut(idle)
    assert "graceful" not in caplog.text  # it was not the end of all patience
    idle.close()
    unfinished.close()


def test_who_is_closed_twice_does_not_end_the_server(pair):
    """Once for the size and once for the time of a body that is thrown away: it could not be looked at any more."""
    with running("memory:", tls_cert=pair[0], tls_key=pair[1]) as serving, secured(serving.url, pair) as line:
        line.sendall(head("/api/v1/commands", method="POST", Authorization="Bearer no", Content_Length=1 << 30))
        assert hear(line).status == 401
        (conversation,) = serving._server.server_state.connections
        looked_at = queue.SimpleQueue()

        def close_twice():
            conversation.close()
            conversation.close()
            try:
                serving._server._connections.sweep(conversation._loop.time())
                looked_at.put(conversation.unsent)
            except Exception as problem:  # noqa: BLE001 - the test tells
                looked_at.put(problem)

        conversation._loop.call_soon_threadsafe(close_twice)
        assert looked_at.get() == 0
        assert is_cut(line)
