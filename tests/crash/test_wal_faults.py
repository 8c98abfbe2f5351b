"""Commands on `wal:`, with the disk failing, the process dying or the power cut at each call the store makes.

The oracle is the same story told on `memory:`, with its state kept after every command. Whatever the fault, the state
after reopening is that after the last acknowledged command, or after the one that was in flight; never another.
"""

from __future__ import annotations

import errno
import itertools
import os

import msgspec
import pytest

from holdfast.engine import Engine, engine
from holdfast.engine.maintenance import tick
from holdfast.errors import StoreError
from holdfast.journal import JournalOptions
from holdfast.model.commands import Cancel, Complete, Enqueue, Expire, Fail, Lease, Move, NewJob, Prune, Retention
from holdfast.model.jobs import RetryMode
from holdfast.model.outcomes import Refusal
from holdfast.model.records import TABLES
from holdfast.rules.invariants import violations
from holdfast.stores.memory.store import MemoryStore
from holdfast.stores.wal import WalStore
from holdfast.testing import ManualClock, SimCrash, SimFS
from holdfast.testing.simdisk import disk_of

SOAK = os.environ.get("HOLDFAST_SOAK") == "1"
pytestmark = pytest.mark.usefixtures("one_id")
#: Segments so small that the story rolls them; no thread flushes on its own, so that every run makes the same calls.
TINY = JournalOptions(segment_bytes=2500, flush_after_s=None, full_retry_s=0.0, full_retries=2)

injected = {"count": 0}


def job(job_id, **more):
    return NewJob(job_id=job_id, job_type="work", params=msgspec.Raw(b'{"n":1}'), **more)


STORY = [
    Enqueue(cmd="e1", jobs=(job("a"), job("b", key="k"), job("c", retry_mode=RetryMode.CHAIN))),
    Lease(cmd="l1", worker_id="w", n=2),
    Complete(job_id="a", token=1, result=msgspec.Raw(b'"fine"')),
    "snapshot",
    Fail(job_id="b", token=2, error="no"),
    Lease(cmd="l2", worker_id="w", n=1),
    Fail(job_id="c", token=3, error="no"),
    Enqueue(jobs=(job("d", priority=5), job("e", delay_s=60))),
    "snapshot",
    Move(cmd="m1", job_id="d", to="first"),
    Cancel(cmd="x1", job_id="e", reason="not needed"),
    Lease(cmd="l3", worker_id="w", n=1, lease_s=5),
    "later",
    Expire(),
    Prune(retention=Retention(done_s=1, failed_s=1)),
    "snapshot",
    Enqueue(jobs=(job("z"),)),
]


def tables_of(store):
    with store.read() as view:
        return {name: list(view.all(kind)) for name, kind in TABLES.items()}


@pytest.fixture(autouse=True)
def counted_chance(monkeypatch):
    """The same ids in every run, so that states can be compared."""
    fresh = {"count": itertools.count(1)}
    monkeypatch.setattr(engine, "_seed", lambda: next(fresh["count"]))
    fresh["restart"] = lambda: fresh.update(count=itertools.count(1))
    return fresh


def tell(store, clock, heard):
    """Run the story; `heard` gets each step that was acknowledged."""
    holder = Engine(store, clock=clock)
    for step in STORY:
        if step == "snapshot":
            store.snapshot()
        elif step == "later":
            clock.advance(10)
        else:
            outcome = holder.submit(step)
            assert not isinstance(outcome, Refusal), outcome
        heard.append(step)


@pytest.fixture
def chapters(counted_chance):
    """The state after each step, told by the model."""
    counted_chance["restart"]()
    store, states = MemoryStore(), [tables_of(MemoryStore())]

    class Listening(list):
        def append(self, step):
            states.append(tables_of(store))

    tell(store, ManualClock(), Listening())
    assert len(states) == len(STORY) + 1
    return states


def opened(fs):
    return WalStore.open("store", fs=fs, clock=ManualClock(), options=TINY)


def run(fs):
    """Tell the story until the fault; gives the steps that were acknowledged."""
    heard = []
    try:
        store = opened(fs)
        tell(store, ManualClock(), heard)
        store.close()
    except (StoreError, SimCrash):
        pass
    return heard


def examine(fs, heard, chapters, seen):
    """Reopen and compare with the model; then go on, as the program that crashed would.

    A disk that was `seen` after as many steps is as good.
    """
    if (key := (disk_of(fs._root), len(heard))) in seen:
        return
    seen.add(key)
    store = opened(fs)
    found = tables_of(store)
    possible = chapters[len(heard) : len(heard) + 2]
    assert found in possible, f"after {len(heard)} steps: neither the state before nor after {STORY[len(heard) :][:1]}"
    with store.read() as view:
        assert not list(violations(view))
    again = Engine(store, clock=ManualClock())
    if len(heard) < len(STORY) and not isinstance(STORY[len(heard)], str):
        again.submit(STORY[len(heard)])
    tick(again)
    assert not store.check()
    store.close()
    twice = opened(fs)
    assert not twice.check()
    twice.close()


@pytest.fixture(scope="module")
def deaths():
    """The disk that each death leaves, at the first call, the second, … to the last, and what was acknowledged then."""
    left = []
    for nth in itertools.count(1):
        fs = SimFS()
        fs.crash(nth)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine, "_seed", itertools.count(1).__next__)
            heard = run(fs)
        if not fs.injected:
            return left
        left.append((fs, heard))
    raise AssertionError


@pytest.mark.parametrize(
    ("names", "mode"),
    [("keep", "keep"), ("lose", "lose"), ("mixed", "blocks"), ("mixed", "lose"), ("mixed", "keep")],
    ids=lambda value: value,
)
def test_a_crash_at_any_call_leaves_the_state_before_or_after_the_command_in_flight(names, mode, deaths, chapters):
    assert len(deaths) >= 60, "the story makes more calls than that"
    seen = set()
    for nth, (fs, heard) in enumerate(deaths, 1):
        injected["count"] += 1
        for seed in range(6 if SOAK else 1):
            examine(fs.image().power_loss(mode, seed=nth + seed, names=names), heard, chapters, seen)
    assert len(seen) >= 50, "hardly any was examined"


FAULTS = [
    ("write", errno.EIO, 1),
    ("sync", errno.EIO, 1),
    ("sync_dir", errno.EIO, 1),
    ("write", errno.ENOSPC, 1),
    ("write", errno.ENOSPC, None),
    ("sync", errno.ENOSPC, None),
    ("rename", errno.EIO, 1),
    ("create", errno.ENOSPC, 1),
    ("unlink", errno.EIO, 1),
]


@pytest.mark.parametrize(
    ("kind", "error", "times"), FAULTS, ids=[f"{kind}-{errno.errorcode[code]}-{times}" for kind, code, times in FAULTS]
)
def test_a_failing_disk_loses_nothing_that_was_acknowledged(kind, error, times, chapters, counted_chance):
    seen = set()
    for nth in itertools.count(1):
        fs = SimFS()
        fs.fail(kind, nth, error, times=times)
        counted_chance["restart"]()
        heard = run(fs)
        if not fs.injected:
            break
        injected["count"] += 1
        fs.heal()
        examine(fs.image().power_loss("lose", names="lose"), heard, chapters, seen)
        examine(fs.reboot(), heard, chapters, seen)
    assert nth > 1, f"the story makes no call of kind {kind}"


def test_a_short_write_is_finished_and_nobody_notices(chapters, counted_chance):
    seen = set()
    for nth in itertools.count(1):
        fs = SimFS()
        fs.shorten("write", nth)
        counted_chance["restart"]()
        heard = run(fs)
        if not fs.injected:
            break
        injected["count"] += 1
        assert len(heard) == len(STORY)
        examine(fs.reboot(), heard, chapters, seen)


def test_the_number_of_injected_faults_is_told():
    print(f"\nfaults injected under wal: {injected['count']}")
    assert injected["count"] > 400
