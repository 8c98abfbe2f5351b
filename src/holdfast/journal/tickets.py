"""Tickets and waiters: what an append gives its caller, and how a thread sleeps until it is satisfied.

Knows nothing of batches or files; `group_commit` decides when a ticket is done and whom to wake.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Literal, Protocol

import msgspec

from holdfast.errors import StoreError

#: What can be expected of a journal.
State = Literal["open", "full", "failed", "closed"]


class Acknowledging(Protocol):
    """What a ticket asks about its own fate."""

    #: Acknowledges after the append, before the sync.
    relaxed: bool
    #: The last record that is durable.
    durable: int

    @property
    def state(self) -> State:
        """What can be expected of the journal now."""
        ...

    def wait(self, seq: int, timeout: float | None = None) -> None:
        """Return when record `seq` is durable."""
        ...

    def verdict(self, seq: int) -> StoreError | None:
        """Give the error a waiter for `seq` would get now."""
        ...

    def call_later(self, ticket: Ticket, callback: Callable[[Ticket], object]) -> bool:
        """Keep a callback until its ticket is done; False if it is done already."""
        ...


class Ticket(msgspec.Struct, frozen=True, eq=False):
    """The claim of one append: its numbers, and how to learn that they are durable."""

    _commit: Acknowledging
    first_seq: int
    last_seq: int

    def wait(self, timeout: float | None = None) -> None:
        """Return once the group is acknowledged.

        Raises TimeoutError after `timeout` seconds; the outcome is then unknown, not failed. Raises StoreFull or
        StoreFailed if the group will not be acknowledged by this journal.
        """
        if not self._commit.relaxed:
            self._commit.wait(self.last_seq, timeout)

    def done(self) -> bool:
        """Tell whether `wait` would return, or raise, at once."""
        commit = self._commit
        return commit.relaxed or commit.durable >= self.last_seq or commit.state in {"failed", "closed"}

    @property
    def error(self) -> StoreError | None:
        """Why the group will not be acknowledged; None while that is open or it was."""
        return None if self._commit.relaxed else self._commit.verdict(self.last_seq)

    def on_done(self, callback: Callable[[Ticket], object]) -> None:
        """Call `callback(ticket)` once, when `done()`; on the leader's thread, or here and now if it is done already.

        Event loops pass something that ends in `call_soon_threadsafe`. The callback must not wait.
        """
        if self._commit.relaxed or not self._commit.call_later(self, callback):
            callback(self)


class Waiter:
    """A thread that waits for a record, or (number 0) for its turn to be alone with the tail."""

    __slots__ = ("_gate", "seq")

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self._gate = Lock()

    def shut(self) -> None:
        """Let the next `sleep` sleep."""
        self._gate.acquire(blocking=False)

    def sleep(self, timeout: float) -> bool:
        """Sleep until woken; False if `timeout` seconds (-1: for ever) passed first."""
        return self._gate.acquire(timeout=timeout)

    def wake(self) -> None:
        """Wake the thread; once or twice is the same."""
        try:
            self._gate.release()
        except RuntimeError:
            return
