"""What two readers could read differently is no request here, and what stands behind it is never read at all."""

from __future__ import annotations

import asyncio
import json
import random
import re

import pytest
from coordinators import running
from rawhttp import dial, head, hear, say
from uvicorn.server import ServerState

from holdfast.stores.http.wire import Commands, encode
from holdfast.web.server.connections import Connections
from holdfast.web.server.http_protocol import AHEAD, Conversation

COMMANDS = "/api/v1/commands"
NEXT = head("/readyz")
CHUNKED = head(COMMANDS, method="POST", Transfer_Encoding="chunked")
NOTHING = encode(Commands([]))


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with running(f"wal:{tmp_path_factory.mktemp('protocol') / 'jobs'}") as serving:
        yield serving.url


def all_of(line):
    """Read to the end."""
    text = b""
    try:
        while more := line.recv(65536):
            text += more
    except ConnectionResetError:
        pass
    return text


def statuses(text):
    return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d{3})", text)]


def post(length_fields, body=b"", version="1.1"):
    return f"POST {COMMANDS} HTTP/{version}\r\nHost: localhost\r\n{length_fields}\r\n\r\n".encode("latin-1") + body


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        # Two lengths, or one that is none.
        (post("Content-Length: 1\r\nTransfer-Encoding: chunked", b"0\r\n\r\n"), 400),
        (post("Transfer-Encoding: chunked\r\nContent-Length: 5", b"0\r\n\r\n"), 400),
        (post("Content-Length: 5\r\nContent-Length: 5", b"hello"), 400),
        (post("Content-Length: 5, 5", b"hello"), 400),
        (post("Content-Length: +5", b"hello"), 400),
        (post("Content-Length: 0x5", b"hello"), 400),
        (post("Content-Length: 5 5", b"hello"), 400),
        (post("Content-Length:", b"hello"), 400),
        (post(f"Content-Length: {1 << 70}", b"hello"), 400),
        (post("Transfer-Encoding: xchunked", b"0\r\n\r\n"), 400),
        (post("Transfer-Encoding: identity", b"0\r\n\r\n"), 400),
        (post("Transfer-Encoding: chunked, identity", b"0\r\n\r\n"), 400),
        (post("Transfer-Encoding: chunked, chunked", b"0\r\n\r\n"), 400),
        (post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", b"0\r\n\r\n"), 400),
        (post("Transfer-Encoding: \x0bchunked", b"0\r\n\r\n"), 400),
        (post("Transfer-Encoding : chunked", b"0\r\n\r\n"), 400),
        (post("Transfer-Encoding\t: chunked", b"0\r\n\r\n"), 400),
        (post("Transfer-Encoding:\r\n chunked", b"0\r\n\r\n"), 400),
        (post("Transfer-Encoding: chunked", b"0\r\n\r\n", version="1.0"), 400),
        (post("Transfer-Encoding: gzip, chunked", b"0\r\n\r\n"), 501),
        # Chunks that are none.
        (CHUNKED + b"0x1\r\na\r\n0\r\n\r\n", 400),
        (CHUNKED + b"1 \r\na\r\n0\r\n\r\n", 400),
        (CHUNKED + b"-1\r\na\r\n0\r\n\r\n", 400),
        (CHUNKED + b"f" * 17 + b"\r\na\r\n0\r\n\r\n", 400),
        (CHUNKED + b"1\r\nab\r\n0\r\n\r\n", 400),
        (CHUNKED + b"1\na\n0\n\n", 400),
        (CHUNKED + b"1;a=b\nX\r\n0\r\n\r\n", 400),
        (CHUNKED + b"0\r\nX : y\r\n\r\n", 400),
        # Lines that end differently for different readers.
        (b"GET /healthz HTTP/1.1\nHost: localhost\n\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\rX: y\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\n Host: localhost\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n: x\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: \x01\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX\x80: y\r\n\r\n", 400),
        # First lines.
        (b"GET /healthz\r\n\r\n", 505),
        (b"GET /healthz HTTP/1.1 x\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /healthz HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
        (b"GET\t/healthz\tHTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"get /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /healthz\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /healthz\x01 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (head("/healthz#x", Connection="close"), 400),
        (head("healthz", Connection="close"), 400),
        (head("localhost:1", method="CONNECT"), 400),
        (head("*", method="OPTIONS", Connection="close"), 400),
        # Another protocol, with a body that would be its first word.
        (head(COMMANDS, method="POST", Connection="Upgrade", Upgrade="h2c", Content_Length=len(NEXT)) + NEXT, 400),
    ],
)  # fmt: skip
def test_what_could_be_read_in_two_ways_is_refused_and_nothing_behind_it_is_read(url, sent, status):
    with dial(url) as line:
        line.sendall(sent + NEXT)
        text = all_of(line)
    assert statuses(text) == [status], text
    assert b"connection: close" in text
    problem = json.loads(text.partition(b"\r\n\r\n")[2])
    assert (problem["status"], problem["detail"].endswith("Nothing was done.")) == (status, True)


@pytest.mark.parametrize(
    "fields",
    [
        {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2_Settings": "AAMAAABkAAQAAP__"},
        {"Connection": "Upgrade", "Upgrade": "websocket", "Sec_WebSocket_Key": "eA==", "Sec_WebSocket_Version": "13"},
        {"Connection": "keep-alive, close"},
        {"Connection": "close"},
    ],
)  # fmt: skip
def test_a_request_that_is_the_last_is_answered_as_any_other_and_nothing_behind_it_is_read(url, fields):
    with dial(url) as line:
        line.sendall(head(**fields) + NEXT)
        text = all_of(line)
    assert statuses(text) == [200]
    assert b"connection: close" in text
    assert text.endswith(b"\r\n\r\nok\n")


def test_what_stands_behind_a_body_is_no_header(url):
    sent = CHUNKED + b"%x\r\n%b\r\n0\r\n" % (len(NOTHING), NOTHING)
    trailers = b"Authorization: Bearer nobody's\r\nContent-Encoding: gzip\r\nHost: evil.example\r\n\r\n"
    with dial(url) as line:
        line.sendall(sent + trailers + head("/readyz", Connection="close"))
        text = all_of(line)
    assert statuses(text) == [200, 200]
    assert text.endswith(b"ready\n")


@pytest.mark.parametrize(
    ("begun", "dropped"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ", b"a"),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", b"X: a\r\n"),
        (b"GET /", b"a"),
        (b"", b"\r\n"),
        (CHUNKED + b"1;", b"a"),
        (CHUNKED + b"1\r\n{\r\n0\r\n", b"X: a\r\n"),
        (CHUNKED + b"1\r\n{\r\n0\r\nX: ", b"a"),
    ],
)  # fmt: skip
def test_bytes_that_lead_to_nothing_are_counted_while_they_arrive(url, begun, dropped):
    with dial(url) as line:
        line.sendall(begun)
        try:
            for _ in range(40):
                line.sendall(dropped * (1000 // len(dropped)))
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has heard enough
        said = hear(line)
    assert said is None or (said.status, said.headers["connection"]) == (431, "close")


def test_a_body_in_many_pieces_may_be_longer_than_any_head(url):
    spaces = b" " * 30_000
    with dial(url) as line:
        line.sendall(CHUNKED)
        for piece in (spaces, NOTHING, spaces):
            line.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
        line.sendall(b"0\r\n\r\n")
        assert hear(line).status == 200


def test_what_was_asked_before_nonsense_is_answered_and_then_it_ends(url):
    for nonsense in (b"nonsense\r\n\r\n", CHUNKED + b"zz\r\n"):
        with dial(url) as line:
            line.sendall(head() + NEXT + nonsense + NEXT)
            assert statuses(all_of(line)) == [200, 200]


def test_who_sends_too_much_ahead_is_heard_no_more(url):
    with dial(url) as line:
        line.sendall(NEXT * (3 * AHEAD))
        assert statuses(all_of(line)) == [200] * (AHEAD + 1)


@pytest.mark.parametrize("expected", ["100-continue", "100-Continue"])
def test_a_body_that_waits_to_be_asked_for_is_asked_for_once_its_sender_is_let_in(url, expected):
    fields = {"method": "POST", "Content_Length": len(NOTHING), "Expect": expected}
    with dial(url) as line:
        line.sendall(head(COMMANDS, **fields))
        assert line.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        line.sendall(NOTHING)
        assert hear(line).status == 200
    refused = say(url, head(COMMANDS, host="evil.example", **fields))
    assert (refused.status, refused.headers["connection"]) == (403, "close")


def test_a_head_alone_is_answered_by_a_head_alone(url):
    with dial(url) as line:
        line.sendall(head(method="HEAD") + head(Connection="close"))
        text = all_of(line)
    assert statuses(text) == [200, 200]
    assert text.count(b"content-length: 3\r\n") == 2
    assert text.count(b"ok\n") == 1


def test_spaces_around_a_value_are_none_of_it(url):
    assert say(url, head(host=" localhost \t ", Authorization="  Bearer nobody's  ")).status == 401
    assert say(url, head(host=" localhost \t ", Connection="close ")).status == 200


# --- whatever arrives -------------------------------------------------------------------------------------------------


class Transport:
    def __init__(self):
        self.is_closed = False

    def get_extra_info(self, _name, default=None):
        return default

    def set_write_buffer_limits(self, _most):
        pass

    def write(self, _part):
        assert not self.is_closed

    def is_closing(self):
        return self.is_closed

    def close(self):
        self.is_closed = True

    def pause_reading(self):
        pass

    resume_reading = pause_reading


async def echo(_scope, receive, send):
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message["body"]), message["more_body"]
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(b"%d" % size))]}
    )
    await send({"type": "http.response.body", "body": b"%d" % size})


def garbled(chance):
    """Give some requests with a few slips in them."""
    whole = [
        NEXT,
        post("Content-Length: 5", b"hello"),
        CHUNKED + b"5\r\nhello\r\n0\r\nX: y\r\n\r\n",
        head(version="1.0"),
    ]
    whole += [head(Connection="Upgrade", Upgrade="h2c"), head(Expect="100-continue"), head(Connection="close")]
    sent = bytearray(b"".join(chance.choices(whole, k=chance.randint(1, 2 * AHEAD))))
    for _ in range(chance.randint(0, 3)):
        at = chance.randrange(len(sent) - 20)
        slip = chance.choice((b"\r\n", b"\n", b" ", b"\0", b"\xff", b"Content-Length: 3\r\n", b"a" * 3000))
        sent[at : at + chance.choice((0, 1, 20))] = slip
    return bytes(sent)


def test_whatever_arrives_in_whatever_pieces_nothing_breaks_hangs_or_stays_behind():
    chance = random.Random(7)

    async def converse():
        state, connections, transport = ServerState(), Connections(9, 10), Transport()
        conversation = Conversation(echo, state, connections, 2000)
        conversation.connection_made(transport)
        sent = garbled(chance)
        while sent and not transport.is_closed:
            size = chance.choice((1, 3, 20, 200, 100_000))
            conversation.data_received(sent[:size])
            sent = sent[size:]
            await asyncio.sleep(0)
        for _ in range(4 * AHEAD):  # turns enough to answer what was asked
            await asyncio.sleep(0)
        conversation.connection_lost(None)
        await asyncio.gather(*state.tasks)
        assert len(connections) == len(state.connections) == 0

    async def all_of_them():
        for _ in range(400):
            await asyncio.wait_for(converse(), 20)

    asyncio.run(all_of_them())
