"""Blobs: content too large for a record, by its hash. Taken and given in pieces, verified on the way.

Where the store keeps files, a blob is never in memory whole. Elsewhere it waits in a file without a name until all of
it is there, and one at a time is put.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from holdfast.errors import BlobMissing, Forbidden, InvalidValue
from holdfast.rules.access.roles import may_fetch_content, may_keep_content
from holdfast.stores.sidecar.protocol import BlobDraft, Blobs, Streaming
from holdfast.web.bodies import asks, pieces_of
from holdfast.web.coordinator.coordinator import Coordinator, coordinator_of
from holdfast.web.middleware.auth import access_of, limits_for
from holdfast.web.problems import response_to

_BYTES = "application/octet-stream"

_DIGEST = re.compile(r"[0-9a-f]{64}")
#: Bytes that are gathered before a thread is asked to keep them, and of which content that is whole leaves at a time.
PIECE = 1 << 20


@asks()
async def put_blob(request: Request) -> Response:
    """Keep content under the hash it has."""
    digest, coordinator = _digest(request), coordinator_of(request)
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in {"", "identity"}:
        # Kept as it came, it would be other content than its sender means, and found under a hash that is not its own.
        why = InvalidValue(
            f"Content-Encoding: a blob is taken as it is, not as {encoding!r:.40}. Nothing was kept.",
            hint="Send it unpacked.",
            field="Content-Encoding",
        )
        return response_to(why, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    draft: BlobDraft | None = None
    try:
        async for part in _parts(pieces_of(request, limits_for(request).blob)):
            if draft is None:  # not before its size was found to be right
                draft = await coordinator.in_thread(lambda: _draft(coordinator.engine.store.blobs, digest))
            await _write(coordinator, draft, part)
        assert draft is not None
        await coordinator.in_thread(draft.keep)
    finally:
        if draft is not None:
            draft.drop()
    return Response(status_code=204)


@asks()
async def get_blob(request: Request) -> Response:
    """Give content, or to HEAD only whether it is there."""
    digest, coordinator = _digest(request), coordinator_of(request)
    blobs = coordinator.engine.store.blobs
    if not await coordinator.in_thread(lambda: blobs.has(digest)):
        raise BlobMissing(f"there is no blob {digest}.", digest=digest)
    if isinstance(blobs, Streaming):
        size, pieces = await coordinator.in_thread(lambda: blobs.size(digest)), blobs.pieces(digest)
    elif request.method == "HEAD":
        return _unmeasured()  # its size is known only to who reads it whole, and many ask whether it is there
    else:
        content = await coordinator.in_thread(lambda: blobs.get(digest))
        # In pieces, too: whoever fetches slowly has the time of each, not one for all.
        size, pieces = len(content), (content[at : at + PIECE] for at in range(0, len(content), PIECE))
    headers = {"Content-Length": str(size)}
    if request.method == "HEAD":
        return Response(headers=headers, media_type=_BYTES)
    return StreamingResponse(_sent(coordinator, pieces), headers=headers, media_type=_BYTES)


def _unmeasured() -> Response:
    """Answer a HEAD without saying a length."""
    answer = Response(media_type=_BYTES)
    del answer.headers["Content-Length"]
    return answer


async def _sent(coordinator: Coordinator, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    while (piece := await coordinator.in_thread(lambda: next(pieces, None))) is not None:
        yield piece


async def _parts(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Join pieces to larger ones; there is at least one, be it empty."""
    part = bytearray()
    async for piece in pieces:
        part += piece
        if len(part) >= PIECE:
            yield bytes(part)
            part.clear()
    yield bytes(part)


async def _write(coordinator: Coordinator, draft: BlobDraft, piece: bytes) -> None:
    await coordinator.in_thread(lambda: draft.write(piece))


def _draft(blobs: Blobs, digest: str) -> BlobDraft:
    return blobs.draft(digest) if isinstance(blobs, Streaming) else _Gathered(blobs, digest)


class _Gathered:
    """Content for a store that takes it whole."""

    #: Held by the one whose content is in memory.
    _whole = threading.Lock()

    def __init__(self, blobs: Blobs, digest: str) -> None:
        self._blobs = blobs
        self._digest = digest
        self._hash = hashlib.sha256()
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `drop`

    def write(self, piece: bytes) -> None:
        """Add a piece."""
        self._hash.update(piece)
        self._file.write(piece)

    def keep(self) -> None:
        """Put it, if it is what was announced."""
        if self._hash.hexdigest() != self._digest:
            raise InvalidValue(f"the content is not that of {self._digest}. Nothing was kept.", field="sha256")
        with self._whole:
            self._file.seek(0)
            self._blobs.put(self._file.read())

    def drop(self) -> None:
        """Forget the file."""
        self._file.close()


def _digest(request: Request) -> str:
    access, digest = access_of(request), request.path_params["sha256"]
    if not (may_keep_content if request.method == "PUT" else may_fetch_content)(access):
        raise Forbidden(f"{access.name} has no role for that. Nothing was done.")
    if not _DIGEST.fullmatch(digest):
        raise InvalidValue("a blob is named by 64 hex digits.", field="sha256")
    return str(digest)
