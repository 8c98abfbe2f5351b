"""Every kind of command, undone before it is done: each part of the tables is as if made from the records alone."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager

import msgspec
import pytest
from everycommand import HISTORY, LAST, jobs, lease
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.engine.engine import Engine
from holdfast.errors import StoreFull
from holdfast.model import commands as c
from holdfast.model.events.queues import QueueChanges
from holdfast.model.records import TABLES
from holdfast.model.times import stamp
from holdfast.stores.memory.indexes.sorted_set import OrderedSet
from holdfast.stores.memory.store import MemoryStore
from holdfast.stores.memory.tables import Tables
from holdfast.testing import ManualClock
from holdfast.testing.conformance.harness import new_job

ALL = 10**6
#: What the history has none of: times that end, keys and starts that are counted, turns that pass. All is remembered.
#: The leases come after the others: theirs are numbered.
BEFORE = [
    c.SetQueue(queue="rated", changes=QueueChanges(rate_count=100, rate_period_s=60)),
    jobs("r1", "r2", queue="rated", ttl_s=50, limit_key="k", delay_s=2),
    c.CreateGroup(group_id="line", members=(new_job("l1", queue="rated"), new_job("l2", queue="rated", delay_s=1))),
]
AFTER = [lease(4, queues=("rated",)), c.Cancel(job_id="l1", force=True), lease(4, queues=("rated",)), LAST]
STORY = [msgspec.structs.replace(one, cmd=f"c{number}") for number, one in enumerate([*BEFORE, *HISTORY, *AFTER])]
#: Not what they are asked by: how a batch is undone, what leads to others, how blobs are counted, and what was found
#: on the way and is not there from the beginning.
_ASIDE = {
    "_undo",
    "_before",
    "_keep",
    "_reindex",
    "_named",
    "_task_lines",
    "_tasks",
    "_jobs",
    "_all",
    "_due",
    "seq",
    "ts",
}
#: In no order, but for those who ask.
_LOOSE = {"_followers"}


class Failing(MemoryStore):
    """Has no room for a batch when it is to have none."""

    is_full = False

    @contextmanager
    def write(self):
        with super().write() as tables:
            yield tables
            if self.is_full:
                raise StoreFull("no room")


def image(value):
    """Give all that a part keeps, as plain values; empty ones are none."""
    if isinstance(value, OrderedSet):
        keys = list(value)
        assert keys == sorted(set(keys))
        assert len(value) == len(keys)
        return keys
    if isinstance(value, Mapping):
        kept = {repr(name): image(one) for name, one in value.items()}
        return {name: one for name, one in kept.items() if one}
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, list | tuple):
        return [image(one) for one in value]
    if type(value).__module__.startswith("holdfast.stores"):
        names = [*getattr(value, "__dict__", ()), *getattr(type(value), "__slots__", ())]
        parts = {name: image(getattr(value, name)) for name in names if name not in _ASIDE}
        return {
            name: {of: sorted(one) for of, one in part.items()} if name in _LOOSE else part
            for name, part in parts.items()
            if part
        }
    return repr(value)


def demand_as_made_anew(store, clock):
    """Demand that nothing but the records decides what is found."""
    now = stamp(clock.now())
    with store.read() as tables:
        anew = Tables()
        for kind in TABLES.values():
            anew.load(kind, list(tables.records[kind].values()))
        for each in (tables, anew):
            each.promote(now, ALL)
        assert image(tables) == image(anew)


def live_through(steps):
    """Send the history in pieces: each a number of commands, those of them left out, whether it fails first."""
    clock = ManualClock()
    store = Failing(clock=clock)
    engine = Engine(store, clock=clock)
    left = STORY
    for size, without, fails in steps:
        piece, left = left[:size], left[size:]
        commands = [command for number, command in enumerate(piece) if number not in without]
        if not commands:
            continue
        if fails:
            store.is_full = True
            with store.read() as tables:
                before = image(tables.records)
            with pytest.raises(StoreFull):
                engine.submit_many(commands)
            store.is_full = False
            with store.read() as tables:
                assert image(tables.records) == before
            demand_as_made_anew(store, clock)
        engine.submit_many(commands)
        demand_as_made_anew(store, clock)
        clock.advance(1)
    return store


def test_each_command_is_undone_and_done():
    store = live_through([(1, (), True)] * len(STORY))
    with store.read() as tables:
        assert tables.seq > len(STORY)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.sets(st.integers(0, 8), max_size=2), st.booleans()), min_size=5))
def test_any_batches_undone_or_not_leave_the_tables_as_their_records_would_make_them(steps):
    live_through(steps)
