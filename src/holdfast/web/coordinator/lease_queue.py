"""The lobby: those who wait for work. Whoever has waited longest is asked first, and all of them in one commit.

It is served when something happened, when somebody joins, and once a second, for delays and rates end by time alone. A
lease that finds nothing writes nothing; one that is asked again under the same id gives what it gave before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from holdfast.errors import HoldfastError
from holdfast.failpoints import reach
from holdfast.model.commands import Command, Lease
from holdfast.model.outcomes import Leased, Outcome
from holdfast.stores.http.wire import MOST_COMMANDS
from holdfast.web.coordinator.event_notifier import Bell

#: Seconds between two tries for those who wait, when nothing happens.
NAP_S = 1.0

#: Has commands decided, without blocking the loop.
Submit = Callable[[Sequence[Command]], Awaitable[list[Outcome]]]


class _Place(NamedTuple):
    command: Lease
    outcome: asyncio.Future[Outcome]


class Lobby:
    """Leases that wait, oldest first."""

    def __init__(self, bell: Bell, submit: Submit) -> None:
        self._bell = bell
        self._submit = submit
        self._places: list[_Place] = []
        self._joined = asyncio.Event()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._places)

    async def lease(self, command: Lease, wait_s: float) -> Outcome:
        """Have a lease decided, waiting up to `wait_s` seconds for one that finds something.

        How many may wait is the door's business.
        """
        place = _Place(command, asyncio.get_running_loop().create_future())
        self._places.append(place)
        self._joined.set()
        reach("lobby.joined")
        try:
            async with asyncio.timeout(wait_s):
                return await place.outcome
        except TimeoutError:
            # It may be just being decided; then what was granted must not be lost to this caller.
            return await self._last_try(place)
        finally:
            if place in self._places:
                self._places.remove(place)
            reach("lobby.left")

    async def _last_try(self, place: _Place) -> Outcome:
        """Ask once more, at the end: under the same id it gives what was granted meanwhile, if anything was."""
        return (await self._submit([place.command]))[0]

    async def serve(self) -> None:
        """Serve them until the bell is closed."""
        seen = -1
        while not self._bell.is_closed:
            self._joined.clear()
            seen = self._bell.seq
            if self._places:
                await self._serve_all(list(self._places))
            await self._pause(seen)
        for place in self._places:
            if not place.outcome.done():
                place.outcome.set_result(Leased())

    async def _serve_all(self, places: Sequence[_Place]) -> None:
        for at in range(0, len(places), MOST_COMMANDS):
            await self._serve(places[at : at + MOST_COMMANDS])

    async def _serve(self, places: Sequence[_Place]) -> None:
        """Ask for some of them in one commit."""
        try:
            outcomes = await self._submit([place.command for place in places])
        except Exception as problem:  # noqa: BLE001 - they must hear of it, whatever it is, and the others be served on
            if len(places) > 1 and not isinstance(problem, HoldfastError):
                # One of them broke the code itself. Each alone, so that no other pays for it.
                for place in places:
                    await self._serve([place])
                return
            for place in places:
                if not place.outcome.done():
                    place.outcome.set_exception(problem)
            return
        for place, outcome in zip(places, outcomes, strict=True):
            if outcome != Leased() and not place.outcome.done():
                place.outcome.set_result(outcome)

    async def _pause(self, seen: int) -> None:
        """Sleep until something happened, somebody joined, or it is time to look again."""
        timeout_s = NAP_S if self._places else 60.0
        rung = asyncio.ensure_future(self._bell.listen(seen, timeout_s))
        joined = asyncio.ensure_future(self._joined.wait())
        try:
            await asyncio.wait({rung, joined}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (rung, joined):
                task.cancel()
            await asyncio.gather(rung, joined, return_exceptions=True)
