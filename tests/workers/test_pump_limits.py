"""A worker refused by a limit goes on as soon as it may: by the event that frees a place, or when a rate opens."""

import threading

import pytest

from holdfast.failpoints import listening
from holdfast.model.commands import Lease

#: Seconds after which a test that hangs is called broken; none waits so long.
LONG = 20


def drive(w):
    """Let the pump do all it has to do now."""
    while w.pump.cycle():
        pass


def settle(w):
    """Look and lease until there is nothing more to try."""
    for _ in range(3):
        w.pump.look()
        drive(w)


def drive_until(w, job):
    drive(w)
    while job.status != "COMPLETED":
        w.slots.wait(LONG)
        drive(w)


@pytest.fixture
def gated(hf):
    started, let_go = threading.Semaphore(0), threading.Semaphore(0)

    @hf.task(name="waits")
    def waits() -> None:
        started.release()
        assert let_go.acquire(timeout=LONG)

    return waits, started, let_go


def test_a_worker_refused_for_want_of_a_place_starts_the_next_job_when_another_worker_is_done(hf, gated):
    waits, started, let_go = gated
    hf.queue("default").set(max_running=1)
    first, second = waits.enqueue(), waits.enqueue()
    one, other = hf.worker(concurrency=1), hf.worker(concurrency=1)
    drive(one)
    assert started.acquire(timeout=LONG)
    settle(other)
    assert (first.status, second.status) == ("RUNNING", "QUEUED")
    woken = threading.Event()
    watcher = other.pump._watcher
    watcher.start()
    watcher._stirred = lambda: (other.pump._stir(), woken.set())
    watcher.arm(other.pump._outlook.seq)
    one.pump.quiet()
    let_go.release()
    drive_until(one, first)
    assert woken.wait(LONG)
    other.pump._rest()
    drive(other)
    assert second.status == "RUNNING"
    assert started.acquire(timeout=LONG)
    let_go.release()
    drive_until(other, second)
    watcher.close()
    for w in (one, other):
        w.slots.close()


def test_a_worker_refused_by_a_limit_does_not_ask_again_until_something_happened(hf, gated):
    waits, started, let_go = gated
    hf.queue("default").set(max_running=1)
    waits.enqueue()
    waits.enqueue()
    w = hf.worker(concurrency=2)
    drive(w)
    assert started.acquire(timeout=LONG)
    settle(w)
    sent = []
    with listening("pump.sent", lambda: sent.append(1)):
        settle(w)
    assert sent == []
    let_go.release(2)
    w.slots.wait(LONG)
    w.slots.close()


def test_a_worker_asks_for_nothing_while_all_that_waits_has_a_full_key(hf, gated):
    waits, started, let_go = gated
    for _ in range(2):
        waits.options(limit_key="k").enqueue()
    one, other = hf.worker(concurrency=1), hf.worker(concurrency=1)
    drive(one)
    assert started.acquire(timeout=LONG)
    other.pump._outlook.hope = False
    sent = []
    with listening("pump.sent", lambda: sent.append(1)):
        settle(other)
    assert sent == []
    let_go.release(2)
    one.slots.wait(LONG)
    for w in (one, other):
        w.slots.close()


def test_a_worker_refused_by_a_rate_goes_on_when_it_opens(hf, clock):
    @hf.task(name="call")
    def call() -> None: ...

    hf.queue("default").set(rate=(2, 60))
    jobs = [call.enqueue() for _ in range(3)]
    w = hf.worker(concurrency=4)
    drive_until(w, jobs[1])
    clock.advance(10)
    settle(w)
    assert jobs[2].status == "QUEUED"
    assert w.pump._outlook.delayed_at == pytest.approx(clock.monotonic() + 50)
    assert w.pump._wake_at(1) <= clock.monotonic() + 50
    clock.advance(50)
    w.pump._rest()  # sleeps no longer: the time has come
    drive_until(w, jobs[2])
    w.slots.close()


def test_a_worker_refused_by_the_rate_of_a_key_goes_on_when_it_opens(hf, clock):
    @hf.task(name="call", limit_key="api", key_limit=9)
    def call() -> None: ...

    hf.queue("default").set(rate=(1, 60), rate_scope="key")
    first, second = call.enqueue(), call.enqueue()
    w = hf.worker(concurrency=4)
    drive_until(w, first)
    settle(w)
    assert w.pump._outlook.delayed_at == pytest.approx(clock.monotonic() + 60)
    clock.advance(60)
    w.pump._rest()
    drive_until(w, second)
    w.slots.close()


@pytest.mark.parametrize("scope", ["queue", "key"])
def test_a_rate_that_opens_between_a_lease_and_the_look_after_it_is_not_missed(hf, clock, scope):
    @hf.task(name="call", limit_key="api", key_limit=9)
    def call() -> None: ...

    hf.queue("default").set(rate=(1, 60), rate_scope=scope)
    first, second = call.enqueue(), call.enqueue()
    w = hf.worker(concurrency=4)
    drive_until(w, first)
    clock.advance(59)
    w.pump.look()
    drive(w)  # refused: a second is left
    clock.advance(1)
    w.pump._rest()  # by now nothing holds the job back, and nothing will ever happen
    drive(w)
    assert second.status in {"RUNNING", "COMPLETED"}
    drive_until(w, second)
    w.slots.close()


def test_work_until_idle_does_not_wait_for_a_rate_to_open(hf):
    @hf.task(name="call")
    def call() -> None: ...

    hf.queue("default").set(rate=(1, 3600))
    first, second = call.enqueue(), call.enqueue()
    hf.work(until_idle=True)
    assert (first.status, second.status) == ("COMPLETED", "QUEUED")
    assert hf.engine.ask(Lease(worker_id="w")).grants == ()
