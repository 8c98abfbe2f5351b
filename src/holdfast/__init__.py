"""Holdfast: crash-safe background jobs, cron and durable workflows for Python.

Public names are resolved when they are first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from holdfast.version import __version__ as __version__

if TYPE_CHECKING:
    from holdfast.app.groups import Group
    from holdfast.app.holdfast import Holdfast
    from holdfast.app.instances import Instance
    from holdfast.app.jobs import Job
    from holdfast.app.tasks import Task
    from holdfast.app.workflows import Workflow
    from holdfast.engine.engine import Engine
    from holdfast.errors import HoldfastError
    from holdfast.flows.provider import open_store
    from holdfast.model.commands import Retention
    from holdfast.model.jobs import Backoff
    from holdfast.workers.shell import Shell
    from holdfast.workers.signals import Cancel, Fatal, Retry, Snooze

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
    "Cancel": "holdfast.workers.signals",
    "Engine": "holdfast.engine.engine",
    "Fatal": "holdfast.workers.signals",
    "Group": "holdfast.app.groups",
    "Holdfast": "holdfast.app.holdfast",
    "HoldfastError": "holdfast.errors",
    "Instance": "holdfast.app.instances",
    "Job": "holdfast.app.jobs",
    "Retention": "holdfast.model.commands",
    "Retry": "holdfast.workers.signals",
    "Shell": "holdfast.workers.shell",
    "Snooze": "holdfast.workers.signals",
    "Task": "holdfast.app.tasks",
    "Workflow": "holdfast.app.workflows",
    "open_store": "holdfast.flows.provider",
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
