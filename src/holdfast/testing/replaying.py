"""`replay`: run a workflow's code along a recorded history. No store, no worker, no side effects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.app.codec import SignatureCodec
from holdfast.flows.definitions import Definitions
from holdfast.flows.execution import Execution
from holdfast.flows.matching import describe_event, is_command
from holdfast.flows.waiting import waiting_on
from holdfast.flows.workflows import Workflow
from holdfast.model import kinds
from holdfast.model.details import ErrorDetails
from holdfast.model.history import Event


class ReplayResult(msgspec.Struct, frozen=True, kw_only=True):
    """Where a history leads its code."""

    #: What it returned; None if it did not, or not yet.
    output: Any = None
    #: What it failed with.
    error: ErrorDetails | None = None
    #: What the code asked for, in order, in words; beyond the end of the history, too.
    commands: tuple[str, ...] = ()
    #: What it waits for now, in words.
    pending: tuple[str, ...] = ()
    #: Changes that matter to nobody but should be known.
    notes: tuple[str, ...] = ()


def replay(history: Sequence[Event], workflow: Workflow[..., Any], *, until: int | None = None) -> ReplayResult:
    """Replay a history, up to event `until`, with this code, whatever version it is recorded for.

    Raises NondeterminismError if the code does not do what the history says, HistoryCorrupt if it is no history.
    """
    events = [event for event in history if until is None or event.event_id <= until]
    execution = Execution(
        workflow.definition, Definitions(SignatureCodec), events[0].instance, events[0].execution_id, {}
    )
    try:
        execution.replay(events)
        if execution.blocked is not None:
            raise execution.blocked
        end = execution.terminal
        given = [*filter(is_command, events), *execution.outbox.events]
        return ReplayResult(
            output=msgspec.json.decode(end.output) if isinstance(end, kinds.OrchestrationCompleted) else None,
            error=end.details if isinstance(end, kinds.OrchestrationFailed) else None,
            commands=tuple(map(describe_event, given)),
            pending=() if end is not None else waiting_on(execution),
            notes=tuple(execution.notes),
        )
    finally:
        execution.close(clean_up=False)
