"""A large answer leaves as it is fetched, and who fetches it slowly is waited for, over TLS as without."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import asynccontextmanager

import pytest
from uvicorn.server import ServerState

from holdfast.web.server.connections import FLOW, LINGER_S, Connections
from holdfast.web.server.http_protocol import Conversation
from holdfast.web.server.write_buffer import HELD, PIECE, Outlet

IDLE_S = 60.0
#: Far more than a socket and a transport hold.
LARGE = 64 * FLOW


class Transport:
    """Takes so many bytes, and says stop above."""

    def __init__(self, takes):
        self.takes = takes
        self.taken = b""
        self.ends = []
        self.outlet = None

    def set_write_buffer_limits(self, high):
        self.high = high

    def get_write_buffer_size(self):
        return max(0, len(self.taken) - self.takes)

    def write(self, part):
        assert len(part) <= PIECE
        self.taken += bytes(part)
        if self.get_write_buffer_size() > self.high:
            self.outlet.pause()

    def fetch(self, size):
        self.takes += size
        if not self.get_write_buffer_size():
            self.outlet.resume()

    def is_closing(self):
        return bool(self.ends)

    def close(self):
        self.ends.append("closed")

    def abort(self):
        self.ends.append("cut")


def outlet(takes=0):
    transport = Transport(takes)
    transport.outlet = Outlet(transport)
    return transport.outlet, transport


WORDS = bytes(range(256)) * (4 * PIECE // 256) + b"end"


def test_what_fits_leaves_at_once_and_what_does_not_leaves_piece_by_piece_in_order():
    out, transport = outlet(takes=PIECE)
    out.write(b"head ")
    assert (transport.taken, out.is_full, out.unsent) == (b"head ", False, 0)
    out.write(WORDS)
    out.write(b" tail")
    assert len(transport.taken) == 5 + 2 * PIECE
    assert out.is_full
    unsent = out.unsent
    assert unsent == 5 + len(WORDS) + 5 - PIECE
    while out.unsent:
        transport.fetch(PIECE)
        assert out.unsent < unsent
        unsent = out.unsent
    assert transport.taken == b"head " + WORDS + b" tail"
    assert not out.is_full


def test_who_closes_sends_what_was_written_first_and_who_cuts_does_not():
    out, transport = outlet(takes=PIECE)
    out.write(WORDS)
    out.close()
    assert (out.is_closing, transport.ends) == (True, [])
    transport.fetch(len(WORDS))
    assert (transport.ends, transport.taken) == (["closed"], WORDS)
    out, transport = outlet()
    out.write(WORDS)
    out.cut()
    assert (out.is_full, transport.ends) == (False, ["cut"])
    assert len(transport.taken) == PIECE


def test_a_transport_is_closed_once_however_often_that_is_asked_for():
    """Over TLS the second time makes it forget what it is: nothing can be asked of it any more, and nothing cuts it."""
    out, transport = outlet(takes=len(WORDS))
    out.write(WORDS)
    out.close()
    out.close()
    out.resume()
    assert transport.ends == ["closed"]


def test_who_waits_goes_on_when_all_is_fetched_or_nobody_is_there():
    async def waits(end):
        out, transport = outlet()
        out.write(WORDS)
        waiting = asyncio.ensure_future(out.drain())
        await asyncio.sleep(0)
        transport.fetch(PIECE)
        await asyncio.sleep(0)
        assert not waiting.done()
        end(out, transport)
        await waiting

    asyncio.run(waits(lambda _out, transport: transport.fetch(len(WORDS))))
    asyncio.run(waits(lambda out, _transport: out.drop()))


def test_a_stream_that_nobody_reads_holds_little():
    out, transport = outlet()
    assert transport.high == HELD
    out.write(b"x" * (HELD + 1))
    assert out.is_full


def test_nothing_is_handed_over_after_the_other_side_has_gone():
    """A transport would write a line to the log about each piece."""
    out, transport = outlet(takes=len(WORDS))
    transport.write = lambda part: transport.ends.append(bytes(part))
    out.write(WORDS)
    assert transport.ends == [WORDS[:PIECE]]


# --- a real connection ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def asked(pair, *, is_last):
    """Ask for a large answer, over TLS if there is a pair; give who reads it, who sends it, and all connections."""
    connections, made = Connections(10, 10.0, IDLE_S), []

    async def app(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % LARGE)]})
        await send({"type": "http.response.body", "body": b"x" * LARGE})

    def conversation():
        made.append(Conversation(app, ServerState(), connections, 16 << 10))
        return made[-1]

    serving = hearing = None
    if pair is not None:
        serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        serving.load_cert_chain(*pair)
        hearing = ssl.create_default_context(cafile=pair[0])
    loop = asyncio.get_running_loop()
    port = socket.create_server(("127.0.0.1", 0))
    port.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, FLOW)
    farewell = {"ssl_shutdown_timeout": 3600.0} if serving else {}
    server = await loop.create_server(conversation, sock=port, ssl=serving, **farewell)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, FLOW)
    client.setblocking(False)
    await loop.sock_connect(client, port.getsockname())
    reader, writer = await asyncio.open_connection(
        sock=client, ssl=hearing, server_hostname="localhost" if hearing else None, limit=FLOW
    )
    end = b"connection: close\r\n" if is_last else b""
    writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n%b\r\n" % end)
    await reader.readuntil(b"\r\n\r\n")
    try:
        yield reader, made[0], connections
    finally:
        writer.transport.abort()
        server.close()


async def fetched(reader, conversation, size):
    """Read so much, and wait until the other side has noticed it, as far as there is anything left."""
    before = conversation.unsent
    await reader.readexactly(size)
    await until(lambda: conversation.unsent <= max(0, before - FLOW))


async def until(is_so):
    while not is_so():  # noqa: ASYNC110 - it is the system's sockets that are waited for, turn by turn of the loop
        await asyncio.sleep(0)


@pytest.mark.parametrize("is_last", [False, True], ids=["kept", "closed"])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_slow_but_steady_reader_gets_all_of_a_large_answer(pair, tls, is_last):
    """It takes many times as long as somebody has who fetches nothing."""
    limit_s = LINGER_S if is_last else IDLE_S

    async def reads():
        async with asked(pair if tls else None, is_last=is_last) as (reader, conversation, connections):
            now, left = 0.0, LARGE
            while left:
                connections.sweep(now)
                size = min(left, 4 * FLOW)
                await fetched(reader, conversation, size)
                left -= size
                now += limit_s * 0.9
            assert now > 10 * limit_s

    asyncio.run(asyncio.wait_for(reads(), 60))


@pytest.mark.parametrize("is_last", [False, True], ids=["kept", "closed"])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_who_fetches_nothing_of_a_large_answer_is_cut(pair, tls, is_last):
    limit_s = LINGER_S if is_last else IDLE_S

    async def reads():
        async with asked(pair if tls else None, is_last=is_last) as (reader, conversation, connections):
            assert conversation.unsent > LARGE // 2
            connections.sweep(0.0)
            connections.sweep(limit_s - 0.1)
            assert len(connections) == 1
            connections.sweep(limit_s)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(LARGE)
            await until(lambda: len(connections) == 0)

    asyncio.run(asyncio.wait_for(reads(), 60))
