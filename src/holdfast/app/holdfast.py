"""The `Holdfast` object: tasks by decorator, jobs by handle, a worker in this process.

Making one touches no disk: the store is opened by the first call that needs it, in the process that makes the call. A
forked child opens its own.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypeVar, overload

from holdfast.app.codec import SignatureCodec
from holdfast.app.jobs import Job
from holdfast.app.options import Chosen, Options
from holdfast.app.tasks import Task
from holdfast.clock import Clock
from holdfast.engine.engine import Engine
from holdfast.engine.maintenance import recover
from holdfast.errors import InvalidOperation, InvalidValue, UnknownTask
from holdfast.model.commands import PauseDispatch, PauseQueue, ResumeDispatch, ResumeQueue, Retention
from holdfast.model.ids import is_name
from holdfast.model.jobs import JobStatus
from holdfast.stores.opening import open_store, parse_url
from holdfast.stores.protocol import JobQuery
from holdfast.workers import context
from holdfast.workers.context import Context, current
from holdfast.workers.tasks import MAIN_AGAIN, Origin, Registry, TaskSpec

if TYPE_CHECKING:
    from typing import Unpack

    from holdfast.workers.tasks import Isolation
    from holdfast.workers.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")


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
            raise InvalidValue(f"namespace: {namespace!r} is not a name.", field="namespace")
        self.url = url
        self.namespace = namespace
        self.retention = retention or Retention()
        self.tasks = Registry()
        self._clock = clock
        self._codecs: dict[str, SignatureCodec] = {}
        #: Queues that tasks name.
        self._queues: set[str] = set()
        self._lock = threading.RLock()
        self._engine: Engine | None = None
        self._pid = 0
        #: Pause and resume leasing altogether.
        self.dispatch = Dispatch(self)

    # --- tasks --------------------------------------------------------------------------------------------------------

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self,
        *,
        name: str | None = None,
        isolation: Literal["process"] | None = None,
        memory_limit: int | None = None,
        no_retry: tuple[type[BaseException], ...] = (),
        **options: Unpack[Options],
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def task(  # type: ignore[misc]  # mypy does not see that **options takes what Unpack[Options] gives
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        isolation: Literal["process"] | None = None,
        memory_limit: int | None = None,
        no_retry: tuple[type[BaseException], ...] = (),
        **options: Any,
    ) -> Any:
        """Register a function as a task. Its name is by default `module.function`."""

        def register(found: Callable[..., Any]) -> Task[..., Any]:
            home, origin = _origin(found)
            title = name or f"{home}.{found.__qualname__}".replace("<locals>.", "")
            if not is_name(title):
                raise InvalidValue(f"{title!r} cannot name a task.", hint="Give it a name=.", field="name")
            if memory_limit is not None and isolation != "process":
                raise InvalidValue(
                    "memory_limit holds for a process only.", hint='Add isolation="process".', field="memory_limit"
                )
            chosen = Chosen().plus(Options(**options))  # type: ignore[typeddict-item]  # names are checked by plus
            where: Isolation = isolation or ("loop" if inspect.iscoroutinefunction(found) else "thread")
            codec = SignatureCodec(found)
            self.tasks.add(
                TaskSpec(
                    name=title,
                    run=found,
                    codec=codec,
                    isolation=where,
                    no_retry=no_retry,
                    memory_limit=memory_limit,
                    origin=origin,
                )
            )
            self._codecs[title] = codec
            self._queues.add(chosen.fields.get("queue", "default"))
            return Task(self, title, found, codec, chosen)

        return register if function is None else register(function)

    def codec_of(self, name: str) -> SignatureCodec:
        """Give how a task's payloads are typed. Raises UnknownTask."""
        codec = self._codecs.get(name)
        if codec is None:
            raise UnknownTask(
                f"no task is registered as {name!r} in this process.", hint="Import the module that defines it."
            )
        return codec

    # --- the store ----------------------------------------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        """The engine on this application's store, opened on first use in this process."""
        engine = self._engine
        if engine is not None and self._pid == os.getpid():
            return engine
        with self._lock:
            if self._engine is None or self._pid != os.getpid():
                self._engine = Engine(open_store(self.url, clock=self._clock), clock=self._clock)
                self._pid = os.getpid()
                recover(self._engine)
            return self._engine

    def close(self) -> None:
        """Close the store; the next call that needs it opens it again."""
        with self._lock:
            engine, self._engine = self._engine, None
            if engine is not None and self._pid == os.getpid():
                engine.close()

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close."""
        self.close()

    # --- working ------------------------------------------------------------------------------------------------------

    def worker(
        self, queues: Sequence[str] | None = None, concurrency: int | None = None, *, until_idle: bool = False
    ) -> Worker:
        """Make a worker on this application's store, to be started, drained and joined by the caller.

        Raises InvalidValue for a queue that is no name, or a concurrency below 1.
        """
        from holdfast.workers.worker import Worker  # noqa: PLC0415 - programs that only enqueue do not pay for it

        if context.is_child:
            raise InvalidOperation(
                "a child process of a worker cannot be a worker.",
                hint='Put hf.work() behind `if __name__ == "__main__":`, as the file is imported again for processes.',
            )
        names = sorted({"default", *self._queues}) if queues is None else list(queues)
        for name in names:
            if not is_name(name):
                raise InvalidValue(f"queues: {name!r} is not a name.", field="queues")
        size = min(32, 4 * (os.cpu_count() or 1)) if concurrency is None else concurrency
        if not names or size < 1:
            raise InvalidValue("a worker needs at least one queue and a concurrency of at least 1.")
        return Worker(
            self.engine,
            self.tasks,
            tuple(names),
            concurrency=size,
            namespace=self.namespace,
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
        """List jobs, newest first."""
        query = JobQuery(
            namespace=self.namespace,
            status=None if status is None else JobStatus(status),
            queue=queue,
            job_type=task,
            limit=limit,
        )
        with self.engine.read() as view:
            return [Job(self, record.job_id) for record in view.jobs(query)]

    def queue(self, name: str) -> Queue:
        """Give a handle on a queue."""
        return Queue(self, name)

    @property
    def current(self) -> Context:
        """Inside a handler: its own execution. Raises InvalidOperation elsewhere."""
        try:
            return current.get()
        except LookupError:
            raise InvalidOperation("hf.current is known only inside a handler that a worker runs.") from None


def _origin(function: Callable[..., Any]) -> tuple[str, Origin | None]:
    """Name the module that defines a function, and say how a child process can import it, if it can."""
    home = function.__module__
    if home not in ("__main__", MAIN_AGAIN):
        return home, ("import", home)
    main = sys.modules["__main__"]
    if main.__spec__ is not None:  # python -m
        return _own_name(function), ("module", main.__spec__.name)
    file = getattr(main, "__file__", None)
    return _own_name(function), None if file is None else ("file", str(Path(file).absolute()))


def _own_name(function: Callable[..., Any]) -> str:
    """Name the program a function is defined in as others import it, so that a worker finds what a script enqueued."""
    space = getattr(function, "__globals__", {})
    spec, file = space.get("__spec__"), space.get("__file__")
    name = Path(file).stem if spec is None and file else getattr(spec, "name", "").removesuffix(".__main__")
    return name if is_name(name) else "__main__"


class Queue:
    """A handle on one queue."""

    def __init__(self, app: Holdfast, name: str) -> None:
        self._app = app
        self.name = name

    def pause(self, reason: str = "") -> None:
        """Stop leasing from it; what runs goes on."""
        self._app.engine.ask(PauseQueue(queue=self.name, namespace=self._app.namespace, reason=reason))

    def resume(self) -> None:
        """Lease from it again."""
        self._app.engine.ask(ResumeQueue(queue=self.name, namespace=self._app.namespace))


class Dispatch:
    """Leasing as a whole."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app

    def pause(self, reason: str = "") -> None:
        """Stop leasing altogether; what runs goes on."""
        self._app.engine.ask(PauseDispatch(reason=reason))

    def resume(self) -> None:
        """Lease again."""
        self._app.engine.ask(ResumeDispatch())
