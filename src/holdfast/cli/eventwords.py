"""Events of a history in words, with what came of them: results, answers, errors. For people; programs read the event.

What code is compared by is worded in `flows.matching`; the rest of an event is worded here.
"""

from __future__ import annotations

from holdfast.flows.matching import describe_event
from holdfast.model import kinds
from holdfast.model.details import ErrorDetails
from holdfast.model.history import Event

#: Characters of a payload that are shown.
SHOWN = 120


def worded(event: Event) -> str:
    """Say what happened in an event, in one line."""
    kind, said = event.kind, describe_event(event)
    match kind:
        case kinds.OrchestrationStarted():
            return f"workflow {kind.name!r} {kind.version} input {_cut(kind.input)}"
        case kinds.StepCompleted():
            return f"{said}: {_cut(kind.result)}"
        case kinds.ActivityCompleted() | kinds.SubOrchestrationCompleted():
            return f"{said}: {_cut(kind.result)}"
        case kinds.StepFailed() | kinds.ActivityFailed() | kinds.SubOrchestrationFailed():
            return f"{said}: {_error(kind.details)}"
        case kinds.QueueEventDelivered() | kinds.ExternalEvent():
            return f"signal {kind.name!r} data {_cut(kind.data)}"
        case kinds.DecisionResolved():
            answer = kind.chosen or kind.message or "no answer"
            return f"answer to event {event.source_event_id}: {_cut(answer)}{f', by {kind.by}' if kind.by else ''}"
        case kinds.OrchestrationCancelRequested():
            return f"asked to stop{f': {_cut(kind.reason)}' if kind.reason else ''}"
        case _:
            return said


def _error(details: ErrorDetails) -> str:
    return f"{details.type_name or details.kind}: {_cut(details.message)}"


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
