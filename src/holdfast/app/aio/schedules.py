"""Schedules, templates and webhooks, awaited: the twins of what is made once and works on by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.app.handles.job import Job
from holdfast.app.handles.schedule import Schedule, ScheduleOptions
from holdfast.app.handles.template import Template
from holdfast.app.handles.webhook import Webhook, WebhookEdits
from holdfast.app.tasks.options import TaskOptions
from holdfast.app.workflows.handle import Instance
from holdfast.model.schedules import Schedule as ScheduleRecord
from holdfast.model.templates import Template as TemplateRecord
from holdfast.model.webhooks import Delivery, DeliveryStatus
from holdfast.model.webhooks import Webhook as WebhookRecord
from holdfast.rules.schedules.next_fire import Preview

if TYPE_CHECKING:
    from typing import Unpack


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
