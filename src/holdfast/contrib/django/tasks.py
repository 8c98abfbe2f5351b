"""Django's Tasks, whichever are there: built in from Django 6 on, the package `django-tasks` before. The same names."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django_tasks import task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started
else:
    HOME = "django.tasks" if find_spec("django.tasks") else "django_tasks"
    task_backends = import_module(HOME).task_backends
    _base = import_module(f"{HOME}.base")
    Task, TaskContext, TaskError = _base.Task, _base.TaskContext, _base.TaskError
    TaskResult, TaskResultStatus = _base.TaskResult, _base.TaskResultStatus
    BaseTaskBackend = import_module(f"{HOME}.backends.base").BaseTaskBackend
    TaskResultDoesNotExist = import_module(f"{HOME}.exceptions").TaskResultDoesNotExist
    _signals = import_module(f"{HOME}.signals")
    task_enqueued, task_started = _signals.task_enqueued, _signals.task_started
    task_finished = _signals.task_finished

__all__ = [
    "BaseTaskBackend",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
