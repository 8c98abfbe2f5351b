"""The awaitable face of workflows: the same names, a thread hop each. Nothing is written twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypeVar, overload

from holdfast.app.completion_waiter import awaited, within
from holdfast.app.workflows.decisions import Decision, DecisionState
from holdfast.app.workflows.handle import Instance
from holdfast.app.workflows.state import InstanceState
from holdfast.app.workflows.workflow import Workflow
from holdfast.model.workflows.history import Event
from holdfast.model.workflows.instances import Execution
from holdfast.rules.explain import Reason

P = ParamSpec("P")
R = TypeVar("R")


class AioWorkflow(Generic[P, R]):
    """A workflow, awaited."""

    def __init__(self, workflow: Workflow[P, R]) -> None:
        self._workflow = workflow

    @overload
    async def start(self, *args: P.args, **kwargs: P.kwargs) -> Instance[R]: ...

    @overload
    async def start(self, *args: Any, id: str | None, **kwargs: Any) -> Instance[R]: ...

    async def start(  # type: ignore[misc]  # as its twin
        self,
        *args: Any,
        id: str | None = None,  # noqa: A002 - the contract's name
        **kwargs: Any,
    ) -> Instance[R]:
        """Start an instance; it is durable when this returns."""
        return await asyncio.to_thread(self._workflow.start, *args, id=id, **kwargs)


class AioInstance(Generic[R]):
    """An instance, awaited."""

    def __init__(self, instance: Instance[R]) -> None:
        self._instance = instance

    async def status(self) -> InstanceState:
        """Give the instance as it is now."""
        return await asyncio.to_thread(self._instance.status)

    async def explain(self) -> Reason:
        """Give the one reason why the instance is where it is."""
        return await asyncio.to_thread(self._instance.explain)

    async def wait(self, timeout: float | None = None) -> InstanceState:  # noqa: ASYNC109 - the twin's own parameter
        """Wait until the instance has ended. One thread looks after all who await."""
        return await self._until(lambda state: state.has_ended, timeout)

    async def wait_status(self, after: int = 0, timeout: float | None = None) -> InstanceState:  # noqa: ASYNC109 - the twin's own parameter
        """Wait until it has said something new of itself, or has ended."""
        return await self._until(lambda one: one.custom_status_version > after or one.has_ended, timeout)

    async def _until(self, is_enough: Callable[[InstanceState], bool], timeout: float | None) -> InstanceState:  # noqa: ASYNC109 - the same
        instance = self._instance
        with within(instance.app, timeout) as ends_at:
            state = await awaited(instance.app, lambda view: instance.seen(view, is_enough), ends_at)
            if state is None:
                raise await asyncio.to_thread(instance.late, timeout)
            return state

    async def result(self, timeout: float | None = None) -> R:  # noqa: ASYNC109 - the twin's own parameter
        """Wait for what the workflow returns."""
        with within(self._instance.app, timeout):
            return await asyncio.to_thread(self._instance.outcome, await self.wait(timeout))

    async def signal(self, name: str, data: Any = None, *, hold: float = 0) -> None:
        """Send it a signal."""
        await asyncio.to_thread(self._instance.signal, name, data, hold=hold)

    async def cancel(self, reason: str = "", *, force: bool = False) -> None:
        """Ask it to stop."""
        await asyncio.to_thread(self._instance.cancel, reason, force=force)

    async def reset(self, to: int | None = None, *, reason: str = "") -> None:
        """Have it go on from an earlier event."""
        await asyncio.to_thread(self._instance.reset, to, reason=reason)

    async def fork(
        self,
        to: int | None = None,
        *,
        id: str | None = None,  # noqa: A002 - as its twin
        input: Mapping[str, Any] | None = None,  # noqa: A002 - as its twin
    ) -> Instance[R]:
        """Begin another instance with a copy of its history."""
        return await asyncio.to_thread(self._instance.fork, to, id=id, input=input)

    async def fail(self, reason: str = "") -> None:
        """End it without its code."""
        await asyncio.to_thread(self._instance.fail, reason)

    async def history(self, execution_id: int | None = None) -> list[Event]:
        """Give the events of an execution."""
        return await asyncio.to_thread(self._instance.history, execution_id)

    async def executions(self) -> Sequence[Execution]:
        """List its executions."""
        return await asyncio.to_thread(self._instance.executions)

    async def children(self) -> list[Instance[Any]]:
        """List the instances it called."""
        return await asyncio.to_thread(self._instance.children)

    async def kv(self) -> dict[str, Any]:
        """Give the values that the workflow shows by key."""
        return await asyncio.to_thread(self._instance.kv.all)


class AioDecision:
    """A question, awaited."""

    def __init__(self, decision: Decision) -> None:
        self._decision = decision

    async def record(self) -> DecisionState:
        """Read it as it is now."""
        return await asyncio.to_thread(self._decision.record)

    async def resolve(self, chosen: str | None = None, *, message: str | None = None, by: str = "") -> None:
        """Answer it."""
        await asyncio.to_thread(self._decision.resolve, chosen, message=message, by=by)
