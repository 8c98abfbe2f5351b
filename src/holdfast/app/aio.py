"""The awaitable face: the same names, a thread hop each. Nothing is written twice: every call goes to its twin."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, ParamSpec, TypeVar

from holdfast.app.jobs import Job
from holdfast.app.tasks import Task
from holdfast.model.commands import NewJob
from holdfast.model.jobs import Job as Record
from holdfast.model.jobs import Run

P = ParamSpec("P")
R = TypeVar("R")


class AioJob(Generic[R]):
    """A job, awaited."""

    def __init__(self, job: Job[R]) -> None:
        self._job = job

    async def refresh(self) -> Record:
        """Read the job as it is now."""
        return await asyncio.to_thread(self._job.refresh)

    async def runs(self) -> Sequence[Run]:
        """List the job's runs."""
        return await asyncio.to_thread(self._job.runs)

    async def wait(self, timeout: float | None = None) -> Record:  # noqa: ASYNC109 - the twin's own parameter
        """Wait until the job has ended."""
        return await asyncio.to_thread(self._job.wait, timeout)

    async def result(self, timeout: float | None = None) -> R:  # noqa: ASYNC109 - the twin's own parameter
        """Wait for the job's result."""
        return await asyncio.to_thread(self._job.result, timeout)

    async def cancel(self, reason: str = "", *, force: bool = False) -> Literal["cancelled", "requested"]:
        """End the job, or ask it to stop."""
        return await asyncio.to_thread(self._job.cancel, reason, force=force)

    async def retry(self) -> Job[R]:
        """Run an ended job again."""
        return await asyncio.to_thread(self._job.retry)

    async def bury(self, reason: str = "") -> None:
        """Declare the job DEAD."""
        await asyncio.to_thread(self._job.bury, reason)


class AioTask(Generic[P, R]):
    """A task, awaited."""

    def __init__(self, task: Task[P, R]) -> None:
        self._task = task

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Create a job. It is durable when this returns."""
        return await asyncio.to_thread(self._task.enqueue, *args, **kwargs)

    async def enqueue_many(self, calls: Iterable[tuple[Any, ...] | Mapping[str, Any] | NewJob]) -> list[Job[R]]:
        """Create many jobs."""
        return await asyncio.to_thread(self._task.enqueue_many, list(calls))
