"""Testing code that enqueues: on a store of the test's own, run at once or when the test says so, and looked at.

`use` puts another store under an application, `inline` runs jobs where they are enqueued, `drain` runs what is due, by
hand, and `assert_enqueued` looks for a call. All of it goes through the real rules and the worker's own code.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from holdfast.app.handles.job import Job
from holdfast.clock import Clock
from holdfast.engine.blob_content import fetch
from holdfast.engine.engine import Engine
from holdfast.engine.maintenance import recover
from holdfast.errors import InvalidOperation
from holdfast.model.commands import Command, Retry
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job as Record
from holdfast.model.jobs import JobStatus, Run
from holdfast.model.outcomes import Enqueued, Outcome, Refusal
from holdfast.model.times import moment
from holdfast.stores.opening import open_store
from holdfast.stores.protocol import JobQuery, Store
from holdfast.testing.clock import ManualClock
from holdfast.testing.here import MOST, Here, next_time
from holdfast.workflows.determinism.guard import Guard

if TYPE_CHECKING:
    from holdfast.app.application import Holdfast
    from holdfast.app.tasks.task import Task

R = TypeVar("R")

#: Handlers that enqueue within handlers, before the rest waits for the outer ones to end.
DEEPEST = 20


@contextmanager
def use(app: Holdfast, url: str = "memory:", *, clock: Clock | None = None) -> Iterator[Holdfast]:
    """Put another store under an application inside the block; its own is neither opened nor touched.

    Workflow code is guarded in there, as with `Holdfast(guard_workflows=True)`.

    >>> with use(hf, clock=ManualClock()):  # doctest: +SKIP
    ...     send.enqueue("a@example.com")
    """
    engine = Engine(open_store(url, clock=clock), clock=clock)
    try:
        recover(engine)
        with app.lend(engine), app.workflows.guarded_by(Guard()):
            yield app
    finally:
        engine.close()


@contextmanager
def inline(app: Holdfast) -> Iterator[Holdfast]:
    """Run jobs where they are enqueued, in that thread, before `enqueue` returns.

    Everything is recorded as a worker would. What is not due, a delay or the backoff after a failure, stays QUEUED;
    `drain` runs it later. A handler that enqueues sees those jobs ended, too.
    """
    with app.lend(_InlineEngine(app, app.engine.store, app.engine.time.clock)):
        yield app


def drain(
    app: Holdfast,
    *,
    until: Literal["due", "empty"] = "due",
    queues: Sequence[str] | None = None,
    most: int = MOST,
) -> list[Run]:
    """Run everything that is due, in order, in this thread; give the runs, as they were recorded.

    With `until="empty"` the application's manual clock is moved on to each delay, backoff and lapsing lease, until
    nothing is left that time would bring. Raises AssertionError after `most` runs.
    """
    worker = Here(app, queues, most)
    worker.work()
    if until == "empty":
        clock = app.engine.time.clock
        if not isinstance(clock, ManualClock):
            raise InvalidOperation(
                "time can be moved on a manual clock only; nothing more was run.",
                hint='Give it one: use(hf, "memory:", clock=ManualClock()).',
            )
        last = None
        while (when := next_time(app)) is not None:
            ahead = (moment(when) - clock.now()).total_seconds()
            if ahead <= 0 and when == last:
                break  # it is due, and no work of ours: a paused queue, say
            clock.advance(max(0.0, ahead))
            worker.work()
            last = when
    return worker.runs()


def enqueued(task: Task[..., R]) -> list[Job[R]]:
    """List the jobs of a task, whatever became of them, oldest first."""
    return [Job(app_of(task), record.job_id) for record in _records(task)]


def assert_enqueued(task: Task[..., R], /, *args: Any, **kwargs: Any) -> Job[R]:
    """Assert that a job of this task was made with these arguments, and give the newest one.

    Arguments that are not named may have any value, and so may those given as `unittest.mock.ANY`.

    >>> assert_enqueued(send, "a@example.com").refresh().queue  # doctest: +SKIP
    'mail'
    """
    __tracebackhide__ = True
    signature = inspect.signature(task)
    wanted = signature.bind_partial(*args, **kwargs).arguments
    records = _records(task)
    for record in reversed(records):
        given = _arguments(task, signature, record)
        if all(name in given and value == given[name] for name, value in wanted.items()):
            return Job(app_of(task), record.job_id)
    calls = "".join(f"\n  {_call(task, _arguments(task, signature, record))}" for record in records)
    raise AssertionError(f"{_call(task, wanted)} was not enqueued. Jobs of this task: {calls or 'none'}")


def app_of(task: Task[..., Any]) -> Holdfast:
    """Give the application a task belongs to."""
    return task._app  # noqa: SLF001 - a task shows its user no app; tests of ours and of theirs need it


def _records(task: Task[..., Any]) -> list[Record]:
    app = app_of(task)
    with app.engine.read() as view:
        found = view.jobs(JobQuery(namespace=app.namespace, job_type=task.name, limit=MOST))
    # A clock that stands gives many jobs one time; their places in the queue tell them apart.
    return sorted(found, key=lambda record: (record.created_at, record.position))


def _arguments(task: Task[..., Any], signature: inspect.Signature, record: Record) -> dict[str, Any]:
    args, kwargs = task.spec.codec.unpack(fetch(app_of(task).engine.store, record.params))
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def _call(task: Task[..., Any], arguments: dict[str, Any]) -> str:
    return f"{task.name}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"


class _InlineEngine(Engine):
    """An engine on the same store whose callers run what they have enqueued before they get their answer."""

    def __init__(self, app: Holdfast, store: Store, clock: Clock) -> None:
        super().__init__(store, clock=clock)
        self._app = app
        self._depth = 0
        self._counting = threading.Lock()

    def submit_many(self, commands: Sequence[Command], *, attempt_s: float | None = None) -> list[Outcome]:
        """Decide, then work if there is new work."""
        outcomes = super().submit_many(commands, attempt_s=attempt_s)
        made = [
            job_id for command, outcome in zip(commands, outcomes, strict=True) for job_id in _made(command, outcome)
        ]
        if made:
            with self._counting:
                self._depth += 1
                deep = self._depth > DEEPEST
            try:
                if not deep:  # else the outer ones run it: a chain of jobs may be longer than Python's stack
                    Here(self._app).work()
                    self._outwait(made)
            finally:
                with self._counting:
                    self._depth -= 1
        return outcomes

    def _outwait(self, made: list[JobId]) -> None:
        """Wait until none of these runs: another thread that enqueues may have taken it."""
        while True:
            with self.read() as view:
                seen = view.seq
                records = [view.get(Record, job_id) for job_id in made]
            if not any(record is not None and record.status is JobStatus.RUNNING for record in records):
                return
            self.store.wait(seen, None)


def _made(command: Command, outcome: Outcome) -> list[JobId]:
    """List the jobs that a command has made, not those it found there."""
    if isinstance(outcome, Enqueued):
        return [done.job_id for done in outcome.jobs if done.created]
    return [command.new_job_id] if isinstance(command, Retry) and not isinstance(outcome, Refusal) else []
