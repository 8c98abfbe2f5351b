"""Idempotency keys: what a step or activity of a workflow gives to others, so that doing it again changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

from holdfast.errors import WorkflowNotAllowed

#: Makes the key of the step or activity that runs here; set by whoever runs it. Few ask, and a hash costs time.
running_key: ContextVar[Callable[[], str]] = ContextVar("holdfast.idempotency_key")


def idempotency_key() -> str:
    """Give a key that is the same on every attempt of the step or task that runs here.

    Raises WorkflowNotAllowed elsewhere.
    """
    try:
        key = running_key.get()
    except LookupError:
        raise WorkflowNotAllowed(
            "idempotency_key: no step or task of a workflow runs here.", hint="Call it inside one."
        ) from None
    return key()
