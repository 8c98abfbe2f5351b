"""The inbox of a worker: files that people put, edit or move in a store that takes them so. Looked at once a second."""

from __future__ import annotations

from holdfast.engine.engine import Engine
from holdfast.engine.file_adoption import adopt
from holdfast.stores.protocol import HandMade

#: Seconds between two looks.
LOOK_S = 0.9
_NEVER = float("inf")


class Inbox:
    """Has done what people wish by what they do to files."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._store = engine.store if isinstance(engine.store, HandMade) else None
        #: When to look next (monotonic).
        self.look_at = _NEVER if self._store is None else 0.0

    def look(self, now: float) -> bool:
        """Look, if it is time; tell whether there may be new work."""
        if now < self.look_at:
            return False
        self.look_at = now + LOOK_S
        found = adopt(self._engine) > 0
        if self.has_more:  # go on with it when what else is due was done
            self.look_at = now
        return found

    @property
    def has_more(self) -> bool:
        """Whether files were found that nobody has seen to yet."""
        return self._store is not None and self._store.has_more
