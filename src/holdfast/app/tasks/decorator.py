"""Tasks by decorator: how a function becomes a task, with its payloads typed and its schedule declared.

Nothing here touches the store; schedules are declared now and made when it is opened.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeVar, cast, overload

from holdfast.app.handles.schedule import declared, synchronise
from holdfast.app.store_connection import OpensStore
from holdfast.app.tasks.naming import demand_function, origin_of, task_name
from holdfast.app.tasks.options import Chosen, TaskOptions
from holdfast.app.tasks.signature_codec import SignatureCodec
from holdfast.app.tasks.task import AsyncTask, ShellTask, Task
from holdfast.clock import Clock
from holdfast.engine.engine import Engine
from holdfast.errors import InvalidValue, UnknownTask
from holdfast.model.schedules import NewSchedule
from holdfast.workers.handlers.shell import Command, ShellResult
from holdfast.workers.task_registry import Registry, TaskSpec

if TYPE_CHECKING:
    from typing import Unpack

    from holdfast.app.application import Holdfast
    from holdfast.workers.task_registry import Isolation

P = ParamSpec("P")
R = TypeVar("R")


class TaskMaker(Protocol):
    """Makes a task of a function: what `@hf.task(…)` gives."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class ShellTaskMaker(Protocol):
    """Makes a task of a function that gives a command: what `@hf.task(isolation="shell")` gives."""

    def __call__(self, function: Callable[P, Command], /) -> ShellTask[P]:
        """Make it."""
        ...


class HasTasks(OpensStore):
    """An application's store, and the tasks whose jobs it keeps."""

    def __init__(self, url: str, *, namespace: str, clock: Clock | None, access_token: str | None = None) -> None:
        """Begin without any task."""
        super().__init__(url, namespace=namespace, clock=clock, access_token=access_token)
        self.tasks = Registry()
        #: How the payloads of tasks are typed, by name.
        self.codecs: dict[str, SignatureCodec] = {}
        #: The schedules that decorators declare, by name.
        self._declared: dict[str, NewSchedule] = {}
        #: Queues that tasks name.
        self._queues: set[str] = set()

    def _prepare(self, engine: Engine) -> None:
        """Make the schedules that decorators declared."""
        synchronise(engine, list(self._declared.values()))

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self,
        *,
        isolation: Literal["shell"],
        name: str | None = None,
        no_retry: tuple[type[BaseException], ...] = (),
        raises: tuple[type[BaseException], ...] = (),
        schedule: str | None = None,
        timezone: str = "UTC",
        **options: Unpack[TaskOptions],
    ) -> ShellTaskMaker: ...

    @overload
    def task(
        self,
        *,
        name: str | None = None,
        isolation: Literal["process"] | None = None,
        memory_limit: int | None = None,
        no_retry: tuple[type[BaseException], ...] = (),
        raises: tuple[type[BaseException], ...] = (),
        schedule: str | None = None,
        timezone: str = "UTC",
        **options: Unpack[TaskOptions],
    ) -> TaskMaker: ...

    def task(  # type: ignore[misc]  # mypy does not see that **options takes what Unpack[TaskOptions] gives
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        isolation: Literal["process", "shell"] | None = None,
        memory_limit: int | None = None,
        no_retry: tuple[type[BaseException], ...] = (),
        raises: tuple[type[BaseException], ...] = (),
        schedule: str | None = None,
        timezone: str = "UTC",
        **options: Any,
    ) -> Any:
        """Register a function as a task. Its name is by default `module.function`.

        It runs on an event loop if it is a coroutine function, else in a thread; with `isolation="process"` in a
        process of its own, and with `isolation="shell"` it returns the command to run. With `schedule`, a cron
        expression, it is also run by the clock of `timezone`, once the store is open. Workflows that call it get its
        failures as objects of the classes that `raises` lists.
        """

        def register(found: Callable[..., Any]) -> Task[..., Any]:
            demand_function(found)
            title = task_name(found, name)
            if memory_limit is not None and isolation != "process":
                raise InvalidValue(
                    "memory_limit holds for a process only.", hint='Add isolation="process".', field="memory_limit"
                )
            chosen = Chosen().plus(TaskOptions(**options), TaskOptions)  # type: ignore[typeddict-item]  # plus checks them
            chosen.demand_valid(title, self.namespace)
            awaited = inspect.iscoroutinefunction(found)
            where: Isolation = isolation or ("loop" if awaited else "thread")
            if isolation == "shell" and awaited:
                raise InvalidValue(f"{title}: what gives a command must be a plain function.", field="isolation")
            codec = SignatureCodec(found, ShellResult if isolation == "shell" else None)
            self.tasks.add(
                TaskSpec(
                    name=title,
                    run=found,
                    codec=codec,
                    isolation=where,
                    no_retry=no_retry,
                    memory_limit=memory_limit,
                    origin=origin_of(found),
                )
            )
            self.codecs[title] = codec
            self._queues.add(chosen.fields.get("queue", "default"))
            kind = ShellTask if isolation == "shell" else AsyncTask if awaited else Task
            app = cast("Holdfast", self)  # its only heir
            task: Task[..., Any] = kind(app, title, found, codec, chosen, raises=raises)
            if schedule is not None:
                self._declared[title] = declared(task, self.namespace, schedule, timezone)
            return task

        return register if function is None else register(function)

    def codec_of(self, name: str) -> SignatureCodec:
        """Give how a task's payloads are typed. Raises UnknownTask."""
        codec = self.codecs.get(name)
        if codec is None:
            raise UnknownTask(
                f"no task is registered as {name!r} in this process.", hint="Import the module that defines it."
            )
        return codec
