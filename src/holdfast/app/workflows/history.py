"""Histories out of a store: as they are kept, as one file, and as far as they can be read. Reads only."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.app.workflows.state import state_of
from holdfast.errors import HistoryCorrupt, InvalidOperation
from holdfast.model.workflows.history import Event
from holdfast.model.workflows.instances import HistoryRow
from holdfast.stores.protocol import View
from holdfast.stores.sidecar.protocol import Blobs
from holdfast.workflows.provider.payloads import events_of
from holdfast.workflows.replay.export import HistoryFile, file_of


def exported(view: View, blobs: Blobs, instance_id: str, *, redact: bool = False) -> HistoryFile:
    """Give all executions that are kept of an instance.

    Raises WorkflowNotFound, InvalidOperation for one that has not begun, HistoryCorrupt.
    """
    state = state_of(view, blobs, instance_id)
    histories = {
        one.execution_id: events_of(blobs, view.history(one.history_id), one.execution_id, instance_id)
        for one in view.executions(instance_id)
    }
    kept = {number: events for number, events in histories.items() if events}
    if not kept:
        message = f"instance {instance_id!r} has no history yet. Nothing was written."
        raise InvalidOperation(message, hint="It begins with its first turn.", instance=instance_id)
    return file_of(instance_id, str(state.status), kept, redact=redact)


def readable(
    blobs: Blobs, rows: Sequence[HistoryRow], execution_id: int
) -> tuple[list[Event], list[Event], HistoryCorrupt | None]:
    """Give a history up to the first event that cannot be read, those behind it that can, and what was found there."""
    before: list[Event] = []
    behind: list[Event] = []
    damage: HistoryCorrupt | None = None
    for row in rows:
        try:
            (event,) = events_of(blobs, (row,), execution_id)
        except HistoryCorrupt as problem:
            damage = damage or problem
            continue
        (before if damage is None else behind).append(event)
    return before, behind, damage
