"""Histories out of a store, for the commands that show, export and check them. Reads only."""

from __future__ import annotations

from holdfast.app.workflows.state import state_of
from holdfast.errors import NotFound
from holdfast.model.workflows.history import Event
from holdfast.model.workflows.instances import Execution, execution_key
from holdfast.stores.protocol import View
from holdfast.stores.sidecar.protocol import Blobs
from holdfast.workflows.provider.payloads import events_of


def history_of(
    view: View,
    blobs: Blobs,
    instance_id: str,
    execution_id: int | None = None,
    *,
    after: int = 0,
    last: int | None = None,
) -> list[Event]:
    """Give the events of an execution, by default the current one. Raises WorkflowNotFound, NotFound."""
    state = state_of(view, blobs, instance_id)
    number = state.execution_id if execution_id is None else execution_id
    execution = view.get(Execution, execution_key(instance_id, number))
    if execution is None:
        if execution_id is None:
            return []
        raise NotFound(f"instance {instance_id!r} has no execution {number}.", instance=instance_id)
    rows = view.history(execution.history_id, after)
    return events_of(blobs, rows if last is None else rows[-last:], number, instance_id)
