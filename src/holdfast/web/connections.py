"""Connections that are open: how many, which of them are idle, and which have dawdled for too long.

One more than there may be closes the one that has been idle for longest, so whoever holds thousands open without a
word keeps nobody out. A look once a second cuts those whose head does not arrive, those that have been idle for too
long, and those that were closed but whose last bytes nobody fetches. Knows no socket and no clock.
"""

from __future__ import annotations

import math
from typing import Protocol

#: Seconds that a closed connection has for its last bytes.
LINGER_S = 5.0


class Connection(Protocol):
    """What is looked at of a connection."""

    #: Since when the head of a request is waited for, by the loop's clock; None between and during requests.
    head_since: float | None

    @property
    def is_closing(self) -> bool:
        """Whether it only sends what is left."""
        ...

    def cut(self) -> None:
        """End it at once."""
        ...


class Connections:
    """All that are open. Belongs to one event loop."""

    def __init__(self, most: int, head_s: float, idle_s: float = math.inf) -> None:
        self._most = most
        self._head_s = head_s
        self._idle_s = idle_s
        #: Idle ones first to last, and when each was first seen so; and the others.
        self._idle: dict[Connection, float | None] = {}
        self._busy: set[Connection] = set()
        #: When one was first seen closing.
        self._closing: dict[Connection, float] = {}

    def __len__(self) -> int:
        """Count them."""
        return len(self._idle) + len(self._busy)

    def join(self, connection: Connection) -> None:
        """Take one in, and let another go if there are too many: this one, if all others are at work."""
        self._idle[connection] = None
        if len(self) > self._most:
            oldest = next(iter(self._idle))
            del self._idle[oldest]
            oldest.cut()

    def work(self, connection: Connection) -> None:
        """Note that one has asked something."""
        if connection in self._idle:
            del self._idle[connection]
            self._busy.add(connection)

    def rest(self, connection: Connection) -> None:
        """Note that it was answered."""
        if connection in self._busy:
            self._busy.remove(connection)
            self._idle[connection] = None

    def leave(self, connection: Connection) -> None:
        """Forget one that has ended."""
        self._idle.pop(connection, None)
        self._busy.discard(connection)
        self._closing.pop(connection, None)

    def sweep(self, now: float) -> None:
        """Cut who dawdles."""
        for connection in [*self._idle, *self._busy]:
            if connection.is_closing:
                if now - self._closing.setdefault(connection, now) >= LINGER_S:
                    connection.cut()
            elif connection.head_since is not None:
                if now - connection.head_since >= self._head_s:
                    connection.cut()
            elif connection in self._idle:
                since = self._idle[connection]
                if since is None:
                    self._idle[connection] = now
                elif now - since >= self._idle_s:
                    connection.cut()
