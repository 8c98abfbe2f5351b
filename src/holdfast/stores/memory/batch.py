"""Tables that take events: folded in at once, undone until they are durable.

Their owner holds the store's lock for the whole batch, so nobody reads what is not durable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.model.events import Event
from holdfast.model.records import Key, Record
from holdfast.model.times import Timestamp
from holdfast.rules.fold import fold
from holdfast.rules.fold_changes import Stamp
from holdfast.stores.memory.tables import Tables

#: Takes the events of one command with their first number and their time.
Keep = Callable[[Sequence[Event], int, Timestamp], None]


class BatchTables(Tables):
    """Tables with at most one open batch, which remembers how to take itself back."""

    def __init__(self) -> None:
        super().__init__()
        self._undo: list[tuple[type[Record], Key, Record | None]] = []
        self._before = Stamp(self.seq, self.ts)
        self._keep: Keep | None = None

    def begin(self, keep: Keep) -> None:
        """Start a batch whose events go to `keep`."""
        self._undo.clear()
        self._before = Stamp(self.seq, self.ts)
        self._keep = keep

    def add(self, events: Sequence[Event], now: Timestamp) -> None:
        """Fold and keep the events of one command, all or none."""
        assert self._keep is not None
        mark, first, ts = len(self._undo), self.seq + 1, max(now, self.ts)
        try:
            for seq, event in enumerate(events, start=first):
                for kind, key, record in fold(self, event, Stamp(seq, ts)):
                    self._undo.append((kind, key, self.put(kind, key, record)))
            self._keep(events, first, ts)
        except BaseException:
            self._undo_to(mark)
            raise
        self.seq, self.ts = first + len(events) - 1, ts

    def replay(self, event: Event, stamp: Stamp) -> None:
        """Fold one durable event in, for good."""
        for kind, key, record in fold(self, event, stamp):
            self.put(kind, key, record)
        self.seq, self.ts = stamp

    def changed(self) -> dict[tuple[type[Record], Key], Record | None]:
        """Give what the batch has changed so far, each with what was there before it."""
        before: dict[tuple[type[Record], Key], Record | None] = {}
        for kind, key, record in self._undo:
            before.setdefault((kind, key), record)
        return before

    def undo(self) -> None:
        """Take the whole batch back, newest first."""
        self._undo_to(0)
        self.seq, self.ts = self._before

    def _undo_to(self, mark: int) -> None:
        while len(self._undo) > mark:
            kind, key, before = self._undo.pop()
            self.put(kind, key, before)
