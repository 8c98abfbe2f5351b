"""The suite over HTTP: every store under test is a coordinator's, reached through a real port by real clients.

One server of the process serves a coordinator for each store path, below a path of its own. The clock, the tick,
recovery and the bytes are the coordinator's; nothing happens there unless the check says so. To reopen is to end the
coordinator and begin another on the same bytes, while the client goes on as if nothing had been. Clients have no
patience: what is not answered at once is an error, so that no check waits.

Each check runs over HTTP on one of the two backings, and those about crashes and races on both. HOLDFAST_SOAK=1 runs
all of them on both.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from contextlib import AsyncExitStack, suppress
from itertools import count
from zlib import crc32

import msgspec
import pytest
import uvicorn

from holdfast.engine.engine import Engine
from holdfast.errors import InvalidValue, StoreError, StoreFailed
from holdfast.model.access import LOCAL
from holdfast.model.outcomes import Brought, Fetched, Leased
from holdfast.model.records import TABLES
from holdfast.model.webhooks import Webhook
from holdfast.rules.access.roles import may_send
from holdfast.stores.http import HttpStore
from holdfast.testing.conformance import Conformance
from holdfast.testing.conformance.harness import Broken, Harness, dump_of, told
from holdfast.testing.conformance.marks import counts_writes, is_marked, sends_once
from holdfast.testing.conformance.provider import ProviderConformance
from holdfast.web.middleware.auth import Door
from holdfast.web.routes import application

#: In one of so many checks, always the same, everything is read once more by the client, and compared;
#: and in one of so many, whatever changes something is sent twice.
READ_AGAIN, REPEATED = 8, 4
#: Seconds until a silent coordinator is believed to be away: on a machine at its limits the largest checks take ten.
LOADED_S = 100.0
#: Answers to who asks for work.
TAKING = (Leased, Fetched, Brought)


#: Checks of these run on every backing: what they break or race lies below the coordinator.
EVERYWHERE = ("atomicity", "concurrency", "recovery", "reopening")


#: What no `wal:` does: several processes on one store, and a feed that is forgotten by its age.
ON_SQLITE = (
    "test_a_feed_is_kept_for_its_time_and_in_its_number",
    "test_the_leases_of_an_opening_that_is_gone_end_at_once_and_no_others",
)


def is_shown_on_sqlite(name):
    """Tell which of the two backings a check runs on: one of four on `sqlite:`, as most cost half on `wal:`."""
    return name in ON_SQLITE or crc32(name.encode()) % 4 == 3


def shared(part):
    """Leave to a class its part of the checks, 1 on `sqlite:` and 0 on `wal:`; with HOLDFAST_SOAK=1, all of them."""

    def cut(suite):
        for name in dir(suite) if os.environ.get("HOLDFAST_SOAK") != "1" else ():
            found = getattr(suite, name)
            if name.startswith("test_") and not found.__module__.endswith(EVERYWHERE):
                setattr(suite, name, found if is_shown_on_sqlite(name) == part else None)
        return suite

    return cut


def has(mark):
    """Tell whether the check under way has a mark."""
    name = os.environ["PYTEST_CURRENT_TEST"].partition("[")[0].partition(" (")[0].rpartition("::")[2]
    return any(is_marked(getattr(suite, name, None), mark) for suite in (Conformance, ProviderConformance))


def is_drawn(share):
    """Tell whether the check under way is one of its share."""
    return crc32(os.environ["PYTEST_CURRENT_TEST"].rpartition(" (")[0].encode()) % share == 0


class Server:
    """One port; below it, coordinators that come and go."""

    def __init__(self):
        self._apps = {}
        self._numbers = count(1)
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        config = uvicorn.Config(
            self._answer, interface="asgi3", log_config=None, lifespan="off", ws="none", proxy_headers=False
        )
        self._server = uvicorn.Server(config)
        self._loop = None
        self._begun = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(),), name="served", daemon=True)
        self._thread.start()
        self._begun.wait()

    def close(self):
        """End it, so that no thread of it is about while other tests run."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    async def _serve(self):
        self._loop = asyncio.get_running_loop()
        self._begun.set()
        await self._server.serve(sockets=[self._socket])

    async def _answer(self, scope, receive, send):
        _, number, path = scope["path"].split("/", 2)
        # What breaks a handler was answered; raised further it would cut the connection, and nobody resends here.
        with suppress(Exception):
            await self._apps[number]({**scope, "path": f"/{path}", "raw_path": f"/{path}".encode()}, receive, send)

    # --- for checks, in their thread ----------------------------------------------------------------------------------

    def place(self):
        """Give the number and the URL of a place where coordinators can be put, one at a time."""
        number = str(next(self._numbers))
        return number, f"http://127.0.0.1:{self._socket.getsockname()[1]}/{number}"

    def put(self, number, engine):
        """Serve an engine there, and give how it is ended."""
        self._apps[number] = app = application(engine, Door(is_local=True), keeps=False)
        life = AsyncExitStack()
        self._do(life.enter_async_context(app.router.lifespan_context(app)))

        def end():
            # The store goes first, as if the machine had: whoever listens to it is not waited for.
            self._loop.call_soon_threadsafe(app.state.coordinator.bell.close)
            engine.close()
            self._do(life.aclose())
            del self._apps[number]

        return app.state.coordinator, end

    def _do(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


#: The server of this process, while there is one.
_servers = []


def server():
    """Give the server of this process."""
    if not _servers:
        _servers.append(Server())
    return _servers[0]


def end_server():
    """End it, if there is one."""
    while _servers:
        _servers.pop().close()


class Client(HttpStore):
    """A client, beside whom the authority itself can speak: what nobody else may send is sent by it."""

    authority = None
    #: Whether its commands get ids by which a repetition is known, as they do elsewhere.
    names = True
    #: Whether all that it sends arrives a second time, as if the answer had been lost.
    repeats = False

    def decide(self, commands, **more):
        if any(_is_its_own(one) for one in commands):
            try:
                return self.authority().submit_many(commands)
            except Broken as broken:
                raise StoreFailed("the coordinator broke.") from broken
        return super().decide(commands, **more)

    def _decide(self, commands, **more):
        outcomes = super()._decide(commands, **more)
        if not self.repeats:
            return outcomes
        # What asks for work and found none may find some now; everything else has been done.
        again = super()._decide(commands, **more)
        return [later if isinstance(first, TAKING) else first for first, later in zip(outcomes, again, strict=True)]

    def _named(self, command):
        return super()._named(command) if self.names else command


def _is_its_own(command):
    """Tell whether only the authority sends this: what time asks for, and what names an opening of the store."""
    return not may_send(LOCAL, command) or getattr(command, "session_id", None) is not None


class Served(Harness):
    """A coordinator under test, and its clients."""

    breaks = StoreError

    def __init__(self, opener, path, clock):
        self._number, self._url = server().place()
        self._serve(opener, path, clock)
        super().__init__(opener, path, clock)

    def _serve(self, opener, path, clock):
        self._engine = Engine(opener(path), clock=clock)
        self._coordinator, self._end = server().put(self._number, self._engine)

    @property
    def authority(self):
        return self._engine

    def open(self):
        store = Client.open(self._url, clock=self.clock, patience_s=0)
        once = store._channel._once
        store._channel._once = lambda request, answer_s: once(request, max(answer_s, LOADED_S))
        store.authority = lambda: self._engine
        store.names = not has(counts_writes)
        store.repeats = store.names and not has(sends_once) and is_drawn(REPEATED)
        opened = Engine(store)
        self._opened.append(opened)
        return opened

    def neighbour(self):
        if not self._engine.store.promises.many_processes:
            pytest.skip(f"{self._engine.store.promises.name}: promises one process only")
        opened = Engine(self._opener(self._path), clock=self.clock)
        self._opened.append(opened)
        return opened

    def reopen(self):
        self._end()
        self._serve(self._opener, self._path, self.clock)
        return self.engine

    restart = reopen

    def in_line(self):
        # Threads of one client share requests: those behind the first one wait here, others at the coordinator.
        return max(0, len(self.store._others._line) - 1) + len(self._coordinator._gathering._waiting)

    def close(self):
        super().close()
        self._end()

    def dump(self):
        """Read it where it lies; `demand_sound` sees to it, in some checks, that clients are shown the same."""
        return dump_of(self._engine.store)

    def demand_sound(self):
        super().demand_sound()
        if is_drawn(READ_AGAIN):
            self._demand_alike()

    def _demand_alike(self):
        """Demand that a client is shown what the coordinator has."""
        with self._engine.read() as view:  # to its end: whoever reads may keep others out
            tables = {kind: [_shown(one) for one in view.all(kind)] for kind in TABLES.values()}
            seq = view.seq
        with self.engine.read() as view:
            assert view.seq == seq
            assert all(list(view.all(kind)) == records for kind, records in tables.items() if records)
        with suppress(InvalidValue):  # what was trimmed away cannot be compared
            feed = told(self._engine.store)
            assert [one[:2] for one in told(self.store)] == [one[:2] for one in feed]


def _shown(record):
    return msgspec.structs.replace(record, secrets=()) if isinstance(record, Webhook) else record
