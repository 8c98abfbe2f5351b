"""Those who wait for work: whatever becomes of one look for them, the next one is taken."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import StoreBusy
from holdfast.model.commands import Lease
from holdfast.model.outcomes import Done
from holdfast.web.coordinator.lease_queue import Lobby

#: Seconds after which a test that hangs is called broken; none waits so long.
LONG = 15


class Silent:
    """A bell that never rings."""

    seq = 0
    is_closed = False

    async def listen(self, _after, _timeout_s):
        await asyncio.Event().wait()


async def submit(commands):
    """Decide leases; one of them breaks the code, another finds the store busy."""
    names = {command.worker_id for command in commands}
    if "unlucky" in names:
        raise KeyError
    if "early" in names:
        raise StoreBusy("not now")
    return [Done() for _ in commands]


@pytest.mark.parametrize(("name", "problem"), [("early", StoreBusy), ("unlucky", KeyError)])
def test_what_goes_wrong_once_does_not_end_the_serving(name, problem):
    async def story():
        lobby = Lobby(Silent(), submit)
        serving = asyncio.create_task(lobby.serve())
        with pytest.raises(problem):
            await lobby.lease(Lease(worker_id=name), LONG)
        assert not serving.done()
        assert await lobby.lease(Lease(worker_id="lucky"), LONG) == Done()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)

    asyncio.run(story())


def test_whoever_breaks_the_code_is_told_so_alone():
    async def story():
        lobby = Lobby(Silent(), submit)
        waiting = [asyncio.create_task(lobby.lease(Lease(worker_id=name), LONG)) for name in ("a", "unlucky", "b")]
        await asyncio.sleep(0)  # they stand there before anybody is served
        serving = asyncio.create_task(lobby.serve())
        first, broken, last = await asyncio.gather(*waiting, return_exceptions=True)
        assert (first, type(broken), last) == (Done(), KeyError, Done())
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)

    asyncio.run(story())
