"""A worker ends cleanly: nothing stays leased, whatever its handlers do."""

import asyncio
import math
import os
import signal
import sys
import threading
from importlib.metadata import PackageNotFoundError

import pytest

import holdfast
from holdfast import Holdfast
from holdfast.errors import InvalidOperation, InvalidValue
from holdfast.workers.handlers import context

LONG = 20


class Handlers:
    """Three kinds: one that ends when let go, one that ends when asked, one that never listens."""

    def __init__(self, hf):
        self.started = threading.Semaphore(0)
        self.open = threading.Event()

        @hf.task(name="willing")
        def willing() -> str:
            self.started.release()
            assert self.open.wait(LONG)
            return "done"

        @hf.task(name="asked")
        def asked() -> str:
            self.started.release()
            assert hf.current.wait_cancelled(LONG)
            return "done in time"

        @hf.task(name="deaf")
        async def deaf() -> str:
            self.started.release()
            while not self.open.is_set():
                try:
                    await asyncio.sleep(0.01)
                except BaseException:  # noqa: BLE001 - that is what makes it deaf
                    continue
            return "far too late"

        self.willing, self.asked, self.deaf = willing, asked, deaf

    def wait_started(self, count):
        for _ in range(count):
            assert self.started.acquire(timeout=LONG)


@pytest.fixture
def handlers(hf):
    found = Handlers(hf)
    yield found
    found.open.set()


def test_a_drained_worker_lets_its_handlers_end_and_leases_no_more(hf, handlers):
    running = handlers.willing.enqueue()
    w = hf.worker(concurrency=2)
    w.start()
    handlers.wait_started(1)
    w.drain(grace_s=30)
    late = handlers.willing.enqueue()
    handlers.open.set()
    assert w.join(LONG)
    assert (running.status, late.status) == ("COMPLETED", "QUEUED")


@pytest.mark.parametrize("grace_s", [30, math.inf, math.nan, -1])
def test_an_idle_worker_ends_at_once_whatever_the_grace(hf, handlers, grace_s):
    w = hf.worker(concurrency=2)
    w.start()
    w.drain(grace_s)
    assert w.join(LONG)


def test_a_grace_without_end_lets_every_handler_end(hf, handlers):
    job = handlers.willing.enqueue()
    w = hf.worker(concurrency=2)
    w.start()
    handlers.wait_started(1)
    w.drain(math.inf)
    handlers.open.set()
    assert w.join(LONG)
    assert job.result(timeout=0) == "done"


def test_after_the_grace_handlers_are_asked_to_stop(hf, handlers):
    job = handlers.asked.enqueue()
    w = hf.worker(concurrency=2)
    w.start()
    handlers.wait_started(1)
    w.drain(grace_s=0)
    assert w.join(LONG)
    assert job.result(timeout=0) == "done in time"


@pytest.mark.parametrize("kind", ["willing", "deaf"])
def test_what_does_not_end_is_released_so_that_others_can_take_it_at_once(hf, clock, handlers, kind):
    job, w = getattr(handlers, kind).enqueue(), hf.worker(concurrency=2)

    def drive():
        while w.pump.cycle():
            pass

    drive()
    handlers.wait_started(1)
    w.drain(grace_s=30)
    for _ in range(3):
        drive()
        assert [held.stop for held in w.slots.held()] == [None]
        clock.advance(10)
    drive()
    assert [held.stop for held in w.slots.held()] == ["shutdown"]
    clock.advance(5)
    drive()
    w.pump.run()  # finds that it is over
    record = job.refresh()
    assert (record.status, record.token, record.attempts, record.expiries) == ("QUEUED", None, 0, 0)
    assert [(run.status, run.reason) for run in job.runs()] == [("CANCELLED", "released")]


def test_a_stopped_worker_waits_for_nobody(hf, handlers):
    jobs = [handlers.willing.enqueue(), handlers.deaf.enqueue()]
    w = hf.worker(concurrency=2)
    w.start()
    handlers.wait_started(2)
    w.stop()
    assert w.join(LONG)
    assert [job.status for job in jobs] == ["QUEUED", "QUEUED"]
    handlers.open.set()


def test_a_chained_job_that_was_begun_is_followed_by_a_new_one(hf, handlers):
    job = handlers.willing.options(retry="chain").enqueue()
    w = hf.worker(concurrency=2)
    w.start()
    handlers.wait_started(1)
    w.stop()
    assert w.join(LONG)
    assert job.status == "CANCELLED"
    assert [other.status for other in hf.jobs(status="QUEUED")] == ["QUEUED"]


def test_two_workers_share_the_work_and_nothing_runs_twice(hf):
    seen, lock = [], threading.Lock()

    @hf.task
    def note(n: int) -> None:
        with lock:
            seen.append(n)

    note.enqueue_many([(n,) for n in range(100)])
    workers = [hf.worker(concurrency=4, until_idle=True) for _ in range(2)]
    assert workers[0].worker_id != workers[1].worker_id
    for w in workers:
        w.start()
    for w in workers:
        assert w.join(LONG)
    assert sorted(seen) == list(range(100))


def test_a_waiting_worker_is_woken_by_an_enqueue(url):
    with Holdfast(url) as hf:
        done = threading.Event()

        @hf.task
        def ring() -> None:
            done.set()

        w = hf.worker(concurrency=2)
        w.start()
        ring.enqueue()
        assert done.wait(LONG)
        w.drain(0)
        assert w.join(LONG)


def send_signal(number):
    """Send this process a signal, but only to a worker that hears it: anything else would end the tests."""
    assert signal.getsignal(number) not in (signal.SIG_DFL, signal.default_int_handler), "the worker is over already"
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_the_worker_of_the_main_thread(hf, handlers, number):
    job = handlers.willing.enqueue()
    before = signal.getsignal(number)

    def send():
        handlers.wait_started(1)
        send_signal(number)
        handlers.open.set()

    sender = threading.Thread(target=send)
    sender.start()
    hf.work(concurrency=2)
    sender.join(LONG)
    assert job.status == "COMPLETED"
    assert signal.getsignal(number) is before


def test_a_second_signal_stops_now(hf, handlers):
    job = handlers.willing.enqueue()

    def send():
        handlers.wait_started(1)
        send_signal(signal.SIGTERM)
        assert draining.wait(LONG)
        send_signal(signal.SIGTERM)

    draining = threading.Event()
    sender = threading.Thread(target=send)
    sender.start()
    hf.worker(concurrency=2).run(heard=draining.set)
    sender.join(LONG)
    assert job.status == "QUEUED"


def test_a_signal_is_heard_from_when_it_says_that_it_has_begun(hf):
    heard = []
    hf.worker(concurrency=2).run(heard=lambda: heard.append(1), begun=lambda: send_signal(signal.SIGTERM))
    assert heard == [1]


def test_outside_the_main_thread_signals_are_left_alone(hf):
    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=hf.work, kwargs={"until_idle": True})
    thread.start()
    thread.join(LONG)
    assert not thread.is_alive()
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(("queues", "concurrency"), [(["a b"], 1), ([], 1), (None, 0), (["../x\n"], 1)])
def test_a_worker_that_makes_no_sense_is_refused(hf, queues, concurrency):
    with pytest.raises(InvalidValue):
        hf.worker(queues, concurrency)


def test_a_child_of_a_worker_cannot_become_a_worker(hf, monkeypatch):
    monkeypatch.setattr(context, "is_child", True)
    with pytest.raises(InvalidOperation, match="__main__"):
        hf.work()


def test_a_worker_needs_no_installed_package_to_know_its_version(hf, monkeypatch):
    def is_missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.distribution", is_missing)  # as in a bundle, or on a bare path
    w = hf.worker(concurrency=1)
    w.presence.arrive()
    assert [seen.version for seen in hf.workers()] == [holdfast.__version__]


def test_a_worker_works_once_and_one_that_ended_leaves_no_trace_of_another_try(hf):
    w, stdout = hf.worker(concurrency=1), sys.stdout
    w.start()
    with pytest.raises(InvalidOperation, match="started before"):
        w.start()
    w.drain(0)
    assert w.join(LONG)
    with pytest.raises(InvalidOperation, match="started before"):
        w.start()
    assert hf.workers() == []
    assert sys.stdout is stdout
