"""Chance that comes out alike on every replay: separate streams, each from the execution's seed. Not for secrets."""

from __future__ import annotations

from functools import cached_property
from random import Random
from uuid import UUID


class Chance:
    """The streams of one execution, each made when it is first drawn from.

    A call more of one kind leaves the others as they were.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def uuid(self) -> UUID:
        """Give the next UUID."""
        return UUID(int=self._uuids.getrandbits(128), version=4)

    def random(self) -> float:
        """Give the next float, 0 ≤ x < 1."""
        return self._floats.random()

    def new_id(self) -> UUID:
        """Give the next id of our own making; what the code draws is not shifted by it."""
        return UUID(int=self._ids.getrandbits(128), version=4)

    @cached_property
    def rng(self) -> Random:
        """For whoever wants all of `random.Random`."""
        return self._stream("rng")

    @cached_property
    def _uuids(self) -> Random:
        return self._stream("uuid")

    @cached_property
    def _floats(self) -> Random:
        return self._stream("random")

    @cached_property
    def _ids(self) -> Random:
        return self._stream("id")

    def _stream(self, name: str) -> Random:
        # Seeded by text: the same numbers under every hash seed.
        return Random(f"{self._seed}:{name}")  # noqa: S311 - to be repeatable is its purpose
