"""Sizes that must come out alike on every replay: delays in milliseconds, and the bytes of a history."""

from __future__ import annotations

import math

from holdfast.errors import InvalidValue
from holdfast.model import kinds
from holdfast.model.kinds import AnyKind

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
    kinds.OrchestrationStarted: "input",
    kinds.ActivityScheduled: "input",
    kinds.ActivityCompleted: "result",
    kinds.SubOrchestrationScheduled: "input",
    kinds.SubOrchestrationCompleted: "result",
    kinds.StepCompleted: "result",
    kinds.QueueEventDelivered: "data",
    kinds.ExternalEvent: "data",
    kinds.SignalSent: "data",
    kinds.OrchestrationChained: "input",
    kinds.KeyValueSet: "value",
}


def weight(kind: AnyKind) -> int:
    """Give the bytes of an event, nearly: the same for the same event, on every replay."""
    field = _PAYLOAD.get(type(kind))
    return _FRAME if field is None else _FRAME + len(getattr(kind, field))
