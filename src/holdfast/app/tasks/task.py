"""A task: a function that can be called here, or enqueued to be run by a worker. Options never mix with arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar

from holdfast.app.handles.job import Job
from holdfast.app.queue_wait import Patience
from holdfast.app.tasks.activities import activity_of
from holdfast.app.tasks.options import Chosen, Options
from holdfast.app.tasks.signature_codec import SignatureCodec
from holdfast.errors import InvalidArguments, InvalidOperation
from holdfast.model.commands import Enqueue, NewJob
from holdfast.model.outcomes import Enqueued
from holdfast.workers.handlers.shell import Command, ShellResult
from holdfast.workers.task_registry import TaskSpec
from holdfast.workflows.api.operations import current

if TYPE_CHECKING:
    from typing import Unpack

    from holdfast.app.aio.jobs import AioTask
    from holdfast.app.application import Holdfast
    from holdfast.workflows.api.context import Pending
    from holdfast.workflows.api.workflow import Activity

P = ParamSpec("P")
R = TypeVar("R")

#: What one of many calls may be: arguments by place or by name, or what `job` built.
Call = tuple[Any, ...] | Mapping[str, Any] | NewJob
#: Jobs one command takes.
MANY = 1000


class Task(Generic[P, R]):
    """A function the user registered."""

    def __init__(
        self,
        app: Holdfast,
        name: str,
        function: Callable[P, Any],
        codec: SignatureCodec,
        chosen: Chosen,
        *,
        raises: tuple[type[BaseException], ...] = (),
    ) -> None:
        """Wrap the function; use `Holdfast.task`."""
        functools.update_wrapper(self, function)
        self._app = app
        self._function = function
        self._codec = codec
        self._chosen = chosen
        self._raises = raises
        self._activity: Activity[P, R] | None = None
        #: The name jobs carry; workers find the function by it.
        self.name = name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now, as if it were not a task."""
        value: R = self._function(*args, **kwargs)
        return value

    def __repr__(self) -> str:
        """Show the name."""
        return f"<Task {self.name}>"

    @property
    def app(self) -> Holdfast:
        """The application it belongs to."""
        return self._app

    @property
    def chosen(self) -> Chosen:
        """The options its calls have."""
        return self._chosen

    @property
    def codec(self) -> SignatureCodec:
        """How its arguments and its result are typed."""
        return self._codec

    @property
    def spec(self) -> TaskSpec:
        """What a worker knows of it."""
        spec = self._app.tasks.get(self.name)
        assert spec is not None
        return spec

    def _demand_open(self) -> None:
        """Refuse a transaction of the caller that would keep the store from being opened: it waits for writers."""
        if self._chosen.connection is not None and not self._app.is_open:
            raise InvalidOperation(
                "connection: the store is not open yet in this process, and an open transaction may keep it from being "
                "opened. Nothing was stored.",
                hint="Call hf.open() when the program starts.",
                field="connection",
            )

    def options(self, **options: Unpack[Options]) -> Self:
        """Give the same task with other options for the calls that follow.

        >>> send.options(priority=9, delay=60, key="welcome-42").enqueue("a@example.com")  # doctest: +SKIP
        """
        chosen = self._chosen.plus(options)
        return type(self)(self._app, self.name, self._function, self._codec, chosen, raises=self._raises)

    def job(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """Check the arguments and build the job without enqueuing it, for `enqueue_many`."""
        return self._new_job(args, kwargs)

    def _new_job(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewJob:
        self._demand_open()
        return self._chosen.new_job(
            job_id=self._app.engine.new_id(),
            job_type=self.name,
            namespace=self._app.namespace,
            params=self._codec.pack(args, dict(kwargs)),
        )

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Create a job. It is durable when this returns; with `connection=` when the caller commits.

        Raises InvalidArguments if they do not fit the function; nothing was stored then.
        """
        return self._submit([self._new_job(args, kwargs)])[0]

    def enqueue_many(self, calls: Iterable[Call]) -> list[Job[R]]:
        """Create many jobs, each thousand all or none: tuples of arguments, mappings of names, or what `job` built."""
        jobs = [self.job_of(call) for call in calls]
        return [job for at in range(0, len(jobs), MANY) for job in self._submit(jobs[at : at + MANY])]

    def job_of(self, call: Call) -> NewJob:
        """Build a job of a tuple of arguments, a mapping of names, or of what `job` built."""
        if isinstance(call, NewJob):
            if call.job_type != self.name:
                raise InvalidArguments(
                    f"a job of {call.job_type} was given to {self.name}. Nothing was stored.",
                    hint="Enqueue it with its own task.",
                )
            return call
        if isinstance(call, Mapping):
            return self._new_job((), call)
        if not isinstance(call, tuple):
            raise InvalidArguments(
                f"{self.name}: {call!r:.80} is neither a tuple of arguments nor a mapping. Nothing was stored.",
                hint="Write a single argument as a tuple of one: (argument,).",
            )
        return self._new_job(call, {})

    def _submit(self, jobs: list[NewJob]) -> list[Job[R]]:
        engine, connection = self._app.engine, self._chosen.connection
        command = Enqueue(cmd=engine.new_id(), jobs=tuple(jobs))
        outcome = engine.ask(command) if connection is None else engine.ask_within(connection, command)
        assert isinstance(outcome, Enqueued)
        return [Job(self._app, done.job_id, self._codec, created=done.created) for done in outcome.jobs]

    def direct(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the task now, in this process, alone on its queue; give what it returned, or raise what it raised.

        What runs on the queue is waited for, for as long as `options(wait=…)` says: by default without limit. The
        job is kept as any other, with its run, lines and result, but it is tried once.

        >>> send.options(wait=5).direct("a@example.com", subject="now")  # doctest: +SKIP

        Raises ReservationConflict (`wait=0`) or ReservationTimeout if the queue is not free in time; JobFailed if the
        task asked to be called again or ran too long; JobCancelled, JobDead.
        """
        from holdfast.app.tasks.direct_execution import run_directly  # noqa: PLC0415 - programs that only enqueue do not pay for it

        return run_directly(self, args, kwargs, Patience(self._chosen.wait))

    # --- from a workflow --------------------------------------------------------------------------------------------

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """From a workflow: have it done as a job, on any worker, and wait for the result.

        Raises ActivityError or one of its kinds when awaited; InvalidArguments, or WorkflowNotAllowed outside of a
        workflow, at once.
        """
        return self._as_activity().call(*args, **kwargs)

    def begin(self, *args: P.args, **kwargs: P.kwargs) -> Pending[R]:
        """From a `def` workflow: have it done beside it; `.result()` waits for it."""
        return self._as_activity().begin(*args, **kwargs)

    def _as_activity(self) -> Activity[P, R]:
        """Give it as workflows call it: made once, unless its time depends on when it is called."""
        execution = current(f"{self.name}.call")
        made = self._activity
        if made is None:
            made = activity_of(self.name, self._codec, self._chosen, self._raises, execution.now_ms)
            if self._chosen.fields.get("delay_s") is None:
                self._activity = made
        return made

    @property
    def aio(self) -> AioTask[P, R]:
        """The same calls, to be awaited."""
        from holdfast.app.aio.jobs import AioTask  # noqa: PLC0415 - only programs that await pay for it

        return AioTask(self)


class AsyncTask(Task[P, R]):
    """A task that is a coroutine function: called here it must be awaited; its job's result is what it returns."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:  # type: ignore[override]  # as the function itself
        """Call the function here and now, as if it were not a task."""
        call: Coroutine[Any, Any, R] = self._function(*args, **kwargs)
        return call


class ShellTask(Task[P, ShellResult]):
    """A task whose function gives a command: called here it only gives it; its job's result is the command's."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Command:  # type: ignore[override]  # as the function itself
        """Call the function here and now; the command is not run."""
        given: Command = self._function(*args, **kwargs)
        return given
