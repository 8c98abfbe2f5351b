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
from holdfast.errors import StoreBusy
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
