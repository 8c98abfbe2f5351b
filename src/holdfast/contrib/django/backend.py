"""The backend: Django's tasks in, jobs out; results back by id.

Ids are made before the job, so a task that waits for its transaction has one. Knows no transaction but that Django will
call it back when there is none any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import cached_property
from typing import Any

import msgspec
from django.core import checks
from django.db import transaction
from django.utils import timezone

from holdfast.app.application import Holdfast
from holdfast.contrib.django import settings, task_runner
from holdfast.contrib.django.results import STATUSES, Call, change, result_of
from holdfast.contrib.django.tasks import (
    BaseTaskBackend,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    task_enqueued,
)
from holdfast.engine.blob_content import fetch
from holdfast.model.commands import Enqueue, NewJob
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, JobStatus
from holdfast.model.times import stamp

_call = msgspec.json.Decoder(Call).decode


class HoldfastBackend(BaseTaskBackend):
    """Keeps Django's tasks in a Holdfast store."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @cached_property
    def chosen(self) -> settings.Options:
        """The OPTIONS of this backend. Raises ImproperlyConfigured."""
        return settings.read(self.options)

    @cached_property
    def hf(self) -> Holdfast:
        """The application whose store it is; shared by all threads. Raises ImproperlyConfigured."""
        hf = settings.application(self.chosen)
        task_runner.register(hf, self.queues)
        return hf

    def check(self, **kwargs: Any) -> Iterable[checks.CheckMessage]:
        """Say what is wrong with the settings."""
        yield from super().check(**kwargs)
        yield from settings.findings(self.options)

    # --- enqueuing ----------------------------------------------------------------------------------------------------

    def enqueue(self, task: Task[Any, Any], args: Any, kwargs: Any) -> TaskResult[Any]:
        """Enqueue a task now, or when the transaction around the call has committed.

        Its id is known at once; its result can be asked for once it is enqueued.
        """
        self.validate_task(task)
        result: TaskResult[Any] = TaskResult(
            task=task,
            id=self.hf.engine.new_id(),
            status=STATUSES[JobStatus.QUEUED],
            enqueued_at=None,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        job = self._job(result)
        if self.chosen.on_commit and transaction.get_connection().in_atomic_block:
            transaction.on_commit(lambda: self._submit(job, result))
        else:
            self._submit(job, result)
        return result

    def _job(self, result: TaskResult[Any]) -> NewJob:
        task = result.task
        after = None if task.run_after is None else _aware(task.run_after)
        call = Call(task.module_path, result.args, result.kwargs, self.alias, after)
        return NewJob(
            job_id=JobId(result.id),
            job_type=task_runner.NAME,
            namespace=self.hf.namespace,
            params=msgspec.Raw(msgspec.json.encode(call)),
            queue=task.queue_name,
            priority=task.priority,
            not_before=None if after is None else stamp(after),
            max_attempts=self.chosen.max_attempts,
            timeout_s=self.chosen.timeout,
            tags={"task": task.module_path},
        )

    def _submit(self, job: NewJob, result: TaskResult[Any]) -> None:
        engine = self.hf.engine
        engine.ask(Enqueue(cmd=engine.new_id(), jobs=(job,)))
        change(result, enqueued_at=timezone.now())
        task_enqueued.send(type(self), task_result=result)

    # --- results ------------------------------------------------------------------------------------------------------

    def get_result(self, result_id: str) -> TaskResult[Any]:
        """Give a task's result as it stands. Raises TaskResultDoesNotExist."""
        engine = self.hf.engine
        with engine.read() as view:
            job = view.get(Job, JobId(result_id))
            runs = [] if job is None else view.runs(job.job_id)
        if job is None or job.job_type != task_runner.NAME or job.namespace != self.hf.namespace:
            raise TaskResultDoesNotExist(result_id)
        call = _call(fetch(engine.store, job.params))
        return result_of(msgspec.structs.replace(job, result=fetch(engine.store, job.result)), runs, call)


def _aware(when: datetime) -> datetime:
    """Give a time with its zone: without USE_TZ Django's are naive, in the zone of the settings."""
    aware: datetime = when if timezone.is_aware(when) else timezone.make_aware(when)
    return aware
