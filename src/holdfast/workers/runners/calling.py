"""Calling a handler: arguments in, function, result out; whatever it raises becomes an outcome."""

from __future__ import annotations

import contextvars
from typing import Any

import msgspec

from holdfast.errors import HoldfastError
from holdfast.workers.context import Context, current
from holdfast.workers.outcomes import Outcome, Raised, Returned, outcome_of
from holdfast.workers.tasks import TaskSpec


def unpacked(spec: TaskSpec, params: msgspec.Raw) -> tuple[tuple[Any, ...], dict[str, Any]] | Raised:
    """Give the arguments, or the outcome of a job whose arguments no longer fit."""
    try:
        return spec.codec.unpack(params)
    except HoldfastError as problem:
        return Raised(str(problem), "bad_params")


def packed(spec: TaskSpec, value: Any) -> Outcome:
    """Give the outcome of a handler that returned `value`."""
    try:
        return Returned(spec.codec.pack_result(value))
    except HoldfastError as problem:
        return Raised(str(problem), "bad_result")
    except Exception as problem:  # noqa: BLE001 - encoding runs the user's own code: properties, __iter__, model_dump
        return Raised(f"the result cannot be encoded: {problem!r}", "bad_result")


def own_context(context: Context) -> contextvars.Context:
    """Make a context in which `hf.current` is this execution, and nothing of another one is seen."""
    variables = contextvars.Context()
    variables.run(current.set, context)
    return variables


def call(spec: TaskSpec, context: Context) -> Outcome:
    """Run a handler here, to its end."""
    arguments = unpacked(spec, context.job.params)
    if isinstance(arguments, Raised):
        return arguments
    args, kwargs = arguments
    try:
        value = own_context(context).run(spec.run, *args, **kwargs)
    except BaseException as error:  # noqa: BLE001 - the user's code; even SystemExit ends the run, not the worker
        return outcome_of(error, spec.no_retry)
    return packed(spec, value)
