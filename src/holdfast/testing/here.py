"""A worker turned by hand: it runs handlers in the thread that turns it, one after the other.

There is no second way of running a job. Leases, reports, retries and what a run leaves behind are the pump's, calling
a handler is the runners'; only who waits differs. So timeouts cannot interrupt a handler here: one that ran too long by
the clock is reported as such when it returns.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast.model.ids import RunId
from holdfast.model.jobs import Run
from holdfast.rules.jobs.limits import next_opening
from holdfast.rules.state import Lane
from holdfast.workers.handlers import output_capture
from holdfast.workers.handlers.leased_job import Assignment, Stop
from holdfast.workers.handlers.outcome import Outcome
from holdfast.workers.main_loop import Pump
from holdfast.workers.runners import Desk, Runner
from holdfast.workers.runners.invoke import call
from holdfast.workers.runners.shell_runner import ShellRunner
from holdfast.workers.slots import Slots
from holdfast.workers.task_registry import Isolation
from holdfast.workers.work_filter import Scope
from holdfast.workers.worker import KILL_AFTER_S

if TYPE_CHECKING:
    from holdfast.app.application import Holdfast
    from holdfast.engine.engine import Engine
    from holdfast.model.times import Timestamp

#: Executions after which working on is taken for an endless loop.
MOST = 10_000


class Here:
    """A worker of one slot on an application's store."""

    def __init__(self, app: Holdfast, queues: Sequence[str] | None = None, most: int = MOST) -> None:
        """Take jobs of these queues, by default of all that have any."""
        self._app = app
        self._queues = queues
        self._most = most
        #: Runs that were started, in order.
        self.started: list[RunId] = []

    def work(self) -> int:
        """Run everything that is due now, and what becomes due by that; tell how many runs it took."""
        before = len(self.started)
        output_capture.begin()
        try:
            served: set[str] = set()
            # Again, if a handler has enqueued into a queue that had no job before.
            while not served >= (queues := self._served()):
                self._turn(tuple(sorted(queues)))
                served = queues
        finally:
            output_capture.end()
        return len(self.started) - before

    def _served(self) -> set[str]:
        return queues_of(self._app.engine, self._app.namespace) if self._queues is None else set(self._queues)

    def _turn(self, queues: tuple[str, ...]) -> None:
        engine = self._app.engine
        runner: list[_HereRunner] = []

        def runners(desk: Desk) -> dict[Isolation, Runner]:
            runner.append(_HereRunner(desk, lambda: engine.look().monotonic, self.started))
            functions: dict[Isolation, Runner] = {"thread": runner[0], "loop": runner[0], "process": runner[0]}
            return {**functions, "shell": _ShellHere(desk, self.started)}

        slots = _OneSlot(1, lambda: engine.look().monotonic, runners)
        scope = Scope(
            worker_id=f"here:{os.getpid()}",
            namespace=self._app.namespace,
            queues=queues,
            tasks=self._app.tasks,
        )
        pump = Pump(engine, slots, scope, self._app.retention)
        while pump.cycle() or self._looks_again(pump):
            if runner[0].interruption is not None or len(self.started) > self._most:
                break
        pump.quiet()
        while pump.cycle():  # what has ended is reported, whatever comes next
            pass
        if runner[0].interruption is not None:
            raise runner[0].interruption
        if len(self.started) > self._most:
            raise AssertionError(
                f"{self._most:,} runs were not enough; {self.started[-1]} was the last. "
                "Does a task enqueue itself, or snooze for ever?"
            )

    @staticmethod
    def _looks_again(pump: Pump) -> bool:
        """Tell whether a look at the store finds more to do."""
        pump.look()
        return pump.cycle()

    def runs(self) -> list[Run]:
        """Give the runs that were started, as they are recorded."""
        with self._app.engine.read() as view:
            found = [view.get(Run, run_id) for run_id in self.started]
        return [run for run in found if run is not None]


class _OneSlot(Slots):
    """Holds one job at a time: nothing is leased ahead, so that order is exactly the queue's."""

    def room(self, ahead: int = 0) -> int:
        del ahead
        return super().room(0)


class _HereRunner:
    """Runs a handler of any kind to its end, in the calling thread."""

    def __init__(self, desk: Desk, monotonic: Callable[[], float], started: list[RunId]) -> None:
        self._desk = desk
        self._monotonic = monotonic
        self._started = started
        #: What a handler raised that is meant for the test run itself: Ctrl-C, a timeout, `pytest.fail`.
        self.interruption: BaseException | None = None

    def start(self, assignment: Assignment) -> None:
        """Run it."""
        self._started.append(assignment.grant.run_id)
        spec = assignment.spec
        run = awaited(spec.run) if inspect.iscoroutinefunction(spec.run) else spec.run
        outcome = call(replace(spec, run=self._noting(run)), assignment.context)
        times_out_at = assignment.times_out_at
        if times_out_at is not None and times_out_at <= self._monotonic():
            assignment.ask_to_stop(Stop.TIMEOUT)
            outcome = assignment.stopped()
        self._desk.end(assignment, outcome)

    def _noting(self, run: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(run)
        def noting(*args: Any, **kwargs: Any) -> Any:
            try:
                return run(*args, **kwargs)
            except (Exception, SystemExit, asyncio.CancelledError):
                raise
            except BaseException as error:
                self.interruption = error
                raise

        return noting

    def stop(self, assignment: Assignment) -> None:
        """Do nothing: whoever asks has the thread, so the handler has ended."""

    def close(self) -> None:
        """Do nothing: there is no thread."""


class _ShellHere(Desk):
    """Runs a command as a worker does, and waits for it."""

    def __init__(self, desk: Desk, started: list[RunId]) -> None:
        self._desk = desk
        self._started = started
        self._runner = ShellRunner(self, KILL_AFTER_S)
        self._ended = threading.Event()

    def start(self, assignment: Assignment) -> None:
        """Run it."""
        self._started.append(assignment.grant.run_id)
        self._ended.clear()
        self._runner.start(assignment)
        self._ended.wait()

    def stop(self, assignment: Assignment) -> None:
        """Do nothing: it has ended."""

    def close(self) -> None:
        """Do nothing: nothing runs."""

    def settle(self, assignment: Assignment, outcome: Outcome) -> None:
        """Pass it on."""
        self._desk.settle(assignment, outcome)

    def end(self, assignment: Assignment, outcome: Outcome) -> None:
        """Pass it on, and let `start` return."""
        self._desk.end(assignment, outcome)
        self._ended.set()

    def end_for_next(self, assignment: Assignment, outcome: Outcome) -> Assignment | None:
        """Pass it on: nothing is next."""
        self.end(assignment, outcome)
        return None


def awaited(run: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    """Give a coroutine function as one that returns when it is done, also where an event loop runs already."""

    @functools.wraps(run)
    def wait(*args: Any, **kwargs: Any) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(run(*args, **kwargs))
        answer: list[Any] = []
        error: list[BaseException] = []

        def aside() -> None:
            try:
                answer.append(asyncio.run(run(*args, **kwargs)))
            except BaseException as problem:  # noqa: BLE001 - raised again below, in the thread that waits
                error.append(problem)

        thread = threading.Thread(target=contextvars.copy_context().run, args=(aside,), name="holdfast-here")
        thread.start()
        thread.join()
        if error:
            raise error[0]
        return answer[0]

    return wait


def queues_of(engine: Engine, namespace: str) -> set[str]:
    """Tell which queues have jobs."""
    with engine.read() as view:
        return {count.queue for count in view.counts() if count.namespace == namespace}


def next_time(app: Holdfast) -> Timestamp | None:
    """Give the next time at which something will be due: a delay, a lease, a time to live, a reservation, a rate."""
    engine, namespace = app.engine, app.namespace
    queues = sorted(queues_of(engine, namespace))
    now = engine.look().now
    with engine.read() as view:
        times = [view.next_due(lane) for lane in (Lane.DELAYED, Lane.LEASE, Lane.TTL, Lane.RESERVATION)]
        if any(True for _ in view.ready(namespace, queues, app.tasks.names(), now)):
            times.append(next_opening(view, namespace, queues, now))
    return min((when for when in times if when is not None), default=None)
