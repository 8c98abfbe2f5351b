"""The feed of a store for applications: every event once, in order, from any position on.

Whoever keeps the number of the last event he has dealt with resumes there, whatever happened to him meanwhile. A
coordinator that is away while it is followed is waited for: nothing is skipped, and nothing comes twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from holdfast.engine.engine import Engine
from holdfast.engine.views.feed import published_feed
from holdfast.errors import InvalidValue, StoreBusy
from holdfast.model.times import moment
from holdfast.stores.protocol import Entry

#: Seconds that one wait for the next event lasts; somebody who closes the store meanwhile is noticed then.
PAUSE_S = 15.0


class FeedEvent(NamedTuple):
    """Something that happened in a store."""

    #: Its place in the feed. Rises; `after=` takes it.
    seq: int
    #: UTC.
    at: datetime
    #: Its name, such as `job:completed`.
    type: str
    #: What it says, by name.
    facts: dict[str, Any]


def feed(engine: Engine, after: int, *, follow: bool) -> Iterator[FeedEvent]:
    """Walk the events above `after`; to the last one there is, or on and on."""
    if type(after) is not int or after < 0:
        message = f"after: {after!r:.40} is not the number of an event. Nothing was read."
        raise InvalidValue(message, hint="0 is before the first one.", field="after")
    return _walk(engine, after, follow=follow)


def _walk(engine: Engine, after: int, *, follow: bool) -> Iterator[FeedEvent]:
    while True:
        try:
            for entry in published_feed(engine.store, after):
                # First: whoever leaves here and comes back must not get it again.
                after = entry.seq
                yield _told(entry)
            if not follow:
                return
            engine.store.wait(after, PAUSE_S)
        except StoreBusy:
            if not follow:
                raise


def _told(entry: Entry) -> FeedEvent:
    facts: dict[str, Any] = msgspec.json.decode(entry.event)
    return FeedEvent(entry.seq, moment(entry.ts), str(facts.pop("type")), facts)
