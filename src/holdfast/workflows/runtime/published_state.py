"""What an instance publishes of itself: one status, and values by key. Others read it without running any code.

Text in and out; typed values are the face's affair. The store holds what earlier executions left; this execution's
changes lie over it.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.errors import InvalidValue
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.event_kinds import AnyKind
from holdfast.model.workflows.history import KvEntry
from holdfast.model.workflows.instances import MAX_KEY, MAX_KEYS, MAX_STATUS, MAX_VALUE


class Published:
    """The state as the code sees it."""

    def __init__(self, snapshot: Mapping[str, KvEntry]) -> None:
        self._values = {key: entry.value for key, entry in snapshot.items()}
        #: JSON text; None: nothing was said.
        self.status: str | None = None

    def get(self, key: str) -> str | None:
        """Give the value of a key; None: it has none."""
        return self._values.get(key)

    def keys(self) -> list[str]:
        """Give the keys there are, in order."""
        return sorted(self._values)

    def apply(self, kind: AnyKind) -> None:
        """Take a change in."""
        match kind:
            case event_kinds.CustomStatusUpdated():
                self.status = kind.status
            case event_kinds.KeyValueSet():
                self._values[kind.key] = kind.value
            case event_kinds.KeyValueCleared():
                self._values.pop(kind.key, None)
            case event_kinds.KeyValuesCleared():
                self._values.clear()
            case _:
                pass

    def demand_valid(self, kind: AnyKind) -> None:
        """Refuse a change that no store would take. Raises InvalidValue."""
        match kind:
            case event_kinds.CustomStatusUpdated() if kind.status is not None:
                _demand_size("status", kind.status, MAX_STATUS)
            case event_kinds.KeyValueSet():
                _demand_key(kind.key)
                _demand_size(f"key {kind.key!r}", kind.value, MAX_VALUE)
                if kind.key not in self._values and len(self._values) >= MAX_KEYS:
                    raise InvalidValue(f"key {kind.key!r}: there are {MAX_KEYS:,} keys already. Nothing was changed.")
            case event_kinds.KeyValueCleared():
                _demand_key(kind.key)
            case _:
                pass


def _demand_key(key: str) -> None:
    try:
        fits = 1 <= len(key.encode()) <= MAX_KEY
    except (UnicodeEncodeError, AttributeError):  # lone surrogates; no text at all
        fits = False
    if not fits:
        raise InvalidValue(f"key {key!r:.80}: a key is text of 1-{MAX_KEY} bytes. Nothing was changed.")


def _demand_size(what: str, text: str, limit: int) -> None:
    size = len(text.encode())
    if size > limit:
        raise InvalidValue(f"{what}: {size:,} bytes are more than {limit:,}. Nothing was changed.")
