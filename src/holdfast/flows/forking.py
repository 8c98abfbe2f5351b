"""A new execution from a copy of an old history: for `fork` (a new instance) and `reset` (the next execution).

The code is run along the copy; what is open at its end is sent off anew. Nothing of the old instance is touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from holdfast.errors import InvalidValue
from holdfast.flows.calls import child_id
from holdfast.flows.definitions import Definitions
from holdfast.flows.execution import ENGINE_VERSION, Execution
from holdfast.flows.matching import CHILD_MARK
from holdfast.flows.turn import WAKER
from holdfast.model import kinds
from holdfast.model.history import Event, ExecutionMetadata, KvEntry, Status, TurnCommit


def fork(
    definitions: Definitions,
    history: Sequence[Event],
    *,
    until: int,
    instance: str,
    execution_id: int,
    now_ms: int,
    kv_snapshot: Mapping[str, KvEntry],
) -> TurnCommit:
    """Give the first commit of an execution that goes on where `history` stood after event `until`.

    Raises NondeterminismError or HistoryCorrupt if the code does not follow it, InvalidValue if there is no such event
    or no such code.
    """
    if not 1 <= until <= len(history):
        raise InvalidValue(f"event {until}: the history has events 1-{len(history)}. Nothing was changed.")
    copied = [
        _moved(event, instance, execution_id) for event in history[:until] if not isinstance(event.kind, kinds.TERMINAL)
    ]
    begun = history[0].kind
    definition = None
    if isinstance(begun, kinds.OrchestrationStarted):
        definition = definitions.get(begun.name, begun.version)
    if definition is None:
        raise InvalidValue(f"there is no code for instance {history[0].instance!r}. Nothing was changed.")
    execution = Execution(definition, definitions, instance, execution_id, kv_snapshot)
    try:
        execution.replay(copied)
        if execution.blocked is not None:
            raise execution.blocked
        if execution.terminal is None:
            execution.dispatch_again()
        # Its first turn starts the steps that are open, or ends what has come to its end.
        execution.outbox.wake(WAKER, now_ms)
        execution.outbox.events[:0] = copied
        return execution.outbox.take(
            ExecutionMetadata(
                status=Status.RUNNING,
                orchestration_name=definition.name,
                orchestration_version=definition.version,
                pinned_engine_version=ENGINE_VERSION,
            )
        )
    finally:
        execution.close(clean_up=False)


def _moved(event: Event, instance: str, execution_id: int) -> Event:
    """Give an event to another execution. It has no parent, and its children are its own."""
    kind = event.kind
    match kind:
        case kinds.OrchestrationStarted():
            kind = msgspec.structs.replace(kind, parent_instance=None, parent_id=None, parent_execution_id=None)
        case kinds.SubOrchestrationScheduled() if CHILD_MARK in kind.instance:
            kind = msgspec.structs.replace(kind, instance=child_id(instance, execution_id, event.event_id))
        case _:
            pass
    return msgspec.structs.replace(event, instance=instance, execution_id=execution_id, kind=kind)
