"""The bell: that a store cannot be listened to any more is told, whatever went wrong."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from holdfast.errors import StoreFailed
from holdfast.web.coordinator.event_notifier import Bell

#: Seconds after which a test that hangs is called broken; none waits so long.
LONG = 15


@pytest.mark.parametrize("problem", [StoreFailed("the disk is gone"), KeyError("a fault of ours")])
def test_a_store_that_cannot_be_listened_to_is_told(problem):
    def wait(_after, _timeout_s):
        raise problem

    engine = SimpleNamespace(read=lambda: nullcontext(SimpleNamespace(seq=0)), store=SimpleNamespace(wait=wait))

    async def story():
        told = asyncio.get_running_loop().create_future()
        bell = Bell(engine, told.set_result)
        bell.start()
        assert await asyncio.wait_for(told, LONG) is problem
        bell.close()
        bell.join()

    asyncio.run(story())
