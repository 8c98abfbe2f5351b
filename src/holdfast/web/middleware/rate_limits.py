"""How much may be asked at once: requests a second and long polls of each access token, bytes of bodies of all.

Kept in memory: a coordinator that starts again begins anew. Whoever needs no access token counts among all long polls
only: it is this machine's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from holdfast.clock import Clock
from holdfast.errors import StoreBusy, TooManyRequests
from holdfast.model.access import LOCAL, Access
from holdfast.web.server.limits import Limits

#: Bytes that every body may have, however many others are arriving: reports and heartbeats are smaller.
SMALL = 64 << 10


class _Bucket(NamedTuple):
    """Requests somebody may still send, and when that was so."""

    left: float
    at: float


class Quotas:
    """Counts. Belongs to one event loop."""

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        #: By the hash of the access token: one of the same name, made anew, begins anew.
        self._buckets: dict[str, _Bucket] = {}
        self._polls: Counter[str] = Counter()
        #: Long polls that are open.
        self.polling = 0
        #: Bytes of bodies that are arriving.
        self.arriving = 0

    def take(self, access: Access) -> None:
        """Count one request. Raises TooManyRequests."""
        if access is LOCAL:
            return
        rate, now = self._limits.rate, self._clock.monotonic()
        most = max(1.0, rate)
        before = self._buckets.get(access.digest, _Bucket(most, now))
        left = min(most, before.left + rate * (now - before.at))
        if left < 1:
            self._buckets[access.digest] = _Bucket(left, now)
            raise TooManyRequests(
                f"{access.name} has sent more than {rate:g} requests a second. This one was not looked at.",
                hint="Put several commands into one request, or wait.",
            )
        self._buckets[access.digest] = _Bucket(left - 1, now)

    @contextmanager
    def poll(self, access: Access) -> Iterator[None]:
        """Hold a place among those who wait. Raises TooManyRequests if there is none."""
        if self.polling >= self._limits.long_polls:
            raise TooManyRequests(f"{self._limits.long_polls:,} requests wait already. Nothing was done.")
        if access is not LOCAL and self._polls[access.digest] >= self._limits.long_polls_each:
            raise TooManyRequests(
                f"{self._limits.long_polls_each:,} requests of {access.name} wait already. Nothing was done.",
                hint="Give each worker an access token of its own.",
            )
        self.polling += 1
        self._polls[access.digest] += 1
        try:
            yield
        finally:
            self.polling -= 1
            self._polls[access.digest] -= 1
            if not self._polls[access.digest]:
                del self._polls[access.digest]

    @contextmanager
    def arrival(self) -> Iterator[Callable[[int], None]]:
        """Hold place for a body that arrives; give what counts each piece of it, and raises StoreBusy if there is none.

        Whoever sends much of many bodies and the rest of none would have all of them kept.
        """
        size, most = 0, max(self._limits.bodies, self._limits.body)

        def grow(more: int) -> None:
            nonlocal size
            if size + more > SMALL and self.arriving + more > most:
                raise StoreBusy(
                    "too many large bodies are arriving. Nothing was done.", hint="Send it again in a moment."
                )
            size += more
            self.arriving += more

        try:
            yield grow
        finally:
            self.arriving -= size
