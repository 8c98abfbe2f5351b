"""The inbox of a worker: files that people put, edit or move in a store that takes them so. Looked at once a second."""

from __future__ import annotations

from holdfast.engine.engine import Engine
from holdfast.engine.handmade import adopt
from holdfast.stores.protocol import HandMade

#: Seconds between two looks.
LOOK_S = 0.9
_NEVER = float("inf")


class Inbox:
    """Has done what people wish by what they do to files."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        #: When to look next (monotonic).
        self.look_at = 0.0 if isinstance(engine.store, HandMade) else _NEVER

    def look(self, now: float) -> bool:
        """Look, if it is time; tell whether there may be new work."""
        if now < self.look_at:
            return False
        self.look_at = now + LOOK_S
        return adopt(self._engine) > 0
