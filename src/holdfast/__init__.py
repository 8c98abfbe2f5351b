"""Holdfast: crash-safe background jobs, cron and durable workflows for Python.

Public names are resolved when they are first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from holdfast.version import __version__ as __version__

if TYPE_CHECKING:
    from holdfast.app.application import Holdfast
    from holdfast.app.handles.group import Group
    from holdfast.app.handles.job import Job
    from holdfast.app.tasks.task import Task
    from holdfast.app.workflows.handle import Instance
    from holdfast.app.workflows.workflow import Workflow
    from holdfast.engine.engine import Engine
    from holdfast.errors import HoldfastError
    from holdfast.model.commands import Retention
    from holdfast.model.jobs import Backoff
    from holdfast.workers.handlers.control_exceptions import Cancel, Fatal, Retry, Snooze
    from holdfast.workers.handlers.shell import Shell
    from holdfast.workflows.provider import open_store

__all__ = [
    "Backoff",
    "Cancel",
    "Engine",
    "Fatal",
    "Group",
    "Holdfast",
    "HoldfastError",
    "Instance",
    "Job",
    "Retention",
    "Retry",
    "Shell",
    "Snooze",
    "Task",
    "Workflow",
    "open_store",
]

_HOMES = {
    "Backoff": "holdfast.model.jobs",
    "Cancel": "holdfast.workers.handlers.control_exceptions",
    "Engine": "holdfast.engine.engine",
    "Fatal": "holdfast.workers.handlers.control_exceptions",
    "Group": "holdfast.app.handles.group",
    "Holdfast": "holdfast.app.application",
    "HoldfastError": "holdfast.errors",
    "Instance": "holdfast.app.workflows.handle",
    "Job": "holdfast.app.handles.job",
    "Retention": "holdfast.model.commands",
    "Retry": "holdfast.workers.handlers.control_exceptions",
    "Shell": "holdfast.workers.handlers.shell",
    "Snooze": "holdfast.workers.handlers.control_exceptions",
    "Task": "holdfast.app.tasks.task",
    "Workflow": "holdfast.app.workflows.workflow",
    "open_store": "holdfast.workflows.provider",
}


def __getattr__(name: str) -> object:
    """Import a public name from where it lives."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    """List the public names."""
    return [*__all__, "__version__"]
