"""Who is let in: names of this machine only where only it listens, no foreign pages, and access tokens.

Wraps the whole application, before anything of a request's body is read. What somebody let in may do is decided later,
by `rules.access`. Access tokens are compared as hashes, all of them, in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.errors import Forbidden, HoldfastError, Unauthorized
from holdfast.model.access import LOCAL, Access
from holdfast.web.problems import response_to

#: Says only whether the process lives; asked by those who have no access token.
OPEN_PATHS = frozenset({"/healthz", "/readyz"})
_ACCESS = "holdfast.access"


class Door(NamedTuple):
    """How a coordinator lets people in."""

    #: Only this machine can reach it.
    is_local: bool
    accesses: Sequence[Access] = ()


def access_of(request: Request) -> Access:
    """Give whom a request is from."""
    found = request.scope[_ACCESS]
    assert isinstance(found, Access)
    return found


def is_loopback(name: str) -> bool:
    """Tell whether a host name or address is this machine's own."""
    if name.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """Refuses whom the door keeps out."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer that it is not."""
        if scope["type"] == "http":
            try:
                scope[_ACCESS] = self._let_in(Headers(scope=scope), scope["path"])
            except HoldfastError as refused:
                await response_to(refused)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _let_in(self, headers: Headers, path: str) -> Access:
        host = headers.get("host", "")
        if self._door.is_local and not is_loopback(_name_in(host)):
            raise Forbidden(
                f"the Host {host!r:.100} is not a name of this machine. Nothing was done.",
                hint="Use http://127.0.0.1 or http://localhost.",
            )
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            raise Forbidden("a page of another origin may not ask this. Nothing was done.")
        scheme, _, shown = headers.get("authorization", "").partition(" ")
        if shown or scheme:
            found = known(self._door.accesses, shown.strip()) if scheme.lower() == "bearer" else None
            if found is None:
                raise Unauthorized("the access token is not known. Nothing was done.", hint="Was it revoked?")
            return found
        if self._door.is_local or path in OPEN_PATHS:
            return LOCAL
        raise Unauthorized(
            "an access token is needed. Nothing was done.", hint="Authorization: Bearer …, or HOLDFAST_ACCESS_TOKEN."
        )


def known(accesses: Sequence[Access], shown: str) -> Access | None:
    """Give the access that a shown token stands for. Takes as long whichever it is, and if it is none."""
    digest = hashlib.sha256(shown.encode()).hexdigest()
    found: Access | None = None
    for access in accesses:
        if hmac.compare_digest(access.digest, digest):
            found = access
    return found


def _name_in(host: str) -> str:
    """Give the name of a Host header without its port."""
    name, _, port = host.rpartition(":")
    return name if name and port.isdigit() and not host.endswith("]") else host
