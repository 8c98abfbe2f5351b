"""The crew: a few threads that run turns and sync steps, in the order they were handed in.

Threads are made when they are first needed, and are daemons. One that is stuck is written off: another takes its place,
and it ends when it comes back.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

log = logging.getLogger("holdfast.worker")


class Crew:
    """Up to `size` threads. Any thread may hand in work."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._waiting: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        #: Threads there are, without those written off; and work handed in and not done.
        self._threads = self._busy = 0
        #: Threads that are no longer counted.
        self._written_off: set[int] = set()

    def put(self, work: Callable[[], None]) -> None:
        """Have it done by the next thread that is free. Raises RuntimeError if the system has no thread at all."""
        with self._lock:
            try:
                self._hire(self._busy + 1)
            except RuntimeError:
                if not self._threads:
                    raise
            self._busy += 1
        self._waiting.put(work)

    def _hire(self, busy: int) -> None:
        """Have a thread more, if so much work has too few. The lock is held."""
        if self._threads < min(busy, self._size):
            threading.Thread(target=self._serve, name="holdfast-turn", daemon=True).start()
            self._threads += 1

    def write_off(self, ident: int) -> None:
        """Count a thread no longer: what it does may never end."""
        with self._lock:
            if ident not in self._written_off:
                self._written_off.add(ident)
                self._threads -= 1
                self._busy -= 1
                with suppress(RuntimeError):  # no thread now; perhaps when the next work is handed in
                    self._hire(self._busy)  # what waits counted on this thread

    def close(self) -> None:
        """Let the threads end, busy ones when they are done."""
        with self._lock:
            count = self._threads + len(self._written_off)
        for _ in range(count):
            self._waiting.put(None)

    def _serve(self) -> None:
        ident = threading.get_ident()
        while (work := self._waiting.get()) is not None:
            try:
                work()
            except BaseException:
                log.exception("turn.broken")  # a fault of ours: it must not take the thread with it
            with self._lock:
                if ident in self._written_off:
                    self._written_off.remove(ident)
                    return
                self._busy -= 1
