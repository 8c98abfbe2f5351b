"""Whoever awaits something is told once, and not when they do not await it any more."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from holdfast.app.lookout import awaited
from holdfast.errors import StoreBusy

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
        waiting = asyncio.create_task(awaited(lambda: slow, lambda _view: None, None))
        assert await asyncio.to_thread(slow.is_looking.wait, LONG)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        slow.may_end.set()
        await loop.shutdown_default_executor()

    asyncio.run(main())
    gc.collect()
    assert complaints == []
