"""The life of a web server and of its jobs: the store opens before the first request and closes after the last.

Knows no web framework: an ASGI lifespan is an async context manager made from the application, whatever that is. Order
at the end: the worker is drained, then the store is closed. What blocks is done in threads; the loop stays free.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from holdfast.app.application import Holdfast
    from holdfast.workers.worker import Worker

log = logging.getLogger("holdfast.lifespan")

#: Seconds that handlers have to end when the server stops; servers are impatient themselves.
GRACE_S = 10.0


class Lifespan:
    """Called with a web application, gives the context in which the store is open."""

    def __init__(self, app: Holdfast) -> None:
        """Speak for one Holdfast; use `Holdfast.lifespan`."""
        self._app = app

    def __call__(self, server: object = None, /) -> AbstractAsyncContextManager[None]:
        """Give the context; `server` is what the framework passes, and is not looked at."""
        del server
        return _open(self._app)

    def working(
        self,
        queues: Sequence[str] | None = None,
        concurrency: int | None = None,
        *,
        name: str = "",
        grace: float = GRACE_S,
    ) -> Working:
        """Give a lifespan in which a worker runs too, in threads of this server process.

        Takes what `Holdfast.worker` takes. At the end handlers have `grace` seconds, then they are released.
        """
        return Working(self._app, grace, partial(self._app.worker, queues, concurrency, name=name))


class Working(Lifespan):
    """A lifespan with a worker."""

    def __init__(self, app: Holdfast, grace_s: float, hire: Callable[[], Worker]) -> None:
        super().__init__(app)
        self._grace_s = grace_s
        self._hire = hire

    def __call__(self, server: object = None, /) -> AbstractAsyncContextManager[None]:
        """Give the context in which the store is open and a worker runs."""
        del server
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[None]:
        async with _open(self._app):
            hired = _Hired(self._hire())
            try:
                yield
            finally:
                await asyncio.to_thread(hired.dismiss, self._grace_s)


@asynccontextmanager
async def _open(app: Holdfast) -> AsyncIterator[None]:
    await asyncio.to_thread(app.open)
    try:
        yield
    finally:
        await asyncio.to_thread(app.close)


class _Hired:
    """A worker beside the server; its failure is told when it happens, not when the server stops."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name="holdfast-worker", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            self._worker.run()
        except BaseException as error:
            self._error = error
            log.exception("worker.failed", extra={"worker": self._worker.worker_id})

    def dismiss(self, grace_s: float) -> None:
        """Let it end. Raises what it ended with."""
        self._worker.drain(grace_s)
        self._thread.join()
        if self._error is not None:
            raise self._error
