"""Serving: a port taken, a store opened, recovered, offered there, and closed again.

The order of the start: what may be listened to, the port, the store, recovery, requests. Until then the port says that
the process lives, and to everything else that it is too early. The order of the end: no new requests, long polls and
streams let go, commits that are under way finished, a snapshot, the store closed. A store that fails ends the server
with that error; whoever starts it again rebuilds from the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path

import uvicorn
from msgspec.structs import asdict

from holdfast.app.retention import checked
from holdfast.clock import Clock, SystemClock
from holdfast.engine.engine import Engine
from holdfast.engine.maintenance import Report, recover
from holdfast.engine.views.status import recovery_told, replay_of
from holdfast.errors import HoldfastError, InvalidOperation, InvalidValue, StoreFailed, StoreLocked
from holdfast.failpoints import reach
from holdfast.model.access import Access
from holdfast.model.retention import Retention
from holdfast.rules.webhooks.addresses import parse_networks
from holdfast.rules.webhooks.loopback import is_loopback
from holdfast.stores.opening import open_store, parse_url
from holdfast.stores.protocol import Announcing
from holdfast.web.coordinator.access_tokens import Keyring
from holdfast.web.coordinator.coordinator import Coordinator
from holdfast.web.middleware.auth import Door
from holdfast.web.routes import application
from holdfast.web.server.http_protocol import Conversation
from holdfast.web.server.limits import Limits
from holdfast.web.server.restart_count import restarts_of
from holdfast.web.server.server import DRAIN_S, WAITING, Server
from holdfast.web.server.startup_app import Front

log = logging.getLogger("holdfast.serve")

#: Nothing listens elsewhere unless asked to.
HOST, PORT = "127.0.0.1", 8480
#: Descriptors that connections leave for files, threads and the machinery.
RESERVED = 256


@dataclass(frozen=True, kw_only=True)
class Listening:
    """Where a coordinator listens, and whom it lets in."""

    host: str = HOST
    #: 0 for any that is free.
    port: int = PORT
    #: Access tokens: these, or those of a file, which is read again whenever it was changed.
    accesses: Sequence[Access] = ()
    access_file: Path | None = None
    #: Files with a certificate and its key.
    tls_cert: str | None = None
    tls_key: str | None = None
    #: Addresses or networks of proxies that end TLS; nobody else is heard from outside this machine.
    behind_proxy: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    #: Networks beside the public ones that webhooks may lie in.
    webhook_allow: tuple[str, ...] = ()
    #: How long the store keeps what has ended.
    retention: Retention = field(default_factory=Retention)


class Serving:
    """One coordinator, from its start to a clean end."""

    def __init__(self, store_url: str, listening: Listening, *, clock: Clock | None = None) -> None:
        """Take the port; nobody is answered before `run`.

        Raises InvalidOperation for an address beyond this machine without access tokens or TLS, InvalidValue for one
        that cannot be taken or a store that is elsewhere itself, StoreLocked if the store has a coordinator already.
        """
        keyring = Keyring(listening.accesses, file=listening.access_file, clock=clock)
        proxies = _networks(listening.behind_proxy)
        parse_networks(listening.webhook_allow)
        _demand_safe(listening, keyring)
        if parse_url(store_url).scheme in {"http", "https"}:
            raise InvalidValue(
                f"{store_url!r} is a coordinator itself. Nothing was opened.",
                hint="Name a store of this machine with --store; HOLDFAST_STORE may be that of its users.",
                url=store_url,
            )
        self._store_url = store_url
        self._clock = clock
        self._webhook_allow = listening.webhook_allow
        self._retention = checked(listening.retention)
        # Behind a proxy everybody comes from this machine or its neighbour: nobody is known by that.
        self._door = Door(
            is_local=is_loopback(listening.host) and not proxies,
            keyring=keyring,
            limits=listening.limits,
            proxies=proxies,
            clock=clock or SystemClock(),
        )
        self._engine: Engine | None = None
        self._coordinator: Coordinator | None = None
        self._open = contextlib.AsyncExitStack()
        self._front = Front()
        config = _config(self._front, listening)
        self._socket = _listen(listening, store_url)
        self._server = Server(config, listening.limits, _most_connections(listening.limits), self)
        host, port = self._socket.getsockname()[:2]
        scheme = "https" if listening.tls_cert else "http"
        self.url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        #: What recovery did, once it is done.
        self.recovered: Report | None = None
        #: The same in words; empty if there was nothing to read and nothing to end.
        self.recovery = ""
        self._restarts: int | None = None
        #: Set when requests are answered, or when there is nothing to wait for any more.
        self.ready = threading.Event()
        self._told: Callable[[], None] = lambda: None

    def run(self, told: Callable[[], None] = lambda: None) -> None:
        """Answer until told to stop: by `stop`, or by SIGTERM or SIGINT in the main thread. Closes the store.

        `told` is called when requests are answered. Raises what the store could not be opened with, or failed with.
        """
        self._told = told
        try:
            self._server.run(sockets=[self._socket])
            failure = self._server.failure or (None if self._coordinator is None else self._coordinator.failure)
            if isinstance(failure, HoldfastError):
                raise failure
            if failure is not None:
                raise StoreFailed(f"the coordinator broke: {failure!r}") from failure
            if self._engine is not None:
                with contextlib.suppress(NotImplementedError):
                    self._engine.store.snapshot()
        finally:
            self._socket.close()
            if self._engine is not None:
                self._engine.close()
            self.ready.set()

    def stop(self) -> None:
        """Ask for a clean end; returns at once. For any thread."""
        self._server.finish()

    # --- what the server asks for, in its event loop ------------------------------------------------------------------

    async def begin(self) -> None:
        """Open and recover the store in a thread, then answer."""
        self._engine = engine = await asyncio.to_thread(self._opened)
        if self._server.should_exit:
            return
        app = application(engine, self._door, self.stop, webhook_allow=self._webhook_allow, retention=self._retention)
        await self._open.enter_async_context(app.router.lifespan_context(app))
        self._coordinator = app.state.coordinator
        self._coordinator.recovered = self.recovered
        self._coordinator.restarts = self._restarts
        self._front.behind = app
        self.ready.set()
        self._told()

    def let_go(self) -> None:
        """Let long polls and streams end."""
        if self._coordinator is not None:
            self._coordinator.bell.close()

    async def end(self) -> None:
        """End the coordinator."""
        await self._open.aclose()

    def _opened(self) -> Engine:
        reach("serve.opening")
        engine = Engine(open_store(self._store_url, clock=self._clock), clock=self._clock)
        try:
            if isinstance(engine.store, Announcing):
                engine.store.announce(self.url)
            self.recovered = recover(engine)
            self._restarts = restarts_of(engine.store)
            replay = replay_of(engine.store)
            self.recovery = recovery_told(self.recovered, replay)
            facts = {**asdict(self.recovered), **({} if replay is None else asdict(replay))}
            log.info("serve.recovered", extra={name: fact for name, fact in facts.items() if fact})
        except BaseException:
            engine.close()
            raise
        return engine


def _config(front: Front, listening: Listening) -> uvicorn.Config:
    """Make the server's settings."""
    config = uvicorn.Config(
        front,
        # Connections are made by our server, of our own protocol; another loop than Python's saves nothing with it.
        http=Conversation,
        loop="asyncio",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=DRAIN_S,
    )
    config.load()
    config.ssl = None if listening.tls_cert is None else _tls(listening.tls_cert, listening.tls_key)
    return config


def _tls(cert: str, key: str | None) -> ssl.SSLContext:
    """Make what connections are secured by, as Python's own defaults have it: TLS 1.2 or later, no old ciphers."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # A key behind a password is refused: there is nobody at a terminal to type one.
        context.load_cert_chain(cert, key, password=lambda: "")
    except OSError as problem:  # errors of TLS are among them
        raise InvalidValue(
            f"{cert} with the key {key} cannot be used: {problem}. Nothing was started.",
            hint="Both are PEM files, the key without a password, and it is that of the first certificate.",
            field="tls_cert",
        ) from problem
    return context


def _networks(texts: Sequence[str]) -> tuple[IPv4Network | IPv6Network, ...]:
    try:
        return tuple(ip_network(text, strict=False) for text in texts)
    except ValueError as problem:
        raise InvalidValue(
            f"behind_proxy: {problem}. Nothing was started.",
            hint="Give the proxy's address, as 10.0.0.7 or 10.0.0.0/24.",
            field="behind_proxy",
        ) from problem


def _demand_safe(listening: Listening, keyring: Keyring) -> None:
    if bool(listening.tls_cert) != bool(listening.tls_key):
        raise InvalidValue(
            "a certificate and its key belong together. Nothing was started.",
            hint="Give both --tls-cert and --tls-key.",
            field="tls_cert",
        )
    is_reached = not is_loopback(listening.host)
    if (is_reached or listening.behind_proxy) and not keyring.all():
        raise InvalidOperation(
            f"{listening.host} can be reached from elsewhere, and there is no access token. Nothing was started.",
            hint="Make one with `holdfast access add`, or listen on 127.0.0.1 without a proxy.",
        )
    if is_reached and not (listening.tls_cert or listening.behind_proxy):
        raise InvalidOperation(
            f"{listening.host} can be reached from elsewhere, and access tokens would travel in the clear. "
            "Nothing was started.",
            hint="Give --tls-cert and --tls-key, or --behind-proxy with the address of what ends TLS.",
        )


def _most_connections(limits: Limits) -> int:
    """Give how many connections there may be: fewer than the system would give descriptors for.

    Each may hold a second one, of the blob that it sends or fetches.
    """
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return limits.connections
    return max(1, min(limits.connections, (allowed - RESERVED) // 2))


def _listen(listening: Listening, store_url: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    try:
        made = socket.create_server((listening.host, listening.port), family=family, backlog=WAITING)
        # Connections inherit it. asyncio sets it only on sockets that name their protocol, which this one does not;
        # without it the body of an answer waits 40 ms for the acknowledgement of its head.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as problem:
        _demand_unlocked(store_url)
        raise InvalidValue(
            f"{listening.host}:{listening.port} cannot be listened to: {problem}. Nothing was started.",
            hint="Is another coordinator there? Choose another --port.",
            field="port",
        ) from problem
    return made


def _demand_unlocked(store_url: str) -> None:
    """Tell who has the store, where the port was only the first thing that the same coordinator holds already."""
    where = parse_url(store_url)
    if where.scheme in {"dir", "wal"} and Path(where.path, "LOCK").exists():
        try:
            open_store(store_url).close()
        except StoreLocked:
            raise
        except HoldfastError:  # what is wrong with it is told when it is its turn
            return
