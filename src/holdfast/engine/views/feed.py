"""The feed as people and programs read it: the events of a store, without the secrets of webhooks.

A store keeps the secrets in its events, because its state is made of them. Whoever shows or sends events reads them
here: the application's feed, the command line and the coordinator.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.stores.protocol import Entry, Store

#: Parts of a webhook's events that can have secrets, and the field that has them.
_PARTS, _FIELD = ("webhook", "changes"), "secrets"
_MARK = f'"{_FIELD}"'.encode()


def published_feed(store: Store, after: int) -> Iterator[Entry]:
    """Walk the events above `after`, without secrets. Raises InvalidValue if the store no longer has them."""
    return map(published, store.feed(after))


def published(entry: Entry) -> Entry:
    """Return an entry without the secrets of webhooks."""
    if _MARK not in bytes(entry.event):
        return entry
    event: dict[str, Any] = msgspec.json.decode(entry.event)
    if not str(event.get("type", "")).startswith("webhook:"):
        return entry
    for part in _PARTS:
        if isinstance(event.get(part), dict):
            event[part].pop(_FIELD, None)
    return Entry(entry.seq, entry.ts, msgspec.Raw(msgspec.json.encode(event)))
