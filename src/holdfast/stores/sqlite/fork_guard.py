"""Forks and SQLite: nobody is inside it when the process forks.

SQLite remembers within a process which locks it has, and guards that memory with mutexes. A child that was forked in
the middle inherits both without the threads that would end them: it would wait for a mutex for ever, find the database
locked for ever, or believe in a lock on the log that only its parent has. So a fork holds back whoever wants to go in,
and waits for those who are, though not for ever; the thread that forks is not waited for.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.failpoints import reach
from holdfast.journal.filesystem import after_fork_in_child

#: Seconds that a fork waits for others.
FORK_S = 5.0


class _Gate:
    """Counts who is inside."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        #: Thread → how often it has gone in and not come out.
        self._inside: dict[int, int] = {}
        #: Forks under way.
        self._forks = 0

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Be inside; whoever is already may always go further."""
        me = threading.get_ident()
        with self._changed:
            if me not in self._inside:
                self._changed.wait_for(lambda: not self._forks)
            self._inside[me] = self._inside.get(me, 0) + 1
        try:
            yield
        finally:
            # Not `me` of now: what was forgotten may be ended by another thread.
            with self._changed:
                left = self._inside.pop(me, 0) - 1
                if left > 0:
                    self._inside[me] = left
                else:
                    self._changed.notify_all()

    def hold(self) -> None:
        """Let nobody in, and wait until all others are out."""
        reach("sqlite.forking")
        me = threading.get_ident()
        with self._changed:
            self._forks += 1
            self._changed.wait_for(lambda: not self._inside.keys() - {me}, FORK_S)

    def go_on(self) -> None:
        """Let everybody in again."""
        with self._changed:
            self._forks -= 1
            self._changed.notify_all()

    def forget(self) -> None:
        """In a child: there are no others. Its own thread may still come out of what it was in."""
        self._changed = threading.Condition()
        self._inside.clear()
        self._forks = 0


_gate = _Gate()
inside = _gate.inside
os.register_at_fork(before=_gate.hold, after_in_parent=_gate.go_on)
after_fork_in_child(_gate.forget)
