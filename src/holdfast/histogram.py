"""A histogram: how often a value fell at or below each of some bounds. Knows nothing of what is counted.

A leaf, because whoever counts commits has no business with the journal, which is slow to import.
"""

from __future__ import annotations

from bisect import bisect_left

import msgspec

#: Seconds.
SYNC_BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
RECORD_BOUNDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 5000.0)


class Histogram(msgspec.Struct):
    """How often a value fell at or below each bound, and above the last."""

    bounds: tuple[float, ...]
    #: One more than there are bounds; not cumulative.
    counts: list[int]
    total: float = 0.0

    @classmethod
    def of(cls, bounds: tuple[float, ...]) -> Histogram:
        """Make an empty one."""
        return cls(bounds, [0] * (len(bounds) + 1))

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)

    def copy(self) -> Histogram:
        """Give the counts as they stand."""
        return Histogram(self.bounds, list(self.counts), self.total)
