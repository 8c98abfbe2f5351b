"""An exported file as an instance that is over, for another store. Pure: a file in, one command out.

What was running when it was exported is ended here by an event from outside, for nobody will run it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.errors import HistoryCorrupt
from holdfast.model.error_details import CANCELLED
from holdfast.model.payloads import NULL
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.commands import Delta, Ended, ImportInstance, KeyWish, NewEvent
from holdfast.model.workflows.history import REPAIR_EVENT_ID, Event, KvEntry, encode_event
from holdfast.model.workflows.instances import InstanceStatus
from holdfast.workflows.determinism.history_match import demand_whole
from holdfast.workflows.replay.export import ExportedExecution, HistoryFile
from holdfast.workflows.runtime.result import cancelled_details

replace = msgspec.structs.replace

#: Why an imported instance ended that had not.
UNFINISHED = "it was running when it was exported"


def import_command(file: HistoryFile, cmd: str, actor: str = "") -> ImportInstance:
    """Give the command that keeps an exported instance. Raises HistoryCorrupt for a file that contradicts itself."""
    last = len(file.executions)
    return ImportInstance(
        instance_id=file.instance,
        executions=tuple(_ended(file, one, is_last=at == last) for at, one in enumerate(file.executions, 1)),
        keys=wishes(file.executions[0].kv),
        cmd=cmd,
        actor=actor,
    )


def wishes(keys: dict[str, KvEntry]) -> tuple[KeyWish, ...]:
    """Write keys down for a command."""
    return tuple(
        KeyWish(key=key, value=text_raw(entry.value), at_ms=entry.last_updated_at_ms) for key, entry in keys.items()
    )


def text_raw(text: str) -> msgspec.Raw:
    """Write a text down for a command."""
    return msgspec.Raw(msgspec.json.encode(text))


def delta(events: Sequence[Event]) -> Delta:
    """Write events down for a command."""
    return Delta(events=tuple(NewEvent(event=msgspec.Raw(encode_event(event))) for event in events))


def _ended(file: HistoryFile, one: ExportedExecution, *, is_last: bool) -> Ended:
    events = list(one.events)
    stranger = next((event for event in events if event.instance != file.instance), None)
    if stranger is not None:
        raise HistoryCorrupt(
            f"instance {file.instance!r}: event {stranger.event_id} of execution {one.execution_id} is of "
            f"{stranger.instance!r}. Nothing was imported."
        )
    demand_whole(events)
    begun = events[0].kind
    if file.redacted and isinstance(begun, event_kinds.OrchestrationStarted):
        events[0] = replace(events[0], kind=replace(begun, redacted=True))
    end = events[-1].kind
    if not isinstance(end, event_kinds.TERMINAL) or (
        is_last and isinstance(end, event_kinds.OrchestrationContinuedAsNew)
    ):
        end = event_kinds.OrchestrationFailed(details=cancelled_details(UNFINISHED))
        events.append(replace(events[-1], event_id=REPAIR_EVENT_ID, kind=end, source_event_id=None))
    match end:
        case event_kinds.OrchestrationCompleted():
            status, output = InstanceStatus.COMPLETED, text_raw(end.output)
        case event_kinds.OrchestrationFailed():
            is_cancelled = end.details.kind == CANCELLED
            status = InstanceStatus.CANCELLED if is_cancelled else InstanceStatus.FAILED
            output = text_raw(end.details.message)
        case _:
            status, output = InstanceStatus.CONTINUED_AS_NEW, NULL
    return Ended(execution_id=one.execution_id, status=status, delta=delta(events), output=output)
