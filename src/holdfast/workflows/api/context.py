"""What workflow code may call, beside asyncio. The application shows these as its own: `hf.step`, `hf.now` and so on.

In an `async def` workflow what takes time is awaited; in a `def` workflow the same call blocks and gives the result.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random as stdlib_random
import uuid as stdlib_uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, MutableMapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, NoReturn, ParamSpec, TypeVar, overload

import msgspec

from holdfast.errors import InvalidArguments, InvalidValue, WorkflowNotAllowed
from holdfast.json_decoders import reader_of
from holdfast.model.json_values import plain_of
from holdfast.model.payloads import pack
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.instances import MANY_BYTES, MANY_EVENTS
from holdfast.workflows.api.definitions import packed_call, version_key
from holdfast.workflows.api.error_conversion import text_of
from holdfast.workflows.api.idempotency import idempotency_key
from holdfast.workflows.api.operations import (
    awaited,
    current,
    demand_instance_id,
    demand_signal_name,
    demand_text,
    run_decision,
    run_step,
    running,
)
from holdfast.workflows.api.operations import send_signal as give_signal
from holdfast.workflows.api.steps import StepCall
from holdfast.workflows.determinism.call_site import caller
from holdfast.workflows.runtime.execution import Continuation, Execution
from holdfast.workflows.runtime.history_size import delay_ms

__all__ = [
    "Info",
    "Pending",
    "as_completed",
    "begin",
    "continue_as_new",
    "decision",
    "history_size",
    "idempotency_key",
    "info",
    "is_leaving",
    "is_replaying",
    "kv",
    "log",
    "now",
    "patched",
    "random",
    "rng",
    "send_signal",
    "set_status",
    "should_continue_as_new",
    "signal",
    "sleep",
    "sleep_until",
    "step",
    "uuid",
    "wait",
]

P = ParamSpec("P")
R = TypeVar("R")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Characters kept of why a signal was set aside.
MAX_REASON = 1000


# --- steps ------------------------------------------------------------------------------------------------------------


class Step:
    """`hf.step(fn, *args)`: run `fn` here, now, and record what it gives."""

    def __init__(self, name: str | None = None, timeout: float | None = None, attempts: int = 1) -> None:
        self._name = name
        self._timeout = timeout
        self._attempts = attempts

    def options(self, *, name: str | None = None, timeout: float | None = None, attempts: int = 1) -> Step:
        """Give the same with another name, a limit in seconds for each attempt, or more attempts."""
        if attempts < 1:
            raise InvalidValue(f"attempts: {attempts} is less than 1.", field="attempts")
        if name is not None:
            demand_text("name", name)
        if timeout is not None and not 0 < timeout <= 86_400:
            raise InvalidValue(f"timeout: {timeout} is not in 0-86,400 seconds.", field="timeout")
        return Step(name, timeout, attempts)

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...

    def __call__(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        """Run `function` on this worker, at least once; its result is durable before anything it leads to.

        Raises StepError when awaited, if it failed.
        """
        execution = current("hf.step")
        call = StepCall(
            name=self._name or _name_of(function),
            function=function,
            args=args,
            kwargs=kwargs,
            timeout_s=self._timeout,
            attempts=self._attempts,
            codec=execution.definitions.step_codec(function),
        )
        return awaited(execution, run_step(execution, call))


def _name_of(function: Callable[..., Any]) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    name: str = getattr(function, "__qualname__", type(function).__qualname__)
    return name.rpartition("<locals>.")[2]


step = Step()


# --- time -------------------------------------------------------------------------------------------------------------


def now() -> datetime:
    """Give the time of the event delivered last: the same on every replay, and constant until the next event."""
    return _EPOCH + timedelta(milliseconds=current("hf.now").now_ms)


def sleep(seconds: float) -> Coroutine[Any, Any, None]:
    """Wait for a durable timer; for `def` workflows what `asyncio.sleep` is for others."""
    execution = current("hf.sleep")
    delay_ms(seconds)  # a bad delay is refused here, at the call
    return awaited(execution, asyncio.sleep(seconds))


def sleep_until(when: datetime) -> Coroutine[Any, Any, None]:
    """Wait until a time, which must name its zone."""
    execution = current("hf.sleep_until")
    if not isinstance(when, datetime):
        raise InvalidArguments(
            f"sleep_until: a {type(when).__name__} is no datetime. Nothing was written.", field="when"
        )
    if when.tzinfo is None:
        raise InvalidValue(f"sleep_until: {when} names no time zone.", hint="Use an aware datetime.", field="when")
    seconds = (when - _EPOCH) / timedelta(seconds=1) - execution.time()
    delay_ms(seconds)
    return awaited(execution, asyncio.sleep(seconds))


# --- signals and decisions --------------------------------------------------------------------------------------------


@overload
def signal(name: str) -> Coroutine[Any, Any, Any]: ...


@overload
def signal(name: str, *, type: type[R]) -> Coroutine[Any, Any, R]: ...


def signal(name: str, *, type: Any = msgspec.UNSET) -> Coroutine[Any, Any, Any]:  # noqa: A002 - the contract's name
    """Wait for the next signal of that name, oldest first; what came before the wait is kept for it.

    Its type is by default the one that the workflow declares for it, else any. A signal whose data are not of that type
    is set aside, which the history records and `explain` shows; the wait goes on.
    """
    execution = current("hf.signal")
    demand_signal_name(name)
    decode = reader_of(execution.definition.signals.get(name, Any) if type is msgspec.UNSET else type).decode
    place = caller(2)

    async def receive() -> Any:
        while True:
            number, text = await execution.mailboxes.get(name)
            try:
                value = decode(text)
            except (msgspec.DecodeError, TypeError, RecursionError) as problem:
                if not execution.reject_signal(name, number, text_of(problem)[:MAX_REASON], place):
                    raise InvalidValue(f"signal {name!r}: {problem}.") from None
                continue
            if not execution.was_rejected(number):
                return value
            execution.reject_signal(name, number, "", place)

    return awaited(execution, receive())


def send_signal(instance: str, name: str, data: Any = None) -> None:
    """Send a signal to another instance, with this commit; it is kept if there is no such instance yet."""
    execution = current("hf.send_signal")
    demand_signal_name(name)
    demand_instance_id(instance, any_child=True)
    give_signal(execution, instance, name, encoded(data, "data"), caller(2))


def decision(
    prompt: str,
    options: Sequence[str] | None = None,
    *,
    assignee: str | None = None,
    timeout: float | timedelta | None = None,
    default: str | None = None,
) -> Coroutine[Any, Any, str]:
    """Ask a person, and wait for the label that was chosen; without `options`, for the text that was written.

    After `timeout` the answer is `default`. Raises TimeoutError then, if there is none.
    """
    execution = current("hf.decision")
    demand_text("prompt", prompt)
    if options is not None and (isinstance(options, str) or not options or not all(options)):
        raise InvalidValue(f"options: {options!r:.100} is no list of labels. Nobody was asked.", field="options")
    if options is not None and len(set(options)) != len(options):
        raise InvalidValue("options: a label occurs twice. Nobody was asked.", field="options")
    for label in options or ():
        demand_text("options", label)
    if assignee is not None:
        demand_text("assignee", assignee)
    if default is not None:
        demand_text("default", default)
    if default is not None and options is not None and default not in options:
        raise InvalidValue(f"default: {default!r} is none of {list(options)}. Nobody was asked.", field="default")
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if seconds is not None:
        delay_ms(seconds)
    asking = run_decision(
        execution, prompt, options, assignee=assignee, timeout_s=seconds, default=default, place=caller(2)
    )
    return awaited(execution, asking)


# --- the execution itself ---------------------------------------------------------------------------------------------


def continue_as_new(*args: Any, version: str | None = None, **kwargs: Any) -> NoReturn:
    """End this execution and start the next with these arguments. Never returns; may be called from any task."""
    execution = current("hf.continue_as_new")
    if version is not None:
        version_key(version)
    packed = packed_call(execution.definition.codec, execution.definition.name, args, kwargs)
    execution.continue_as_new(Continuation(input=packed, version=version))
    raise AssertionError("unreachable")


def patched(id: str) -> bool:  # noqa: A002 - the contract's name
    """Tell whether this execution follows the new branch of a change; the answer never changes for it."""
    return current("hf.patched").patched(demand_text("id", id))


def uuid() -> stdlib_uuid.UUID:
    """Give a UUID that is the same on every replay. Not for secrets."""
    return current("hf.uuid").chance.uuid()


def random() -> float:
    """Give a float, 0 ≤ x < 1, that is the same on every replay."""
    return current("hf.random").chance.random()


def rng() -> stdlib_random.Random:
    """Give a `random.Random` that is the same on every replay."""
    return current("hf.rng").chance.rng


def set_status(value: Any) -> None:
    """Publish what the instance says of itself; None clears it."""
    execution = current("hf.set_status")
    text = None if value is None else encoded(value, "status")
    execution.publish(event_kinds.CustomStatusUpdated(status=text))


class Info(msgspec.Struct, frozen=True, kw_only=True):
    """What an execution knows of itself."""

    instance: str
    execution_id: int
    workflow: str
    version: str
    started_at: datetime
    parent_instance: str | None = None


def info() -> Info:
    """Say which execution this is."""
    execution = current("hf.info")
    started = execution.started
    assert isinstance(started.kind, event_kinds.OrchestrationStarted)
    return Info(
        instance=execution.instance,
        execution_id=execution.execution_id,
        workflow=started.kind.name,
        version=started.kind.version,
        started_at=_EPOCH + timedelta(milliseconds=started.timestamp_ms),
        parent_instance=started.kind.parent_instance,
    )


def history_size() -> int:
    """Count the events so far."""
    return current("hf.history_size").last_event_id


def should_continue_as_new() -> bool:
    """Tell whether the history has grown so long that replays take a while."""
    execution = current("hf.should_continue_as_new")
    return execution.last_event_id >= MANY_EVENTS or execution.size_bytes >= MANY_BYTES


def is_replaying() -> bool:
    """Tell whether recorded events are being delivered. For logs and debuggers; nothing else may depend on it."""
    return current("hf.is_replaying").is_replaying


def is_leaving() -> bool:
    """Tell whether the workflow only leaves this process: evicted, its worker stopping, or ended from outside.

    Python runs `finally` blocks then, though the workflow has not come to them; it goes on later, from its history.
    """
    return current("hf.is_leaving").is_leaving


# --- keys -------------------------------------------------------------------------------------------------------------


class Kv:
    """`hf.kv`: values by key that others can read while the workflow runs."""

    def get(self, key: str, default: Any = None, *, type: Any = Any) -> Any:  # noqa: A002 - as `hf.signal`
        """Give a key's value."""
        text = current("hf.kv").published.get(key)
        return default if text is None else _decoded(text, type, f"key {key!r}")

    def set(self, key: str, value: Any) -> None:
        """Give a key a value."""
        execution = current("hf.kv")
        execution.publish(
            event_kinds.KeyValueSet(key=key, value=encoded(value, f"key {key!r}"), last_updated_at_ms=execution.now_ms)
        )

    def delete(self, key: str) -> None:
        """Remove a key, if it is there."""
        current("hf.kv").publish(event_kinds.KeyValueCleared(key=key))

    def clear(self) -> None:
        """Remove all keys."""
        current("hf.kv").publish(event_kinds.KeyValuesCleared())


kv = Kv()


# --- logging ----------------------------------------------------------------------------------------------------------


class WorkflowLog(logging.LoggerAdapter[logging.Logger]):
    """`hf.log`: silent in replay and while the workflow only leaves this process; each line names its instance."""

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - logging's name
        """Say nothing twice."""
        execution = running()
        is_silent = execution is not None and (execution.is_replaying or execution.is_leaving)
        return not is_silent and super().isEnabledFor(level)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Add whose line it is."""
        execution = running()
        if execution is not None:
            facts = {"instance": execution.instance, "execution": execution.execution_id}
            kwargs["extra"] = {**facts, **(kwargs.get("extra") or {})}
        return msg, kwargs


log = WorkflowLog(logging.getLogger("holdfast.workflow"), {})


# --- several at once --------------------------------------------------------------------------------------------------


def as_completed(
    awaitables: Iterable[Awaitable[R]],
    *,
    timeout: float | None = None,
) -> Iterator[Awaitable[R]]:
    """Do as `asyncio.as_completed` does, beginning them in the order given."""
    current("hf.as_completed")
    begun = [asyncio.ensure_future(one) for one in awaitables]
    return asyncio.as_completed(begun, timeout=timeout)


class Pending(Generic[R]):
    """Something a `def` workflow has begun and will wait for later."""

    def __init__(self, execution: Execution, task: asyncio.Future[R]) -> None:
        self._execution = execution
        self.task = task

    def result(self) -> R:
        """Wait for it. Raises what it failed with."""
        self._execution.block_until(asyncio.wait([self.task]))
        return self.task.result()

    def done(self) -> bool:
        """Tell whether it has ended."""
        return self.task.done()

    def cancel(self) -> None:
        """No longer want it."""
        self.task.cancel()


def begin(coro: Coroutine[Any, Any, R]) -> Pending[R]:
    """Let a call run beside a `def` workflow."""
    execution = current("begin")
    if not execution.definition.is_blocking:
        coro.close()
        raise WorkflowNotAllowed("begin: an async workflow uses asyncio.create_task, gather or TaskGroup.")
    return Pending(execution, asyncio.ensure_future(coro))


def wait(
    pending: Sequence[Pending[Any]], *, timeout: float | None = None, first: bool = False
) -> tuple[list[Pending[Any]], list[Pending[Any]]]:
    """Wait, in a `def` workflow, for all of them, or the `first`; give those that ended and those that did not."""
    execution = current("hf.wait")
    if not execution.definition.is_blocking:
        raise WorkflowNotAllowed("hf.wait: an async workflow uses asyncio.wait.")
    if pending:
        execution.block_until(
            asyncio.wait(
                [one.task for one in pending],
                timeout=timeout,
                return_when=asyncio.FIRST_COMPLETED if first else asyncio.ALL_COMPLETED,
            )
        )
    return [one for one in pending if one.done()], [one for one in pending if not one.done()]


# --- JSON -------------------------------------------------------------------------------------------------------------


def encoded(value: Any, field: str) -> str:
    """Write a value as JSON text: anything msgspec knows. Raises InvalidValue."""
    try:
        return bytes(pack(plain_of(value), field)).decode()
    except TypeError as problem:
        raise InvalidValue(f"{field}: {problem}. Nothing was written.", field=field) from None


def _decoded(text: str, kind: Any, what: str) -> Any:
    try:
        return reader_of(kind).decode(text)
    except (msgspec.DecodeError, TypeError) as problem:
        raise InvalidValue(f"{what}: {problem}.") from None
