"""The watcher says once, for each time it is armed, that something is new."""

import threading

import msgspec
import pytest

from holdfast.engine.engine import Engine
from holdfast.errors import StoreBusy, StoreClosed, StoreFailed
from holdfast.model.commands import Enqueue, NewJob
from holdfast.model.ids import JobId
from holdfast.stores.deadline import deadline
from holdfast.stores.memory.store import MemoryStore
from holdfast.workers.store_watcher import Watcher

LONG = 20


@pytest.fixture
def engine():
    with_store = Engine(MemoryStore())
    yield with_store
    with_store.close()


def enqueue(engine, name):
    engine.ask(Enqueue(jobs=(NewJob(job_id=JobId(name), job_type="t", params=msgspec.Raw(b"{}")),)))
    with engine.read() as view:
        return view.seq


def test_an_armed_watcher_tells_of_the_next_event_and_of_one_it_missed(engine):
    told = threading.Semaphore(0)
    watcher = Watcher(engine.store, told.release)
    watcher.start()
    watcher.arm(0)
    last = enqueue(engine, "a")
    assert told.acquire(timeout=LONG)
    enqueue(engine, "b")
    watcher.arm(last)  # after the fact
    assert told.acquire(timeout=LONG)
    watcher.close()


def test_a_disarmed_watcher_is_silent(engine):
    told = threading.Semaphore(0)
    watcher = Watcher(engine.store, told.release)
    watcher.start()
    watcher.arm(0)
    watcher.disarm()
    last = enqueue(engine, "a")
    watcher.arm(last)
    last = enqueue(engine, "b")
    assert told.acquire(timeout=LONG)
    assert not told.acquire(blocking=False)
    watcher.close()


def test_a_closed_watcher_ends_its_thread(engine):
    before = set(threading.enumerate())
    watcher = Watcher(engine.store, lambda: None)
    watcher.start()
    (thread,) = set(threading.enumerate()) - before
    watcher.close()
    thread.join(LONG)
    assert not thread.is_alive()


def test_a_store_that_is_gone_is_told_too(engine, monkeypatch):
    def gone(after, timeout):
        raise StoreClosed("it is gone.")

    monkeypatch.setattr(engine.store, "wait", gone)
    told = threading.Event()
    watcher = Watcher(engine.store, told.set)
    watcher.start()
    watcher.arm(0)
    assert told.wait(LONG)


def test_a_store_that_could_not_be_asked_for_a_moment_is_watched_again(engine, monkeypatch):
    wait, told, troubles = engine.store.wait, threading.Semaphore(0), [StoreBusy("it is locked."), StoreFailed("no.")]

    def sometimes(after, timeout):
        if troubles:
            raise troubles.pop()
        return wait(after, timeout)

    monkeypatch.setattr(engine.store, "wait", sometimes)
    monkeypatch.setattr("holdfast.workers.store_watcher.PAUSE_S", 0)
    heard = threading.Semaphore(0)
    watcher = Watcher(engine.store, told.release, heard.release)
    watcher.start()
    for _ in range(2):
        watcher.arm(0)
        assert told.acquire(timeout=LONG)  # the pump looks by itself
        assert heard.acquire(timeout=LONG)  # and so does who waits for wishes
    monkeypatch.undo()
    watcher.arm(0)
    enqueue(engine, "a")
    assert told.acquire(timeout=LONG)
    watcher.close()


def test_a_store_elsewhere_that_does_not_answer_is_soon_left_to_the_pump(engine, monkeypatch):
    until = []

    def silent(after, timeout):
        until.append(deadline())
        raise StoreBusy("nobody answers.")

    monkeypatch.setattr(engine.store, "wait", silent)
    told = threading.Event()
    watcher = Watcher(engine.store, told.set, monotonic=lambda: 5.0)
    watcher.start()
    watcher.arm(0)
    assert told.wait(LONG)
    watcher.close()
    assert until[0] == 15.0
