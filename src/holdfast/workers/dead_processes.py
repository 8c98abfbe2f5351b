"""Neighbours: other processes that work on the same store. When one of them dies, its work waits for nobody's clock.

Looked after about once a second while a job or a turn runs in another process, or one holds a queue, by whoever is
there; not at all otherwise.
"""

from __future__ import annotations

from itertools import chain

from holdfast.engine.engine import Engine
from holdfast.engine.maintenance import end_dead_sessions
from holdfast.rules.reservations.commands import local_holders

#: Seconds between two looks.
LOOK_S = 1.0
_NEVER = float("inf")


class Neighbours:
    """Ends the leases, turns and reservations of processes that are gone."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        #: When to look next (monotonic); first at once, for somebody may have died before.
        self.look_at = 0.0 if engine.is_authority else _NEVER

    def stir(self, now: float) -> None:
        """Hear that something has happened in the store: a neighbour may have begun a job."""
        if self._engine.is_authority:  # a coordinator looks after its own
            self.look_at = min(self.look_at, now + LOOK_S)

    def look(self, now: float) -> bool:
        """Look, if it is time; tell whether anything was taken from the dead."""
        if now < self.look_at:
            return False
        if not self._has_foreign_holder():
            self.look_at = _NEVER
            return False
        self.look_at = now + LOOK_S
        return end_dead_sessions(self._engine) > 0

    def _has_foreign_holder(self) -> bool:
        own = self._engine.session_id
        with self._engine.read() as view:
            return any(held.session_id not in (own, None) for held in chain(local_holders(view), view.local_turns()))
