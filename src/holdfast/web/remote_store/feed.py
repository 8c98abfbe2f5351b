"""The feed: every event in order, as a stream that resumes where it was cut, or in pages for `http:` stores.

A piece is the most that is held in memory for a stream, however slowly it is read: the next is made when it has been
sent. What was pruned is said by the status 410, and a stream that falls behind it ends; whoever resumes is told then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from holdfast.errors import Forbidden, InvalidValue
from holdfast.failpoints import reach
from holdfast.rules.access.roles import may_read_all, what_it_takes
from holdfast.web.bodies import answer, asks, whole
from holdfast.web.coordinator.coordinator import Coordinator, coordinator_of
from holdfast.web.middleware.auth import access_of
from holdfast.web.problems import response_to
from holdfast.web.remote_store.feed_pages import Piece

#: Seconds after which a silent stream says that it lives.
ALIVE_S = 15.0
STREAM = "text/event-stream"
#: Digits that the number of an event may have.
DIGITS = 18


@asks("after")
async def get_feed(request: Request) -> Response:
    """Give the events above `after`, or above the last one a stream had."""
    access = access_of(request)
    if not may_read_all(access):
        raise Forbidden(f"{access.name} may not read the feed.", hint=what_it_takes(access, None))
    after, coordinator = _after(request), coordinator_of(request)
    pages = coordinator.pages
    # The first of it is read before anything is answered: what was pruned is said by a status.
    try:
        if "application/json" in request.headers.get("accept", ""):
            return answer(await coordinator.in_thread(lambda: pages.whole(after)))
        piece = await coordinator.in_thread(lambda: pages.first(after))
    except InvalidValue as pruned:
        return response_to(pruned, HTTPStatus.GONE)
    if request.method == "HEAD":  # an answer without a body has nothing to wait for
        return Response(media_type=STREAM, headers={"Cache-Control": "no-store"})
    return StreamingResponse(_stream(coordinator, piece), media_type=STREAM, headers={"Cache-Control": "no-store"})


def _after(request: Request) -> int:
    last = request.headers.get("last-event-id")
    if last is None:
        return whole(request, "after", 0, 2**62)
    # No event has a number of more digits; a store could not even look for it.
    if not last.isdecimal() or len(last) > DIGITS:
        raise InvalidValue(f"Last-Event-ID: {last!r:.40} is no number.", field="Last-Event-ID")
    return int(last)


async def _stream(coordinator: Coordinator, piece: Piece) -> AsyncIterator[bytes]:
    bell, pages = coordinator.bell, coordinator.pages
    while not bell.is_closed:
        if piece.text:
            yield piece.text
        piece = piece.told()
        reach("feed.told")
        while not piece.more and await bell.wait(piece.last, ALIVE_S) <= piece.last:
            if bell.is_closed:
                return
            yield b": still here\n\n"
        # Not before the last piece was taken: whoever does not read holds that one, and his place. Somebody else's turn
        # comes in between, and be it who tells that this one has gone.
        await asyncio.sleep(0)
        known = pages.known(piece.last)
        try:
            piece = await coordinator.in_thread(partial(pages.next, piece.last)) if known is None else known
        except InvalidValue:  # pruned meanwhile
            return
