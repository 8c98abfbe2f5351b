"""Chance that comes out alike on every replay: separate streams, each from the execution's seed. Not for secrets."""

from __future__ import annotations

import random
from uuid import UUID


class Chance:
    """The streams of one execution. A call more of one kind leaves the others as they were."""

    def __init__(self, seed: int) -> None:
        """Begin the streams. Text seeds give the same numbers under every hash seed."""
        self._uuids = random.Random(f"{seed}:uuid")  # noqa: S311 - to be repeatable is its purpose
        self._floats = random.Random(f"{seed}:random")  # noqa: S311 - the same
        self._ids = random.Random(f"{seed}:id")  # noqa: S311 - the same
        #: For whoever wants all of `random.Random`.
        self.rng = random.Random(f"{seed}:rng")  # noqa: S311 - the same

    def uuid(self) -> UUID:
        """Give the next UUID."""
        return UUID(int=self._uuids.getrandbits(128), version=4)

    def random(self) -> float:
        """Give the next float, 0 ≤ x < 1."""
        return self._floats.random()

    def new_id(self) -> UUID:
        """Give the next id of our own making; what the code draws is not shifted by it."""
        return UUID(int=self._ids.getrandbits(128), version=4)
