"""A worker: its pump, its slots and its runners, from start to a clean end.

Shutdown, in order: lease no more and give back what has not begun; let handlers end within the grace; ask the rest to
stop; release what is left, so that others take over without waiting for a lease to lapse; let deliveries that are on
their way arrive; write the last lines, leave the roster. A second signal skips the waiting.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Self

from holdfast.engine.engine import Engine
from holdfast.errors import InvalidOperation
from holdfast.model.commands import Retention
from holdfast.model.workers import Wish, WorkerInfo
from holdfast.rules.webhooks.addresses import Network
from holdfast.version import __version__
from holdfast.workers.background_duties import Chores
from holdfast.workers.handlers import output_capture
from holdfast.workers.handlers.leased_job import Stop
from holdfast.workers.main_loop import Pump
from holdfast.workers.missing_code import lacking_code, strangers
from holdfast.workers.registration import Presence
from holdfast.workers.runners import Desk, Runner
from holdfast.workers.runners.asyncio_runner import LoopRunner
from holdfast.workers.runners.process_runner import ProcessRunner
from holdfast.workers.runners.shell_runner import ShellRunner
from holdfast.workers.runners.thread_runner import ThreadRunner
from holdfast.workers.slots import Slots
from holdfast.workers.task_registry import Isolation, Registry
from holdfast.workers.webhooks.dispatcher import Courier
from holdfast.workers.webhooks.send import Sender
from holdfast.workers.work_filter import Scope
from holdfast.workers.workflow_turns import NoTurns, Turns
from holdfast.workflows.api.definitions import Definitions
from holdfast.workflows.api.signal_types import published

#: Seconds that handlers have to end by themselves when the worker is asked to stop.
GRACE_S = 30.0
#: Seconds between asking a process to end and killing it.
KILL_AFTER_S = 10.0


class Worker:
    """Runs jobs of one store in this process."""

    def __init__(
        self,
        engine: Engine,
        tasks: Registry,
        queues: tuple[str, ...],
        *,
        concurrency: int,
        namespace: str = "",
        name: str = "",
        retention: Retention | None = None,
        webhook_allow: Sequence[Network] = (),
        workflows: Definitions | None = None,
        turns: int = 8,
        until_idle: bool = False,
        kill_after_s: float = KILL_AFTER_S,
    ) -> None:
        """Make ready; nothing runs before `start`. Of `workflows`, `turns` turns are run at once."""
        host = socket.gethostname()
        #: Names this worker in leases and runs.
        self.worker_id = f"{host}-{os.getpid()}-{secrets.token_hex(3)}"
        now = engine.look().now
        me = WorkerInfo(
            worker_id=self.worker_id,
            name=name or self.worker_id,
            host=host,
            pid=os.getpid(),
            version=__version__,
            namespace=namespace,
            queues=queues,
            workflows=tuple(f"{one.name} {one.version}" for one in workflows.all()) if workflows is not None else (),
            signals=published(workflows.all()) if workflows is not None else {},
            job_types=tasks.names(),
            slots=concurrency,
            started_at=now,
            last_seen=now,
            session_id=engine.session_id,
        )

        loops: list[LoopRunner] = []

        def runners(desk: Desk) -> Mapping[Isolation, Runner]:
            loops.append(LoopRunner(desk))
            return {
                "thread": ThreadRunner(concurrency, desk),
                "loop": loops[0],
                "process": ProcessRunner(concurrency, desk, kill_after_s),
                "shell": ShellRunner(desk, kill_after_s),
            }

        marks = engine.store.sessions.marks(engine.session_id)
        self.slots = Slots(concurrency, engine.time.clock.monotonic, runners, marks, self.worker_id)
        self._engine = engine
        self._workflows = me.workflows
        self._scope = scope = Scope(worker_id=self.worker_id, namespace=namespace, queues=queues, tasks=tasks)
        self.presence = Presence(engine, me)
        # A coordinator sends and ticks by itself.
        alone = engine.is_authority
        courier = Courier(engine, Sender(allow=webhook_allow), self.slots.poke) if alone else None
        self._chores = Chores(engine, self.slots.poke, self.presence, courier)
        self._chores.grant = self._follow
        self.turns: Turns = NoTurns()
        if workflows is not None and workflows.all():
            from holdfast.workers.workflow_turns.scheduler import TurnScheduler  # noqa: PLC0415 - workers without workflows do not pay

            self.turns = TurnScheduler(engine, workflows, self.slots.poke, loops[0].spawn, turns=turns)
        kept = retention or Retention() if alone else None
        self.pump = Pump(engine, self.slots, scope, kept, self._chores, self.turns, until_idle=until_idle)
        self._thread = threading.Thread(target=self._serve, name="holdfast-pump", daemon=True)
        #: Called when the pump has ended.
        self._ended: Callable[[], None] = lambda: None
        self._error: BaseException | None = None
        self._grace_s = GRACE_S
        #: A second signal came before the end.
        self.was_interrupted = False
        #: Jobs that are still leased to this worker although it has ended.
        self.left = 0

    def start(self) -> None:
        """Begin to work, in threads of its own. Raises InvalidOperation the second time, or if its name is taken."""
        if self._thread.ident is not None:
            raise InvalidOperation(
                f"worker {self.worker_id} was started before. Nothing was changed.", hint="Make another one."
            )
        self.presence.arrive()
        output_capture.begin()
        self._thread.start()

    def _serve(self) -> None:
        try:
            self.pump.run()
        except BaseException as error:  # noqa: BLE001 - raised again by join, in the thread that waits
            self._error = error
            self.left = len(self.slots.held()) + self.pump.unreported
            self.slots.withdraw()  # nobody could report what they end in
            for held in self.slots.held():
                held.ask_to_stop(Stop.LOST)
                self.slots.stop(held)
            self._chores.hurry()
        finally:
            self.turns.close()
            self.slots.close()
            self._chores.close()
            if not self.pump.is_away:  # nobody would hear it
                self._chores.flush()
                self.presence.leave()
            output_capture.end()
            self._ended()

    def _follow(self, wish: Wish) -> None:
        match wish:
            case Wish.QUIET:
                self.pump.quiet()
            case Wish.STOP:
                self.drain(self._grace_s)

    def strangers(self) -> list[str]:
        """Name the tasks that jobs in its queues wait for and it does not know."""
        return strangers(self._engine, self._scope)

    @property
    def has_workflows(self) -> bool:
        """Tell whether it runs turns."""
        return bool(self._workflows)

    def lacking_code(self) -> dict[str, list[str]]:
        """Give the instances that need a workflow, or a version of one, that it does not have, by what they need."""
        # Instances belong to no namespace, and so does whoever runs them.
        return {} if self._scope.namespace else lacking_code(self._engine, self._workflows)

    @property
    def is_draining(self) -> bool:
        """Tell whether someone has asked for its end."""
        return self.pump.is_draining

    def drain(self, grace_s: float = GRACE_S) -> None:
        """Ask for a clean end; returns at once."""
        self.pump.drain(grace_s)

    def stop(self) -> None:
        """End now: release everything, wait for no handler."""
        self.pump.hurry()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end; tell whether it came. Raises what the pump ended with."""
        self._thread.join(timeout)
        if self._error is not None:
            raise self._error
        return not self._thread.is_alive()

    def run(
        self,
        grace_s: float = GRACE_S,
        heard: Callable[[], None] = lambda: None,
        begun: Callable[[], None] = lambda: None,
    ) -> None:
        """Work until the end, or until SIGTERM or SIGINT if this is the main thread; `heard` is told of each.

        Once it works, and a signal would be heard, `begun` is told.
        """
        self._grace_s = grace_s
        if threading.current_thread() is not threading.main_thread():
            self.start()
            begun()
            self.join()
            return
        with _SignalPipe() as pipe:
            self._ended = pipe.call_out
            try:
                self.start()
                begun()
                if pipe.hears_signal():
                    self.drain(grace_s)
                    heard()
                    while pipe.hears_signal():
                        self.was_interrupted = True
                        self.stop()
                        heard()
            finally:
                self._ended = lambda: None
            self.join()


class _SignalPipe:
    """Lets the main thread sleep until a signal or the worker's end.

    By a pipe that the interpreter itself writes to when a signal arrives. Waiting on a lock would miss a signal that
    comes just before the wait begins, and Python's own handler would then run at the next signal, or never.
    """

    def __enter__(self) -> Self:
        self._out, self._in = os.pipe()
        os.set_blocking(self._in, False)
        self._fd = signal.set_wakeup_fd(self._in, warn_on_full_buffer=False)
        self._handlers = {number: signal.signal(number, _do_nothing) for number in _SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._fd)
        os.close(self._in)
        os.close(self._out)

    def hears_signal(self) -> bool:
        """Sleep until a signal asks for the end (True), or the worker has ended (False)."""
        while True:
            (number,) = os.read(self._out, 1)
            if number == 0 or number in _SIGNALS:
                return number != 0

    def call_out(self) -> None:
        """Say that the worker has ended; there is no signal 0."""
        os.write(self._in, b"\0")


_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    """Keep a signal from its usual effect; the pipe tells of it."""
