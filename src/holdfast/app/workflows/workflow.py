"""Workflows of an application: made by its decorator, started from outside, from within, or as children.

What can be done inside a workflow is `workflows.api.workflow`' and the same here; a start from outside is one command,
by which the instance and its first signals are there together.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, Self, TypeVar, cast, overload

import msgspec

from holdfast.app.tasks.decorator import HasTasks
from holdfast.app.tasks.naming import demand_function
from holdfast.app.tasks.signature_codec import SignatureCodec
from holdfast.app.workflows.context_api import Inside
from holdfast.app.workflows.handle import Instance
from holdfast.clock import Clock
from holdfast.errors import InvalidValue
from holdfast.model.outcomes import Begun
from holdfast.model.workflows.commands import NewMessage, StartInstance
from holdfast.model.workflows.work_items import QueueMessage, StartOrchestration, encode_item
from holdfast.workflows.api import workflow as flows
from holdfast.workflows.api.context import encoded
from holdfast.workflows.api.definitions import Definition, Definitions, packed_call, version_key
from holdfast.workflows.api.operations import demand_instance_id, demand_signal_name, running, send_signal
from holdfast.workflows.api.signal_types import check_signal
from holdfast.workflows.api.workflow import ChildOptions, WorkflowOptions, define
from holdfast.workflows.determinism.call_site import caller

if TYPE_CHECKING:
    from typing import Unpack

    from holdfast.app.aio.workflows import AioWorkflow
    from holdfast.app.application import Holdfast

P = ParamSpec("P")
R = TypeVar("R")

#: A signal that a start brings along: its name, or its name and data.
Signal = str | tuple[str, Any]


class WorkflowMaker(Protocol):
    """Makes a workflow of a function: what `@hf.workflow(…)` gives."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Workflow[P, R]: ...


class Workflow(flows.Workflow[P, R]):
    """A durable function of an application."""

    def __init__(
        self,
        app: Holdfast,
        definition: Definition,
        chosen: ChildOptions | None = None,
        signals: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """Hold a registered function; use `Holdfast.workflow`."""
        super().__init__(definition, chosen)
        self._app = app
        self._signals = signals

    def options(
        self,
        *,
        id: str | None = None,  # noqa: A002 - the contract's name
        version: str | None = None,
        on_parent_end: Literal["cancel", "leave"] = "cancel",
        signals: Sequence[Signal] = (),
    ) -> Self:
        """Give the same workflow with an id, a version, signals it finds when it starts, or what its parent's end does.

        >>> onboard.options(id="user-42", signals=[("paid", {"eur": 9})]).start(42)  # doctest: +SKIP
        """
        if id is not None:
            demand_instance_id(id)
        if version is not None:
            version_key(version)
        chosen = ChildOptions(id=id, version=version, on_parent_end=on_parent_end)
        return type(self)(self._app, self.definition, chosen, tuple(_signal(one) for one in signals))

    @overload
    def start(self, *args: P.args, **kwargs: P.kwargs) -> Instance[R]: ...

    @overload
    def start(self, *args: Any, id: str | None, **kwargs: Any) -> Instance[R]: ...

    def start(  # type: ignore[misc]  # mypy does not see that *args and **kwargs take what P gives, beside the id
        self,
        *args: Any,
        id: str | None = None,  # noqa: A002 - the contract's name
        **kwargs: Any,
    ) -> Instance[R]:
        """Start an instance; it is durable when this returns. The same id with the same input gives the one there is.

        From within a workflow the start is part of its next commit, without any link to what starts it; the handle has
        an id and nothing more there. `options(id=…).start(…)` is the same with checked arguments.

        Raises WorkflowAlreadyStarted if the id is taken by something else, InvalidArguments if the arguments do not fit
        the function, InvalidValue for an id that is none, a version that is not registered or a signal of another type
        than the workflow declares.
        """
        if id is not None:
            return self._with_id(id).start(*args, **kwargs)
        execution = running()
        if execution is not None:
            begun = self.start_detached(*args, **kwargs)
            for name, text in self._signals:
                send_signal(execution, begun.id, name, text, caller())
            return Instance(self._app, begun.id, self.definition)
        chosen = self._newest()
        instance = self.chosen.id or self._app.engine.new_id()
        for name, text in self._signals:
            check_signal(chosen, instance, name, text, "Nothing was started.")
        start = StartOrchestration(
            instance=instance,
            orchestration=self.name,
            input=packed_call(chosen.codec, self.name, args, kwargs),
            version=self.chosen.version,
        )
        # Without a command id: the instance's own makes a repetition find what the first one made.
        command = StartInstance(
            message=NewMessage(item=msgspec.Raw(encode_item(start))),
            signals=tuple(
                NewMessage(item=msgspec.Raw(encode_item(QueueMessage(instance=instance, name=name, data=text))))
                for name, text in self._signals
            ),
        )
        outcome = self._app.engine.ask(command)
        assert isinstance(outcome, Begun)
        return Instance(self._app, instance, chosen, created=outcome.created)

    def _with_id(self, instance: str) -> Self:
        chosen = msgspec.structs.replace(self.chosen, id=demand_instance_id(instance))
        return type(self)(self._app, self.definition, chosen, self._signals)

    def _newest(self) -> Definition:
        """Give the version that a start takes. Raises InvalidValue if the one asked for is not registered."""
        found = self._app.workflows.get(self.name, self.chosen.version)
        if found is None:
            there = ", ".join(one.version for one in self._app.workflows.all() if one.name == self.name)
            raise InvalidValue(
                f"workflow {self.name!r} has no version {self.chosen.version}. Nothing was started.",
                hint=f"There are: {there}.",
                field="version",
            )
        return found

    @property
    def aio(self) -> AioWorkflow[P, R]:
        """The same calls, to be awaited."""
        from holdfast.app.aio.workflows import AioWorkflow  # noqa: PLC0415 - only programs that await pay for it

        return AioWorkflow(self)


def _signal(one: Signal) -> tuple[str, str]:
    name, value = (one, None) if isinstance(one, str) else one
    return demand_signal_name(name), encoded(value, f"signal {name!r}")


class HasWorkflows(HasTasks, Inside):
    """An application's tasks, and the workflows that call them."""

    def __init__(self, url: str, *, namespace: str, clock: Clock | None, access_token: str | None = None) -> None:
        """Begin without any workflow."""
        super().__init__(url, namespace=namespace, clock=clock, access_token=access_token)
        #: The workflows by name and version.
        self.workflows = Definitions(SignatureCodec)

    @overload
    def workflow(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...

    @overload
    def workflow(self, function: Callable[P, R], /) -> Workflow[P, R]: ...

    @overload
    def workflow(self, **options: Unpack[WorkflowOptions]) -> WorkflowMaker: ...

    def workflow(  # type: ignore[misc]  # mypy does not see that **options takes what Unpack[WorkflowOptions] gives
        self, function: Callable[..., Any] | None = None, /, **options: Any
    ) -> Any:
        """Register a function, `async def` or `def`, as a workflow. Its name is by default the function's.

        >>> @hf.workflow(version="1.1.0", timeout=3600)
        ... async def onboard(user: int) -> str: ...

        Raises InvalidValue for a name and version that are taken, InvalidArguments for an option there is not.
        """

        def register(found: Callable[..., Any]) -> Workflow[..., Any]:
            demand_function(found)
            if self.namespace:
                raise InvalidValue(
                    f"workflow {found.__name__!r}: workflows belong to no namespace, this application to "
                    f"{self.namespace!r}.",
                    hint="Define it on an application without a namespace.",
                    field="namespace",
                )
            definition = define(found, SignatureCodec(found), cast("WorkflowOptions", options))  # it checks the names
            self.workflows.add(definition)
            return Workflow(cast("Holdfast", self), definition)  # its only heir

        return register if function is None else register(function)
