"""Sizes that must come out alike on every replay: delays in milliseconds, and the bytes of a history."""

from __future__ import annotations

import math

from holdfast.errors import InvalidValue
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.event_kinds import AnyKind

#: Milliseconds: the longest a timer may be set for.
MAX_DELAY_MS = 100 * 366 * 86_400_000


def delay_ms(seconds: float) -> int:
    """Give a delay in milliseconds, rounded up. Raises InvalidValue for one that is no number or beyond 100 years."""
    if math.isnan(seconds) or seconds * 1000 > MAX_DELAY_MS:
        raise InvalidValue(f"a delay of {seconds:g} s: a number, and not more than 100 years. Nothing was written.")
    # Whole microseconds first: sums of floats must not make a millisecond more of it.
    return math.ceil(round(max(0.0, seconds) * 1000, 3))


#: Bytes of an event beside its payload.
_FRAME = 120
_PAYLOAD: dict[type, str] = {
    event_kinds.OrchestrationStarted: "input",
    event_kinds.ActivityScheduled: "input",
    event_kinds.ActivityCompleted: "result",
    event_kinds.SubOrchestrationScheduled: "input",
    event_kinds.SubOrchestrationCompleted: "result",
    event_kinds.StepCompleted: "result",
    event_kinds.QueueEventDelivered: "data",
    event_kinds.ExternalEvent: "data",
    event_kinds.SignalSent: "data",
    event_kinds.OrchestrationChained: "input",
    event_kinds.KeyValueSet: "value",
}


def weight(kind: AnyKind) -> int:
    """Give the bytes of an event, nearly: the same for the same event, on every replay."""
    field = _PAYLOAD.get(type(kind))
    return _FRAME if field is None else _FRAME + len(getattr(kind, field))
