"""Sets of ids by name: which ids belong to what; a set that becomes empty goes. Knows no meaning of the names."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

N = TypeVar("N", bound=Hashable)
I = TypeVar("I", bound=str)  # noqa: E741 - an id


class IdSets(dict[N, set[I]]):
    """Name → the ids that belong to it; no set is empty."""

    def note(self, name: N, having: I, by: int) -> None:
        """Put an id into the set of that name, or, by less than nothing, take it out."""
        found = self.get(name)
        if by > 0:
            if found is None:
                found = self[name] = set()
            found.add(having)
        elif found is not None:
            found.discard(having)
            if not found:
                del self[name]
