"""Events of a history in words, with what came of them: results, answers, errors. For people; programs read the event.

What code is compared by is worded in `workflows.determinism.history_match`; the rest of an event is worded here.
"""

from __future__ import annotations

from holdfast.model.error_details import ErrorDetails
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.history import Event
from holdfast.workflows.determinism.history_match import describe_event

#: Characters of a payload that are shown.
SHOWN = 120


def worded(event: Event) -> str:
    """Say what happened in an event, in one line."""
    kind, said = event.kind, describe_event(event)
    match kind:
        case event_kinds.OrchestrationStarted():
            return f"workflow {kind.name!r} {kind.version} input {_cut(kind.input)}"
        case event_kinds.StepCompleted():
            return f"{said}: {_cut(kind.result)}"
        case event_kinds.ActivityCompleted() | event_kinds.SubOrchestrationCompleted():
            return f"{said}: {_cut(kind.result)}"
        case event_kinds.StepFailed() | event_kinds.ActivityFailed() | event_kinds.SubOrchestrationFailed():
            return f"{said}: {_error(kind.details)}"
        case event_kinds.QueueEventDelivered() | event_kinds.ExternalEvent():
            return f"signal {kind.name!r} data {_cut(kind.data)}"
        case event_kinds.DecisionResolved():
            answer = kind.chosen or kind.message or "no answer"
            return f"answer to event {event.source_event_id}: {_cut(answer)}{f', by {kind.by}' if kind.by else ''}"
        case event_kinds.OrchestrationCancelRequested():
            return f"asked to stop{f': {_cut(kind.reason)}' if kind.reason else ''}"
        case _:
            return said


def _error(details: ErrorDetails) -> str:
    return f"{details.type_name or details.kind}: {_cut(details.message)}"


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
