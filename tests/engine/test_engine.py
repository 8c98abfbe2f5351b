"""The one writer path: group commit, and everyone gets their own outcome whatever happens to the others."""

import os
import signal
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import msgspec
import pytest

from holdfast.engine import Engine
from holdfast.engine import engine as engine_module
from holdfast.errors import (
    CorruptState,
    InvalidOperation,
    InvalidValue,
    JobNotFound,
    RecordTooLarge,
    StoreClosed,
    StoreFailed,
)
from holdfast.failpoints import listening
from holdfast.model import commands as c
from holdfast.model.access import Access, Role
from holdfast.model.jobs import Job, JobStatus, Run
from holdfast.model.outcomes import Enqueued, Refusal
from holdfast.stores.memory.store import MemoryStore
from holdfast.testing.clock import ManualClock


def new(job_id, params=b"{}", **options):
    return c.Enqueue(jobs=(c.NewJob(job_id=job_id, job_type="t", params=msgspec.Raw(params), **options),))


class CountingStore(MemoryStore):
    """Counts its commits; fails when told to, before or after the state has changed for the batch."""

    def __init__(self):
        super().__init__()
        self.commits = 0
        self.failure = None

    @contextmanager
    def write(self):
        with super().write() as batch:
            yield batch
            self.commits += 1
            if self.failure is not None:
                raise self.failure


class Line(deque):
    """The line of waiters; tells each time someone joins it."""

    def __init__(self):
        super().__init__()
        self.joined = threading.Semaphore(0)

    def append(self, waiter):
        super().append(waiter)
        self.joined.release()


class Stage:
    """An engine whose first batch is held open until a test says so."""

    def __init__(self):
        self.store = CountingStore()
        self.engine = Engine(self.store, clock=ManualClock())
        self.engine._waiting = self.line = Line()
        self.pool = ThreadPoolExecutor(32)
        self.futures = {}
        self.reached = threading.Event()
        self.go = threading.Event()
        #: What happens at the point in each batch after the first.
        self.then = lambda: None
        self.batches = 0

    def at_point(self):
        self.batches += 1
        if self.batches == 1:
            self.reached.set()
            assert self.go.wait(30)
        else:
            self.then()

    def send(self, name, command):
        """Send from a thread of its own; return when it stands in the line."""
        self.futures[name] = self.pool.submit(self.engine.submit, command)
        assert self.line.joined.acquire(timeout=30)

    def lead(self):
        """Let one caller lead, and hold it."""
        self.send("first", new("first"))
        assert self.reached.wait(30)

    def finish(self):
        self.go.set()
        self.pool.shutdown(wait=True)

    def jobs(self):
        with self.engine.read() as view:
            return sorted(job.job_id for job in view.all(Job))


@pytest.fixture
def stage():
    stage = Stage()
    with listening("engine.decided", stage.at_point):
        yield stage
        stage.finish()


def answer(future):
    return future.result(timeout=30)


# --- group commit -----------------------------------------------------------------------------------------------------


def test_all_who_wait_share_one_commit_and_each_gets_its_own_outcome(stage):
    stage.lead()
    for number in range(20):
        stage.send(number, new(f"j{number}"))
    stage.finish()
    assert stage.store.commits == 2
    for number in range(20):
        assert answer(stage.futures[number]).jobs[0].job_id == f"j{number}"
    assert len(stage.jobs()) == 21


def test_commands_of_one_batch_are_decided_in_the_order_of_arrival_and_see_each_other(stage):
    stage.lead()
    stage.send("enqueue", new("j", priority=9))
    stage.send("lease", c.Lease(worker_id="w"))
    stage.send("cancel", c.Cancel(job_id="j"))
    stage.finish()
    assert stage.store.commits == 2
    assert [grant.job.job_id for grant in answer(stage.futures["lease"]).grants] == ["j"]
    assert answer(stage.futures["cancel"]).outcome == "requested"


def test_nobody_hears_an_outcome_before_the_commit(stage):
    stage.lead()
    stage.send("second", new("second"))
    assert not stage.futures["first"].done()
    assert not stage.futures["second"].done()
    stage.finish()
    assert isinstance(answer(stage.futures["first"]), Enqueued)


def test_a_batch_takes_no_more_than_its_share(stage, monkeypatch):
    monkeypatch.setattr(engine_module, "BATCH", 3)
    stage.lead()
    for number in range(7):
        stage.send(number, new(f"j{number}"))
    stage.finish()
    assert stage.store.commits == 1 + 3  # 3 + 3 + 1
    assert len(stage.jobs()) == 8


def test_more_commands_than_a_batch_takes_still_go_together(monkeypatch):
    monkeypatch.setattr(engine_module, "BATCH", 3)
    store = CountingStore()
    outcomes = Engine(store, clock=ManualClock()).submit_many([new(f"j{number}") for number in range(10)])
    assert (len(outcomes), store.commits) == (10, 1)


def test_no_commands_give_no_outcomes():
    assert Engine(MemoryStore(), clock=ManualClock()).submit_many([]) == []


def test_many_threads_lose_and_repeat_nothing():
    store = CountingStore()
    engine = Engine(store, clock=ManualClock())

    def work(number):
        return [engine.submit(new(f"{number}-{turn}")).jobs[0].created for turn in range(50)]

    with ThreadPoolExecutor(8) as pool:
        created = [made for mine in pool.map(work, range(8)) for made in mine]
    assert created == [True] * 400
    assert store.commits <= 400
    with engine.read() as view:
        assert sum(1 for _ in view.all(Job)) == 400
        assert view.seq == 400


# --- one bad member ---------------------------------------------------------------------------------------------------


def test_a_refused_member_gets_its_own_verdict_and_the_others_theirs(stage):
    stage.lead()
    stage.send("good", new("good"))
    stage.send("bad value", new("bad", priority=101))
    stage.send("bad payload", new("nan", b'{"a":NaN}'))
    stage.send("unknown", c.Cancel(job_id="nobody"))
    stage.send("better", new("better"))
    stage.finish()
    assert stage.store.commits == 2
    codes = {name: getattr(answer(future), "code", None) for name, future in stage.futures.items()}
    assert codes == {
        "first": None, "good": None, "bad value": "invalid_value", "bad payload": "invalid_value",
        "unknown": "job_not_found", "better": None,
    }  # fmt: skip
    assert stage.jobs() == ["better", "first", "good"]


def test_a_member_whose_record_does_not_fit_is_refused_alone(stage, monkeypatch):
    fits = type(stage.store._tables).add

    def add(tables, events, now):
        if any(getattr(event, "job", None) and event.job.job_id == "huge" for event in events):
            raise RecordTooLarge("too large.", field="params")
        fits(tables, events, now)

    monkeypatch.setattr(type(stage.store._tables), "add", add)
    stage.lead()
    stage.send("huge", new("huge"))
    stage.send("good", new("good"))
    stage.finish()
    assert answer(stage.futures["huge"]).code == "record_too_large"
    assert isinstance(answer(stage.futures["good"]), Enqueued)


def test_a_member_that_breaks_the_code_is_told_alone(stage, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError

    monkeypatch.setattr("holdfast.rules.jobs.edits.decide_cancel", broken)
    stage.lead()
    stage.send("good", new("good"))
    stage.send("broken", c.Cancel(job_id="first"))
    stage.send("better", new("better"))
    stage.finish()
    assert isinstance(answer(stage.futures["good"]), Enqueued)
    assert isinstance(answer(stage.futures["better"]), Enqueued)
    with pytest.raises(ZeroDivisionError):
        answer(stage.futures["broken"])
    assert stage.jobs() == ["better", "first", "good"]
    assert stage.engine.submit(new("after")).jobs[0].created


def test_a_contradiction_in_the_state_stops_the_authority():
    store = CountingStore()
    engine = Engine(store, clock=ManualClock())
    engine.submit(new("j"))
    (grant,) = engine.submit(c.Lease(worker_id="w")).grants
    with store.write() as batch:
        batch.put(Run, grant.run_id, None)  # as damage would
    with pytest.raises(CorruptState, match="no run for its lease"):
        engine.submit(c.Complete(job_id="j", token=grant.token))
    seq = store._tables.seq
    with pytest.raises(CorruptState, match="stopped"):
        engine.submit(new("k"))
    assert store._tables.seq == seq
    assert engine.job("j").status == "RUNNING"  # reading goes on


# --- a store that fails -----------------------------------------------------------------------------------------------


def test_when_the_store_fails_everyone_hears_it_and_the_state_is_as_before(stage):
    stage.lead()
    for number in range(5):
        stage.send(number, new(f"j{number}"))

    def fail():
        stage.store.failure = StoreFailed("the disk is gone.")

    stage.then = fail
    stage.finish()
    assert isinstance(answer(stage.futures["first"]), Enqueued)
    for number in range(5):
        with pytest.raises(StoreFailed):
            answer(stage.futures[number])
    assert stage.jobs() == ["first"]
    assert stage.store._tables.seq == 1
    assert [entry.seq for entry in stage.store.feed(0)] == [1]


def test_a_failed_commit_is_never_tried_again_behind_the_callers_back(stage):
    stage.lead()
    stage.send("second", new("second"))
    stage.send("third", new("third"))

    def fail():
        stage.store.failure = OSError("not one of ours")

    stage.then = fail
    stage.finish()
    assert stage.store.commits == 2
    for name in ("second", "third"):
        with pytest.raises(OSError, match="not one of ours"):
            answer(stage.futures[name])


def test_the_next_batch_goes_on_after_a_failed_one():
    store = CountingStore()
    engine = Engine(store, clock=ManualClock())
    store.failure = StoreFailed("once.")
    with pytest.raises(StoreFailed):
        engine.submit(new("a"))
    store.failure = None
    assert engine.submit(new("a")).jobs[0].created


# --- interruption -----------------------------------------------------------------------------------------------------


class Interrupted(BaseException):
    pass


def test_an_interrupted_leader_strands_nobody(stage):
    stage.lead()
    for number in range(6):
        stage.send(number, new(f"j{number}"))
    once = iter([True])

    def interrupt():
        if next(once, False):
            raise Interrupted

    stage.then = interrupt
    stage.finish()
    with pytest.raises(Interrupted):
        answer(stage.futures[0])
    for number in range(1, 6):
        assert answer(stage.futures[number]).jobs[0].created
    assert stage.jobs() == ["first", "j1", "j2", "j3", "j4", "j5"]
    assert stage.engine.submit(new("after")).jobs[0].created


def test_a_leader_interrupted_after_the_commit_leaves_everyone_their_outcome(stage):
    stage.lead()
    stage.send("leader", new("leader", key="k"))
    stage.send("lease", c.Lease(worker_id="w", n=2))
    stage.send("enqueue", new("j"))
    batches = iter([None, Interrupted])

    def interrupt():
        found = next(batches, None)
        if found is not None:
            raise found

    with listening("engine.committed", interrupt):
        stage.finish()
    with pytest.raises(Interrupted):
        answer(stage.futures["leader"])
    assert len(answer(stage.futures["lease"]).grants) == 2
    assert answer(stage.futures["enqueue"]).jobs[0].created
    assert stage.store.commits == 2  # nothing was decided twice


def test_a_lone_leader_that_is_interrupted_leaves_the_engine_usable():
    engine = Engine(MemoryStore(), clock=ManualClock())

    def interrupt():
        raise Interrupted

    for point in ("engine.decided", "engine.committed"):
        with listening(point, interrupt), pytest.raises(Interrupted):
            engine.submit(new(point))
    assert engine.submit(new("after")).jobs[0].created
    with engine.read() as view:
        assert sorted(job.job_id for job in view.all(Job)) == ["after", "engine.committed"]


@pytest.mark.parametrize("place", ["first in line", "last in line"])
def test_a_follower_that_is_interrupted_while_waiting_strands_nobody(stage, place):
    """Only the main thread can be interrupted, so it is the one that follows."""
    stage.lead()
    if place == "last in line":
        stage.send("other", new("other"))
    main = threading.main_thread().ident

    gone = threading.Event()

    def interrupt(*_):
        if not gone.is_set():
            gone.set()
            raise KeyboardInterrupt

    def disturb():
        assert stage.line.joined.acquire(timeout=30)  # the main thread stands in the line
        # A signal that comes just before the wait begins is only noticed with the next one.
        while not gone.wait(0.01):
            signal.pthread_kill(main, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        disturber = threading.Thread(target=disturb)
        disturber.start()
        with pytest.raises(KeyboardInterrupt):
            stage.engine.submit(new("mine"))
        disturber.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    if place == "first in line":
        stage.send("other", new("other"))
    stage.finish()
    assert answer(stage.futures["other"]).jobs[0].created
    assert stage.jobs() == ["first", "other"]  # what was given up before its turn never happened


# --- the face ---------------------------------------------------------------------------------------------------------


def test_asking_raises_the_refusal():
    engine = Engine(MemoryStore(), clock=ManualClock())
    with pytest.raises(JobNotFound) as caught:
        engine.ask(c.Cancel(job_id="nobody"))
    assert caught.value.facts == {"job_id": "nobody"}
    engine.ask(new("j"))
    engine.ask(c.Cancel(job_id="j"))
    with pytest.raises(InvalidOperation):
        engine.ask(c.Cancel(job_id="j"))
    with pytest.raises(InvalidValue):
        engine.ask(c.Enqueue(jobs=()))


def test_a_job_and_its_runs_can_be_read():
    engine = Engine(MemoryStore(), clock=ManualClock())
    engine.submit(new("j"))
    engine.submit(c.Lease(worker_id="w"))
    assert engine.job("j").status == "RUNNING"
    assert [run.worker_id for run in engine.runs("j")] == ["w"]
    assert engine.runs("nobody") == ()
    with pytest.raises(JobNotFound):
        engine.job("nobody")


def test_ids_are_new_and_grow_with_time():
    clock = ManualClock()
    engine = Engine(MemoryStore(), clock=clock)
    seen = []
    for _ in range(5):
        seen.append(engine.new_id())
        clock.advance(0.001)
    assert seen == sorted(set(seen))
    assert engine.session_id not in seen


def test_a_closed_engine_takes_no_command():
    engine = Engine(MemoryStore(), clock=ManualClock())
    engine.close()
    engine.close()
    with pytest.raises(StoreClosed):
        engine.submit(new("j"))


def test_those_who_wait_while_the_engine_closes_are_told(stage):
    stage.lead()
    stage.send("second", new("second"))
    closing = stage.pool.submit(stage.engine.close)
    stage.finish()
    closing.result(timeout=30)
    outcome = stage.futures["second"].exception(timeout=30)
    assert outcome is None or isinstance(outcome, StoreClosed)


def test_a_lease_clears_its_way_in_the_same_commit():
    clock, store = ManualClock(), CountingStore()
    engine = Engine(store, clock=clock)
    engine.submit(new("lapsed"))
    engine.submit(c.Lease(worker_id="w1"))
    engine.submit(new("delayed", delay_s=10))
    clock.advance(30)
    commits = store.commits
    grants = engine.submit(c.Lease(worker_id="w2", n=5)).grants
    assert [grant.job.job_id for grant in grants] == ["delayed", "lapsed"]
    assert store.commits == commits + 1
    assert engine.job("lapsed").expiries == 1


def test_a_lease_clears_no_more_than_a_hundred_lapsed_leases():
    clock = ManualClock()
    engine = Engine(MemoryStore(), clock=clock)
    for number in range(130):
        engine.submit(new(f"j{number:03}"))
    for _ in range(2):
        engine.submit(c.Lease(worker_id="w", n=65))
    clock.advance(30)
    assert len(engine.submit(c.Lease(worker_id="w", n=100)).grants) == 100
    assert len(engine.submit(c.Lease(worker_id="w", n=100)).grants) == 30


def test_a_refusal_is_an_outcome_and_no_exception():
    outcome = Engine(MemoryStore(), clock=ManualClock()).submit(c.Cancel(job_id="nobody"))
    assert isinstance(outcome, Refusal)


def test_rights_are_judged_by_the_state_a_command_meets_not_by_what_was_there_when_it_arrived():
    """Whoever may not touch a job does not catch it in the batch that makes it."""
    engine = Engine(MemoryStore(), clock=ManualClock())
    within = Access(name="x", roles=(Role.OPERATOR,), namespaces=("home",))
    made, cancelled = engine.submit_judged(
        [new("a", namespace="abroad"), c.Cancel(job_id="a", force=True)], [None, within]
    )
    assert (made.jobs[0].created, cancelled.code) == (True, "job_not_found")
    assert engine.job("a").status is JobStatus.QUEUED
    assert engine.submit_judged([c.Cancel(job_id="a")], [None])[0].outcome == "cancelled"


# --- forks ------------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")  # newer Pythons warn; that is the point
def test_a_child_forked_in_the_middle_of_a_commit_is_refused_and_never_waits():
    engine = Engine(MemoryStore(), clock=ManualClock())
    engine.submit(new("a"))
    ends = []

    def fork():
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # ends a child that waits for a thread it does not have
            os._exit(_refused_in_child(engine))
        ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    with listening("engine.decided", fork):
        engine.submit(new("b"))
    assert ends == [0]
    assert engine.job("b").status == "QUEUED"


def _refused_in_child(engine):
    """Use the parent's engine in every way; give the number of uses that were not refused."""
    allowed = 0
    for use in (lambda: engine.submit(new("c")), lambda: engine.job("a"), lambda: engine.runs("a"), engine.new_id):
        with suppress(StoreClosed):
            use()
            allowed += 1
    engine.close()
    return allowed
