"""From a request to its endpoint: by the path as it was sent, so that an id may hold anything, slashes too.

A path that nobody has is not found; one that has other methods says which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote_to_bytes

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.types import Message, Receive, Scope, Send

from holdfast.errors import Forbidden, InvalidValue, NotFound
from holdfast.rules.access.roles import roles_for
from holdfast.stores.http.wire import ROOT
from holdfast.web.api.bodies import body_of, query_of
from holdfast.web.api.endpoint import Ask, Endpoint
from holdfast.web.api.endpoint_table import TABLE
from holdfast.web.bodies import body_of as bytes_of
from holdfast.web.coordinator.coordinator import coordinator_of
from holdfast.web.middleware.auth import access_of
from holdfast.web.problems import not_by, response_to


class Match(NamedTuple):
    """An endpoint that a path fits, and the values of its parameters."""

    endpoint: Endpoint
    path: Mapping[str, str]


class Api:
    """Serves a table of endpoints."""

    def __init__(self, table: Sequence[Endpoint]) -> None:
        self._by_length: dict[int, list[tuple[list[str], Endpoint]]] = {}
        for endpoint in table:
            parts = endpoint.path.split("/")[1:]
            self._by_length.setdefault(len(parts), []).append((parts, endpoint))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await send({"type": "websocket.close"})
            return
        request = Request(scope, receive)
        if request.method == "HEAD":
            await (await self._answer(request, "GET"))(scope, receive, _headless(send))
        else:
            await (await self._answer(request, request.method))(scope, receive, send)

    async def _answer(self, request: Request, method: str) -> Response:
        matches = self.matching(segments(request.scope))
        found = next((match for match in matches if match.endpoint.method == method), None)
        if found is None or found.endpoint.handler is None:
            # One that is answered elsewhere comes here only by a path that is none of it: an encoded slash in a hash.
            others = set() if found is not None else {match.endpoint.method for match in matches}
            return _unserved(request, sorted(others))
        endpoint = found.endpoint
        access = access_of(request)
        if endpoint.sends is not None and not set(roles_for(endpoint.sends)) & set(access.roles):
            raise Forbidden(f"{access.name} has no role for that: {endpoint.allowed}. Nothing was done.")
        # Before the body: what cannot be read need not be sent.
        query: Any = query_of(
            parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True), endpoint.query
        )
        body = None if endpoint.body is None else body_of(await bytes_of(request), endpoint.body)
        ask = Ask(request, coordinator_of(request), access, found.path, query, body)
        if len(ask.key) > MAX_KEY:
            raise InvalidValue(f"Idempotency-Key: has more than {MAX_KEY} characters.", field="Idempotency-Key")
        return await endpoint.handler(ask)  # type: ignore[misc]  # there is one, as was looked at above

    def matching(self, parts: Sequence[str]) -> list[Match]:
        """Give all endpoints that a path fits; those that spell more of it come first."""
        found = [
            Match(endpoint, {name[1:-1]: part for name, part in zip(names, parts, strict=True) if name[:1] == "{"})
            for names, endpoint in self._by_length.get(len(parts), ())
            if all((part and name[:1] == "{") or name == part for name, part in zip(names, parts, strict=True))
        ]
        return sorted(found, key=lambda match: len(match.path))


#: Characters of an Idempotency-Key.
MAX_KEY = 200


def segments(scope: Scope) -> list[str]:
    """Give the parts of a path below the root, each decoded by itself. Raises NotFound for what is no text."""
    raw = scope.get("raw_path") or quote(scope["path"]).encode()
    below = raw.partition(b"?")[0].removeprefix(ROOT.encode())
    try:
        return [unquote_to_bytes(part).decode() for part in below.split(b"/")[1:]]
    except UnicodeDecodeError:
        raise NotFound("the path is not UTF-8.") from None


def _unserved(request: Request, methods: Sequence[str]) -> Response:
    if not methods:
        return response_to(
            NotFound(f"there is nothing at {request.url.path!r:.200}.", hint=f"See {ROOT}/openapi.json.")
        )
    return not_by(request.method, ", ".join([*methods, "HEAD"] if "GET" in methods else methods))


def _headless(send: Send) -> Send:
    """Leave the body of an answer out."""

    async def heads_only(message: Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return heads_only


#: What `web.routes` puts behind its own paths.
PUBLIC = Mount("", app=Api(TABLE))
