"""An answer leaves in as few pieces as it can, whole or not at all, and says no more than its headers."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.web.server.http_exchange import Exchange


class Wire:
    common = ((b"date", b"today"),)
    is_full = False

    def __init__(self):
        self.sent = []

    def write(self, part):
        self.sent.append(part)

    async def drain(self):
        self.sent.append("drained")
        self.is_full = False

    def listen(self):
        pass

    def close(self):
        self.sent.append("closed")

    def answered(self, exchange):
        self.sent.append("last" if exchange.is_last else "answered")


def start(*headers, status=200):
    return {"type": "http.response.start", "status": status, "headers": headers}


def body(part, *, more=False):
    return {"type": "http.response.body", "body": part, "more_body": more}


def answer(*messages, version="1.1", method="GET", arrived=True, wire=None):
    """Give what leaves when an application answers so."""
    wire = wire or Wire()

    async def app(_scope, _receive, send):
        for message in messages:
            await send(message)

    async def run():
        exchange = Exchange({"http_version": version, "method": method}, wire, is_last=False, is_asking=False)
        if arrived:
            exchange.end()
        await exchange.run(app)

    asyncio.run(run())
    return wire.sent


def test_a_head_and_a_body_leave_together():
    assert answer(start((b"content-length", b"5")), body(b"hello")) == [
        b"HTTP/1.1 200 OK\r\ndate: today\r\ncontent-length: 5\r\n\r\nhello",
        "answered",
    ]


def test_the_head_of_a_stream_leaves_at_once_and_each_piece_alone():
    assert answer(start(), body(b"a", more=True), body(b"", more=True), body(b"bc")) == [
        b"HTTP/1.1 200 OK\r\ndate: today\r\ntransfer-encoding: chunked\r\n\r\n",
        b"1\r\na\r\n",
        b"2\r\nbc\r\n0\r\n\r\n",
        "answered",
    ]


def test_to_http_1_0_the_end_of_a_stream_is_that_of_the_connection():
    assert answer(start(), body(b"a", more=True), body(b""), version="1.0")[:2] == [
        b"HTTP/1.1 200 OK\r\ndate: today\r\n\r\n",
        b"a",
    ]


@pytest.mark.parametrize(("status", "method"), [(204, "GET"), (304, "GET"), (200, "HEAD")])
def test_an_answer_without_a_body_has_none(status, method):
    (head, end) = answer(start((b"content-length", b"5"), status=status), body(b"hello"), method=method)
    assert head.endswith(b"content-length: 5\r\n\r\n")
    assert end == "answered"


def test_what_is_answered_before_its_body_has_arrived_is_the_last():
    (head, end) = answer(start((b"content-length", b"0")), body(b""), arrived=False)
    assert head.endswith(b"connection: close\r\n\r\n")
    assert end == "last"


@pytest.mark.parametrize(
    "messages",
    [
        (),
        (start((b"content-length", b"5")),),
        (start((b"content-length", b"5")), body(b"hell")),
        (start((b"content-length", b"5")), body(b"hello!")),
        (start((b"x", b"a\r\nset-cookie: b")), body(b"")),
        (start((b"x\r\ny", b"a")), body(b"")),
        (body(b"hello"),),
        (start((b"content-length", b"5")), start((b"content-length", b"5"))),
    ],
)
def test_an_answer_that_is_none_is_not_sent(messages):
    assert answer(*messages) == ["closed"]


def test_a_stream_that_breaks_off_ends_the_connection_so_that_it_does_not_look_whole():
    assert answer(start(), body(b"a", more=True))[-2:] == [b"1\r\na\r\n", "closed"]


def test_who_does_not_fetch_is_waited_for():
    wire = Wire()
    wire.is_full = True
    assert answer(start((b"content-length", b"0")), body(b""), wire=wire)[0] == "drained"
