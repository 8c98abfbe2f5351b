"""Signals of one execution: a FIFO mailbox per name, filled whether or not anybody waits."""

from __future__ import annotations

import asyncio

from holdfast.model.workflows.event_kinds import Carried


class Mailboxes:
    """What came in and was not read yet. A wait that is cancelled takes nothing."""

    def __init__(self) -> None:
        self._boxes: dict[str, asyncio.Queue[tuple[int, str]]] = {}
        self._waiting: dict[str, int] = {}
        #: Name → how many were set aside, and why the last one was.
        self._rejected: dict[str, tuple[int, str]] = {}
        self._arrived = 0
        self._unread: tuple[Carried, ...] = ()

    def put(self, name: str, data: str) -> None:
        """Keep a signal, and wake who has waited longest for its name."""
        self._arrived += 1
        self._box(name).put_nowait((self._arrived, data))

    async def get(self, name: str) -> tuple[int, str]:
        """Wait for the next signal of that name; give its number among all signals, and its data."""
        self._waiting[name] = self._waiting.get(name, 0) + 1
        try:
            return await self._box(name).get()
        finally:
            self._waiting[name] -= 1

    def reject(self, name: str, reason: str) -> None:
        """Note that a signal was set aside."""
        count, _ = self._rejected.get(name, (0, ""))
        self._rejected[name] = (count + 1, reason)

    def rejected(self, name: str) -> tuple[int, str] | None:
        """Say how many signals of that name were set aside, and why the last one was; None: none."""
        return self._rejected.get(name)

    def seal(self) -> None:
        """Keep what nobody read for the next execution, whatever clean-up still reads."""
        found: list[tuple[int, Carried]] = []
        for name, box in self._boxes.items():
            while not box.empty():
                arrived, data = box.get_nowait()
                found.append((arrived, (name, data)))
        self._unread += tuple(carried for _, carried in sorted(found))

    def unread(self) -> tuple[Carried, ...]:
        """Give all that nobody had read when it was sealed, in the order it came."""
        return self._unread

    def awaited(self) -> list[str]:
        """Name the signals that somebody waits for."""
        return [name for name, count in self._waiting.items() if count]

    def _box(self, name: str) -> asyncio.Queue[tuple[int, str]]:
        return self._boxes.setdefault(name, asyncio.Queue())
