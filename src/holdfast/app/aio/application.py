"""The awaitable face: the same names, a thread hop each. Nothing is written twice: every call goes to its twin.

Cancelling a task that awaits here ends its waiting and nothing else: a command that was already on its way is decided
all the same, as it would be if its answer had been lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.app.aio.queues import AioDispatch, AioQueue, AioReserve
from holdfast.app.handles.group import Group, GroupOptions, Member, Mode
from holdfast.app.handles.job import Job
from holdfast.app.handles.reservation import TTL_S
from holdfast.app.handles.schedule import Schedule, ScheduleOptions, Target
from holdfast.app.handles.template import Template
from holdfast.app.handles.webhook import Webhook, WebhookOptions
from holdfast.app.queue_wait import Wait
from holdfast.app.tasks.options import TaskOptions
from holdfast.app.tasks.task import Call, Task
from holdfast.app.workflows.decisions import Decision
from holdfast.app.workflows.handle import Instance
from holdfast.model.groups import GroupStatus
from holdfast.model.jobs import JobStatus, Run
from holdfast.model.workers import WorkerInfo
from holdfast.model.workflows.instances import InstanceStatus

if TYPE_CHECKING:
    from typing import Unpack

    from holdfast.app.application import Holdfast
    from holdfast.app.event_feed import FeedEvent

R = TypeVar("R")


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

    async def instance(self, instance_id: str, *, missing_ok: bool = False) -> Instance[Any]:
        """Give a handle on the instance of that id."""
        return await asyncio.to_thread(self._app.instance, instance_id, missing_ok=missing_ok)

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
