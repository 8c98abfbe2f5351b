"""The keys an execution began with, worked out from the histories before it. Pure.

A store keeps what the keys are, not what they were. An execution that began with a copy of another found what that one
found: its first event says which it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.history import Event, KvEntry

Histories = Mapping[int, Sequence[Event]]


def began_with(histories: Histories, execution_id: int, present: Mapping[str, KvEntry]) -> dict[str, KvEntry]:
    """Give the keys that the newest execution began with; `present` are those there are now.

    Of a key it has changed, and whose earlier histories are gone, nothing is known: it is left out.
    """
    own = histories[execution_id]
    before = left_by_earlier(histories, execution_id)
    if any(isinstance(event.kind, event_kinds.KeyValuesCleared) for event in own):
        return before or {}
    changed = {
        event.kind.key for event in own if isinstance(event.kind, event_kinds.KeyValueSet | event_kinds.KeyValueCleared)
    }
    untouched = {key: entry for key, entry in present.items() if key not in changed}
    return {**untouched, **{key: entry for key, entry in (before or {}).items() if key in changed}}


def left_by_earlier(histories: Histories, execution_id: int) -> dict[str, KvEntry] | None:
    """Give the keys that the executions before one had left; None: a history that tells is gone."""
    line: list[int] = []
    while (found := histories.get(line[-1] if line else execution_id)) is not None and found:
        first = found[0].execution_id
        if first <= 1:
            return applied({}, (event for number in reversed(line) for event in histories[number]))
        line.append(first - 1)
    return None


def applied(keys: Mapping[str, KvEntry], events: Iterable[Event]) -> dict[str, KvEntry]:
    """Give what events make of keys."""
    now = dict(keys)
    for event in events:
        match event.kind:
            case event_kinds.KeyValueSet():
                now[event.kind.key] = KvEntry(event.kind.value, event.kind.last_updated_at_ms)
            case event_kinds.KeyValueCleared():
                now.pop(event.kind.key, None)
            case event_kinds.KeyValuesCleared():
                now.clear()
            case _:
                pass
    return now
