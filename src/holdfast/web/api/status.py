"""`/status`: the store on one page."""

from __future__ import annotations

from starlette.responses import Response

from holdfast.engine.views.status import StoreStatus, store_status
from holdfast.rules.access.roles import may_read_all
from holdfast.web.api.endpoint import Ask, Endpoint, told
from holdfast.web.api.paging import NoNamespace


async def get(ask: Ask[NoNamespace, None]) -> Response:
    """Give how the store and its authority stand."""
    if not may_read_all(ask.access):
        raise ask.forbidden()
    engine, recovered = ask.engine, ask.coordinator.recovered
    return told(await ask.look(lambda view: store_status(view, engine.store, ask.now, recovered, engine.time.steps)))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/status",
        summary="Tell whether work is dispatched, how much there is, what recovery did, and how durable an answer is.",
        handler=get,
        query=NoNamespace,
        answers={200: StoreStatus},
    ),
)
