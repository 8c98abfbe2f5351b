"""Whoever sends most of many bodies and the rest of none does not have all of them kept."""

from __future__ import annotations

import asyncio

from holdfast.engine.engine import Engine
from holdfast.stores.memory.store import MemoryStore
from holdfast.web.middleware.auth import Door
from holdfast.web.middleware.rate_limits import SMALL
from holdfast.web.routes import application
from holdfast.web.server.limits import Limits

LIMITS = Limits(body=4 * SMALL, bodies=4 * SMALL)


class Asking:
    """One request, whose body arrives as it is told to."""

    def __init__(self, app):
        self._app = app
        self._pieces = asyncio.Queue()
        self.status = None

    async def run(self):
        scope = {
            "type": "http", "http_version": "1.1", "method": "POST", "path": "/api/v1/commands", "query_string": b"",
            "raw_path": b"/api/v1/commands", "root_path": "", "scheme": "http", "client": ("127.0.0.1", 1),
            "headers": [(b"host", b"localhost"), (b"transfer-encoding", b"chunked")],
        }  # fmt: skip
        await self._app(scope, self._pieces.get, self.send)

    async def send(self, message):
        self.status = message.get("status", self.status)

    def arrives(self, body, *, more=True):
        self._pieces.put_nowait({"type": "http.request", "body": body, "more_body": more})

    def leaves(self):
        self._pieces.put_nowait({"type": "http.disconnect"})

    async def has_been_heard(self):
        while not self._pieces.empty():  # noqa: ASYNC110 - turn by turn of the loop
            await asyncio.sleep(0)
        await asyncio.sleep(0)


def test_half_sent_bodies_hold_so_much_and_no_more():
    async def ask():
        app = application(Engine(MemoryStore()), Door(is_local=True, limits=LIMITS))
        async with app.router.lifespan_context(app), asyncio.TaskGroup() as group:
            half, large, small, last = (Asking(app) for _ in range(4))
            begun = group.create_task(half.run())
            half.arrives(b" " * 3 * SMALL)
            await half.has_been_heard()
            large.arrives(b" " * 2 * SMALL)
            await large.run()
            small.arrives(b'{"commands": []}', more=False)
            await small.run()
            half.leaves()
            await begun
            last.arrives(b" " * 2 * SMALL)
            last.arrives(b'{"commands": []}', more=False)
            await last.run()
            return large.status, small.status, last.status

    assert asyncio.run(ask()) == (503, 200, 200)
