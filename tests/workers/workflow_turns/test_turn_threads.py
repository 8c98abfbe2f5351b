"""The threads that run turns: those that hang are replaced, for what waits as for what comes."""

import itertools
import random
import threading

import pytest

from holdfast.workers.workflow_turns.threads import LONGEST_S, ThreadPool

#: Seconds after which a test that hangs is called broken; none waits so long.
LONG = 15


def test_what_waited_for_a_thread_that_is_written_off_is_done_by_another():
    crew = ThreadPool(1)
    hangs, goes_on, done = threading.Event(), threading.Event(), threading.Event()
    stuck = []

    def hang():
        stuck.append(threading.get_ident())
        hangs.set()
        goes_on.wait(LONG)

    crew.put(hang)
    assert hangs.wait(LONG)
    crew.put(done.set)
    crew.write_off(stuck[0])
    try:
        assert done.wait(LONG)
    finally:
        goes_on.set()
        crew.close()


def test_a_thread_that_comes_back_after_it_was_written_off_takes_no_more_work():
    crew = ThreadPool(1)
    hangs, goes_on = threading.Event(), threading.Event()
    threads = []

    def hang():
        threads.append(threading.current_thread())
        hangs.set()
        goes_on.wait(LONG)

    crew.put(hang)
    assert hangs.wait(LONG)
    crew.write_off(threads[0].ident)
    goes_on.set()
    threads[0].join(LONG)
    assert not threads[0].is_alive()
    crew.close()


def test_work_that_blocks_has_all_threads_and_no_more():
    crew = ThreadPool(4)
    at_once, goes_on = threading.Barrier(5), threading.Event()
    done = threading.Semaphore(0)

    def block():
        at_once.wait(LONG)
        goes_on.wait(LONG)
        done.release()

    for _ in range(4):
        crew.put(block)
    at_once.wait(LONG)  # all four are in it
    crew.put(done.release)
    assert not done.acquire(blocking=False)
    goes_on.set()
    try:
        assert all(done.acquire(timeout=LONG) for _ in range(5))
    finally:
        crew.close()


def test_short_work_goes_on_beside_work_that_blocks():
    crew = ThreadPool(2)
    blocked, goes_on = threading.Event(), threading.Event()
    threads = []
    done = threading.Semaphore(0)

    def block():
        blocked.set()
        goes_on.wait(LONG)

    def short():
        threads.append(threading.get_ident())
        done.release()

    crew.put(block)
    assert blocked.wait(LONG)
    try:
        for _ in range(500):
            crew.put(short)
        assert all(done.acquire(timeout=LONG) for _ in range(500))
    finally:
        goes_on.set()
        crew.close()
    assert len(set(threads)) == 1


class Times:
    """Times of a process that computes, or only waits, while time goes on by `beat_s` with each look at it."""

    def __init__(self, beat_s, share):
        self._now, self._beat_s, self._share = itertools.count(), beat_s, share

    def monotonic(self):
        return next(self._now) * self._beat_s

    def processor(self):
        return next(self._now) * self._beat_s * self._share


def blocked_twice(monkeypatch, times):
    """Block the one thread at work while something waits; give how often the lookout waited before it joined."""
    naps = []
    monkeypatch.setattr("holdfast.workers.workflow_turns.threads._clock", times)
    crew = ThreadPool(2)
    wait = crew._closing.wait
    monkeypatch.setattr(crew._closing, "wait", lambda timeout: naps.append(timeout) or wait(0.0001))
    goes_on, done = threading.Event(), threading.Event()
    crew.put(lambda: goes_on.wait(LONG))
    crew.put(done.set)
    try:
        assert done.wait(LONG)
    finally:
        goes_on.set()
        crew.close()
    return len(naps)


@pytest.mark.parametrize("share", [0, 3])
def test_what_waits_gets_a_thread_at_once_where_nobody_computes_or_many_do_at_once(monkeypatch, share):
    assert blocked_twice(monkeypatch, Times(0.001, share)) == 1


def test_what_waits_gets_a_thread_later_but_gets_it_where_the_process_computes_all_the_time(monkeypatch):
    naps = blocked_twice(monkeypatch, Times(0.001, share=1))
    assert 1 < naps <= LONGEST_S / 0.001


def test_everything_is_done_once_whatever_blocks_in_between():
    crew = ThreadPool(3)
    begun, lock, done = [], threading.Lock(), threading.Semaphore(0)
    pauses = random.Random(7)

    def work(number, pause_s):
        with lock:
            begun.append(number)
        if pause_s:
            threading.Event().wait(pause_s)
        done.release()

    for number in range(600):
        pause_s = pauses.choice([0] * 12 + [0.002, 0.008])
        crew.put(lambda number=number, pause_s=pause_s: work(number, pause_s))
    try:
        assert all(done.acquire(timeout=LONG) for _ in range(600))
    finally:
        crew.close()
    assert sorted(begun) == list(range(600))


def test_threads_end_when_it_is_closed():
    crew = ThreadPool(3)
    done, threads = threading.Semaphore(0), set()
    at_once = threading.Barrier(3)

    def work():
        threads.add(threading.current_thread())
        at_once.wait(LONG)
        done.release()

    for _ in range(3):
        crew.put(work)
    assert all(done.acquire(timeout=LONG) for _ in range(3))
    crew.close()
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive()


def test_a_thread_that_has_come_to_an_end_when_it_is_written_off_stays_and_nothing_waits_for_ever():
    crew = ThreadPool(1)
    idents = []

    def do():
        """Have something done, and wait until the thread that did it rests."""
        done = threading.Event()
        crew.put(lambda: (idents.append(threading.get_ident()), done.set()))
        assert done.wait(LONG)
        while not crew._resting:
            threading.Event().wait(0.001)

    try:
        do()
        crew.write_off(idents[0])  # decided while it was at work
        do()
        crew.write_off(idents[0])
        do()
    finally:
        crew.close()
    assert len(set(idents)) == 1
