"""The awaitable face: the same names, a thread hop each. Nothing is written twice: every call goes to its twin.

Cancelling a task that awaits here ends its waiting and nothing else: a command that was already on its way is decided
all the same, as it would be if its answer had been lost. Waiting for a job's end takes no thread of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar

from holdfast.app.artifacts import Artifact
from holdfast.app.decisions import Decision
from holdfast.app.groups import Group, GroupOptions, Member, Mode
from holdfast.app.instances import Instance
from holdfast.app.jobs import Job
from holdfast.app.lookout import awaited, ended_or_late, job_look, within
from holdfast.app.options import Changes, TaskOptions
from holdfast.app.queues import Dispatch, Limits, Queue
from holdfast.app.reservations import TTL_S, Reservation
from holdfast.app.schedules import Schedule, ScheduleOptions, Target
from holdfast.app.tasks import Call, Task
from holdfast.app.templates import Template
from holdfast.app.waiting import Patience, Wait
from holdfast.app.webhooks import Webhook, WebhookEdits, WebhookOptions
from holdfast.engine.lines import PAUSE_S, pages, source_of
from holdfast.model.groups import GroupStatus
from holdfast.model.instances import InstanceStatus
from holdfast.model.jobs import Job as Record
from holdfast.model.jobs import JobStatus, Run
from holdfast.model.logs import LogLine
from holdfast.model.records import Queue as Settings
from holdfast.model.schedules import Schedule as ScheduleRecord
from holdfast.model.templates import Template as TemplateRecord
from holdfast.model.webhooks import Delivery, DeliveryStatus
from holdfast.model.webhooks import Webhook as WebhookRecord
from holdfast.model.workers import Progress, WorkerInfo
from holdfast.rules.explain import Reason
from holdfast.rules.timetable import Preview

if TYPE_CHECKING:
    from typing import Unpack

    from holdfast.app.feeding import FeedEvent
    from holdfast.app.holdfast import Holdfast

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
        with within(app, timeout):
            ended = await awaited(app.lookout, job_look(job_id), timeout)
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
        from holdfast.app.direct import run_directly  # noqa: PLC0415 - programs that only enqueue do not pay for it

        patience = Patience(self._task.chosen.wait)
        try:
            return await asyncio.to_thread(run_directly, self._task, args, kwargs, patience)
        except asyncio.CancelledError:
            patience.give_up()
            raise


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


class AioSchedule:
    """A schedule, awaited."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    async def record(self) -> ScheduleRecord:
        """Read it as it is now."""
        return await asyncio.to_thread(self._schedule.record)

    async def preview(self, n: int = 10, *, after: datetime | None = None) -> list[Preview]:
        """Give its next fires."""
        return await asyncio.to_thread(self._schedule.preview, n, after=after)

    async def trigger(self, **params: Any) -> Job[Any] | Instance[Any]:
        """Make a job now, or begin an instance."""
        return await asyncio.to_thread(lambda: self._schedule.trigger(**params))

    async def latest(self) -> Instance[Any] | None:
        """Give the instance that its last fire began."""
        return await asyncio.to_thread(self._schedule.latest)

    async def backfill(self, start: datetime, end: datetime, *, id: str | None = None) -> int:  # noqa: A002 - the twin's own
        """Make the jobs of times of the past."""
        return await asyncio.to_thread(self._schedule.backfill, start, end, id=id)

    async def count(self, start: datetime, end: datetime) -> int:
        """Count the times that a backfill would deal with."""
        return await asyncio.to_thread(self._schedule.count, start, end)

    async def update(self, *, version: int | None = None, **options: Unpack[ScheduleOptions]) -> None:
        """Change what is named."""
        await asyncio.to_thread(lambda: self._schedule.update(version=version, **options))

    async def pause(self, reason: str = "") -> None:
        """Fire no more."""
        await asyncio.to_thread(self._schedule.pause, reason)

    async def resume(self) -> None:
        """Fire again."""
        await asyncio.to_thread(self._schedule.resume)

    async def reset(self) -> None:
        """Plan the next fire from now on."""
        await asyncio.to_thread(self._schedule.reset)

    async def delete(self) -> None:
        """Remove it."""
        await asyncio.to_thread(self._schedule.delete)


class AioTemplate:
    """A template, awaited."""

    def __init__(self, template: Template) -> None:
        self._template = template

    async def record(self) -> TemplateRecord:
        """Read it as it is now."""
        return await asyncio.to_thread(self._template.record)

    async def enqueue(self, **params: Any) -> Job[Any]:
        """Create a job."""
        return await asyncio.to_thread(lambda: self._template.enqueue(**params))

    async def update(
        self,
        *,
        params: Mapping[str, Any] | None = None,
        version: int | None = None,
        **options: Unpack[TaskOptions],
    ) -> None:
        """Give it other arguments, or other options."""
        await asyncio.to_thread(lambda: self._template.update(params=params, version=version, **options))

    async def archive(self) -> None:
        """Make no more jobs from it."""
        await asyncio.to_thread(self._template.archive)

    async def delete(self) -> None:
        """Remove it."""
        await asyncio.to_thread(self._template.delete)


class AioWebhook:
    """A webhook, awaited."""

    def __init__(self, webhook: Webhook) -> None:
        self._webhook = webhook

    async def record(self) -> WebhookRecord:
        """Read it as it is now, without its secrets."""
        return await asyncio.to_thread(self._webhook.record)

    async def deliveries(self, *, status: DeliveryStatus | str | None = None, limit: int = 50) -> Sequence[Delivery]:
        """List what it was sent or is owed."""
        return await asyncio.to_thread(self._webhook.deliveries, status=status, limit=limit)

    async def test(self) -> Delivery:
        """Send it a delivery that only shows whether it arrives."""
        return await asyncio.to_thread(self._webhook.test)

    async def redeliver(self, delivery_id: str) -> None:
        """Have a delivery sent again."""
        await asyncio.to_thread(self._webhook.redeliver, delivery_id)

    async def update(self, **edits: Unpack[WebhookEdits]) -> None:
        """Change what is named."""
        await asyncio.to_thread(lambda: self._webhook.update(**edits))

    async def enable(self) -> None:
        """Tell it of runs that end from now on."""
        await asyncio.to_thread(self._webhook.enable)

    async def disable(self) -> None:
        """Tell it nothing more."""
        await asyncio.to_thread(self._webhook.disable)

    async def rotate(self, secret: str | None = None) -> str:
        """Sign with a new secret as well as with the present one."""
        return await asyncio.to_thread(self._webhook.rotate, secret)

    async def forget_old_secret(self) -> None:
        """Sign with the newest secret alone."""
        await asyncio.to_thread(self._webhook.forget_old_secret)

    async def delete(self) -> None:
        """Remove it."""
        await asyncio.to_thread(self._webhook.delete)


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


class AioHoldfast:
    """An application, awaited."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        #: Pause and resume leasing altogether.
        self.dispatch = AioDispatch(app.dispatch)

    def queue(self, name: str) -> AioQueue:
        """Give an awaitable handle on a queue."""
        return AioQueue(self._app.queue(name))

    def reserve(
        self, queue: str, *, wait: Wait = None, by: str | None = None, ttl: float | timedelta = TTL_S
    ) -> AioReserve:
        """Hold a queue inside an `async with` block."""
        return AioReserve(lambda: self._app.reserve(queue, wait=wait, by=by, ttl=ttl))

    async def job(self, job_id: str) -> Job[Any]:
        """Give a handle on the job of that id."""
        return await asyncio.to_thread(self._app.job, job_id)

    async def jobs(
        self,
        *,
        status: JobStatus | str | None = None,
        queue: str | None = None,
        task: str | None = None,
        limit: int = 50,
    ) -> Sequence[Job[Any]]:
        """List jobs, newest first."""
        return await asyncio.to_thread(self._app.jobs, status=status, queue=queue, task=task, limit=limit)

    async def feed(self, after: int = 0, *, follow: bool = False) -> AsyncIterator[FeedEvent]:
        """Walk the events of the store above number `after`, each once and in order; with `follow` on and on."""
        events = self._app.feed(after, follow=follow)
        while (event := await asyncio.to_thread(next, events, None)) is not None:
            yield event

    async def run(self, run_id: str) -> Run:
        """Give the run of that id."""
        return await asyncio.to_thread(self._app.run, run_id)

    async def instance(self, instance_id: str) -> Instance[Any]:
        """Give a handle on the instance of that id."""
        return await asyncio.to_thread(self._app.instance, instance_id)

    async def instances(
        self, *, status: InstanceStatus | str | None = None, workflow: str | None = None, limit: int = 50
    ) -> Sequence[Instance[Any]]:
        """List instances, newest first."""
        return await asyncio.to_thread(self._app.instances, status=status, workflow=workflow, limit=limit)

    async def decision_record(self, decision_id: str) -> Decision:
        """Give a handle on a question that a workflow asked."""
        return await asyncio.to_thread(self._app.decision_record, decision_id)

    async def decisions(
        self,
        *,
        open: bool | None = True,  # noqa: A002 - the word for it
        instance: str | None = None,
        limit: int = 50,
    ) -> Sequence[Decision]:
        """List questions that workflows asked, oldest first."""
        return await asyncio.to_thread(self._app.decisions, open=open, instance=instance, limit=limit)

    async def group(
        self, members: Iterable[Member], *, mode: Mode = "sequential", **options: Unpack[GroupOptions]
    ) -> Group[Any]:
        """Make a group of jobs."""
        return await asyncio.to_thread(lambda: self._app.group(members, mode=mode, **options))

    async def chain(self, *jobs: Member, **options: Unpack[GroupOptions]) -> Group[Any]:
        """Make jobs that run one after another."""
        return await asyncio.to_thread(lambda: self._app.chain(*jobs, **options))

    async def fan_out(self, task: Task[..., R], calls: Iterable[Call], **options: Unpack[GroupOptions]) -> Group[R]:
        """Make a job for each call, side by side."""
        return await asyncio.to_thread(lambda: self._app.fan_out(task, calls, **options))

    async def find_group(self, group_id: str) -> Group[Any]:
        """Give a handle on the group of that id."""
        return await asyncio.to_thread(self._app.find_group, group_id)

    async def groups(self, *, status: GroupStatus | str | None = None, limit: int = 50) -> Sequence[Group[Any]]:
        """List groups, newest first."""
        return await asyncio.to_thread(self._app.groups, status=status, limit=limit)

    async def schedule(self, name: str, target: Target, **options: Unpack[ScheduleOptions]) -> Schedule:
        """Make the schedule of that name, or give it this content."""
        return await asyncio.to_thread(lambda: self._app.schedule(name, target, **options))

    async def schedules(self) -> list[Schedule]:
        """List the schedules."""
        return await asyncio.to_thread(self._app.schedules)

    async def template(
        self,
        name: str,
        task: Task[..., Any] | str,
        params: Mapping[str, Any] | None = None,
        **options: Unpack[TaskOptions],
    ) -> Template:
        """Make the template of that name, or give it this content."""
        return await asyncio.to_thread(lambda: self._app.template(name, task, params, **options))

    async def templates(self) -> list[Template]:
        """List the templates."""
        return await asyncio.to_thread(self._app.templates)

    async def webhook(self, url: str, **options: Unpack[WebhookOptions]) -> Webhook:
        """Tell an address whenever a run ends."""
        return await asyncio.to_thread(lambda: self._app.webhook(url, **options))

    async def webhooks(self) -> list[Webhook]:
        """List the webhooks."""
        return await asyncio.to_thread(self._app.webhooks)

    async def workers(self) -> Sequence[WorkerInfo]:
        """List the workers of the last day."""
        return await asyncio.to_thread(self._app.workers)

    async def close(self) -> None:
        """Close the store."""
        await asyncio.to_thread(self._app.close)
