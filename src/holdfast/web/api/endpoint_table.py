"""All endpoints there are, in one table, with the one that describes the table itself."""

from __future__ import annotations

from functools import cache
from typing import Any

from starlette.responses import Response

from holdfast.web.api import (
    decisions,
    groups,
    job_queries,
    jobs,
    queues,
    reservations,
    runs,
    schedules,
    status,
    templates,
    webhooks,
    worker_endpoints,
    workflow_commands,
    workflow_rewind,
    workflows,
)
from holdfast.web.api import explain as explaining
from holdfast.web.api.endpoint import Ask, Endpoint
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
    *job_queries.ENDPOINTS,
    *runs.ENDPOINTS,
    *queues.ENDPOINTS,
    *templates.ENDPOINTS,
    *schedules.ENDPOINTS,
    *groups.ENDPOINTS,
    *reservations.ENDPOINTS,
    *webhooks.ENDPOINTS,
    *workflows.ENDPOINTS,
    *workflow_commands.ENDPOINTS,
    *workflow_rewind.ENDPOINTS,
    *decisions.ENDPOINTS,
    *explaining.ENDPOINTS,
    *status.ENDPOINTS,
    *worker_endpoints.ENDPOINTS,
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
