"""Blobs: content too large for a record, by its hash. Verified on arrival."""

from __future__ import annotations

import hashlib
import re

from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import Forbidden, InvalidValue, NotFound
from holdfast.rules.access import may_keep_content
from holdfast.web.bodies import pieces_of
from holdfast.web.coordinator import coordinator_of
from holdfast.web.guard import access_of, limits_for

_DIGEST = re.compile(r"[0-9a-f]{64}")


async def put_blob(request: Request) -> Response:
    """Keep content under the hash it has."""
    digest = _digest(request)
    content = b"".join([piece async for piece in pieces_of(request, limits_for(request).blob)])
    if hashlib.sha256(content).hexdigest() != digest:
        raise InvalidValue(f"the content is not that of {digest}. Nothing was kept.", field="sha256")
    coordinator = coordinator_of(request)
    await coordinator.in_thread(lambda: coordinator.engine.store.blobs.put(content))
    return Response(status_code=204)


async def get_blob(request: Request) -> Response:
    """Give content, or to HEAD only whether it is there."""
    digest, coordinator = _digest(request), coordinator_of(request)
    blobs = coordinator.engine.store.blobs
    if not await coordinator.in_thread(lambda: blobs.has(digest)):
        raise NotFound(f"there is no blob {digest}.", digest=digest)
    if request.method == "HEAD":
        return Response(status_code=200)
    content = await coordinator.in_thread(lambda: blobs.get(digest))
    return Response(content, media_type="application/octet-stream", headers={"X-Content-Type-Options": "nosniff"})


def _digest(request: Request) -> str:
    access, digest = access_of(request), request.path_params["sha256"]
    if not may_keep_content(access):
        raise Forbidden(f"{access.name} has no role for that. Nothing was done.")
    if not _DIGEST.fullmatch(digest):
        raise InvalidValue("a blob is named by 64 hex digits.", field="sha256")
    return str(digest)
