"""How an execution ended, as its last event says it: what its code came to, or that it was cancelled.

Pure. Knows no execution: a task that is done, or two ends to be compared.
"""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.flows.definitions import Codec
from holdfast.flows.failures import details_of, encoding_details
from holdfast.model import kinds
from holdfast.model.details import CANCELLED, Category, ErrorDetails
from holdfast.model.history import Event
from holdfast.model.kinds import AnyKind


def verdict(main: asyncio.Task[Any], codec: Codec, cancel: Event | None) -> AnyKind:
    """Say how code that is done has ended; `cancel` is the request, if somebody asked for its end."""
    if main.cancelled():
        asked = None if cancel is None else cancel.kind
        reason = asked.reason if isinstance(asked, kinds.OrchestrationCancelRequested) else "cancelled"
        return kinds.OrchestrationFailed(details=cancelled_details(reason))
    problem = main.exception()
    if problem is not None:
        return kinds.OrchestrationFailed(details=details_of(problem))
    try:
        packed = codec.pack_result(main.result())
    except Exception as misfit:  # noqa: BLE001 - users' types are written here, and may raise anything
        return kinds.OrchestrationFailed(details=encoding_details("the result", misfit))
    return kinds.OrchestrationCompleted(output=bytes(packed).decode())


def is_same_end(recorded: AnyKind, present: AnyKind | None) -> bool:
    """Tell whether recorded and present end agree, unless it was ended from outside."""
    if isinstance(recorded, kinds.OrchestrationFailed) and present is None:
        return True
    return _without_traces(recorded) == _without_traces(present)


def _without_traces(kind: AnyKind | None) -> AnyKind | None:
    """Leave out of an end what may differ between two runs of the same code: lines and addresses in tracebacks."""
    if not isinstance(kind, kinds.OrchestrationFailed):
        return kind
    details = ErrorDetails(
        category=kind.details.category, kind=kind.details.kind, message="", type_name=kind.details.type_name
    )
    return kinds.OrchestrationFailed(details=details)


def cancelled_details(reason: str) -> ErrorDetails:
    """Word the end of a cancelled instance."""
    return ErrorDetails(category=Category.APPLICATION, kind=CANCELLED, message=reason)
