"""The `Holdfast` object: tasks by decorator, jobs by handle, a worker in this process.

Making one touches no disk: the store is opened by the first call that needs it, in the process that makes the call. A
forked child opens its own.
"""

from __future__ import annotations

import inspect
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, Self, TypeVar, overload

from holdfast.app import schedules, templates
from holdfast.app.codec import SignatureCodec
from holdfast.app.jobs import Job
from holdfast.app.lookout import Lookout
from holdfast.app.naming import demand_function, origin_of, task_name
from holdfast.app.options import Chosen, TaskOptions
from holdfast.app.queues import Dispatch, Queue
from holdfast.app.schedules import Schedule, ScheduleOptions, Target, declared, report_undeclared, synchronise
from holdfast.app.tasks import AsyncTask, ShellTask, Task
from holdfast.app.templates import Template
from holdfast.clock import Clock
from holdfast.engine.engine import Engine
from holdfast.engine.maintenance import recover
from holdfast.errors import InvalidOperation, InvalidValue, RunNotFound, UnknownTask
from holdfast.model.commands import Retention
from holdfast.model.ids import NAME_HINT, is_name
from holdfast.model.jobs import JobStatus, Run
from holdfast.model.schedules import NewSchedule
from holdfast.model.schedules import Schedule as ScheduleRecord
from holdfast.model.templates import Template as TemplateRecord
from holdfast.model.workers import WorkerInfo
from holdfast.stores.opening import open_store, parse_url
from holdfast.stores.protocol import JobQuery
from holdfast.workers import context
from holdfast.workers.context import Context, current
from holdfast.workers.shell import Command, ShellResult
from holdfast.workers.tasks import Registry, TaskSpec

if TYPE_CHECKING:
    from typing import Unpack

    from holdfast.app.aio import AioHoldfast
    from holdfast.app.lifespan import Lifespan
    from holdfast.workers.tasks import Isolation
    from holdfast.workers.worker import Worker

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


class Holdfast:
    """An application's jobs, on one store.

    >>> hf = Holdfast("sqlite:jobs.db")
    >>> @hf.task(queue="mail", max_attempts=4, timeout=30)
    ... def send(to: str, subject: str) -> str: ...
    """

    def __init__(
        self,
        url: str,
        *,
        namespace: str = "",
        clock: Clock | None = None,
        retention: Retention | None = None,
    ) -> None:
        """Name the store; it is opened when it is first needed. Raises InvalidValue for a URL that is none."""
        parse_url(url)
        if namespace and not is_name(namespace):
            raise InvalidValue(f"namespace: {namespace!r} is not a name.", hint=NAME_HINT, field="namespace")
        self.url = url
        self.namespace = namespace
        self.retention = retention or Retention()
        self.tasks = Registry()
        self._clock = clock
        #: How the payloads of tasks are typed, by name.
        self.codecs: dict[str, SignatureCodec] = {}
        #: The schedules that decorators declare, by name.
        self._declared: dict[str, NewSchedule] = {}
        #: Queues that tasks name.
        self._queues: set[str] = set()
        self._lock = threading.RLock()
        self._engine: Engine | None = None
        self._pid = 0
        self._lookout: Lookout | None = None
        #: Used instead of its own, while one is lent.
        self._lent: Engine | None = None
        #: Pause and resume leasing altogether.
        self.dispatch = Dispatch(self)
        _applications.add(self)

    # --- tasks --------------------------------------------------------------------------------------------------------

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
        schedule: str | None = None,
        timezone: str = "UTC",
        **options: Any,
    ) -> Any:
        """Register a function as a task. Its name is by default `module.function`.

        It runs on an event loop if it is a coroutine function, else in a thread; with `isolation="process"` in a
        process of its own, and with `isolation="shell"` it returns the command to run. With `schedule`, a cron
        expression, it is also run by the clock of `timezone`, once the store is open.
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
            task: Task[..., Any] = kind(self, title, found, codec, chosen)
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

    # --- the store ----------------------------------------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        """The engine on this application's store, opened on first use in this process."""
        if self._lent is not None:
            return self._lent
        engine = self._engine
        if engine is not None and self._pid == os.getpid():
            return engine
        with self._lock:
            if self._engine is None or self._pid != os.getpid():
                self._engine = Engine(open_store(self.url, clock=self._clock), clock=self._clock)
                self._pid = os.getpid()
                recover(self._engine)
                synchronise(self._engine, list(self._declared.values()))
            return self._engine

    @property
    def is_open(self) -> bool:
        """Whether the store is open in this process."""
        return self._lent is not None or self._is_own_open()

    def _is_own_open(self) -> bool:
        return self._engine is not None and self._pid == os.getpid()

    def open(self) -> Self:
        """Open the store now, not by the first call that needs it. Raises StoreError if it cannot be opened."""
        _ = self.engine
        return self

    def close(self) -> None:
        """Close the store; the next call that needs it opens it again. A lent engine is left to who lent it."""
        if self._lent is not None:
            return
        with self._lock:
            engine, self._engine = self._engine, None
            if engine is not None and self._pid == os.getpid():
                engine.close()

    def configure(self, url: str) -> None:
        """Name another store, for programs that learn its URL after their tasks were defined.

        Raises InvalidOperation if the present one is open, InvalidValue for a URL that is none.
        """
        parse_url(url)
        with self._lock:
            if self._is_own_open() and url != self.url:
                raise InvalidOperation(
                    f"the store {self.url} is in use; {url} was not taken.", hint="Configure before the first use."
                )
            self.url = url

    @contextmanager
    def lend(self, engine: Engine) -> Iterator[Self]:
        """Use this engine instead of the application's own inside the block, in all threads; for tests."""
        before, self._lent = self._lent, engine
        try:
            yield self
        finally:
            self._lent = before

    @property
    def lifespan(self) -> Lifespan:
        """What Starlette and FastAPI take as `lifespan`: the store is open while the server runs.

        >>> FastAPI(lifespan=hf.lifespan)  # doctest: +SKIP
        >>> FastAPI(lifespan=hf.lifespan.working(concurrency=4))  # doctest: +SKIP
        """
        from holdfast.app.lifespan import Lifespan  # noqa: PLC0415 - only programs with an event loop pay for it

        return Lifespan(self)

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close."""
        self.close()

    # --- working ------------------------------------------------------------------------------------------------------

    def worker(
        self,
        queues: Sequence[str] | None = None,
        concurrency: int | None = None,
        *,
        name: str = "",
        until_idle: bool = False,
    ) -> Worker:
        """Make a worker on this application's store, to be started, drained and joined by the caller.

        Raises InvalidValue for a queue or worker that is no name, or a concurrency below 1.
        """
        from holdfast.workers.worker import Worker  # noqa: PLC0415 - programs that only enqueue do not pay for it

        if context.is_child:
            raise InvalidOperation(
                "a child process of a worker cannot be a worker.",
                hint='Put hf.work() behind `if __name__ == "__main__":`, as the file is imported again for processes.',
            )
        names = sorted({"default", *self._queues}) if queues is None else list(queues)
        for queue in names:
            if not is_name(queue):
                raise InvalidValue(f"queues: {queue!r} is not a name.", hint=NAME_HINT, field="queues")
        if name and not is_name(name):
            raise InvalidValue(f"name: {name!r} is not a name.", hint=NAME_HINT, field="name")
        size = min(32, 4 * (os.cpu_count() or 1)) if concurrency is None else concurrency
        if not names or size < 1:
            raise InvalidValue("a worker needs at least one queue and a concurrency of at least 1.")
        engine = self.engine
        # Tasks may have been defined since the store was opened.
        synchronise(engine, list(self._declared.values()))
        report_undeclared(engine, self.namespace, list(self._declared.values()))
        return Worker(
            engine,
            self.tasks,
            tuple(names),
            concurrency=size,
            namespace=self.namespace,
            name=name,
            retention=self.retention,
            until_idle=until_idle,
        )

    def work(
        self, queues: Sequence[str] | None = None, concurrency: int | None = None, *, until_idle: bool = False
    ) -> None:
        """Run jobs in this process until SIGTERM or SIGINT; with `until_idle` until nothing runs and nothing is due.

        Takes jobs of the given queues, by default of those that its tasks name. A first signal lets handlers end for
        up to 30 s, a second one releases them at once.
        """
        self.worker(queues, concurrency, until_idle=until_idle).run()

    # --- jobs and queues ----------------------------------------------------------------------------------------------

    def job(self, job_id: str) -> Job[Any]:
        """Give a handle on the job of that id. Raises JobNotFound."""
        handle: Job[Any] = Job(self, job_id)
        handle.refresh()
        return handle

    def jobs(
        self,
        *,
        status: JobStatus | str | None = None,
        queue: str | None = None,
        task: str | None = None,
        limit: int = 50,
    ) -> Sequence[Job[Any]]:
        """List jobs, newest first. Raises InvalidValue for a status that is none, or a limit below 1."""
        if limit < 1:
            raise InvalidValue(f"limit: {limit} is below 1.", field="limit")
        query = JobQuery(
            namespace=self.namespace,
            status=None if status is None else _status(status),
            queue=queue,
            job_type=task,
            limit=limit,
        )
        with self.engine.read() as view:
            return [Job(self, record.job_id) for record in view.jobs(query)]

    def run(self, run_id: str) -> Run:
        """Give the run of that id. Raises RunNotFound."""
        with self.engine.read() as view:
            found = view.get(Run, run_id)
        if found is None:
            raise RunNotFound(f"there is no run {run_id}.", run_id=run_id)
        return found

    def queue(self, name: str) -> Queue:
        """Give a handle on a queue. Raises InvalidValue for what is no name."""
        return Queue(self, name)

    # --- schedules and templates --------------------------------------------------------------------------------------

    def schedule(self, name: str, target: Target, **options: Unpack[ScheduleOptions]) -> Schedule:
        """Make the schedule of that name, or give it this content. Whether it is paused stays.

        >>> hf.schedule("nightly", report, cron="0 3 * * *", timezone="Europe/Berlin")  # doctest: +SKIP

        Raises InvalidValue for what is no schedule or would never fire, InvalidArguments if the task does not take the
        arguments; nothing was changed then.
        """
        return schedules.declare(self, name, target, options)

    def schedules(self) -> list[Schedule]:
        """List the schedules, by name."""
        with self.engine.read() as view:
            found = [record for record in view.all(ScheduleRecord) if record.namespace == self.namespace]
        return [Schedule(self, record.schedule_id, record.name) for record in sorted(found, key=lambda one: one.name)]

    def template(
        self,
        name: str,
        task: Task[..., Any] | str,
        params: Mapping[str, Any] | None = None,
        **options: Unpack[TaskOptions],
    ) -> Template:
        """Make the template of that name, or give it this content.

        >>> hf.template("welcome", send, {"subject": "Welcome"}, queue="mail").enqueue(to="a@x.org")  # doctest: +SKIP
        """
        return templates.declare(self, name, task, params or {}, options)

    def templates(self) -> list[Template]:
        """List the templates, by name; archived ones, too."""
        with self.engine.read() as view:
            found = [record for record in view.all(TemplateRecord) if record.namespace == self.namespace]
        return [Template(self, record.template_id, record.name) for record in sorted(found, key=lambda one: one.name)]

    def workers(self) -> Sequence[WorkerInfo]:
        """List the workers of the last day, of every namespace; those that are gone have the state `lost`."""
        return self.engine.store.workers.all()

    @property
    def current(self) -> Context:
        """Inside a handler: its own execution. Raises InvalidOperation elsewhere."""
        try:
            return current.get()
        except LookupError:
            raise InvalidOperation("hf.current is known only inside a handler that a worker runs.") from None

    @property
    def aio(self) -> AioHoldfast:
        """The same calls, to be awaited."""
        from holdfast.app.aio import AioHoldfast  # noqa: PLC0415 - only programs that await pay for it

        return AioHoldfast(self)

    def lookout(self) -> Lookout:
        """Give what looks after awaited jobs on the store as it is open now."""
        engine = self.engine
        with self._lock:
            if self._lookout is None or self._lookout.engine is not engine:
                self._lookout = Lookout(engine)
            return self._lookout


def _status(name: str) -> JobStatus:
    try:
        return JobStatus(name)
    except ValueError:
        raise InvalidValue(f"status: {name!r} is not one of {', '.join(JobStatus)}.", field="status") from None


#: Kept only so that a forked child finds them.
_applications: weakref.WeakSet[Holdfast] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    """Give applications a lock of their own: whoever held the parent's is not here to open it."""
    for app in list(_applications):
        app._lock = threading.RLock()  # noqa: SLF001 - the fork concerns this module, not the class's users


os.register_at_fork(after_in_child=_after_fork_in_child)
