"""What a history must be, and what a run may come to. Looks at records only; runs no code but a replay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast.errors import HistoryCorrupt, HoldfastError, NondeterminismError
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.history import REPAIR_EVENT_ID, Event, KvEntry
from holdfast.workflows.api.definitions import Definitions
from holdfast.workflows.runtime.execution import Execution

_COMPLETIONS: dict[type, tuple[type, ...]] = {
    event_kinds.ActivityCompleted: (event_kinds.ActivityScheduled,),
    event_kinds.ActivityFailed: (event_kinds.ActivityScheduled,),
    event_kinds.TimerFired: (event_kinds.TimerCreated,),
    event_kinds.SubOrchestrationCompleted: (event_kinds.SubOrchestrationScheduled,),
    event_kinds.SubOrchestrationFailed: (event_kinds.SubOrchestrationScheduled,),
}


class Broken(Exception):
    """A run did what no run may."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        #: The promise that it broke: what stays the same while faults are taken away.
        self.kind = kind
        self.text = text


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """One execution, as it can be replayed."""

    events: tuple[Event, ...]
    #: The keys it began with.
    kv: dict[str, KvEntry] = {}


def demand_rules(events: Sequence[Event]) -> None:
    """Demand what holds for every history. Raises Broken."""
    asked: dict[int, type] = {}
    steps: set[int] = set()
    for expected, event in enumerate(events, 1):
        kind = type(event.kind)
        if event.event_id not in (expected, REPAIR_EVENT_ID):
            raise _breach(event, f"stands where event {expected} should")
        if (kind is event_kinds.OrchestrationStarted) != (expected == 1):
            raise _breach(event, "is no start, and the first" if expected == 1 else "is a second start")
        if issubclass(kind, event_kinds.TERMINAL) and expected != len(events):
            raise _breach(event, "is an end, and not the last")
        if expected > 1 and event.timestamp_ms < events[expected - 2].timestamp_ms:
            raise _breach(event, "is older than the one before it")
        if kind in _COMPLETIONS and asked.pop(event.source_event_id or 0, None) not in _COMPLETIONS[kind]:
            raise _breach(event, f"completes event {event.source_event_id}, which is not open")
        if isinstance(event.kind, event_kinds.StepCompleted | event_kinds.StepFailed):
            if event.kind.step_no in steps:
                raise _breach(event, f"is a second outcome of step {event.kind.step_no}")
            steps.add(event.kind.step_no)
        asked[event.event_id] = kind


def _breach(event: Event, what: str) -> Broken:
    return Broken(
        "breaks a history rule",
        f"instance {event.instance!r}, execution {event.execution_id}: event {event.event_id} {what}",
    )


def demand_replay(definitions: Definitions, recorded: Recorded) -> None:
    """Demand that the code follows a history from its first event to its last. Raises Broken."""
    first = recorded.events[0]
    begun = first.kind
    assert isinstance(begun, event_kinds.OrchestrationStarted)
    definition = definitions.get(begun.name, begun.version)
    if definition is None:
        raise Broken("diverges in replay", f"there is no workflow {begun.name!r} {begun.version} any more")
    execution = Execution(definition, definitions, first.instance, first.execution_id, recorded.kv)
    try:
        execution.replay(recorded.events)
    finally:
        execution.close(clean_up=False)
    if execution.blocked is not None:
        raise broken_by(execution.blocked)


def broken_by(problem: HoldfastError) -> Broken:
    """Say which promise was broken where a turn could not go on."""
    match problem:
        case NondeterminismError():
            return Broken("diverges in replay", str(problem))
        case HistoryCorrupt():
            return Broken("breaks a history rule", str(problem))
        case _:
            return Broken("cannot go on", str(problem))


class Outcome(msgspec.Struct, frozen=True):
    """What a run came to."""

    #: JSON; None if it failed.
    output: str | None = None
    #: The type of what it failed with, and its bases.
    types: tuple[str, ...] = ()
    message: str = ""

    def __str__(self) -> str:
        """Word it."""
        return f"returned {self.output}" if self.output is not None else f"failed: {self.types[0]}: {self.message}"

    def is_one_of(self, allowed: Iterable[Any]) -> bool:
        """Tell whether it is an allowed one: a value that is returned, or the class of an exception."""
        return any(self._is(one) for one in allowed)

    def _is(self, allowed: Any) -> bool:
        if isinstance(allowed, type) and issubclass(allowed, BaseException):
            return self.output is None and allowed.__name__ in self.types
        return self.output is not None and msgspec.json.decode(self.output) == msgspec.to_builtins(allowed)


def outcome_of(kind: event_kinds.AnyKind) -> Outcome | None:
    """Give what an execution came to; None if it has not ended."""
    match kind:
        case event_kinds.OrchestrationCompleted():
            return Outcome(output=kind.output)
        case event_kinds.OrchestrationFailed():
            details = kind.details
            names = (details.type_name or details.kind, *(details.type_bases))
            short = tuple(name.rpartition(".")[2] for name in names)
            return Outcome(types=short, message=details.message)
        case _:
            return None
