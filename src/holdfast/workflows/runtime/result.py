"""How an execution ended, as its last event says it: what its code came to, or that it was cancelled.

Pure. Knows no execution: a task that is done, or two ends to be compared.
"""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.model.error_details import CANCELLED, Category, ErrorDetails
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.event_kinds import AnyKind
from holdfast.model.workflows.history import Event
from holdfast.workflows.api.definitions import Codec
from holdfast.workflows.api.error_conversion import USER_CODE_RAISES, details_of, encoding_details


def verdict(main: asyncio.Task[Any], codec: Codec, cancel: Event | None) -> AnyKind:
    """Say how code that is done has ended; `cancel` is the request, if somebody asked for its end."""
    if main.cancelled():
        asked = None if cancel is None else cancel.kind
        reason = asked.reason if isinstance(asked, event_kinds.OrchestrationCancelRequested) else "cancelled"
        return event_kinds.OrchestrationFailed(details=cancelled_details(reason))
    problem = main.exception()
    if problem is not None:
        return event_kinds.OrchestrationFailed(details=details_of(problem))
    try:
        packed = codec.pack_result(main.result())
    except USER_CODE_RAISES as misfit:
        return event_kinds.OrchestrationFailed(details=encoding_details("the result", misfit))
    return event_kinds.OrchestrationCompleted(output=bytes(packed).decode())


def is_same_end(recorded: AnyKind, present: AnyKind | None) -> bool:
    """Tell whether recorded and present end agree, unless it was ended from outside."""
    if isinstance(recorded, event_kinds.OrchestrationFailed) and present is None:
        return True
    return _without_traces(recorded) == _without_traces(present)


def _without_traces(kind: AnyKind | None) -> AnyKind | None:
    """Leave out of an end what may differ between two runs of the same code: lines and addresses in tracebacks."""
    if not isinstance(kind, event_kinds.OrchestrationFailed):
        return kind
    details = ErrorDetails(
        category=kind.details.category, kind=kind.details.kind, message="", type_name=kind.details.type_name
    )
    return event_kinds.OrchestrationFailed(details=details)


def cancelled_details(reason: str) -> ErrorDetails:
    """Word the end of a cancelled instance."""
    return ErrorDetails(category=Category.APPLICATION, kind=CANCELLED, message=reason)
