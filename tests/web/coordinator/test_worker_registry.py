"""The roster of a coordinator does not grow with the names that workers give themselves."""

from __future__ import annotations

import httpx2
import msgspec
import pytest
from coordinators import running

from holdfast.clock import SystemClock
from holdfast.errors import PayloadTooLarge
from holdfast.model.commands import Lease
from holdfast.model.times import stamp
from holdfast.model.workers import Wish, WorkerInfo, WorkerState
from holdfast.stores.http.store import HttpStore
from holdfast.stores.sidecar.memory import MemoryRoster, MemorySessions
from holdfast.stores.sidecar.worker_liveness import LOST_S
from holdfast.testing import ManualClock
from holdfast.web.coordinator.worker_registry import FRESH_S, Muster
from holdfast.web.server.limits import Limits

#: Bytes of what may be written down of a worker that says nothing of itself.
NOTE = 10_000


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
    muster = Muster(roster, 3, NOTE)
    for name in "abcd":
        muster.note(worker(name, clock))
    assert names(roster) == ["b", "c", "d"]
    muster.note(worker("b", clock))  # known, so there is nobody more
    muster.stir("c", stamp(clock.now()))  # a sign of life is enough
    muster.note(worker("e", clock))
    assert names(roster) == ["b", "c", "e"]


def test_what_was_wished_of_a_worker_that_is_forgotten_goes_with_it(roster, clock):
    muster = Muster(roster, 1, NOTE)
    muster.note(worker("a", clock))
    assert roster.ask("a", Wish.STOP)
    muster.note(worker("b", clock))
    muster.note(worker("a", clock))
    assert roster.wish("a") is None


def test_who_left_makes_room(roster, clock):
    muster = Muster(roster, 2, NOTE)
    muster.note(worker("a", clock))
    muster.note(worker("b", clock))
    muster.drop("b")
    muster.stir("b", stamp(clock.now()))  # of one who is not there, nothing is heard
    muster.note(worker("c", clock))
    assert names(roster) == ["a", "c"]


def test_those_who_were_there_before_count_in_the_order_they_were_heard_of(roster, clock):
    for name in ("late", "early", "middle"):
        roster.note(worker(name, clock))
        clock.advance(1)
    roster.note(worker("late", clock))
    muster = Muster(roster, 3, NOTE)
    muster.note(worker("new", clock))
    assert names(roster) == ["late", "middle", "new"]


def heard(muster, clock, name="a", **asked):
    """Ask for work, and have written down what is to be; tell whether anything was."""
    found = muster.meet(Lease(worker_id=name, **asked), stamp(clock.now()))
    if found is not None:
        muster.know(found)
    return found is not None


def test_a_worker_of_few_words_is_kept_alive_by_its_calls_and_written_down_now_and_then(roster, clock):
    muster = Muster(roster, 3, NOTE)
    began = stamp(clock.now())
    assert heard(muster, clock, queues=("mail",), job_types=("send",), n=4)
    assert not heard(muster, clock, queues=("mail",))
    clock.advance(FRESH_S + 1)
    assert heard(muster, clock, queues=("mail", "news"))
    (known,) = roster.all()
    assert (known.queues, known.job_types, known.started_at) == (("mail", "news"), None, began)
    for _ in range(20):  # a job that lasts: only heartbeats come
        clock.advance(FRESH_S + 1)
        muster.stir("a", stamp(clock.now()))
    assert roster.all()[0].state is WorkerState.READY
    clock.advance(LOST_S + 1)
    assert roster.all()[0].state is WorkerState.LOST
    again = Muster(roster, 3, NOTE)  # after a restart, where the roster outlives it
    assert heard(again, clock)
    assert roster.all()[0].state is WorkerState.READY


def test_the_name_of_a_worker_of_few_words_that_is_lost_is_free_for_another_one(roster, clock):
    muster = Muster(roster, 3, NOTE)
    assert heard(muster, clock, namespace="mine")
    assert roster.ask("a", Wish.STOP)
    clock.advance(LOST_S)
    assert not heard(muster, clock, namespace="theirs")
    clock.advance(1)
    assert heard(muster, clock, namespace="theirs")
    (known,) = roster.all()
    assert (known.namespace, known.started_at) == ("theirs", stamp(clock.now()))
    assert roster.wish("a") is None, "that was wished of the other one"


def test_what_a_worker_says_of_itself_counts_and_not_what_it_asks_for(roster, clock):
    muster = Muster(roster, 3, NOTE)
    muster.note(worker("a", clock))
    clock.advance(FRESH_S + 1)
    assert not heard(muster, clock)
    assert heard(muster, clock, "b", namespace="mine")
    clock.advance(FRESH_S + 1)
    assert not heard(muster, clock, "b", namespace="theirs")
    muster.note(worker("b", clock))
    clock.advance(FRESH_S + 1)
    assert not heard(muster, clock, "b", namespace="mine")
    assert not heard(muster, clock, "c", queues=tuple(f"q{n}" for n in range(NOTE)))
    assert names(roster) == ["a", "b"]


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


@pytest.mark.parametrize(
    "odd", [{"worker_id": "\n"}, {"worker_id": ""}, {"worker_id": "x" * 300}, {"n": 0}, {"queues": []}]
)
def test_who_asks_for_what_is_refused_is_not_on_the_roster(clock, odd):
    with running("memory:", clock=clock) as serving:
        asked = {"lease": {"command": "lease", "worker_id": "w", **odd}, "wait_s": 5}
        answer = httpx2.post(f"{serving.url}/api/v1/lease", json=asked)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_value")
        assert answer.json()["facts"]["field"] in odd
        assert httpx2.get(f"{serving.url}/api/v1/workers").json() == {"workers": []}


def states(roster):
    return {one.worker_id: one.state.value for one in roster.all()}


@pytest.mark.parametrize("version", ["1.0.0", ""], ids=["speaking", "terse"])
@pytest.mark.parametrize("sign", ["note", "stir", "lease"])
def test_worker_of_an_earlier_opening_is_lost_until_it_is_heard_of(roster, clock, sign, version):
    lives, dead = (msgspec.structs.replace(worker(name, clock), version=version) for name in ("lives", "dead"))
    roster.note(lives)
    roster.note(dead)
    muster = Muster(roster, 10, NOTE)
    assert states(roster) == {"dead": "lost", "lives": "lost"}
    clock.advance(1)
    now = stamp(clock.now())
    match sign:
        case "note":
            muster.note(msgspec.structs.replace(lives, last_seen=now))
        case "stir":
            muster.stir("lives", now)
        case "lease":
            assert muster.meet(Lease(worker_id="lives", namespace="other"), now) is None
            muster.know(muster.meet(Lease(worker_id="lives"), now))
    assert states(roster) == {"dead": "lost", "lives": "ready"}
    assert roster.all()[1] == msgspec.structs.replace(lives, last_seen=now)
    assert muster.is_terse("lives") is (not version and sign != "note")


def test_draining_worker_of_an_earlier_opening_drains_when_it_is_heard_of(roster, clock):
    roster.note(worker("w", clock, state=WorkerState.DRAINING))
    assert roster.ask("w", Wish.QUIET)
    muster = Muster(roster, 10, NOTE)
    assert (states(roster), roster.wish("w")) == ({"w": "lost"}, Wish.QUIET)
    muster.stir("w", stamp(clock.now()))
    assert (states(roster), roster.wish("w")) == ({"w": "draining"}, Wish.QUIET)


def test_local_worker_is_judged_by_its_session_after_a_restart(roster, clock):
    roster.note(worker("w", clock, session_id="s"))
    Muster(roster, 10, NOTE)
    assert states(roster) == {"w": "ready"}


@pytest.mark.parametrize("kind", ["sqlite", "wal", "dir"])
def test_dead_worker_is_not_ready_after_a_restart_of_the_coordinator(tmp_path, kind):
    url = f"{kind}:{tmp_path / 'store'}"
    with running(url) as serving:
        store = HttpStore.open(serving.url)
        store.workers.note(worker("dead", SystemClock()))
        assert [one.state for one in store.workers.all()] == ["ready"]
        store.close()
    with running(url) as serving:
        store = HttpStore.open(serving.url)
        assert [one.state for one in store.workers.all()] == ["lost"]
        store.workers.note(worker("dead", SystemClock()))
        assert [one.state for one in store.workers.all()] == ["ready"]
        store.close()
