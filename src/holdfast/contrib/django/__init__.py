"""Django: a backend for its Tasks, and `manage.py holdfast`.

    INSTALLED_APPS = [..., "holdfast.contrib.django"]
    TASKS = {"default": {"BACKEND": "holdfast.contrib.django.HoldfastBackend", "OPTIONS": {"store": "sqlite:jobs.db"}}}

Nothing starts when Django does: the store opens with the first task that is enqueued, looked at or run. Tasks are
enqueued when the transaction around them has committed. That is not atomic with the application's database: a process
that dies between the two has committed and enqueued nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.contrib.django.backend import HoldfastBackend

__all__ = ["HoldfastBackend"]


def __getattr__(name: str) -> object:
    """Import the backend when it is asked for: Django imports this package before its settings are ready."""
    if name != "HoldfastBackend":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from holdfast.contrib.django.backend import HoldfastBackend  # noqa: PLC0415 - see above

    return HoldfastBackend
