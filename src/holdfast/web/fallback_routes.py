"""What is said at `/`, at paths that nobody has, and by methods that a path does not know: where to go on.

Behind the same door as everything else.
"""

from __future__ import annotations

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import NotFound
from holdfast.stores.http.wire import ROOT
from holdfast.version import __version__
from holdfast.web.bodies import answer
from holdfast.web.problems import not_by, response_to


class Signpost(msgspec.Struct, frozen=True, kw_only=True):
    """What answers here, and where."""

    name: str = "holdfast"
    version: str = __version__
    #: Below it is the API; this describes it.
    api: str = ROOT
    description: str = f"{ROOT}/openapi.json"
    status: str = f"{ROOT}/status"
    health: str = "/healthz"
    ready: str = "/readyz"
    metrics: str = "/metrics"


async def get_root(_request: Request) -> Response:
    """Say what answers here, and where."""
    return answer(Signpost())


async def on_nothing(request: Request, _error: Exception) -> Response:
    """Say that there is nothing at a path."""
    return response_to(NotFound(f"there is nothing at {request.url.path!r:.200}.", hint="See / for what there is."))


async def on_other_method(request: Request, error: Exception) -> Response:
    """Say by which methods a path is asked."""
    assert isinstance(error, HTTPException)
    methods = (error.headers or {})["Allow"].split(", ")  # in no order
    return not_by(request.method, ", ".join(sorted(methods)))
