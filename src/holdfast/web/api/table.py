"""All endpoints there are, in one table, with the one that describes the table itself."""

from __future__ import annotations

from functools import cache
from typing import Any

from starlette.responses import Response

from holdfast.web.api import (
    decisions,
    explaining,
    flowtalk,
    groups,
    joblooks,
    jobs,
    protocol,
    queues,
    reservations,
    rewinding,
    runs,
    schedules,
    status,
    templates,
    webhooks,
    workflows,
)
from holdfast.web.api.endpoints import Ask, Endpoint
from holdfast.web.api.openapi import document, written
from holdfast.web.api.paging import NoNamespace


async def openapi(_ask: Ask[NoNamespace, None]) -> Response:
    """Give the description of the API."""
    return Response(_written(), media_type="application/json")


@cache
def _written() -> bytes:
    return written(document(TABLE))


TABLE: tuple[Endpoint, ...] = (
    *jobs.ENDPOINTS,
    *joblooks.ENDPOINTS,
    *runs.ENDPOINTS,
    *queues.ENDPOINTS,
    *templates.ENDPOINTS,
    *schedules.ENDPOINTS,
    *groups.ENDPOINTS,
    *reservations.ENDPOINTS,
    *webhooks.ENDPOINTS,
    *workflows.ENDPOINTS,
    *flowtalk.ENDPOINTS,
    *rewinding.ENDPOINTS,
    *decisions.ENDPOINTS,
    *explaining.ENDPOINTS,
    *status.ENDPOINTS,
    *protocol.ENDPOINTS,
    Endpoint(
        method="GET",
        path="/openapi.json",
        summary="Give this description.",
        handler=openapi,
        query=NoNamespace,
        answers={200: dict[str, Any]},
        roles="any",
    ),
)
