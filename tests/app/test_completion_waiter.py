"""Whoever awaits something is told once, and not when they do not await it any more."""

from __future__ import annotations

import asyncio
import gc
import threading
from math import inf
from types import SimpleNamespace

import pytest

from holdfast import Holdfast
from holdfast.app.completion_waiter import PENDING, Awaited, Lookout, awaited
from holdfast.errors import ReservationTimeout, StoreBusy
from holdfast.model.commands import Reserve
from holdfast.stores.deadline import deadline
from holdfast.testing import ManualClock

#: Seconds after which a test that hangs is called broken; none waits so long.
LONG = 15


class Slow:
    """A lookout whose first look takes until it is told to end, and fails."""

    def __init__(self):
        self.is_looking, self.may_end = threading.Event(), threading.Event()

    def add(self, who):
        self.is_looking.set()
        assert self.may_end.wait(LONG)
        who.fail(StoreBusy("the coordinator is away."))

    def drop(self, who):
        pass


def test_who_was_cancelled_during_the_first_look_leaves_no_error_that_nobody_fetches():
    slow, complaints = Slow(), []

    async def main():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: complaints.append(context["message"]))
        app = SimpleNamespace(lookout=lambda: slow, clock=ManualClock())
        waiting = asyncio.create_task(awaited(app, lambda _view: None, None))
        assert await asyncio.to_thread(slow.is_looking.wait, LONG)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        slow.may_end.set()
        await loop.shutdown_default_executor()

    asyncio.run(main())
    gc.collect()
    assert complaints == []


def test_who_has_left_before_the_first_look_is_not_looked_after():
    with Holdfast("memory:") as hf:
        lookout = Lookout(hf.engine)

        async def main():
            who = Awaited(lambda _view: PENDING)
            who.leave()
            lookout.add(who)

        asyncio.run(main())
        assert not lookout._awaited
        assert lookout._thread is None


def test_the_limit_of_who_awaits_is_counted_from_the_call_not_from_when_the_store_was_open():
    clock = ManualClock()

    def opened():
        clock.advance(3600)
        return SimpleNamespace(add=lambda _who: None, drop=lambda _who: None)

    app = SimpleNamespace(lookout=opened, clock=clock)
    assert asyncio.run(awaited(app, lambda _view: PENDING, clock.monotonic() + 3600)) is None


def test_what_a_group_came_to_is_fetched_with_the_patience_of_who_awaits_it(monkeypatch):
    with Holdfast("memory:") as hf:

        @hf.task
        def one() -> int:
            return 1

        group = hf.fan_out(one, [()])
        hf.work(until_idle=True)
        until, outcomes = [], type(group).outcomes

        def told(self, **given):
            until.append(deadline())
            return outcomes(self, **given)

        monkeypatch.setattr(type(group), "outcomes", told)
        assert asyncio.run(group.aio.results()) == group.results() == [1]
        assert until == [inf, inf]


WAITS = {
    "job": lambda hf: hf.task(name="t")(lambda: None).enqueue().result(timeout=0.05),
    "group": lambda hf: hf.group([hf.task(name="t")(lambda: None).job()]).wait(timeout=0.05),
    "workflow": lambda hf: hf.workflow(name="f")(_never).start().result(timeout=0.05),
}


async def _never() -> None: ...


@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("url", ["memory:", "sqlite:jobs.db", "wal:jobs", "dir:jobs"])
@pytest.mark.parametrize("what", WAITS)
def test_wait_with_a_timeout_ends_although_the_clock_stands_still(tmp_path, monkeypatch, url, what):
    monkeypatch.chdir(tmp_path)
    with Holdfast(url, clock=ManualClock()) as hf, pytest.raises(TimeoutError):
        WAITS[what](hf)


@pytest.mark.timeout(LONG)
def test_wait_with_a_timeout_ends_although_the_clock_stands_still_and_events_come():
    with Holdfast("memory:", clock=ManualClock()) as hf:
        task = hf.task(name="t")(lambda: None)
        wait = hf.engine.store.wait

        def busy(after, timeout):
            task.enqueue()
            return wait(after, timeout)

        hf.engine.store.wait = busy
        with pytest.raises(TimeoutError):
            task.enqueue().result(timeout=0.05)


@pytest.mark.timeout(LONG)
def test_wait_for_a_queue_ends_although_the_clock_stands_still():
    with Holdfast("memory:", clock=ManualClock()) as hf:
        hf.engine.ask(Reserve(reservation_id="r", queue="mail", reserved_by="another process"))
        with pytest.raises(ReservationTimeout):
            hf.reserve("mail", wait=0.05).acquire()
