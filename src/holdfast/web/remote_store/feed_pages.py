"""Pages of the feed, read once for all who stream it, and the pieces in which they are told.

A stream keeps its place and nothing else. The page it is on is shared, and only a few pages are kept: so a thousand
streams that nobody reads cost next to nothing, and a thousand that wait for the same event read it once. Secrets of
webhooks are left out of every page: they sign deliveries, which the coordinator sends itself.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

from holdfast.engine.views.feed import published
from holdfast.stores.http.wire import MOST_ENTRIES, FeedPage, encode
from holdfast.stores.protocol import Entry

#: Bytes of a page that is asked for, of one that streams share, and of a piece, beyond the first entry of each.
PAGE_BYTES, SHARED_BYTES, PIECE_BYTES = 1 << 20, 256 << 10, 4 << 10
#: Pages that are kept for streams.
KEPT = 8


class Piece(NamedTuple):
    """What a stream says next."""

    text: bytes
    #: Number of its last event; of the one before it, if there is none.
    last: int
    #: There was another one behind it.
    more: bool

    def told(self) -> Piece:
        """Give what is left of it once it was sent: a place."""
        return self._replace(text=b"")


class _Kept(NamedTuple):
    """A page, and the numbers of its events."""

    after: int
    seqs: list[int]
    page: FeedPage

    def has(self, after: int) -> bool:
        """Tell whether it says what comes after an event."""
        return self.after <= after < self.seqs[-1]

    def piece(self, after: int) -> Piece:
        """Give what it says first after an event."""
        return _piece(self.page, bisect_right(self.seqs, after), after)


class Pages:
    """The feed of one store, in pages. For any thread; blocks where it does not say otherwise."""

    def __init__(self, feed: Callable[[int], Iterator[Entry]]) -> None:
        """Read by `feed`, which walks the events above a number."""
        self._feed = feed
        self._lock = threading.Lock()
        #: Those that were used last are last.
        self._kept: list[_Kept] = []

    def whole(self, after: int) -> FeedPage:
        """Give a page for who asks for one. Raises InvalidValue if the store no longer has it."""
        return self._read(after, PAGE_BYTES)

    def _read(self, after: int, most: int) -> FeedPage:
        entries: list[Entry] = []
        size = 0
        for entry in self._feed(after):
            if len(entries) == MOST_ENTRIES or (entries and size >= most):
                return FeedPage(entries=entries, more=True)
            entries.append(published(entry))
            size += len(bytes(entry.event))
        return FeedPage(entries=entries)

    def first(self, after: int) -> Piece:
        """Give the piece a stream begins with, from the store, whatever is kept. Raises as `whole` does."""
        return _piece(self._read(after, PIECE_BYTES), 0, after)

    def known(self, after: int) -> Piece | None:
        """Give the piece with which a stream goes on, if its page is kept. Does not block."""
        with self._lock:
            found = next((one for one in reversed(self._kept) if one.has(after)), None)
            if found is not None:
                self._keep(found)
        return None if found is None else found.piece(after)

    def next(self, after: int) -> Piece:
        """Give the piece with which a stream goes on."""
        page = self._read(after, SHARED_BYTES)
        if not page.entries:
            return Piece(b"", after, more=False)
        found = _Kept(after, [entry.seq for entry in page.entries], page)
        with self._lock:
            self._keep(found)
        return found.piece(after)

    def _keep(self, page: _Kept) -> None:
        """Keep a page as the one that was used last. The lock is held."""
        others = [one for one in self._kept if one.after != page.after]
        self._kept = [*others[-(KEPT - 1) :], page]


def _piece(page: FeedPage, at: int, after: int) -> Piece:
    """Put entries from the one at `at` on into words."""
    parts: list[bytes] = []
    size = 0
    while at < len(page.entries) and size < PIECE_BYTES:
        entry = page.entries[at]
        after = entry.seq
        parts.append(b"id: %d\ndata: %s\n\n" % (after, encode(entry)))
        size += len(parts[-1])
        at += 1
    return Piece(b"".join(parts), after, more=page.more or at < len(page.entries))
