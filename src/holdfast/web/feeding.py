"""The feed: every event in order, as a stream that resumes where it was cut, or in pages for `http:` stores.

A page is the most that is held in memory for a reader, however slow he is: the next is read when it has been sent. What
was pruned is said by the status 410, and a stream that falls behind it ends; whoever resumes is told then. Secrets of
webhooks are left out: they sign deliveries, which the coordinator sends itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from holdfast.errors import Forbidden, InvalidValue
from holdfast.points import reach
from holdfast.rules.access import may_read_all, what_it_takes
from holdfast.stores.http.wire import MOST_ENTRIES, FeedPage, encode
from holdfast.stores.protocol import Entry
from holdfast.web.bodies import answer, number
from holdfast.web.coordinator import Coordinator, coordinator_of
from holdfast.web.guard import access_of
from holdfast.web.problems import response_to

#: Bytes of a page, beyond its first entry.
PAGE_BYTES = 1 << 20
#: Seconds after which a silent stream says that it lives.
ALIVE_S = 15.0
STREAM = "text/event-stream"
#: Digits that the number of an event may have.
DIGITS = 18


async def get_feed(request: Request) -> Response:
    """Give the events above `after`, or above the last one a stream had."""
    access = access_of(request)
    if not may_read_all(access):
        raise Forbidden(f"{access.name} may not read the feed.", hint=what_it_takes(access, None))
    after, coordinator = _after(request), coordinator_of(request)
    # The first page is read before anything is answered: what was pruned is said by a status.
    try:
        page = await _page(coordinator, after)
    except InvalidValue as pruned:
        return response_to(pruned, HTTPStatus.GONE)
    if "application/json" in request.headers.get("accept", ""):
        return answer(page)
    if request.method == "HEAD":  # an answer without a body has nothing to wait for
        return Response(media_type=STREAM, headers={"Cache-Control": "no-store"})
    return StreamingResponse(
        _stream(coordinator, page, after), media_type=STREAM, headers={"Cache-Control": "no-store"}
    )


def _after(request: Request) -> int:
    last = request.headers.get("last-event-id")
    if last is None:
        return int(number(request, "after", 0, 2**62))
    # No event has a number of more digits; a store could not even look for it.
    if not last.isdecimal() or len(last) > DIGITS:
        raise InvalidValue(f"Last-Event-ID: {last!r:.40} is no number.", field="Last-Event-ID")
    return int(last)


async def _page(coordinator: Coordinator, after: int) -> FeedPage:
    def read() -> FeedPage:
        entries: list[Entry] = []
        size = 0
        for entry in coordinator.engine.store.feed(after):
            if len(entries) == MOST_ENTRIES or (entries and size >= PAGE_BYTES):
                return FeedPage(entries=entries, more=True)
            entries.append(_published(entry))
            size += len(bytes(entry.event))
        return FeedPage(entries=entries)

    return await coordinator.in_thread(read)


async def _stream(coordinator: Coordinator, page: FeedPage, after: int) -> AsyncIterator[bytes]:
    bell = coordinator.bell
    while not bell.is_closed:
        for entry in page.entries:
            after = entry.seq
            yield b"id: %d\ndata: %s\n\n" % (entry.seq, encode(entry))
        reach("feed.told")
        if not page.more and await bell.wait(after, ALIVE_S) <= after:
            if bell.is_closed:
                return
            yield b": still here\n\n"
        try:
            page = await _page(coordinator, after)
        except InvalidValue:  # pruned meanwhile
            return


def _published(entry: Entry) -> Entry:
    if b'"secrets"' not in bytes(entry.event):
        return entry
    event: dict[str, Any] = msgspec.json.decode(entry.event)
    if not str(event.get("type", "")).startswith("webhook:"):
        return entry
    for part in ("webhook", "changes"):
        if isinstance(event.get(part), dict):
            event[part].pop("secrets", None)
    return Entry(entry.seq, entry.ts, msgspec.Raw(encode(event)))
