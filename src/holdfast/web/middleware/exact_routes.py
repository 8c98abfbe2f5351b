"""Paths without a part that varies: found in a table, before those that must be matched one after the other.

A worker and a client ask for little else, thousands of times a minute. Whatever is not in the table, be it another
method of the same path, is left to the router, which also says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.errors import HoldfastError
from holdfast.web.problems import on_error, on_gone

Answers = Callable[[Request], Awaitable[Response]]
#: By method and path.
Table = Mapping[tuple[str, str], Answers]


def table_of(root: str, routes: Sequence[BaseRoute]) -> Table:
    """Give the exact ones of some routes, and what answers them."""
    return {
        (method, root + route.path): route.endpoint
        for route in routes
        if isinstance(route, Route) and not route.param_convertors
        for method in route.methods or ()
    }


class Exact:
    """Answers them; errors as the application has them answered."""

    def __init__(self, app: ASGIApp, table: Table) -> None:
        self._app = app
        self._table = table

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or hand on."""
        found = self._table.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if found is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive, send)
        try:
            answer = await found(request)
        except HoldfastError as problem:
            answer = await on_error(request, problem)
        except ClientDisconnect as problem:
            answer = await on_gone(request, problem)
        await answer(scope, receive, send)
