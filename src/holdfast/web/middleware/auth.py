"""Who is let in: names of this machine only where only it listens, no foreign pages, and access tokens.

Wraps the whole application, before anything of a request's body is read. What somebody let in may do is decided later,
by `rules.access.roles`. The order: the head, the peer, host and origin, the access token, how much it may ask.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.clock import Clock, SystemClock
from holdfast.errors import Forbidden, HoldfastError, Unauthorized
from holdfast.model.access import LOCAL, Access
from holdfast.rules.webhooks.loopback import is_loopback
from holdfast.stores.http.wire import ROOT
from holdfast.web.coordinator.access_tokens import Keyring
from holdfast.web.middleware.rate_limits import Quotas
from holdfast.web.middleware.request_checks import Told, demand_own_name, demand_own_page, flaw_in
from holdfast.web.problems import response_to
from holdfast.web.server.limits import Limits

#: Says only whether the process lives; asked by those who have no access token.
OPEN_PATHS = frozenset({"/healthz", "/readyz"})
#: Requests that stay open until something happens; and those that last as long as their caller likes.
LONG_POLLS = frozenset(f"{ROOT}/{name}" for name in ("lease", "changes", "feed", "reservations", "direct"))
STREAMS = frozenset({f"{ROOT}/feed"})
_ACCESS, _LIMITS, _QUOTAS = "holdfast.access", "holdfast.limits", "holdfast.quotas"


@dataclass(frozen=True, kw_only=True)
class Door:
    """How a coordinator lets people in."""

    #: Only this machine can reach it.
    is_local: bool
    keyring: Keyring = field(default_factory=Keyring)
    limits: Limits = field(default_factory=Limits)
    #: Where the proxies are that speak for others; if there are any, nobody else is heard but this machine.
    proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    clock: Clock = field(default_factory=SystemClock)


def access_of(request: Request) -> Access:
    """Give whom a request is from."""
    found = request.scope[_ACCESS]
    assert isinstance(found, Access)
    return found


def limits_for(request: Request) -> Limits:
    """Give the limits a request is under."""
    found = request.scope[_LIMITS]
    assert isinstance(found, Limits)
    return found


def quotas_for(request: Request) -> Quotas:
    """Give what a request counts in."""
    found = request.scope[_QUOTAS]
    assert isinstance(found, Quotas)
    return found


class Revoked(Exception):
    """Whoever reads a stream may not any more."""


class Guard:
    """Refuses whom the door keeps out."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app = app
        self._door = door
        self._quotas = Quotas(door.limits, door.clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer that it is not."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        told: Told = dict(scope["headers"])
        flaw = flaw_in(scope, told, self._door.limits.head)
        if flaw is not None:
            await response_to(flaw.why, flaw.status)(scope, receive, send)
            return
        try:
            access = self._let_in(scope, told)
            self._quotas.take(access)
            scope[_ACCESS], scope[_LIMITS], scope[_QUOTAS] = access, self._door.limits, self._quotas
            with self._place(scope["path"], access):
                await self._answer(scope, receive, send, access)
        except HoldfastError as refused:
            await response_to(refused)(scope, receive, send)

    def _place(self, path: str, access: Access) -> AbstractContextManager[None]:
        return self._quotas.poll(access) if path in LONG_POLLS else nullcontext()

    async def _answer(self, scope: Scope, receive: Receive, send: Send, access: Access) -> None:
        if access is LOCAL or scope["path"] not in STREAMS:
            await self._app(scope, receive, send)
            return

        async def still(message: Message) -> None:
            if message["type"] == "http.response.body" and not self._door.keyring.holds(access):
                raise Revoked
            await send(message)

        try:
            await self._app(scope, receive, still)
        except Revoked:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _let_in(self, scope: Scope, told: Told) -> Access:
        if self._door.proxies:
            self._hear_proxy(scope, told)
        if self._door.is_local:
            demand_own_name(told)
        demand_own_page(told, scope["method"])
        scheme, _, shown = told.get(b"authorization", b"").decode("latin-1").partition(" ")
        if shown or scheme:
            if scheme.lower() != "bearer":
                raise Unauthorized(
                    "only access tokens are known here. Nothing was done.", hint="Authorization: Bearer …"
                )
            return self._door.keyring.find(shown.strip())
        if self._door.is_local or scope["path"] in OPEN_PATHS:
            return LOCAL
        raise Unauthorized(
            "an access token is needed. Nothing was done.", hint="Authorization: Bearer …, or HOLDFAST_ACCESS_TOKEN."
        )

    def _hear_proxy(self, scope: Scope, told: Told) -> None:
        """Believe a proxy whom it speaks for; refuse who goes round it: access tokens would travel in the clear."""
        peer = scope["client"][0] if scope.get("client") else ""
        try:
            is_proxy = any(ip_address(peer) in place for place in self._door.proxies)
        except ValueError:
            is_proxy = False
        if is_proxy:
            # The last one is who spoke to the proxy; those before it are what that one says.
            sender = told.get(b"x-forwarded-for", b"").decode("latin-1").rpartition(",")[2].strip()
            scope["client"] = (sender[:64], 0) if sender else scope.get("client")
            scheme = told.get(b"x-forwarded-proto", b"").decode("latin-1").strip().lower()
            scope["scheme"] = scheme if scheme in {"http", "https"} else scope["scheme"]
        elif not is_loopback(peer):
            raise Forbidden("only the proxy may ask here. Nothing was done.", hint="Ask the proxy's own address.")
