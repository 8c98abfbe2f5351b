"""`Workflow[P, R]`: a workflow as its callers see it, and `Activity[P, R]`: a task as workflows see it.

Typed by the function's own signature. What needs a store (`start` from outside) is the application's, which derives
from these; inside a workflow everything is here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Literal, ParamSpec, Self, TypeVar

import msgspec

from holdfast.errors import WorkflowNotAllowed
from holdfast.flows.calls import (
    ActivityCall,
    ChildCall,
    awaited,
    current,
    demand_instance_id,
    run_activity,
    run_child,
    running,
    start_detached,
)
from holdfast.flows.definitions import Codec, Definition, version_key
from holdfast.flows.face import Pending, begin
from holdfast.flows.places import caller
from holdfast.model.workitems import ActivityOptions

P = ParamSpec("P")
R = TypeVar("R")


class ChildOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What one start or call of a workflow may be told."""

    id: str | None = None
    version: str | None = None
    on_parent_end: Literal["cancel", "leave"] = "cancel"


class Started:
    """What `start` gives inside a workflow: the name of an instance that runs for itself."""

    def __init__(self, instance: str) -> None:
        #: Its id.
        self.id = instance

    def __repr__(self) -> str:
        """Show the id."""
        return f"<Started {self.id!r}>"


class Workflow(Generic[P, R]):
    """A workflow of an application."""

    def __init__(self, definition: Definition, chosen: ChildOptions | None = None) -> None:
        functools.update_wrapper(self, definition.function)  # type: ignore[arg-type]  # it is not called here
        self.definition = definition
        self.chosen = chosen or ChildOptions()

    @property
    def name(self) -> str:
        """The name instances carry."""
        return self.definition.name

    @property
    def version(self) -> str:
        """The version this function is."""
        return self.definition.version

    def __repr__(self) -> str:
        """Show name and version."""
        return f"<Workflow {self.name} {self.version}>"

    def options(
        self,
        *,
        id: str | None = None,  # noqa: A002 - the contract's name
        version: str | None = None,
        on_parent_end: Literal["cancel", "leave"] = "cancel",
    ) -> Self:
        """Give the same workflow with an id, a version, or what becomes of it when its parent ends."""
        if id is not None:
            demand_instance_id(id)
        if version is not None:
            version_key(version)
        return type(self)(self.definition, ChildOptions(id=id, version=version, on_parent_end=on_parent_end))

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Run it as a child of this workflow and wait for its end.

        Raises ChildError or ChildCancelled when awaited, InvalidArguments at once.
        """
        execution = current(f"{self.name}.call")
        return awaited(execution, run_child(execution, self._call(args, kwargs), caller(2)))

    def begin(self, *args: P.args, **kwargs: P.kwargs) -> Pending[R]:
        """Run it as a child beside this `def` workflow."""
        return begin(run_child(current(f"{self.name}.begin"), self._call(args, kwargs), caller(2)))

    def start_detached(self, *args: P.args, **kwargs: P.kwargs) -> Started:
        """Start it from within a workflow, without any link; what `start` does there."""
        execution = current(f"{self.name}.start")
        return Started(start_detached(execution, self._call(args, kwargs), caller(2)))

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ChildCall:
        codec = self.definition.codec
        return ChildCall(
            name=self.name,
            input=bytes(codec.pack(args, kwargs)).decode(),
            decode=lambda text: codec.unpack_result(msgspec.Raw(text.encode())),
            id=self.chosen.id,
            version=self.chosen.version,
            on_parent_end=self.chosen.on_parent_end,
            raises=self.definition.raises,
        )


class Activity(Generic[P, R]):
    """A task as workflows call it; the application builds one from each of its tasks."""

    def __init__(
        self,
        name: str,
        codec: Codec,
        *,
        options: ActivityOptions | None = None,
        tag: str | None = None,
        session_id: str | None = None,
        total_timeout_s: float | None = None,
        raises: tuple[type[BaseException], ...] = (),
    ) -> None:
        self.name = name
        self._codec = codec
        self._like = ActivityCall(
            name=name,
            input="",
            decode=lambda text: codec.unpack_result(msgspec.Raw(text.encode())),
            options=options,
            tag=None if tag == "default" else tag,
            session_id=session_id,
            total_timeout_s=total_timeout_s,
            raises=raises,
        )

    @classmethod
    def of(cls, function: Callable[P, R], codec: Codec, name: str | None = None, **rest: Any) -> Activity[P, R]:
        """Describe a function as an activity, with its types."""
        return cls(name or function.__name__, codec, **rest)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Have it done as a job, on any worker, and wait for the result.

        Raises ActivityError or one of its kinds when awaited, InvalidArguments at once.
        """
        execution = current(f"{self.name}.call")
        return awaited(execution, run_activity(execution, self._call(args, kwargs), caller(2)))

    def begin(self, *args: P.args, **kwargs: P.kwargs) -> Pending[R]:
        """Have it done beside this `def` workflow."""
        return begin(run_activity(current(f"{self.name}.begin"), self._call(args, kwargs), caller(2)))

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ActivityCall:
        return msgspec.structs.replace(self._like, input=bytes(self._codec.pack(args, kwargs)).decode())


def demand_outside(doing: str) -> None:
    """Refuse to reach the store from within a workflow. Raises WorkflowNotAllowed."""
    if running() is not None:
        raise WorkflowNotAllowed(
            f"{doing}: not within a workflow; it could not be replayed. Nothing was done.",
            hint="Call a task, or use hf.step.",
        )
