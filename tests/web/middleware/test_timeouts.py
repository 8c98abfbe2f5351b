"""Whoever is too slow, in sending or in reading, is not waited for."""

from __future__ import annotations

import asyncio

from holdfast.web.middleware.timeouts import FLOW, Pace
from holdfast.web.server.limits import Limits

PIECE_S = 0.02


def talk(app, path, pieces, *, reads=True, request_s=PIECE_S):
    """Have a request answered; `pieces` are what arrives, then nothing more does. Give what was sent back."""
    waiting, said = list(pieces), []

    async def receive():
        if not waiting:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": waiting.pop(0), "more_body": True}

    async def send(message):
        if not reads and message["type"] == "http.response.body":
            await asyncio.Event().wait()
        said.append(message)

    scope = {"type": "http", "path": path, "headers": [(b"content-length", b"9")]}
    asyncio.run(Pace(app, Limits(request_s=request_s))(scope, receive, send))
    return said


async def reading(_scope, receive, _send):
    while True:
        await receive()


async def thinking(_scope, _receive, _send):
    await asyncio.Event().wait()


async def telling(_scope, _receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"x", "more_body": True})
    raise AssertionError


def test_a_body_that_does_not_arrive_is_given_up():
    start, _ = talk(reading, "/api/v1/commands", [b"a"])
    assert start["status"] == 408
    assert (b"connection", b"close") in start["headers"]


def test_a_blob_that_does_not_arrive_is_given_up():
    assert talk(reading, "/api/v1/blobs/x", [b"a"])[0]["status"] == 408


def test_a_blob_that_flows_may_take_long_and_one_that_drips_may_not():
    arrived = []

    def slowly(size):
        async def app(_scope, receive, send):
            for _ in range(3):
                arrived.append(len((await receive())["body"]))
                await asyncio.sleep(2 * PIECE_S)
            await send({"type": "http.response.start", "status": 204, "headers": []})

        return talk(app, "/api/v1/blobs/x", [b"x" * size] * 3)[0]["status"]

    assert slowly(FLOW) == 204
    assert slowly(1) == 408


def test_an_answer_that_does_not_come_is_unknown_and_to_be_asked_for_again():
    async def app(scope, receive, send):
        await receive()
        await thinking(scope, receive, send)

    waiting = [{"type": "http.request", "body": b"", "more_body": False}]
    said = []

    async def receive():
        return waiting.pop(0)

    async def send(message):
        said.append(message)

    scope = {"type": "http", "path": "/api/v1/commands", "headers": [(b"content-length", b"9")]}
    asyncio.run(Pace(app, Limits(request_s=PIECE_S))(scope, receive, send))
    assert said[0]["status"] == 503
    assert b"not known" in said[1]["body"]


def test_whoever_is_too_slow_and_does_not_even_read_that_is_left():
    (start,) = talk(reading, "/api/v1/commands", [b"a"], reads=False)
    assert start["status"] == 408


def test_whoever_does_not_read_a_stream_is_left():
    (start,) = talk(telling, "/api/v1/feed", [], reads=False)
    assert start["status"] == 200
