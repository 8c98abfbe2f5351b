"""Jobs and tasks, awaited: the twins of `app.handles.job` and `app.tasks.task`.

Waiting for a job's end takes no thread of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING, Generic, Literal, ParamSpec, TypeVar

from holdfast.app.completion_waiter import awaited, ended_or_late, job_look, within
from holdfast.app.handles.artifact import Artifact
from holdfast.app.handles.job import Job
from holdfast.app.queue_wait import Patience
from holdfast.app.tasks.options import Changes
from holdfast.app.tasks.task import Call, Task
from holdfast.engine.log_reader import PAUSE_S, pages, source_of
from holdfast.model.jobs import Job as Record
from holdfast.model.jobs import JobStatus, Run
from holdfast.model.logs import LogLine
from holdfast.model.workers import Progress
from holdfast.rules.explain import Reason

if TYPE_CHECKING:
    from typing import Unpack


P = ParamSpec("P")
R = TypeVar("R")


class AioJob(Generic[R]):
    """A job, awaited."""

    def __init__(self, job: Job[R]) -> None:
        self._job = job

    async def refresh(self) -> Record:
        """Read the job as it is now."""
        return await asyncio.to_thread(self._job.refresh)

    async def status(self) -> JobStatus:
        """Give where the job is in its life, now."""
        return (await self.refresh()).status

    async def explain(self) -> Reason:
        """Give the one reason why the job is where it is."""
        return await asyncio.to_thread(self._job.explain)

    async def runs(self) -> Sequence[Run]:
        """List the job's runs."""
        return await asyncio.to_thread(self._job.runs)

    async def progress(self) -> Progress | None:
        """Give how far the job is."""
        return await asyncio.to_thread(lambda: self._job.progress)

    async def log(self, run_no: int | None = None, *, follow: bool = False) -> AsyncIterator[LogLine]:
        """Walk the lines of a run, with `follow` until the job has ended."""
        engine = await asyncio.to_thread(lambda: self._job.app.engine)
        found = pages(source_of(engine), self._job.id, run_no, follow=follow, pause_s=0)
        while (page := await asyncio.to_thread(next, found, None)) is not None:
            for numbered in page[1]:
                yield numbered.line
            if follow and not page[1]:
                await asyncio.sleep(PAUSE_S)  # here, so that no thread is held meanwhile

    async def artifacts(self, run_no: int | None = None) -> list[Artifact]:
        """List what a run left behind."""
        return await asyncio.to_thread(self._job.artifacts, run_no)

    async def wait(self, timeout: float | None = None) -> Record:  # noqa: ASYNC109 - the twin's own parameter
        """Wait until the job has ended. One thread looks after all who await."""
        app, job_id = self._job.app, self._job.id
        with within(app, timeout) as ends_at:
            ended = await awaited(app, job_look(job_id), ends_at)
            if ended is not None:
                return ended
            # As the twin does: one more look, which says what the job waits for, or that there is none.
            return await asyncio.to_thread(lambda: ended_or_late(app.engine, job_id, timeout))

    async def result(self, timeout: float | None = None) -> R:  # noqa: ASYNC109 - the twin's own parameter
        """Wait for the job's result."""
        with within(self._job.app, timeout):
            return await asyncio.to_thread(self._job.outcome, await self.wait(timeout))

    async def cancel(self, reason: str = "", *, force: bool = False) -> Literal["cancelled", "requested"]:
        """End the job, or ask it to stop."""
        return await asyncio.to_thread(self._job.cancel, reason, force=force)

    async def retry(self) -> Job[R]:
        """Run an ended job again."""
        return await asyncio.to_thread(self._job.retry)

    async def bury(self, reason: str = "") -> None:
        """Declare the job DEAD."""
        await asyncio.to_thread(self._job.bury, reason)

    async def move(
        self, *, before: str | None = None, after: str | None = None, to: Literal["first", "last"] | None = None
    ) -> None:
        """Give a waiting job another place in its band."""
        await asyncio.to_thread(self._job.move, before=before, after=after, to=to)

    async def update(self, **changes: Unpack[Changes]) -> None:
        """Change a job that waits."""
        await asyncio.to_thread(self._job.update, **changes)


class AioTask(Generic[P, R]):
    """A task, awaited."""

    def __init__(self, task: Task[P, R]) -> None:
        self._task = task

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Create a job. It is durable when this returns."""
        return await asyncio.to_thread(self._task.enqueue, *args, **kwargs)

    async def enqueue_many(self, calls: Iterable[Call]) -> list[Job[R]]:
        """Create many jobs."""
        return await asyncio.to_thread(self._task.enqueue_many, list(calls))

    async def direct(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the task now, in this process, alone on its queue.

        Cancelled while it waits for the queue, it waits no longer; a handler that has begun goes on to its end.
        """
        from holdfast.app.tasks.direct_execution import run_directly  # noqa: PLC0415 - programs that only enqueue do not pay for it

        patience = Patience(self._task.chosen.wait)
        try:
            return await asyncio.to_thread(run_directly, self._task, args, kwargs, patience)
        except asyncio.CancelledError:
            patience.give_up()
            raise
