"""Handlers in child processes, one for each slot, reused from job to job.

A handler that crashes, leaks, exits or refuses to end takes down its own process and nothing else: its run fails with
what happened, and the next job of the slot gets a new process. Nobody is left behind: the group is killed whenever its
process is given up, and by the kernel if this worker is.
"""

from __future__ import annotations

import select
import threading
from queue import SimpleQueue

import msgspec

from holdfast.model.ids import Token
from holdfast.workers.handlers.leased_job import Assignment, Stop
from holdfast.workers.handlers.outcome import Outcome, Raised, Returned
from holdfast.workers.runners import Desk
from holdfast.workers.runners.child_process import Child
from holdfast.workers.runners.child_protocol import Reply, Request
from holdfast.workers.runners.process_group import Bell, Ladder, obituary

#: Seconds in which threads end once their processes were killed.
CLOSING_S = 5.0
COULD_NOT = "a process for the handler could not be started"


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
            if len(self._threads) < min(self._busy + 1, self._size):
                thread = threading.Thread(target=self._serve, name="holdfast-process", daemon=True)
                thread.start()
                self._threads.append(thread)
            self._busy += 1
        self._waiting.put(assignment)

    def _serve(self) -> None:
        try:
            slot = _Slot(self._kill_after_s, self._closing)
        except OSError as problem:
            self._give_in(problem)
            return
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

    def _give_in(self, problem: OSError) -> None:
        """Fail one job, for want of descriptors; the next one tries again."""
        with self._lock:
            self._threads.remove(threading.current_thread())
            self._busy -= 1
        assignment = self._waiting.get()
        if assignment is not None:
            self._desk.end(assignment, Raised(f"{COULD_NOT}: {problem}", "exit"))

    def stop(self, assignment: Assignment) -> None:
        """Terminate its process group, and kill it if that does not help."""
        with self._lock:
            slot = self._slots.get(assignment.grant.token)
            if slot is not None:
                slot.bell.ring()

    def close(self) -> None:
        """Kill every process."""
        self._closing.set()
        with self._lock:
            for slot in self._slots.values():
                slot.bell.ring()
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join(CLOSING_S)


class _Slot:
    """One place for a process, used by one thread."""

    def __init__(self, kill_after_s: float, closing: threading.Event) -> None:
        self._kill_after_s = kill_after_s
        self._closing = closing
        self._child: Child | None = None
        #: Makes the thread look at what it was asked.
        self.bell = Bell()

    def close(self) -> None:
        """Kill the process, if there is one."""
        self._give_up()
        self.bell.close()

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
            return Raised(f"{COULD_NOT}: {problem}", "exit")
        reply = self._await(child, assignment)
        code = 0
        if reply is None or reply.spent or assignment.stop is not None:
            code = self._give_up()
        asked = assignment.stop is Stop.TIMEOUT or (
            assignment.stop is not None and (reply is None or not isinstance(reply.outcome, Returned))
        )
        if asked:
            return assignment.stopped()
        if reply is not None:
            return reply.outcome
        said = obituary(code, "the handler's process")
        return Raised(f"{said} before it gave a result", "exit", exit_code=code)

    def _ready_child(self) -> Child:
        if self._child is not None and self._child.group.has_ended():
            self._give_up()
        if self._child is None:
            self._child = Child()
        return self._child

    def _give_up(self) -> int:
        child, self._child = self._child, None
        return 0 if child is None else child.end()

    def _await(self, child: Child, assignment: Assignment) -> Reply | None:
        """Wait for the reply; None if the process ended without one."""
        notes, bell = assignment.notes, self.bell
        ladder = Ladder(child.group, self._kill_after_s)
        poll = select.poll()  # not select(): a busy program has descriptors beyond 1024
        for fd in (child.replies, child.group.exit_fd, bell.fd):
            poll.register(fd, select.POLLIN)
        child.output.register(poll)
        reply: Reply | None = None
        while reply is None:
            left_ms = ladder.step(assignment.stop, is_closing=self._closing.is_set())
            readable = [fd for fd, _ in poll.poll(left_ms)]
            for fd in readable:
                child.output.take(fd, poll, notes)
            if bell.fd in readable:
                bell.heard()
            if child.group.exit_fd in readable:
                reply = child.last_words(notes)
                break
            if child.replies in readable:
                try:
                    reply = child.read(notes)
                except EOFError:
                    # Closed by the handler; only the end of the process is left to wait for.
                    poll.unregister(child.replies)
                except msgspec.DecodeError:
                    break  # written to by the handler
        child.output.drain(notes)
        return reply
