"""A job as Django's TaskResult: one mapping of statuses, and of runs to errors and workers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from django.utils.module_loading import import_string

from holdfast.contrib.django.tasks import Task, TaskError, TaskResult, TaskResultDoesNotExist, TaskResultStatus
from holdfast.model.jobs import Job, JobStatus, Run, RunStatus
from holdfast.model.times import Timestamp, moment

STATUSES = {
    JobStatus.QUEUED: TaskResultStatus("READY"),
    JobStatus.RUNNING: TaskResultStatus("RUNNING"),
    JobStatus.COMPLETED: TaskResultStatus("SUCCESSFUL"),
    # Django has one word for all that will give no result.
    JobStatus.FAILED: TaskResultStatus("FAILED"),
    JobStatus.DEAD: TaskResultStatus("FAILED"),
    JobStatus.CANCELLED: TaskResultStatus("FAILED"),
}
#: Kind of a failure that no exception of the task's own tells → the exception that stands for it.
_KINDS = {"timeout": "builtins.TimeoutError", "lost": "holdfast.errors.LeaseLost"}
#: The line of a traceback that names the exception: the first one after the frames, which are indented.
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*([A-Za-z_][\w.]*)")


class Call(msgspec.Struct, frozen=True):
    """The parameters of a job that is a Django task."""

    #: Dotted path of the task.
    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    #: Alias of the backend that enqueued it.
    backend: str
    #: As it was asked for; the job's own `not_before` changes with its life.
    run_after: datetime | None = None


def result_of(job: Job, runs: Sequence[Run], call: Call) -> TaskResult[Any]:
    """Give a job and its runs as Django shows them. Raises TaskResultDoesNotExist if there is no such task any more."""
    begun = [run for run in runs if run.run_no]
    result: TaskResult[Any] = TaskResult(
        task=task_at(call.task).using(
            priority=job.priority, queue_name=job.queue, run_after=call.run_after, backend=call.backend
        ),
        id=job.job_id,
        status=STATUSES[job.status],
        enqueued_at=_time(job.created_at),
        started_at=_time(job.started_at),
        finished_at=_time(job.finished_at),
        last_attempted_at=_time(begun[-1].started_at) if begun else None,
        args=call.args,
        kwargs=call.kwargs,
        backend=call.backend,
        errors=[_error(run) for run in begun if run.status in (RunStatus.FAILED, RunStatus.LOST)],
        worker_ids=[run.worker_id or "" for run in begun],
    )
    if job.status is JobStatus.COMPLETED:
        change(result, _return_value=msgspec.json.decode(job.result))
    return result


def task_at(path: str) -> Task[Any, Any]:
    """Import a task. Raises TaskResultDoesNotExist if nothing of that name is one."""
    try:
        found = import_string(path)
    except ImportError as problem:
        raise TaskResultDoesNotExist(f"its task cannot be imported: {problem}") from problem
    if not isinstance(found, Task):
        raise TaskResultDoesNotExist(f"{path} is no task any more.")
    return found


def change(result: TaskResult[Any], **fields: object) -> None:
    """Set fields of a result; it is frozen for its users, and its backend keeps it up to date."""
    for name, value in fields.items():
        object.__setattr__(result, name, value)


def _error(run: Run) -> TaskError:
    text = run.error or f"the run was lost: {run.reason or 'its worker was not heard again'}"
    kind = "lost" if run.status is RunStatus.LOST else run.error_kind
    return TaskError(exception_class_path=_KINDS.get(kind or "") or raised_in(text), traceback=text)


def raised_in(text: str) -> str:
    """Name the class of the exception that a traceback ends with."""
    found = _RAISED.findall(text)
    if not found:
        return "holdfast.errors.JobFailed"
    return found[-1] if "." in found[-1] else f"builtins.{found[-1]}"


def _time(at: Timestamp | None) -> datetime | None:
    return None if at is None else moment(at)
