"""Plain asyncio on every store: the same results in any order, with a crash at every commit and without residency.

Struck: each program has a store of its own, and the process dies at every commit it makes, just before it or just after
it by turns: at each send, lock and commit of a turn, lease and report of an activity, and at what recovery ends. Orders
of even and odd numbers strike a commit at opposite sides. One crash in `REOPENED` takes the store with it, so that it
is opened from its files; the others take the rest of the process. From order to order that falls on other commits.

By turns: as struck, but each order has its crashes at other commits, so that `TURN` orders after one another have
struck every commit at both sides. That is some times cheaper, and leaves more of the order alone.

Side by side: all programs in one store, of which a crash now and then hits all at once, and always takes the store. It
comes at other commits in each order, too: `2 * APART` orders after one another have struck each number at both sides.

The long form (`HOLDFAST_SOAK=1`) takes 1,000 orders on each store, struck and side by side, and of each twenty of them
the first and the last by turns. It prints what it did; `HOLDFAST_SHARD=2/3` makes it do the second third. It takes some
orders to all stores and then the next, so that it says something wherever it is stopped. Struck, it takes about three
hours of processor; side by side, eighty minutes.
"""

import os
import time
from collections import Counter, defaultdict

import pytest
from asyncioprograms import PROGRAMS
from flowskit import ORDERS, SOAK
from storekit import Outliving, crashes, in_order, prove

from holdfast.model.workflows import event_kinds
from holdfast.testing.crashsafe.faults import Fault, What
from holdfast.testing.crashsafe.grounds import STORES, ground_for

#: Crashes of a struck run of which one takes the store. Odd, so that it comes at both sides.
REOPENED = 5
#: Orders in which each commit is struck once at each side, by turns; commits from a crash to the next of its side.
TURN = 8
#: Commits from one crash to the next, side by side.
APART = 40
#: Orders of one test of the long form, so that each is done within its time.
TOGETHER = 20


def shard(starts):
    number, _, of = os.environ.get("HOLDFAST_SHARD", "1/1").partition("/")
    return starts[int(number) - 1 :: int(of)]


if SOAK:
    STRUCK = BESIDE = [(s, range(n, n + TOGETHER), PROGRAMS) for n in shard(range(0, ORDERS, TOGETHER)) for s in STORES]
    BY_TURNS = [(store, orders[:: TOGETHER - 1], programs) for store, orders, programs in BESIDE]
else:
    # In short, memory has them all, and of the other stores each a third.
    STRUCK = [("memory:", [1], PROGRAMS), *((s, [2 + n], PROGRAMS[n::3]) for n, s in enumerate(STORES[1:]))]
    BY_TURNS = [(store, [number], PROGRAMS[number::4]) for number, store in enumerate(STORES)]
    BESIDE = [(store, [3 + number], PROGRAMS) for number, store in enumerate(STORES)]


#: The orders in which activities ended, steps were done, timers fired and signals came, by store and program.
SEEN = defaultdict(set)


def parts(found):
    return [pytest.param(*one, id=f"{one[0]}{one[1][0]}") for one in found]


def completions(world, program):
    """Give the order in which things ended for a program."""
    ended = (
        event_kinds.ActivityCompleted,
        event_kinds.ActivityFailed,
        event_kinds.StepCompleted,
        event_kinds.TimerFired,
        event_kinds.QueueEventDelivered,
    )
    found = [event for event in world.history(program.name) if isinstance(event.kind, ended)]
    return tuple((type(event.kind), event.source_event_id, getattr(event.kind, "step_no", None)) for event in found)


def residency(seed):
    return [Fault(What.NO_RESIDENCY)] if seed % 3 == 0 else []


def print_done(store, orders, began, done):
    told = ", ".join(f"{done[what]:,} {what}" for what in sorted(done))
    took = f"{time.process_time() - began:.0f} s of processor"
    print(f"{store} orders {orders[0]} to {orders[-1]}: {told}, {took}, {len(SEEN[store]):,} different so far")


def outlive(store, plan, program, seed, done):
    with Outliving(ground_for(store)(), REOPENED, seed) as ground:
        world = prove(ground, plan, [program])
        SEEN[store].add((program.name, completions(world, program)))
    done.update(runs=1, commits=world.commits, crashes=world.crashed, reopened=ground.reopened)
    return world


@pytest.mark.parametrize(("store", "orders", "programs"), parts(BY_TURNS))
def test_a_program_comes_to_its_result_in_any_order_struck_by_turns(store, orders, programs):
    began, done = time.process_time(), Counter()
    for seed in orders:
        before = crashes(What.CRASH_BEFORE, seed % TURN, TURN, 2000)
        after = crashes(What.CRASH_AFTER, (seed + TURN // 2) % TURN, TURN, 2000)
        for program in programs:
            world = outlive(store, [in_order(seed), *before, *after, *residency(seed)], program, seed, done)
            assert world.crashed >= world.commits // TURN, f"{program.name}, order {seed}: the crashes did not strike"
    print_done(store, orders, began, done)


@pytest.mark.parametrize(("store", "orders", "programs"), parts(STRUCK))
def test_a_program_comes_to_its_result_though_struck_at_every_commit(store, orders, programs):
    began, done = time.process_time(), Counter()
    for seed in orders:
        plan = [in_order(seed), Fault(What.CRASH_AT_EVERY, seed), *residency(seed)]
        for program in programs:
            world = outlive(store, plan, program, seed, done)
            struck = Counter(world.strikes.struck.values())
            assert world.crashed == struck.total() > 0, f"{program.name}, order {seed}: the crashes did not strike"
            done.update(struck)
        assert abs(done["before"] - done["after"]) <= done["runs"], f"order {seed}: one side was spared"
    print_done(store, orders, began, done)


@pytest.mark.parametrize(("store", "orders", "programs"), parts(BESIDE))
def test_programs_side_by_side_come_to_their_results(store, orders, programs):
    began, done = time.process_time(), Counter()
    for seed in orders:
        when = What.CRASH_AFTER if seed % 2 else What.CRASH_BEFORE
        plan = [in_order(seed), *crashes(when, seed // 2 % APART, APART, 2000), *residency(seed)]
        with Outliving(ground_for(store)(), 1, 0) as ground:
            world = prove(ground, plan, programs)
            SEEN[store].update((program.name, completions(world, program)) for program in programs)
        assert world.crashed >= world.commits // 100, f"order {seed}: the crashes did not strike"
        done.update(runs=len(programs), commits=world.commits, crashes=world.crashed)
    print_done(store, orders, began, done)


def test_crashes_leave_orders_as_many_as_there_were():
    [gather] = [program for program in PROGRAMS if program.name == "gather"]
    found = set()
    for seed in range(10):
        with Outliving(ground_for("memory:")(), REOPENED, seed) as ground:
            found.add(completions(prove(ground, [in_order(seed), Fault(What.CRASH_AT_EVERY, seed)], [gather]), gather))
    assert len(found) >= 7, "five activities can end in 120 orders"


def test_one_plan_is_one_run_wherever_it_is_made():
    plan = [in_order(6), *crashes(What.CRASH_BEFORE, 3, APART, 2000), *residency(6)]
    worlds = [prove(store, plan) for store in ("memory:", "memory:", "wal:")]
    assert len({world.size() for world in worlds}) == 1
    assert worlds[0].calls == worlds[1].calls == worlds[2].calls
