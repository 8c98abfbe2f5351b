"""Chance as a value: ids and jitter derived from one seed that the engine drew for the command.

The same seed and time give the same ids, so a decision can be repeated exactly. Not for secrets.
"""

from __future__ import annotations

from holdfast.model.ids import uuid7
from holdfast.model.times import Timestamp, milliseconds

_MASK = (1 << 64) - 1


class Draws:
    """The ids and numbers one command may use up, in order."""

    def __init__(self, now: Timestamp, seed: int) -> None:
        self._now = now
        self._state = seed & _MASK
        self._ms = -1
        self._count = 0

    def _next(self) -> int:
        """Step a 64-bit mixing generator: an odd constant added, then two rounds of multiply and fold."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def new_id(self) -> str:
        """Give a new time-ordered id; later ones of the same command sort behind it."""
        if self._ms < 0:
            self._ms = milliseconds(self._now)
        order = self._count
        self._count += 1
        # Past 4,096 ids the next millisecond is borrowed: order within the command is worth more than its last digit.
        return uuid7(self._ms + (order >> 12), order, self._next())

    def fraction(self) -> float:
        """Give a number in [0, 1)."""
        return (self._next() >> 11) / (1 << 53)
