"""Queues and who holds them, awaited: the twins of `app.handles.queue` and `app.handles.reservation`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.app.handles.queue import Dispatch, Limits, Queue
from holdfast.app.handles.reservation import Reservation
from holdfast.app.queue_wait import Wait
from holdfast.model.jobs import JobStatus
from holdfast.model.records import Queue as Settings

if TYPE_CHECKING:
    from typing import Unpack


class AioQueue:
    """A queue, awaited."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    async def settings(self) -> Settings:
        """Read its settings."""
        return await asyncio.to_thread(self._queue.settings)

    async def set(self, **limits: Unpack[Limits]) -> None:
        """Change its limits."""
        await asyncio.to_thread(lambda: self._queue.set(**limits))

    async def counts(self) -> dict[JobStatus, int]:
        """Count its jobs by status."""
        return await asyncio.to_thread(self._queue.counts)

    async def pause(self, reason: str = "") -> None:
        """Stop leasing from it."""
        await asyncio.to_thread(self._queue.pause, reason)

    async def resume(self) -> None:
        """Lease from it again."""
        await asyncio.to_thread(self._queue.resume)

    async def normalize(self) -> None:
        """Give its jobs evenly spaced places again."""
        await asyncio.to_thread(self._queue.normalize)


class AioDispatch:
    """Leasing as a whole, awaited."""

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch

    async def pause(self, reason: str = "") -> None:
        """Stop leasing altogether."""
        await asyncio.to_thread(self._dispatch.pause, reason)

    async def resume(self) -> None:
        """Lease again."""
        await asyncio.to_thread(self._dispatch.resume)


class AioReservation:
    """A queue that is held, awaited."""

    def __init__(self, reservation: Reservation) -> None:
        self._reservation = reservation

    async def wait_idle(self, wait: Wait = None) -> None:
        """Wait until no job of the queue runs any more."""
        await asyncio.to_thread(self._reservation.wait_idle, wait)

    async def renew(self) -> None:
        """Hold it for its ttl from now on."""
        await asyncio.to_thread(self._reservation.renew)

    async def release(self) -> None:
        """Give the queue back."""
        await asyncio.to_thread(self._reservation.release)


class AioReserve:
    """What `async with hf.aio.reserve(…)` enters and leaves."""

    def __init__(self, make: Callable[[], Reservation]) -> None:
        self._make = make
        self._reservation: Reservation | None = None

    async def __aenter__(self) -> Reservation:
        """Wait for the queue and hold it."""
        reservation = self._reservation = await asyncio.to_thread(self._make)
        try:
            await asyncio.to_thread(reservation.acquire)
        except BaseException:
            # Not awaited: a thread may just be taking it, and gives it back as soon as it has it.
            asyncio.get_running_loop().run_in_executor(None, reservation.release)
            raise
        reservation.go_inside()
        return reservation

    async def __aexit__(self, *error: object) -> None:
        """Give the queue back."""
        assert self._reservation is not None
        self._reservation.go_outside()
        await asyncio.to_thread(self._reservation.release)
