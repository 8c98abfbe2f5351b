"""Connections that are open: how many, which of them are idle, and which have dawdled for too long.

One more than there may be closes the one that has been idle for longest, so whoever holds thousands open without a
word keeps nobody out. A look once a second cuts those whose head does not arrive, those that have been idle for too
long, and those that were closed but whose last bytes nobody fetches. Whoever still fetches an answer, and be it slowly,
is not idle: their time begins anew with whatever they have fetched. Knows no socket and no clock.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

#: Seconds that a closed connection has for its last bytes, or for the next `FLOW` of them.
LINGER_S = 20.0
#: Bytes of an answer that must be fetched for its time to begin anew; fewer are no flow.
FLOW = 64 << 10
#: Seconds that the other side of a closed connection has at the end of the server to say goodbye, too.
GOODBYE_S = 1.0


class Connection(Protocol):
    """What is looked at of a connection."""

    #: Since when the head of a request is waited for, by the loop's clock; None between and during requests.
    head_since: float | None

    @property
    def is_closing(self) -> bool:
        """Whether it only sends what is left."""
        ...

    @property
    def unsent(self) -> int:
        """Bytes of answers that wait to be fetched."""
        ...

    def cut(self) -> None:
        """End it at once."""
        ...


class _Mark(NamedTuple):
    """When one was seen, and what it had not fetched then."""

    at: float
    unsent: int


class Connections:
    """All that are open. Belongs to one event loop."""

    def __init__(self, most: int, head_s: float, idle_s: float = math.inf) -> None:
        self._most = most
        self._head_s = head_s
        self._idle_s = idle_s
        #: Idle ones first to last, and since when each counts as such; and the others.
        self._idle: dict[Connection, _Mark | None] = {}
        self._busy: set[Connection] = set()
        #: The same of those that are closing.
        self._closing: dict[Connection, _Mark | None] = {}

    def __len__(self) -> int:
        """Count them."""
        return len(self._idle) + len(self._busy)

    def join(self, connection: Connection) -> None:
        """Take one in, and let another go if there are too many: this one, if all others are at work."""
        self._idle[connection] = None
        if len(self) > self._most:
            oldest = next((one for one in self._idle if not one.unsent), next(iter(self._idle)))
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
                if _is_over(self._closing, connection, now, LINGER_S):
                    connection.cut()
            elif connection.head_since is not None:
                if now - connection.head_since >= self._head_s:
                    connection.cut()
            elif connection in self._idle and _is_over(self._idle, connection, now, self._idle_s):
                connection.cut()

    def part(self, now: float) -> None:
        """Cut, at the end of the server, who has asked nothing yet, and who was told all and does not hang up, either.

        Over TLS a closed connection is there until the other side says goodbye, too, and who keeps one for later reads
        nothing meanwhile.
        """
        for connection in [*self._idle, *self._busy]:
            if not connection.is_closing:
                if connection.head_since is not None:
                    connection.cut()
            elif not connection.unsent and _is_over(self._closing, connection, now, GOODBYE_S):
                connection.cut()


def _is_over(marks: dict[Connection, _Mark | None], connection: Connection, now: float, limit_s: float) -> bool:
    """Tell whether a connection has had its time; note where it stands if that begins only now."""
    mark, unsent = marks.get(connection), connection.unsent
    if mark is None or mark.unsent - unsent >= (FLOW if unsent else 1):
        marks[connection] = _Mark(now, unsent)
        return False
    return now - mark.at >= limit_s
