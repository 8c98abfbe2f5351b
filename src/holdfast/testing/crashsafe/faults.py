"""What goes wrong in a run, as values: drawn from a seed, and taken away one by one while the run still fails.

Run 0 has no faults. Runs 1 to 2·C crash just before and just after each of the C commits that run 0 made. All others
mix faults at random. So a number names a run, as long as the code makes as many commits. A crash at every commit is
for plans made by hand: such a run goes through as many processes as there are commits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from enum import StrEnum

import msgspec

#: Crashes of one run.
MOST_CRASHES = 3
#: Milliseconds: how far a clock jumps at most, in either direction.
FARTHEST_MS = 3_600_000
#: Hash seeds of other processes; each costs starting one.
HASH_SEEDS = 4


class What(StrEnum):
    """Kinds of faults."""

    CRASH_BEFORE = "crash before commit"
    CRASH_AFTER = "crash after commit"
    CRASH_AT_EVERY = "crash at every commit"
    MESSAGE_TWICE = "message delivered twice, number"
    ACTIVITY_TWICE = "activity run twice, number"
    CLOCK_JUMP = "clock jump at move"
    NO_RESIDENCY = "replay at every turn"
    OTHER_ORDER = "another order of completions"
    OTHER_HASHES = "replay under PYTHONHASHSEED"


class Fault(msgspec.Struct, frozen=True):
    """One thing that goes wrong."""

    what: What
    #: Which commit, message, activity or move; for an order or hashes, their seed; for crashes at every commit, whether
    #: the first comes after it (odd) or before.
    at: int = 0
    #: Milliseconds of a jump.
    by_ms: int = 0

    def __str__(self) -> str:
        """Word it."""
        match self.what:
            case What.CRASH_AT_EVERY | What.NO_RESIDENCY | What.OTHER_ORDER:
                return str(self.what)
            case What.CLOCK_JUMP:
                return f"{self.what} {self.at}: {self.by_ms / 1000:+g} s"
            case _:
                return f"{self.what} {self.at}"


Plan = tuple[Fault, ...]


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """How much happened in the run without faults: where faults can strike."""

    commits: int
    messages: int
    activities: int
    moves: int

    @property
    def systematic(self) -> int:
        """How many runs crash at one commit each."""
        return 2 * self.commits


def plan_of(seed: int, size: Size) -> Plan:
    """Give the faults of a run."""
    if seed <= 0:
        return ()
    if seed <= size.systematic:
        commit, after = divmod(seed - 1, 2)
        return (Fault(What.CRASH_AFTER if after else What.CRASH_BEFORE, commit),)
    return tuple(_drawn(random.Random(seed), size))  # noqa: S311 - to be repeatable is its purpose


def _drawn(rng: random.Random, size: Size) -> Iterator[Fault]:
    # A crash makes more commits than there were without it.
    for _ in range(rng.randint(0, MOST_CRASHES)):
        yield Fault(rng.choice((What.CRASH_BEFORE, What.CRASH_AFTER)), rng.randrange(size.commits + 2))
    for _ in range(rng.randint(0, 2)):
        yield Fault(What.MESSAGE_TWICE, rng.randrange(size.messages + 1))
    if size.activities:
        for _ in range(rng.randint(0, 2)):
            yield Fault(What.ACTIVITY_TWICE, rng.randrange(size.activities))
    for _ in range(rng.randint(0, 2)):
        yield Fault(What.CLOCK_JUMP, rng.randrange(size.moves + 1), rng.randint(-FARTHEST_MS, FARTHEST_MS))
    if rng.random() < 0.5:
        yield Fault(What.NO_RESIDENCY)
    if rng.random() < 0.8:
        yield Fault(What.OTHER_ORDER, rng.getrandbits(32))
    yield Fault(What.OTHER_HASHES, 1 + rng.randrange(HASH_SEEDS))


def fewest(plan: Plan, still_fails: Callable[[Plan], bool]) -> Plan:
    """Take faults away, one by one, as long as the run fails in the same way."""
    left = plan
    # None, or the hashes alone: replaying elsewhere is the slowest of all faults to try.
    for few in ((), plan[-1:]):
        if len(few) < len(plan) and still_fails(few):
            return few
    for fault in plan:
        fewer = tuple(one for one in left if one is not fault)
        if fewer and still_fails(fewer):
            left = fewer
    return left
