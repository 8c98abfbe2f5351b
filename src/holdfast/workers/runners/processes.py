"""Handlers in child processes, one for each slot, reused from job to job.

A handler that crashes, leaks, exits or refuses to end takes down its own process and nothing else: its run fails with
what happened, and the next job of the slot gets a new process. Nobody is left behind: the group is killed whenever its
process is given up, and by the kernel if this worker is.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from queue import SimpleQueue

import msgspec

from holdfast.clock import SystemClock
from holdfast.model.ids import Token
from holdfast.workers.assignments import Assignment, Stop
from holdfast.workers.outcomes import Outcome, Raised, Returned
from holdfast.workers.runners import Desk
from holdfast.workers.runners.child import Reply, Request
from holdfast.workers.runners.children import Child, obituary

#: Seconds in which threads end once their processes were killed.
CLOSING_S = 5.0


class ProcessRunner:
    """Runs handlers in up to `size` child processes."""

    def __init__(self, size: int, desk: Desk, kill_after_s: float) -> None:
        """Give a handler that was told to end `kill_after_s` seconds before it is killed."""
        self._size = size
        self._desk = desk
        self._kill_after_s = kill_after_s
        self._waiting: SimpleQueue[Assignment | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._busy = 0
        #: Which slot runs what.
        self._slots: dict[Token, _Slot] = {}
        self._closing = threading.Event()

    def start(self, assignment: Assignment) -> None:
        """Hand it to a slot."""
        with self._lock:
            self._busy += 1
            if len(self._threads) < min(self._busy, self._size):
                thread = threading.Thread(target=self._serve, name="holdfast-process", daemon=True)
                self._threads.append(thread)
                thread.start()
        self._waiting.put(assignment)

    def _serve(self) -> None:
        slot = _Slot(self._kill_after_s, self._closing)
        try:
            while (assignment := self._waiting.get()) is not None:
                token = assignment.grant.token
                with self._lock:
                    self._slots[token] = slot
                outcome = slot.run(assignment)
                with self._lock:
                    del self._slots[token]
                    self._busy -= 1
                self._desk.end(assignment, outcome)
        finally:
            slot.close()

    def stop(self, assignment: Assignment) -> None:
        """Terminate its process group, and kill it if that does not help."""
        with self._lock:
            slot = self._slots.get(assignment.grant.token)
            if slot is not None:
                slot.wake()

    def close(self) -> None:
        """Kill every process."""
        self._closing.set()
        with self._lock:
            for slot in self._slots.values():
                slot.wake()
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join(CLOSING_S)


class _Slot:
    """One place for a process, used by one thread."""

    def __init__(self, kill_after_s: float, closing: threading.Event) -> None:
        self._kill_after_s = kill_after_s
        self._closing = closing
        self._clock = SystemClock()
        self._child: Child | None = None
        self._ear, self._mouth = os.pipe()
        os.set_blocking(self._mouth, False)

    def wake(self) -> None:
        """Make the thread look at what it was asked."""
        os.write(self._mouth, b"\0")

    def close(self) -> None:
        """Kill the process, if there is one."""
        self._give_up()
        os.close(self._ear)
        os.close(self._mouth)

    def run(self, assignment: Assignment) -> Outcome:
        """Run a handler to its end, or to that of its process."""
        spec, grant = assignment.spec, assignment.grant
        if spec.origin is None:
            return Raised(f"{spec.name} was defined in an interactive session; a process cannot import it", "exit")
        try:
            child = self._ready_child()
            child.ask(Request(spec.origin, grant, spec.memory_limit))
        except OSError as problem:
            self._give_up()
            return Raised(f"a process for the handler could not be started: {problem}", "exit")
        reply = self._await(child, assignment)
        code = 0
        if reply is None or reply.spent or assignment.stop is not None:
            code = self._give_up()
        asked = assignment.stop is Stop.TIMEOUT or (
            assignment.stop is not None and (reply is None or not isinstance(reply.outcome, Returned))
        )
        if asked:
            return assignment.stopped()
        return Raised(obituary(code), "exit", exit_code=code) if reply is None else reply.outcome

    def _ready_child(self) -> Child:
        if self._child is not None and self._child.has_ended():
            self._give_up()
        if self._child is None:
            self._child = Child()
        return self._child

    def _give_up(self) -> int:
        child, self._child = self._child, None
        return 0 if child is None else child.end()

    def _await(self, child: Child, assignment: Assignment) -> Reply | None:
        """Wait for the reply; None if the process ended without one."""
        kill_at: float | None = None
        poll = select.poll()  # not select(): a busy program has descriptors beyond 1024
        for fd in (child.replies, child.exit_fd, self._ear):
            poll.register(fd, select.POLLIN)
        while True:
            if self._closing.is_set():
                child.signal(signal.SIGKILL)
            elif assignment.stop is not None and kill_at is None:
                child.signal(signal.SIGTERM)
                # A timeout must be reported before the lease ends, which is 10 s later and cannot be extended.
                share = 0.5 if assignment.stop is Stop.TIMEOUT else 1.0
                kill_at = self._clock.monotonic() + share * self._kill_after_s
            elif kill_at is not None and kill_at <= self._clock.monotonic():
                child.signal(signal.SIGKILL)
                kill_at = float("inf")
            left_s = None if kill_at is None or kill_at == float("inf") else kill_at - self._clock.monotonic()
            readable = [fd for fd, _ in poll.poll(None if left_s is None else max(0, left_s) * 1000)]
            if self._ear in readable:
                os.read(self._ear, 1)
            if child.exit_fd in readable:
                return child.last_words()
            if child.replies in readable:
                try:
                    reply = child.read()
                except EOFError:
                    poll.unregister(
                        child.replies
                    )  # closed by the handler; only the end of the process is left to wait for
                    continue
                except msgspec.DecodeError:
                    return None  # written to by the handler
                if reply is not None:
                    return reply
