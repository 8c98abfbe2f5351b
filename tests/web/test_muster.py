"""The roster of a coordinator does not grow with the names that workers give themselves."""

from __future__ import annotations

import httpx2
import msgspec
import pytest
from coordinators import running

from holdfast.errors import PayloadTooLarge
from holdfast.model.times import stamp
from holdfast.model.workers import Wish, WorkerInfo
from holdfast.stores.beside.memory import MemoryRoster, MemorySessions
from holdfast.stores.http.store import HttpStore
from holdfast.testing import ManualClock
from holdfast.web.limits import Limits
from holdfast.web.muster import Muster


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def roster(clock):
    return MemoryRoster(clock, MemorySessions())


def worker(name, clock, **more):
    now = stamp(clock.now())
    fields = {"worker_id": name, "name": name, "host": "h", "pid": 1, "version": "0", "slots": 1}
    return WorkerInfo(**fields, queues=(), job_types=(), started_at=now, last_seen=now, **more)


def names(roster):
    return [one.worker_id for one in roster.all()]


def test_one_more_than_there_may_be_and_the_longest_silent_is_forgotten(roster, clock):
    muster = Muster(roster, 3)
    for name in "abcd":
        muster.note(worker(name, clock))
    assert names(roster) == ["b", "c", "d"]
    muster.note(worker("b", clock))  # known, so there is nobody more
    muster.stir("c")  # a sign of life is enough
    muster.note(worker("e", clock))
    assert names(roster) == ["b", "c", "e"]


def test_what_was_wished_of_a_worker_that_is_forgotten_goes_with_it(roster, clock):
    muster = Muster(roster, 1)
    muster.note(worker("a", clock))
    assert roster.ask("a", Wish.STOP)
    muster.note(worker("b", clock))
    muster.note(worker("a", clock))
    assert roster.wish("a") is None


def test_who_left_makes_room(roster, clock):
    muster = Muster(roster, 2)
    muster.note(worker("a", clock))
    muster.note(worker("b", clock))
    muster.drop("b")
    muster.stir("b")  # of one who is not there, nothing is heard
    muster.note(worker("c", clock))
    assert names(roster) == ["a", "c"]


def test_those_who_were_there_before_count_in_the_order_they_were_heard_of(roster, clock):
    for name in ("late", "early", "middle"):
        roster.note(worker(name, clock))
        clock.advance(1)
    roster.note(worker("late", clock))
    muster = Muster(roster, 3)
    muster.note(worker("new", clock))
    assert names(roster) == ["late", "middle", "new"]


@pytest.mark.parametrize("scheme", ["wal", "sqlite"])
def test_a_coordinator_remembers_no_more_workers_than_its_limit(tmp_path, clock, scheme):
    limits = Limits(workers=5, note=2000)
    with running(f"{scheme}:{tmp_path / 'jobs'}", clock=clock, limits=limits) as serving:
        store = HttpStore.open(serving.url, clock=clock, patience_s=0)
        for number in range(20):
            store.workers.note(worker(f"w{number:02}", clock))
            clock.advance(1)
        assert names(store.workers) == [f"w{number}" for number in range(15, 20)]
        store.workers.wish("w15")
        store.workers.note(worker("w20", clock))
        assert names(store.workers) == ["w15", "w17", "w18", "w19", "w20"]
        assert 'holdfast_workers{state="ready"} 5\n' in httpx2.get(f"{serving.url}/metrics").text
        # Nor may one of them say more of itself than it has to.
        long = msgspec.structs.replace(worker("w20", clock), queues=tuple(f"q{n}" for n in range(1000)))
        with pytest.raises(PayloadTooLarge, match="worker"):
            store.workers.note(long)
        store.close()
