"""Chores: what a pump does beside moving work, at the moments it is awake anyway or a chore is due.

Lines are written, the roster is told, wishes are heard, dead neighbours are noticed, deliveries are begun, files that
people left are looked at. None of it can fail a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from holdfast.engine.engine import Engine
from holdfast.model.ids import RunId
from holdfast.model.workers import Wish
from holdfast.workers.dead_processes import Neighbours
from holdfast.workers.file_inbox import Inbox
from holdfast.workers.handlers.leased_job import Assignment
from holdfast.workers.handlers.log_buffer import FLUSH_S, StoreScribe
from holdfast.workers.handlers.run_reporter import RunNotes
from holdfast.workers.registration import Presence
from holdfast.workers.webhooks.dispatcher import Courier
from holdfast.workers.webhooks.send import TOTAL_S

#: Seconds between two questions for a wish.
WISH_S = 1.0
_NEVER = float("inf")


class Chores:
    """The chores of one worker. Used by its pump alone, but for `notes`, `hear` and what they lead to."""

    def __init__(
        self,
        engine: Engine,
        poke: Callable[[], None],
        presence: Presence | None = None,
        courier: Courier | None = None,
    ) -> None:
        """Do them for a worker, which shows itself by `presence` and sends by `courier`; `poke` wakes its pump."""
        self._presence = presence
        self._courier = courier
        self.neighbours = Neighbours(engine)
        self._inbox = Inbox(engine)
        self._poke = poke
        self._scribe = StoreScribe(engine.store, lambda: engine.look().now, poke)
        self._flushed_at = self._asked_at = 0.0
        #: The last wish that was followed; it stays in the roster.
        self._heard: Wish | None = None
        #: What to do about a wish; set by the worker.
        self.grant: Callable[[Wish], None] = lambda _wish: None

    def notes(self, run_id: RunId) -> RunNotes:
        """Give the notes of a new execution."""
        return RunNotes(run_id, self._scribe, self._progressed)

    def _progressed(self) -> None:
        if self._presence is not None and not self._presence.is_stale:
            self._presence.is_stale = True
            self._poke()

    def drain(self) -> None:
        """Have it said that the worker takes no more jobs."""
        if self._presence is not None:
            self._presence.drain()

    def flush(self, ended: Iterable[RunNotes] = ()) -> None:
        """Write the lines that wait: before a report, so that whoever sees the end of a run sees all it said."""
        for notes in ended:
            notes.end()
        self._scribe.flush()

    def run(self, now: float, held: Sequence[Assignment]) -> bool:
        """Do what is due; tell whether there may be new work."""
        if self._scribe.has_lines and now >= self._flushed_at + FLUSH_S:
            self._flushed_at = now
            self._scribe.flush()
        if self._presence is not None:
            self._presence.note_if_due(held, now)
        if self._courier is not None:
            self._courier.run(now)
        if held and now >= self._asked_at + WISH_S:
            self._asked_at = now
            self.hear()
        found = self._inbox.look(now)
        return self.neighbours.look(now) or found

    def hear(self) -> None:
        """Ask for a wish. Called by the watcher while the pump sleeps."""
        wish = None if self._presence is None else self._presence.wish()
        if wish is not None and wish is not self._heard:
            self._heard = wish
            self.grant(wish)

    def due_at(self, *, is_busy: bool) -> float:
        """Give when something is due (monotonic)."""
        flush_at = self._flushed_at + FLUSH_S if self._scribe.has_lines else _NEVER
        note_at = _NEVER if self._presence is None else self._presence.due_at(is_busy=is_busy)
        send_at = _NEVER if self._courier is None else self._courier.due_at
        return min(flush_at, note_at, send_at, self.neighbours.look_at, self._inbox.look_at)

    # --- deliveries ---------------------------------------------------------------------------------------------------

    def expect_delivery(self, at: float) -> None:
        """Hear when the next delivery is due (monotonic)."""
        if self._courier is not None:
            self._courier.due_at = at

    @property
    def has_files(self) -> bool:
        """Whether people put files there that nobody has seen to yet."""
        return self._inbox.has_more

    def is_sending(self, now: float) -> bool:
        """Tell whether a delivery is due or on its way."""
        return self._courier is not None and (self._courier.due_at <= now or not self._courier.is_idle)

    def hurry(self) -> None:
        """Wait for nothing any more."""
        if self._courier is not None:
            self._courier.hurry()

    def close(self) -> None:
        """Begin no more deliveries, and let those on their way arrive."""
        if self._courier is not None:
            self._courier.close(TOTAL_S)
