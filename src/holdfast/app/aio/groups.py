"""Groups, awaited: the twins of `app.handles.group`. Waiting for a group's end takes no thread of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, Literal, TypeVar, overload

from holdfast.app.completion_waiter import awaited, within
from holdfast.app.handles.group import group_look, over_or_late
from holdfast.errors import WorkFailed
from holdfast.model.groups import Group as GroupRecord
from holdfast.model.groups import GroupStatus
from holdfast.model.outcomes import GroupCancelled
from holdfast.model.workers import Progress

if TYPE_CHECKING:
    from holdfast.app.handles.group import Group
    from holdfast.app.handles.job import Job

R = TypeVar("R")


class AioGroup(Generic[R]):
    """A group, awaited."""

    def __init__(self, group: Group[R]) -> None:
        self._group = group

    async def refresh(self) -> GroupRecord:
        """Read the group as it is now."""
        return await asyncio.to_thread(self._group.refresh)

    async def status(self) -> GroupStatus:
        """Give how far the group is, now."""
        return (await self.refresh()).status

    async def progress(self) -> Progress:
        """Give how many members have ended, of how many."""
        return await asyncio.to_thread(lambda: self._group.progress)

    async def jobs(self) -> list[Job[R]]:
        """List the members in their order."""
        return await asyncio.to_thread(self._group.jobs)

    async def wait(self, timeout: float | None = None) -> GroupRecord:  # noqa: ASYNC109 - the twin's own parameter
        """Wait until every member has ended. One thread looks after all who await."""
        app = self._group.app
        with within(app, timeout) as ends_at:
            ended = await awaited(app, group_look(self._group.id), ends_at)
            # As the twin does: one more look, which says how far it is.
            return ended or over_or_late(await self.refresh(), timeout)

    @overload
    async def results(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - the twin's own parameter
        *,
        return_exceptions: Literal[False] = False,
    ) -> list[R]: ...

    @overload
    async def results(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - the twin's own parameter
        *,
        return_exceptions: bool,
    ) -> list[R | WorkFailed]: ...

    async def results(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - the twin's own parameter
        *,
        return_exceptions: bool = False,
    ) -> list[R] | list[R | WorkFailed]:
        """Wait for the group's end and give what its members returned."""
        with within(self._group.app, timeout):
            await self.wait(timeout)
            return await asyncio.to_thread(self._group.outcomes, return_exceptions=return_exceptions)

    async def cancel(self, reason: str = "", *, running: bool = False) -> GroupCancelled:
        """End the members that wait; with `running` ask the others to stop."""
        return await asyncio.to_thread(self._group.cancel, reason, running=running)
