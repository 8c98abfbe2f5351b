"""`Workflow[P, R]`: a workflow as its callers see it, and `Activity[P, R]`: a task as workflows see it.

Typed by the function's own signature. What needs a store (`start` from outside) is the application's, which derives
from these; inside a workflow everything is here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from typing import Any, Generic, Literal, ParamSpec, Self, TypedDict, TypeVar, Unpack, cast, overload

import msgspec

from holdfast.errors import InvalidArguments, WorkflowNotAllowed
from holdfast.model.workflows.work_items import ActivityOptions
from holdfast.workflows.api.context import Pending, begin
from holdfast.workflows.api.definitions import Codec, Definition, Definitions, packed_call, version_key
from holdfast.workflows.api.operations import (
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
from holdfast.workflows.api.signal_types import demand_types
from holdfast.workflows.determinism.call_site import caller

P = ParamSpec("P")
R = TypeVar("R")


Seconds = float | timedelta


class WorkflowOptions(TypedDict, total=False):
    """What `@hf.workflow(…)` takes."""

    name: str
    #: `major.minor.patch`; a start takes the newest.
    version: str
    #: From a cancel request to the end without asking; 0: none.
    cancel_grace: Seconds
    #: From the start to a cancel request of our own.
    timeout: Seconds | None
    #: Classes that failures of its activities and children are rebuilt as.
    raises: tuple[type[BaseException], ...]
    #: Without a running step; 0: no limit.
    turn_timeout: Seconds
    #: Counted deliveries until it is poison.
    max_turn_attempts: int
    compare_inputs: bool
    on_nondeterminism: Literal["block", "fail"]
    #: What an error in the code itself, such as a NameError, does to a run.
    on_error: Literal["block", "fail"]
    #: Types of its signals, by name: what `hf.signal(name)` gives, and what senders are held to.
    signals: Mapping[str, Any]
    #: How long ended instances are kept; None: for ever; without a word: as the store says.
    retention: Seconds | None


def define(function: Callable[..., Any], codec: Codec, options: WorkflowOptions) -> Definition:
    """Describe a function as a workflow, in the units of the records. Raises InvalidArguments, InvalidValue."""
    known = WorkflowOptions.__annotations__
    for option in options:
        if option not in known:
            raise InvalidArguments(
                f"there is no option {option!r} here.", hint=f"There are: {', '.join(sorted(known))}."
            )
    demand_types(options.get("name", function.__name__), options.get("signals", {}))
    fields = {_IN_SECONDS.get(name, name): _seconds(value) for name, value in options.items()}
    return Definition(**{"name": function.__name__, **fields}, function=function, codec=codec)


_IN_SECONDS = {name: f"{name}_s" for name in ("cancel_grace", "timeout", "turn_timeout", "retention")}


def _seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


class Register:
    """`@register` and `@register(version=…)`: makes workflows of functions, for one application.

    What the application's own decorator does, without its store: `async def` and `def` become `Workflow[P, R]`.
    """

    def __init__(self, definitions: Definitions, codec_of: Callable[[Callable[..., Any]], Codec]) -> None:
        self._definitions = definitions
        self._codec_of = codec_of

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Workflow[P, R]: ...

    @overload
    def __call__(self, **options: Unpack[WorkflowOptions]) -> RegisterWith: ...

    def __call__(  # type: ignore[misc]  # mypy does not see that **options takes what Unpack[WorkflowOptions] gives
        self, function: Callable[..., Any] | None = None, /, **options: Any
    ) -> Any:
        """Register a workflow."""
        chosen = cast("WorkflowOptions", options)  # `define` looks at every name
        return RegisterWith(self, chosen) if function is None else self.add(function, chosen)

    def add(self, function: Callable[..., Any], options: WorkflowOptions) -> Workflow[..., Any]:
        """Register a function with these options."""
        definition = define(function, self._codec_of(function), options)
        self._definitions.add(definition)
        return Workflow(definition)


class RegisterWith:
    """The decorator with its options."""

    def __init__(self, register: Register, options: WorkflowOptions) -> None:
        self._register = register
        self._options = options

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Workflow[P, R]: ...

    def __call__(self, function: Callable[..., Any], /) -> Workflow[..., Any]:
        """Register a workflow."""
        return self._register.add(function, self._options)


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
            input=packed_call(codec, self.name, args, kwargs),
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
        return msgspec.structs.replace(self._like, input=packed_call(self._codec, self.name, args, kwargs))


@overload
def activity(
    function: Callable[P, Coroutine[Any, Any, R]], codec: Codec, name: str | None = None, **rest: Any
) -> Activity[P, R]: ...


@overload
def activity(function: Callable[P, R], codec: Codec, name: str | None = None, **rest: Any) -> Activity[P, R]: ...


def activity(function: Callable[..., Any], codec: Codec, name: str | None = None, **rest: Any) -> Activity[..., Any]:
    """Describe a function as an activity, with its types; `rest` is what Activity takes."""
    return Activity(name or function.__name__, codec, **rest)


def demand_outside(doing: str) -> None:
    """Refuse to reach the store from within a workflow. Raises WorkflowNotAllowed."""
    if running() is not None:
        raise WorkflowNotAllowed(
            f"{doing}: not within a workflow; it could not be replayed. Nothing was done.",
            hint="Call a task, or use hf.step.",
        )
