"""How fast work moves: counted from the feed, each event once. Knows no screen and asks no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress

import msgspec

from holdfast.errors import InvalidValue
from holdfast.model.times import Timestamp, later, seconds_between
from holdfast.stores.protocol import Entry, Store

#: Seconds over which rates are taken, and over which lost leases are counted.
RATE_S = 10.0
LOST_S = 60.0
#: Events looked back at when the watch begins; a busier store is measured over the time they cover.
BACK = 10_000

_ENQUEUED, _COMPLETED, _FAILED, _LOST = "job:created", "job:completed", "job:failed", "lease:expired"
_COUNTED = frozenset({_ENQUEUED, _COMPLETED, _FAILED, _LOST})


class _Tag(msgspec.Struct):
    """As much of an event as is counted."""

    type: str
    #: Why a lease ended.
    reason: str = ""


class Recovery(msgspec.Struct, frozen=True):
    """What was taken back from processes that had ended without a word."""

    at: Timestamp
    leases: int


class Rates(msgspec.Struct, frozen=True):
    """What happened lately."""

    #: Per second.
    enqueued: float
    completed: float
    failed: float
    #: In the last minute.
    lost_leases: int


class Pulse:
    """Follows one store's feed."""

    def __init__(self) -> None:
        self._seq: int | None = None
        #: Time of the earliest event that was looked at.
        self._since: Timestamp | None = None
        self._seen: deque[tuple[Timestamp, str]] = deque()
        #: The last time leases of ended processes were taken back, as far as was looked back.
        self.recovery: Recovery | None = None

    def follow(self, store: Store, upto: int) -> None:
        """Count what came since the last call; at the first one, what came lately."""
        starts = [max(0, upto - back) for back in (BACK, BACK // 10, 0)] if self._seq is None else [self._seq, upto]
        self._seq = upto
        for after in starts:
            # Where events were trimmed away, less is looked back at; in the end rates begin with what comes next.
            with suppress(InvalidValue):
                # Read whole before any of it is counted: it may be trimmed while it is read.
                entries = [entry for entry in store.feed(after) if entry.seq <= upto]
                self._count(entries)
                return

    def _count(self, entries: Iterable[Entry]) -> None:
        decode = msgspec.json.Decoder(_Tag).decode
        for entry in entries:
            tag = decode(entry.event)
            self._since = self._since or entry.ts
            if tag.type in _COUNTED:
                self._seen.append((entry.ts, tag.type))
            if tag.type == _LOST and tag.reason in ("restart", "not_begun"):
                self._recovered(entry.ts)

    def _recovered(self, at: Timestamp) -> None:
        """Leases that ended within a second of each other are one recovery."""
        last = self.recovery
        is_same = last is not None and seconds_between(last.at, at) < 1
        self.recovery = Recovery(at, (last.leases if last is not None and is_same else 0) + 1)

    def rates(self, now: Timestamp) -> Rates:
        """Give the rates as of `now`, and forget what is too old to count."""
        oldest = later(now, -LOST_S)
        while self._seen and self._seen[0][0] <= oldest:
            self._seen.popleft()
        recent = later(now, -RATE_S)
        counted = dict.fromkeys(_COUNTED, 0)
        for at, kind in self._seen:
            if at > recent or kind == _LOST:
                counted[kind] += 1
        # Where the look back ends within the window, less time was watched than it is long.
        covered = RATE_S if self._since is None else min(RATE_S, max(1.0, seconds_between(self._since, now)))
        return Rates(
            counted[_ENQUEUED] / covered, counted[_COMPLETED] / covered, counted[_FAILED] / covered, counted[_LOST]
        )
