"""Handlers in threads. A thread cannot be stopped: the handler sees a flag, and keeps its thread until it returns.

Threads are made when they are first needed, and are daemons: a handler that never returns does not keep the process.
"""

from __future__ import annotations

import threading
from queue import SimpleQueue

from holdfast.failpoints import reach
from holdfast.workers.handlers.leased_job import Assignment, Stop
from holdfast.workers.runners import Desk
from holdfast.workers.runners.invoke import call


class ThreadRunner:
    """Runs handlers in up to `size` threads."""

    def __init__(self, size: int, desk: Desk) -> None:
        self._size = size
        self._desk = desk
        self._waiting: SimpleQueue[Assignment | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        #: Assignments handed in and not ended.
        self._busy = 0

    def start(self, assignment: Assignment) -> None:
        """Hand it to a thread."""
        with self._lock:
            if self._threads < min(self._busy + 1, self._size):
                threading.Thread(target=self._serve, name="holdfast-handler", daemon=True).start()
                self._threads += 1
            self._busy += 1
        self._waiting.put(assignment)

    def _serve(self) -> None:
        while (assignment := self._waiting.get()) is not None:
            following: Assignment | None = assignment
            # What comes next is run right here: handing it to another thread costs more than a short handler.
            while following is not None:
                outcome = call(following.spec, following.context)
                reach("thread.returned")
                following = self._desk.end_for_next(following, outcome)
            with self._lock:
                self._busy -= 1

    def stop(self, assignment: Assignment) -> None:
        """Nothing more than the flag can be done. A timeout is reported now: the handler may never return."""
        if assignment.stop is Stop.TIMEOUT:
            self._desk.settle(assignment, assignment.stopped())

    def close(self) -> None:
        """Let idle threads end; busy ones end with their handlers."""
        for _ in range(self._threads):
            self._waiting.put(None)
