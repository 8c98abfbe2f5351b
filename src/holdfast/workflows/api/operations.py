"""What workflow code waits for: activities, children, steps, signals, decisions; each a coroutine with its clean-up.

A command is given when its coroutine first runs; a cancelled wait withdraws it in the same commit.
"""

from __future__ import annotations

import asyncio
import hashlib
from asyncio import events
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from holdfast.errors import (
    ActivityCancelled,
    ActivityDead,
    ActivityError,
    ActivityTimeout,
    ChildCancelled,
    ChildError,
    InvalidValue,
    StepError,
    WorkflowNotAllowed,
)
from holdfast.model.error_details import CANCELLED, DEAD, TIMEOUT, Category, ErrorDetails
from holdfast.model.ids import uuid5
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.history import Event
from holdfast.model.workflows.instances import MAX_ID, MAX_ID_BYTES
from holdfast.model.workflows.work_items import ActivityExecute, ActivityOptions, QueueMessage, StartOrchestration
from holdfast.workflows.api.error_conversion import rebuild
from holdfast.workflows.api.steps import StepCall
from holdfast.workflows.determinism.call_site import Place
from holdfast.workflows.determinism.history_match import CHILD_MARK
from holdfast.workflows.runtime.event_loop import Loop
from holdfast.workflows.runtime.execution import Execution
from holdfast.workflows.runtime.history_size import delay_ms

R = TypeVar("R")

#: Bytes of a signal's name.
MAX_SIGNAL = 256


def current(doing: str = "this") -> Execution:
    """Give the execution whose code runs here. Raises WorkflowNotAllowed outside of a workflow."""
    found = running()
    if found is None:
        raise WorkflowNotAllowed(f"{doing}: only workflow code may call it. Nothing was done.")
    return found


def running() -> Execution | None:
    """Give the execution whose code runs here; None outside of a workflow."""
    loop = events._get_running_loop()  # noqa: SLF001 - the public one raises, and this is asked at every call
    if not isinstance(loop, Loop):
        return None
    assert isinstance(loop.keeper, Execution)
    return loop.keeper


def awaited(execution: Execution, coro: Coroutine[Any, Any, R]) -> Coroutine[Any, Any, R]:
    """Give a coroutine to `async def` code; wait for it, and give its result, in a `def` workflow."""
    if execution.definition.is_blocking:
        result: Coroutine[Any, Any, R] = execution.block_until(coro)  # the result, in truth: the contract of def
        return result
    return coro


# --- activities -------------------------------------------------------------------------------------------------------


class ActivityCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a task as an activity."""

    name: str
    #: JSON text.
    input: str
    decode: Callable[[str], Any]
    options: ActivityOptions | None = None
    #: The queue; None is `default`.
    tag: str | None = None
    session_id: str | None = None
    #: Seconds that all attempts together may take.
    total_timeout_s: float | None = None
    raises: tuple[type[BaseException], ...] = ()


async def run_activity(execution: Execution, call: ActivityCall, place: Place | None) -> Any:
    """Have a job done on any worker, and wait for its final outcome."""

    def dispatch(event: Event) -> None:
        execution.outbox.execute(
            ActivityExecute(
                instance=execution.instance,
                execution_id=event.execution_id,
                id=event.event_id,
                name=call.name,
                input=call.input,
                session_id=call.session_id,
                tag=call.tag,
                options=call.options,
            )
        )

    scheduled = event_kinds.ActivityScheduled(
        name=call.name, input=call.input, session_id=call.session_id, tag=call.tag
    )
    event_id, future = execution.ask(scheduled, place=place, dispatch=dispatch)
    deadline = None
    if call.total_timeout_s is not None:
        deadline = asyncio.get_running_loop().call_later(call.total_timeout_s, _expire, future)
    try:
        kind = await future
    except asyncio.CancelledError:
        execution.withdraw(event_id, "cancelled")
        raise
    finally:
        if deadline is not None:
            deadline.cancel()
    if isinstance(kind, event_kinds.ActivityCompleted):
        return call.decode(kind.result)
    details = kind.details if isinstance(kind, event_kinds.ActivityFailed) else _out_of_time(call)
    execution.withdraw(event_id, "total_timeout")  # nothing to withdraw if the job ended
    raise rebuild(
        _activity_class(details),
        f"activity {call.name!r}",
        details,
        (*call.raises, *execution.definition.raises),
        activity=call.name,
        event_id=event_id,
    )


def _expire(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)


def _out_of_time(call: ActivityCall) -> ErrorDetails:
    return ErrorDetails(
        category=Category.APPLICATION,
        kind=TIMEOUT,
        message=f"not done within its total timeout of {call.total_timeout_s:g} s",
    )


def _activity_class(details: ErrorDetails) -> type[ActivityError]:
    if details.category is Category.POISON or details.kind == DEAD:
        return ActivityDead
    return {CANCELLED: ActivityCancelled, TIMEOUT: ActivityTimeout}.get(details.kind, ActivityError)


# --- children ---------------------------------------------------------------------------------------------------------


class ChildCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a workflow from another."""

    name: str
    input: str
    decode: Callable[[str], Any]
    id: str | None = None
    version: str | None = None
    on_parent_end: Literal["cancel", "leave"] = "cancel"
    raises: tuple[type[BaseException], ...] = ()


async def run_child(execution: Execution, call: ChildCall, place: Place | None) -> Any:
    """Start a child and wait for its end."""
    made = call.id or child_id(execution.instance, execution.execution_id, execution.last_event_id + 1)

    def dispatch(event: Event) -> None:
        assert isinstance(event.kind, event_kinds.SubOrchestrationScheduled)
        execution.outbox.send(
            StartOrchestration(
                instance=event.kind.instance,
                orchestration=call.name,
                input=call.input,
                version=call.version,
                parent_instance=execution.instance,
                parent_id=event.event_id,
                parent_execution_id=event.execution_id,
            )
        )

    scheduled = event_kinds.SubOrchestrationScheduled(name=call.name, instance=made, input=call.input)
    event_id, future = execution.ask(scheduled, place=place, dispatch=dispatch, leave=call.on_parent_end == "leave")
    try:
        kind = await future
    except asyncio.CancelledError:
        execution.withdraw(event_id, "cancelled")
        raise
    if isinstance(kind, event_kinds.SubOrchestrationCompleted):
        return call.decode(kind.result)
    assert isinstance(kind, event_kinds.SubOrchestrationFailed)
    raise rebuild(
        ChildCancelled if kind.details.kind == CANCELLED else ChildError,
        f"child workflow {call.name!r}",
        kind.details,
        (*call.raises, *execution.definition.raises),
        event_id=event_id,
    )


def start_detached(execution: Execution, call: ChildCall, place: Place | None) -> str:
    """Start an instance that this one has no link to, and give its id."""
    # By seed and instance: a reset asks for the same again, a fork for one of its own.
    made = uuid5(execution.instance, str(execution.chance.new_id()))
    instance = call.id or execution.made_before() or made

    def dispatch(_event: Event) -> None:
        execution.outbox.send(
            StartOrchestration(instance=instance, orchestration=call.name, input=call.input, version=call.version)
        )

    execution.give(
        event_kinds.OrchestrationChained(name=call.name, instance=instance, input=call.input),
        place=place,
        dispatch=dispatch,
    )
    return instance


def child_id(parent: str, execution_id: int, event_id: int) -> str:
    """Give the id of a child that was given none; of a long one the end is hashed."""
    made = f"{parent}{CHILD_MARK}{execution_id}-{event_id}"
    if len(made) <= MAX_ID and len(made.encode("utf-8", "surrogatepass")) <= MAX_ID_BYTES:
        return made
    digest = hashlib.sha256(made.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    head = parent[: MAX_ID - len(CHILD_MARK) - len(digest)]
    while len(head.encode("utf-8", "surrogatepass")) > MAX_ID_BYTES - len(CHILD_MARK) - len(digest):
        head = head[:-1]
    return f"{head}{CHILD_MARK}{digest}"


def demand_instance_id(text: str, *, any_child: bool = False) -> str:
    """Refuse what cannot be the id of an instance; with `any_child` it may be one made here. Raises InvalidValue."""
    try:
        fits = 1 <= len(text) <= MAX_ID and len(text.encode()) <= MAX_ID_BYTES
    except (UnicodeEncodeError, TypeError, AttributeError):  # lone surrogates; no text at all
        fits = False
    if not fits or "\0" in text or (CHILD_MARK in text and not any_child):
        raise InvalidValue(
            f"id {text!r:.100}: an id has 1-{MAX_ID} characters, and contains neither U+0000 nor {CHILD_MARK!r}. "
            "Nothing was written."
        )
    return text


# --- steps, signals, decisions ----------------------------------------------------------------------------------------


async def run_step(execution: Execution, call: StepCall) -> Any:
    """Have a function run by this worker, and wait for its outcome."""
    future = execution.begin_step(call)
    try:
        kind = await future
    except asyncio.CancelledError:
        execution.steps.drop(call.step_no)
        raise
    if isinstance(kind, event_kinds.StepCompleted):
        return call.decode(kind.result)
    assert isinstance(kind, event_kinds.StepFailed)
    raise rebuild(
        StepError,
        f"step {call.name!r}",
        kind.details,
        execution.definition.raises,
        step=call.name,
        step_no=call.step_no,
    )


def demand_text(field: str, text: str) -> str:
    """Refuse what cannot be written down, at the call: no commit would take it. Raises InvalidValue."""
    try:
        text.encode()
    except (UnicodeEncodeError, AttributeError):  # lone surrogates; no text at all
        raise InvalidValue(
            f"{field}: {text!r:.100} is no text that can be kept. Nothing was done.", field=field
        ) from None
    return text


def demand_signal_name(name: str) -> str:
    """Refuse what cannot name a signal. Raises InvalidValue."""
    try:
        fits = 1 <= len(name.encode()) <= MAX_SIGNAL and not name.startswith("@")
    except (UnicodeEncodeError, TypeError, AttributeError):  # lone surrogates; no text at all
        fits = False
    if not fits:
        raise InvalidValue(
            f"signal {name!r:.100}: a name has 1-{MAX_SIGNAL} bytes and does not begin with @. Nothing was written."
        )
    return name


def send_signal(execution: Execution, instance: str, name: str, data: str, place: Place | None) -> None:
    """Send a signal to another instance, with this commit."""
    execution.give(
        event_kinds.SignalSent(instance=instance, name=name, data=data),
        place=place,
        dispatch=lambda _: execution.outbox.send(QueueMessage(instance=instance, name=name, data=data)),
    )


async def run_decision(
    execution: Execution,
    prompt: str,
    options: Sequence[str] | None,
    *,
    assignee: str | None,
    timeout_s: float | None,
    default: str | None,
    place: Place | None,
) -> str:
    """Ask a person and wait for the answer."""
    labels = None if options is None else tuple(options)
    expires = None if timeout_s is None else execution.now_ms + delay_ms(timeout_s)
    asked = event_kinds.DecisionRequested(
        prompt=prompt, options=labels, assignee=assignee, source="workflow", expires_at_ms=expires, on_expire=default
    )

    def dispatch(event: Event) -> None:
        assert isinstance(event.kind, event_kinds.DecisionRequested)
        if event.kind.expires_at_ms is not None:
            execution.outbox.wake(event.event_id, event.kind.expires_at_ms)

    event_id, future = execution.ask(asked, place=place, dispatch=dispatch)
    try:
        kind = await future
    except asyncio.CancelledError:
        execution.withdraw(event_id, "cancelled")
        raise
    assert isinstance(kind, event_kinds.DecisionResolved)
    answer = kind.message if kind.chosen is None else kind.chosen
    if answer is None:
        raise TimeoutError(f"decision {prompt!r}: nobody answered in time")
    return answer
