"""How an execution begins: by which message of a batch, if by any, and with which first event.

One rule for turns that run the code, and for ends that do not: what was ended before it began has a first event, too.
"""

from __future__ import annotations

from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.history import OrchestrationItem
from holdfast.model.workflows.work_items import ContinueAsNew, StartOrchestration

Begin = StartOrchestration | ContinueAsNew


def beginning(item: OrchestrationItem) -> Begin | None:
    """Give the message that begins an execution now, wherever it stands; None: one is there, or nothing begins any.

    For a history that was read: that of a resident execution is not there either, and looks as if there were none.
    """
    last = item.history[-1].kind if item.history else None
    if isinstance(last, event_kinds.OrchestrationContinuedAsNew):
        return next((found for found in item.messages if isinstance(found, ContinueAsNew)), None)
    if last is None and item.history_error is None:
        return next((found for found in item.messages if isinstance(found, Begin)), None)
    return None


def has_ended(item: OrchestrationItem) -> bool:
    """Tell whether there is nothing left to run: the execution is over, and no message begins another."""
    is_over = bool(item.history) and isinstance(item.history[-1].kind, event_kinds.TERMINAL)
    return is_over and beginning(item) is None


def began_as(item: OrchestrationItem) -> int:
    """Give the number of the execution that a message of this batch begins."""
    return item.execution_id + bool(item.history)


def first_kind(begin: Begin, version: str) -> event_kinds.OrchestrationStarted:
    """Give what the first event says, as far as the message does."""
    return event_kinds.OrchestrationStarted(
        name=begin.orchestration,
        version=version,
        input=begin.input,
        parent_instance=begin.parent_instance,
        parent_id=begin.parent_id,
        parent_execution_id=begin.parent_execution_id,
        carry_forward_events=begin.carry_forward_events if isinstance(begin, ContinueAsNew) else (),
        initial_custom_status=begin.initial_custom_status if isinstance(begin, ContinueAsNew) else None,
    )
