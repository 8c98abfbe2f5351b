"""Plain asyncio on every store: the same results in any order, with crashes at every commit and without residency.

Each run has all programs of the catalogue in one store, an order of its own, and crashes, which over the runs of one
store strike just before and just after each commit. The long form (`HOLDFAST_SOAK=1`) takes 1,000 orders on each store.
"""

import pytest
from flowskit import ORDERS, SOAK
from storekit import crashes, in_order, prove

from holdfast.testing.crashsafe.faults import Fault, What
from holdfast.testing.crashsafe.grounds import STORES

#: Commits from one crash of a run to the next; with twice as many runs, each commit was met before and after.
APART = 50 if SOAK else 5
#: Orders of one test, so that each is done within its time.
TOGETHER = 25 if SOAK else 2
#: A store on disk is opened anew after each crash, which takes longer than all else; so in short it crashes less.
SHORT = {"memory:": range(0, 2 * APART, TOGETHER), "sqlite:": (1,), "wal:": (3,), "dir:": (4,)}

PARTS = [
    pytest.param(store, first, id=f"{store}{first}")
    for store in STORES
    for first in (range(0, ORDERS, TOGETHER) if SOAK else SHORT[store])
]


def faults(store: str, seed: int) -> list[Fault]:
    apart = APART if SOAK or store == "memory:" else 40
    when = What.CRASH_AFTER if seed % 2 else What.CRASH_BEFORE
    plan = [in_order(seed), *crashes(when, seed // 2 % apart, apart, 2000)]
    return [*plan, Fault(What.NO_RESIDENCY)] if seed % 3 == 0 else plan


@pytest.mark.parametrize(("store", "first"), PARTS)
def test_every_program_comes_to_its_result(store, first):
    for seed in range(first, first + TOGETHER):
        world = prove(store, faults(store, seed))
        assert world.crashed >= world.commits // 100, f"order {seed}: the crashes did not strike"


def test_one_plan_is_one_run_wherever_it_is_made():
    plan = faults("wal:", 6)
    worlds = [prove(store, plan) for store in ("memory:", "memory:", "wal:")]
    assert len({world.size() for world in worlds}) == 1
    assert worlds[0].calls == worlds[1].calls == worlds[2].calls
