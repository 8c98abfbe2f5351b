"""Idempotency keys: what a step or activity of a workflow gives to others, so that doing it again changes nothing."""

from __future__ import annotations

from contextvars import ContextVar

from holdfast.errors import WorkflowNotAllowed

#: The key of the step or activity that runs here; set by whoever runs it.
running_key: ContextVar[str] = ContextVar("holdfast.idempotency_key")


def idempotency_key() -> str:
    """Give a key that is the same on every attempt of the step or task that runs here.

    Raises WorkflowNotAllowed elsewhere.
    """
    try:
        return running_key.get()
    except LookupError:
        raise WorkflowNotAllowed(
            "idempotency_key: no step or task of a workflow runs here.", hint="Call it inside one."
        ) from None
