"""What there is, as data: paths, methods, handlers. And the application they make."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route, Router

from holdfast.engine.engine import Engine
from holdfast.errors import HoldfastError
from holdfast.model.retention import Retention
from holdfast.stores.http.wire import ROOT
from holdfast.web.api.router import PUBLIC
from holdfast.web.coordinator.coordinator import Coordinator, coordinator_of
from holdfast.web.fallback_routes import get_root, on_nothing, on_other_method
from holdfast.web.metrics import get_metrics
from holdfast.web.middleware.auth import Door, Guard
from holdfast.web.middleware.compression import Packing
from holdfast.web.middleware.exact_routes import Exact, table_of
from holdfast.web.middleware.security_headers import Headed
from holdfast.web.middleware.timeouts import Pace
from holdfast.web.problems import on_error, on_gone, on_stumble
from holdfast.web.remote_store.blobs import get_blob, put_blob
from holdfast.web.remote_store.commands import post_commands, post_lease
from holdfast.web.remote_store.feed import get_feed
from holdfast.web.remote_store.lookups import get_changes, get_facing, post_look
from holdfast.web.remote_store.workers import (
    delete_worker,
    get_lines,
    get_workers,
    post_heartbeat,
    post_lines,
    post_wish,
)


async def healthz(_request: Request) -> Response:
    """Say that the process lives."""
    return PlainTextResponse("ok\n")


async def readyz(request: Request) -> Response:
    """Say whether commands are taken."""
    how = await coordinator_of(request).takes()
    return PlainTextResponse(f"{how}\n", 200 if how == "ready" else 503)


API = [
    Route("/commands", post_commands, methods=["POST"]),
    Route("/lease", post_lease, methods=["POST"]),
    Route("/look", post_look, methods=["POST"]),
    Route("/changes", get_changes, methods=["GET"]),
    Route("/facing", get_facing, methods=["GET"]),
    Route("/feed", get_feed, methods=["GET"]),
    Route("/blobs/{sha256}", put_blob, methods=["PUT"]),
    Route("/blobs/{sha256}", get_blob, methods=["GET", "HEAD"]),
    Route("/lines", post_lines, methods=["POST"]),
    Route("/lines", get_lines, methods=["GET"]),
    Route("/workers", get_workers, methods=["GET"]),
    Route("/workers/{worker:path}/heartbeat", post_heartbeat, methods=["POST"]),
    Route("/workers/{worker:path}/quiet", post_wish, methods=["POST"], name="quiet"),
    Route("/workers/{worker:path}/stop", post_wish, methods=["POST"], name="stop"),
    Route("/workers/{worker:path}", delete_worker, methods=["DELETE"]),
    PUBLIC,
]


def application(
    engine: Engine,
    door: Door,
    failed: Callable[[], None] = lambda: None,
    *,
    keeps: bool = True,
    webhook_allow: Sequence[str] = (),
    retention: Retention | None = None,
) -> Starlette:
    """Make the application of a coordinator on an engine that has recovered."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.coordinator = coordinator = Coordinator(
            engine, failed, keeps=keeps, webhook_allow=webhook_allow, retention=retention, limits=door.limits
        )
        await coordinator.start()
        try:
            yield
        finally:
            await coordinator.close()

    app = Starlette(
        routes=[
            Mount(ROOT, app=Router(API, redirect_slashes=False)),
            Route("/", get_root),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", get_metrics),
        ],
        middleware=[
            Middleware(Headed, now=lambda: engine.look().now),
            Middleware(Pace, limits=door.limits),
            Middleware(Guard, door=door),
            Middleware(Packing),
            Middleware(Exact, table=table_of(ROOT, API)),
        ],
        exception_handlers={
            HoldfastError: on_error,
            ClientDisconnect: on_gone,
            HTTPStatus.NOT_FOUND: on_nothing,
            HTTPStatus.METHOD_NOT_ALLOWED: on_other_method,
            Exception: on_stumble,
        },
        lifespan=lifespan,
    )
    # It would send people to whatever Host they named.
    app.router.redirect_slashes = False
    return app
