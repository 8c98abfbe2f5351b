"""One granted job, run by whoever asked for it. The same pump, slots and runners as a worker's, for this job alone.

A plain function runs in the thread that asks, so that an interrupt reaches it and a debugger finds it; a coroutine, a
process or a command as in a worker. A thread of the pump renews the lease meanwhile, enforces the timeout, hears of a
cancellation and reports the end. Neither leases anything else nor runs the tick.
"""

from __future__ import annotations

import os
import socket
import threading
from dataclasses import replace
from queue import Empty, SimpleQueue
from types import TracebackType

from holdfast.engine.engine import Engine
from holdfast.model.outcomes import Grant, Leased
from holdfast.model.workers import WorkerInfo, WorkerState
from holdfast.version import __version__
from holdfast.workers.background_duties import Chores
from holdfast.workers.handlers import output_capture
from holdfast.workers.handlers.handler_wrapper import surrounded
from holdfast.workers.handlers.leased_job import Assignment, Stop
from holdfast.workers.main_loop import Pump
from holdfast.workers.registration import Presence
from holdfast.workers.runners import Desk, Runner
from holdfast.workers.runners.asyncio_runner import LoopRunner
from holdfast.workers.runners.invoke import call
from holdfast.workers.runners.process_runner import ProcessRunner
from holdfast.workers.runners.shell_runner import ShellRunner
from holdfast.workers.slots import Slots
from holdfast.workers.task_registry import Isolation, Registry, TaskSpec
from holdfast.workers.work_filter import Scope
from holdfast.workers.worker import KILL_AFTER_S

_FOREVER = float("inf")
#: Seconds until an interrupt is heard that came at a bad moment.
HEAR_S = 0.5


class Kept:
    """What a handler of this process raised, as it raised it."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def __enter__(self) -> None:
        """Nothing was raised so far."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Keep what was raised, and let it pass."""
        self.error = error


class DirectRun:
    """The execution of one grant, begun and ended by its caller."""

    def __init__(self, engine: Engine, spec: TaskSpec, grant: Grant, sent_at: float) -> None:
        """Make ready to run a grant whose command was sent at `sent_at` (monotonic)."""
        job = grant.job
        assert job.worker_id is not None
        self._grant = grant
        self._sent_at = sent_at
        #: What its handler raised, if it ran in this process.
        self.kept = Kept()
        tasks = Registry()
        here = spec.isolation in ("thread", "loop")
        tasks.add(replace(spec, run=surrounded(spec.run, lambda: self.kept)) if here else spec)
        self._caller = _Caller()
        self._slots = Slots(1, engine.time.clock.monotonic, self._runners)
        self._presence = Presence(engine, _shown(engine, grant, job.worker_id))
        self._chores = Chores(engine, self._slots.poke, self._presence)
        scope = Scope(worker_id=job.worker_id, namespace=job.namespace, queues=(job.queue,), tasks=tasks)
        self._pump = Pump(engine, self._slots, scope, None, self._chores)
        self._thread = threading.Thread(target=self._serve, name="holdfast-direct", daemon=True)
        self._error: BaseException | None = None

    def _runners(self, desk: Desk) -> dict[Isolation, Runner]:
        self._caller.desk = desk
        return {
            "thread": self._caller,
            "loop": LoopRunner(desk),
            "process": ProcessRunner(1, desk, KILL_AFTER_S),
            "shell": ShellRunner(desk, KILL_AFTER_S),
        }

    def run(self) -> None:
        """Run the handler to its end; the report is durable then. Raises StoreError if it could not be reported.

        An interrupt that the handler does not get itself asks it to stop, and gives the job up.
        """
        output_capture.begin()
        try:
            self._presence.lurk()
            try:
                # An interrupt may come while this waits for the thread to begin; it must not go on by itself then.
                self._thread.start()
                self._caller.serve()
            except BaseException:
                self._pump.hurry()
                raise
            finally:
                if self._thread.is_alive():
                    self._thread.join()
        finally:
            output_capture.end()
        if self._error is not None:
            raise self._error

    def _serve(self) -> None:
        try:
            self._pump.take(Leased(grants=(self._grant,)), 1, self._sent_at)
            self._pump.drain(_FOREVER)
            self._pump.run()
        except BaseException as error:  # noqa: BLE001 - raised again by run, in the thread that waits
            self._error = error
            for held in self._slots.held():  # nobody could report what it ends in
                held.ask_to_stop(Stop.LOST)
                self._slots.stop(held)
        finally:
            self._slots.close()
            self._chores.flush()
            self._presence.leave()
            self._caller.dismiss()


class _Caller:
    """The runner of plain functions: the thread that asked for the execution serves it until it is over."""

    desk: Desk

    def __init__(self) -> None:
        self._waiting: SimpleQueue[Assignment | None] = SimpleQueue()

    def serve(self) -> None:
        """Run what there is to run in this thread; return when all is over."""
        while True:
            try:
                # Not without end: an interrupt that comes just before a wait begins is heard when it is over.
                assignment = self._waiting.get(timeout=HEAR_S)
            except Empty:
                continue
            if assignment is None:
                return
            self.desk.end(assignment, call(assignment.spec, assignment.context))

    def start(self, assignment: Assignment) -> None:
        """Hand it to the thread that serves."""
        self._waiting.put(assignment)

    def stop(self, assignment: Assignment) -> None:
        """Nothing more than the flag can be done. A timeout is reported now: the handler may never return."""
        if assignment.stop is Stop.TIMEOUT:
            self.desk.settle(assignment, assignment.stopped())

    def close(self) -> None:
        """Do nothing: the thread is the caller's."""

    def dismiss(self) -> None:
        """Let the thread that serves go."""
        self._waiting.put(None)


def _shown(engine: Engine, grant: Grant, worker_id: str) -> WorkerInfo:
    """Give how the caller shows itself in the roster, should it take long: as one that takes no jobs."""
    now = engine.look().now
    return WorkerInfo(
        worker_id=worker_id,
        name=worker_id,
        host=socket.gethostname(),
        pid=os.getpid(),
        version=__version__,
        namespace=grant.job.namespace,
        queues=(grant.job.queue,),
        job_types=(grant.job.job_type,),
        started_at=now,
        last_seen=now,
        session_id=engine.session_id,
        state=WorkerState.DRAINING,
    )
