"""An ordered set of sort keys, kept in chunks. Knows nothing of what the keys mean.

Adding at the back and taking from the front cost the same with a thousand keys as with a million; a key in the middle
costs one chunk. Walking is lazy and must not be mixed with changes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from holdfast.model.times import Timestamp

K = TypeVar("K", bound=tuple[Any, ...])
N = TypeVar("N")
#: The form that most of them have: a time, and the id of what it belongs to.
TimeKey = tuple[Timestamp, str]
#: Behind every time and every id.
BEYOND = "\U0010ffff"

#: Keys in a chunk before it is split. Long enough to keep the list of chunks short, short enough to insert cheaply.
CHUNK = 512


class OrderedSet(Generic[K]):
    """Distinct keys in ascending order."""

    __slots__ = ("_chunks", "_firsts", "_size")

    def __init__(self, keys: Iterable[K] = ()) -> None:
        ordered = sorted(keys)
        self._chunks = [ordered[at : at + CHUNK] for at in range(0, len(ordered), CHUNK)]
        #: First key of each chunk, for finding the right one.
        self._firsts = [chunk[0] for chunk in self._chunks]
        self._size = len(ordered)

    def __len__(self) -> int:
        """Count the keys."""
        return self._size

    def __iter__(self) -> Iterator[K]:
        """Walk all keys upwards."""
        for chunk in self._chunks:
            yield from chunk

    def _at(self, key: tuple[Any, ...]) -> int:
        """Give the chunk in which `key` is or would be."""
        return max(0, bisect_left(self._firsts, key) - 1) if self._firsts else -1

    def _find(self, key: K) -> tuple[int, int] | None:
        if not self._firsts:
            return None
        at = bisect_left(self._firsts, key)
        if at < len(self._firsts) and self._firsts[at] == key:
            return at, 0
        if at == 0:
            return None
        chunk = self._chunks[at - 1]
        within = bisect_left(chunk, key)
        return (at - 1, within) if within < len(chunk) and chunk[within] == key else None

    def add(self, key: K) -> None:
        """Put `key` in its place; a key that is there already must not be added again."""
        self._size += 1
        if not self._chunks:
            self._chunks.append([key])
            self._firsts.append(key)
            return
        at = self._at(key)
        chunk = self._chunks[at]
        insort(chunk, key)
        self._firsts[at] = chunk[0]
        if len(chunk) > 2 * CHUNK:
            upper = chunk[CHUNK:]
            del chunk[CHUNK:]
            self._chunks.insert(at + 1, upper)
            self._firsts.insert(at + 1, upper[0])

    def discard(self, key: K) -> bool:
        """Remove `key`; tell whether it was there."""
        found = self._find(key)
        if found is None:
            return False
        at, within = found
        chunk = self._chunks[at]
        del chunk[within]
        self._size -= 1
        if chunk:
            self._firsts[at] = chunk[0]
        else:
            del self._chunks[at]
            del self._firsts[at]
        return True

    def walk(self, start: tuple[Any, ...] = (), *, backwards: bool = False) -> Iterator[K]:
        """Walk up from the first key >= `start`, or down from the last key < `start`."""
        at = self._at(start)
        if at < 0:
            return
        within = bisect_left(self._chunks[at], start)
        if backwards:
            yield from reversed(self._chunks[at][:within])
            for number in range(at - 1, -1, -1):
                yield from reversed(self._chunks[number])
        else:
            yield from self._chunks[at][within:]
            for number in range(at + 1, len(self._chunks)):
                yield from self._chunks[number]


def order_of(orders: dict[N, OrderedSet[K]], name: N) -> OrderedSet[K]:
    """Give the order of that name, making it on first use."""
    found = orders.get(name)
    if found is None:
        found = orders[name] = OrderedSet()
    return found
