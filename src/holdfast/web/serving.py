"""Serving: a store opened, recovered, offered on a port, and closed again.

The order of the start: what may be listened to, the store, recovery, the port. The order of the end: no new requests,
long polls and streams let go, commits that are under way finished, a snapshot, the store closed. A store that fails
ends the server with that error; whoever starts it again rebuilds from the disk.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType

import uvicorn

from holdfast.clock import Clock
from holdfast.engine.engine import Engine
from holdfast.engine.maintenance import recover
from holdfast.errors import HoldfastError, InvalidOperation, InvalidValue, StoreFailed
from holdfast.model.access import Access
from holdfast.stores.opening import open_store, parse_url
from holdfast.web.coordinator import Coordinator
from holdfast.web.guard import Door, is_loopback
from holdfast.web.routes import application

#: Nothing listens elsewhere unless asked to.
HOST, PORT = "127.0.0.1", 8480
#: Seconds that requests under way are given at the end.
DRAIN_S = 10
#: Bytes of a request's head.
HEAD = 16 << 10


@dataclass(frozen=True, kw_only=True)
class Listening:
    """Where a coordinator listens, and whom it lets in."""

    host: str = HOST
    #: 0 for any that is free.
    port: int = PORT
    accesses: Sequence[Access] = ()
    #: Files with a certificate and its key.
    tls_cert: str | None = None
    tls_key: str | None = None


class Serving:
    """One coordinator, from its start to a clean end."""

    def __init__(self, store_url: str, listening: Listening, *, clock: Clock | None = None) -> None:
        """Open and recover the store and take the port; nobody is answered before `run`.

        Raises InvalidOperation for an address beyond this machine without access tokens or TLS, InvalidValue for one
        that cannot be taken or a store that is elsewhere itself, StoreError if the store cannot be opened.
        """
        _demand_safe(listening)
        if parse_url(store_url).scheme in {"http", "https"}:
            raise InvalidValue(f"{store_url!r} is a coordinator itself. Nothing was opened.", url=store_url)
        self._engine = Engine(open_store(store_url, clock=clock), clock=clock)
        try:
            self.recovered = recover(self._engine)
            self._socket = _listen(listening)
        except BaseException:
            self._engine.close()
            raise
        door = Door(is_local=is_loopback(listening.host), accesses=listening.accesses)
        self._app = application(self._engine, door, self.stop)
        self._server = _Server(
            uvicorn.Config(
                self._app,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                h11_max_incomplete_event_size=HEAD,
                timeout_graceful_shutdown=DRAIN_S,
                ssl_certfile=listening.tls_cert,
                ssl_keyfile=listening.tls_key,
            ),
            self._let_go,
        )
        host, port = self._socket.getsockname()[:2]
        scheme = "https" if listening.tls_cert else "http"
        self.url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    def run(self) -> None:
        """Answer until told to stop: by `stop`, or by SIGTERM or SIGINT in the main thread. Closes the store.

        Raises what the store failed with.
        """
        try:
            self._server.run(sockets=[self._socket])
            coordinator = self._coordinator
            failure = None if coordinator is None else coordinator.failure
            if failure is not None:
                raise (
                    failure
                    if isinstance(failure, HoldfastError)
                    else StoreFailed(f"the coordinator broke: {failure!r}")
                )
            with contextlib.suppress(NotImplementedError):
                self._engine.store.snapshot()
        finally:
            self._socket.close()
            self._engine.close()

    def stop(self) -> None:
        """Ask for a clean end; returns at once. For any thread."""
        self._server.end()

    @property
    def _coordinator(self) -> Coordinator | None:
        found: Coordinator | None = getattr(self._app.state, "coordinator", None)
        return found

    def _let_go(self) -> None:
        if self._coordinator is not None:
            self._coordinator.bell.close()


class _Server(uvicorn.Server):
    """The server, which lets long polls go when it is to end, and takes a signal as a wish, not as a death."""

    def __init__(self, config: uvicorn.Config, let_go: Callable[[], None]) -> None:
        super().__init__(config)
        self._let_go = let_go

    def end(self) -> None:
        """Begin to end."""
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let those go who wait, then end as servers do."""
        self._let_go()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Hear signals in the main thread; others cannot. They are not raised again afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._heard) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _heard(self, _number: int, _frame: FrameType | None) -> None:
        # The second one ends what still hangs.
        self.force_exit = self.should_exit
        self.end()


def _demand_safe(listening: Listening) -> None:
    if is_loopback(listening.host):
        return
    if not listening.accesses:
        raise InvalidOperation(
            f"{listening.host} can be reached from elsewhere, and there is no access token. Nothing was started.",
            hint="Make one with `holdfast access add`, or listen on 127.0.0.1.",
        )
    if not (listening.tls_cert and listening.tls_key):
        raise InvalidOperation(
            f"{listening.host} can be reached from elsewhere, and access tokens would travel in the clear. "
            "Nothing was started.",
            hint="Give --tls-cert and --tls-key, or listen on 127.0.0.1 behind a proxy of this machine.",
        )


def _listen(listening: Listening) -> socket.socket:
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    try:
        made = socket.create_server((listening.host, listening.port), family=family, backlog=1024)
        # Connections inherit it. asyncio sets it only on sockets that name their protocol, which this one does not;
        # without it the body of an answer waits 40 ms for the acknowledgement of its head.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as problem:
        raise InvalidValue(
            f"{listening.host}:{listening.port} cannot be listened to: {problem}. Nothing was started.",
            hint="Is another coordinator there? Choose another --port.",
            field="port",
        ) from problem
    return made
