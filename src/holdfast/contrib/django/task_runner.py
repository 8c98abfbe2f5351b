"""Running a Django task in a worker: find it by its path, give it its context, tell Django's signals.

One task of Holdfast runs them all, so a worker needs no list of them; their own names are in the job's tags.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.db import close_old_connections
from django.utils import timezone

from holdfast.app.application import Holdfast
from holdfast.contrib.django.results import Call, change, result_of
from holdfast.contrib.django.tasks import TaskContext, TaskResultStatus, task_backends, task_finished, task_started
from holdfast.rules.jobs.retry import is_last_attempt
from holdfast.workers.handlers.control_exceptions import Cancel, Fatal, Snooze

#: The name all Django tasks have as jobs.
NAME = "django.task"
#: Django makes a backend for every thread, perhaps several at once.
_registering = threading.Lock()


def register(hf: Holdfast, queues: Iterable[str]) -> None:
    """Let an application run Django's tasks of these queues, and its handlers begin and end with usable connections."""
    with _registering:
        _register(hf, queues)


def _register(hf: Holdfast, queues: Iterable[str]) -> None:
    hf._queues.update(queues)  # noqa: SLF001 - a task of ours names one queue, Django's name them in the settings
    if hf.tasks.get(NAME) is not None:
        return

    @hf.task(name=NAME)
    def run(task: str, args: list[Any], kwargs: dict[str, Any], backend: str, run_after: datetime | None = None) -> Any:
        return _run(hf, Call(task, args, kwargs, backend, run_after))

    hf.tasks.surround(_connections)


@contextmanager
def _connections() -> Iterator[None]:
    """Drop connections that are too old or broken, before and after; one inside a transaction is kept."""
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()


def _run(hf: Holdfast, call: Call) -> Any:
    job = hf.engine.job(hf.current.job_id)
    result = result_of(job, hf.engine.runs(job.job_id), call)
    sender = type(task_backends[call.backend])
    task_started.send(sender=sender, task_result=result)
    context = (TaskContext(task_result=result),) if result.task.takes_context else ()
    try:
        value = result.task.call(*context, *call.args, **call.kwargs)
    except Exception as error:
        is_last = is_last_attempt(job) and not isinstance(error, Snooze)
        if is_last or isinstance(error, Fatal | Cancel):
            change(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
            task_finished.send(sender=sender, task_result=result)
        raise
    change(result, status=TaskResultStatus.SUCCESSFUL, finished_at=timezone.now(), _return_value=value)
    task_finished.send(sender=sender, task_result=result)
    return value
