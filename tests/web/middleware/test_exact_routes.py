"""Paths without a part that varies are answered as the router would answer them."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from holdfast.errors import JobNotFound
from holdfast.web.middleware.exact_routes import Exact, table_of


async def fine(request):
    return PlainTextResponse(f"{request.method} {request.url.path}")


async def missing(_request):
    raise JobNotFound("there is none")


async def gone(_request):
    raise ClientDisconnect


ROUTES = [
    Route("/fine", fine, methods=["GET", "POST"]),
    Route("/fine/{name}", fine),
    Route("/missing", missing),
    Route("/gone", gone),
    Mount("/below", routes=[Route("/fine", fine)]),
]


def ask(method, path):
    """Give the status, or the path that the router was left with."""
    said = []

    async def router(scope, _receive, _send):
        said.append(scope["path"])

    async def send(message):
        said.append(message.get("status", message.get("body")))

    scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b"", "root_path": ""}
    asyncio.run(Exact(router, table_of("/api", ROUTES))(scope, None, send))
    return said[0]


def test_only_exact_paths_and_their_methods_are_answered_here():
    assert [ask(*one) for one in (("GET", "/api/fine"), ("HEAD", "/api/fine"), ("POST", "/api/fine"))] == [200] * 3
    for left in ("/api/fine/", "/api/fine/x", "/fine", "/api/below/fine", "/api/FINE"):
        assert ask("GET", left) == left
    assert ask("DELETE", "/api/fine") == "/api/fine"


def test_errors_are_answered_as_everywhere():
    assert ask("GET", "/api/missing") == 404
    assert ask("GET", "/api/gone") == 400
