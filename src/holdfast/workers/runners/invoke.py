"""Calling a handler: arguments in, function, result out; whatever it raises becomes an outcome."""

from __future__ import annotations

import contextvars
import os
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, NoReturn

import msgspec

from holdfast.errors import HoldfastError
from holdfast.model.workflows.history import activity_key
from holdfast.model.workflows.instances import owned_by
from holdfast.workers.handlers.context import Context, current
from holdfast.workers.handlers.outcome import Outcome, Raised, Returned, outcome_of
from holdfast.workers.task_registry import TaskSpec
from holdfast.workflows.api.error_conversion import USER_CODE_RAISES, named, text_of, traceback_of
from holdfast.workflows.api.idempotency import running_key


def unpacked(spec: TaskSpec, params: msgspec.Raw) -> tuple[tuple[Any, ...], dict[str, Any]] | Raised:
    """Give the arguments, or the outcome of a job whose arguments no longer fit."""
    try:
        return spec.codec.unpack(params)
    except HoldfastError as problem:
        return Raised(text_of(problem), "bad_params")
    except Exception as problem:  # noqa: BLE001 - decoding runs the user's own code: __post_init__, validators
        return Raised(f"the arguments cannot be decoded: {named(problem)}", "bad_params")


def packed(spec: TaskSpec, value: Any) -> Outcome:
    """Give the outcome of a handler that returned `value`; one that cannot be encoded fails the job."""
    try:
        return Returned(spec.codec.pack_result(value))
    except HoldfastError as problem:
        return Raised(text_of(problem), "bad_result")
    except USER_CODE_RAISES as problem:
        return Raised(f"the result cannot be encoded: {named(problem)}", "bad_result")


def own_context(context: Context) -> contextvars.Context:
    """Make a context in which `hf.current` is this execution, and nothing of another one is seen."""
    variables = contextvars.Context()
    variables.run(current.set, context)
    owner = owned_by(context.job.owner)
    if owner is not None:
        variables.run(running_key.set, partial(activity_key, *owner))
    return variables


class OneProcess:
    """A block that a fork made inside it never leaves: out there it would be a second worker, with the same leases."""

    def __enter__(self) -> None:
        """Know where it begins."""
        self._pid = os.getpid()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End a fork."""
        if os.getpid() != self._pid:
            _end_fork(error)


def _end_fork(error: BaseException | None) -> NoReturn:
    """Exit as a program does that ends here, but for buffers and threads, which are copies of the worker's own."""
    try:
        if error is None:
            os._exit(0)
        if isinstance(error, SystemExit) and isinstance(error.code, int | None):
            os._exit((error.code or 0) & 0xFF)
        os.write(2, traceback_of(error).encode("utf-8", "backslashreplace"))
    finally:
        os._exit(1)  # also where the exception itself raises when it is asked


class Gave(NamedTuple):
    """What a function returned, before anybody asks whether it can be kept."""

    value: Any


def call(spec: TaskSpec, context: Context) -> Outcome:
    """Run a handler here, to its end."""
    done = value_of(spec, context)
    return packed(spec, done.value) if isinstance(done, Gave) else done


def value_of(spec: TaskSpec, context: Context) -> Gave | Outcome:
    """Call a task's function here; give what it returned, or the outcome if it did not."""
    arguments = unpacked(spec, context.job.params)
    if isinstance(arguments, Raised):
        return arguments
    args, kwargs = arguments
    try:
        with OneProcess():
            return Gave(own_context(context).run(spec.run, *args, **kwargs))
    except BaseException as error:  # noqa: BLE001 - the user's code; even SystemExit ends the run, not the worker
        return outcome_of(error, spec.no_retry, detailed=context.job.owner is not None)
