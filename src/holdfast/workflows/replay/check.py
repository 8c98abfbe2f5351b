"""Does today's code still follow recorded histories? Replays them, and names the first difference of each.

Pure: histories come in, findings go out; nothing is run but workflow code, along what is recorded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import msgspec

from holdfast.errors import HoldfastError, WorkflowCodeError
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.history import KvEntry
from holdfast.workflows.api.definitions import Definition, Definitions
from holdfast.workflows.replay.export import ExportedExecution, HistoryFile
from holdfast.workflows.runtime.execution import Execution


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was found."""

    #: `difference`, `error`, `no code`, `damage`: it fails the check. `timer`, `patch`, `lint`: it is a note.
    kind: str
    text: str
    instance: str | None = None
    #: The file or the function it was found in.
    where: str | None = None
    event_id: int | None = None
    recorded: str | None = None
    found: str | None = None

    @property
    def is_note(self) -> bool:
        """It should be known, and breaks nothing."""
        return self.kind in {"timer", "patch", "lint"}


def check_execution(
    definitions: Definitions, one: ExportedExecution, *, redacted: bool = False, where: str | None = None
) -> list[Finding]:
    """Replay one execution with the code of its version."""
    begun = one.events[0].kind
    instance = one.events[0].instance
    if not isinstance(begun, event_kinds.OrchestrationStarted):
        text = f"instance {instance!r}: its first event is no start"
        return [Finding(kind="damage", text=text, instance=instance, where=where, event_id=one.events[0].event_id)]
    definition = definitions.get(begun.name, begun.version)
    if definition is None:
        text = f"there is no workflow {begun.name!r} {begun.version}, of which instance {instance!r} is one"
        return [Finding(kind="no code", text=text, instance=instance, where=where)]
    return _replayed(definitions, definition, one, redacted=redacted or begun.redacted, where=where)


def _replayed(
    definitions: Definitions, definition: Definition, one: ExportedExecution, *, redacted: bool, where: str | None
) -> list[Finding]:
    events = one.events
    if redacted:
        # Payloads were taken out: what code gives and ends with cannot be the same.
        definition = dataclasses.replace(definition, compare_inputs=False)
        events = tuple(event for event in events if not isinstance(event.kind, event_kinds.TERMINAL))
    kv: Mapping[str, KvEntry] = one.kv
    instance = events[0].instance
    execution = Execution(definition, definitions, instance, one.execution_id, kv)
    try:
        execution.replay(events)
    finally:
        execution.close(clean_up=False)
    if execution.blocked is not None:
        facts = execution.blocked.facts
        return [
            Finding(
                kind=_kind_of(execution.blocked),
                text=str(execution.blocked),
                instance=instance,
                where=where,
                event_id=_number(facts.get("event_id")),
                recorded=_words(facts.get("recorded")),
                found=_words(facts.get("found")),
            )
        ]
    return [
        Finding(kind="timer", text=f"instance {instance!r}: {note}", instance=instance, where=where)
        for note in execution.notes
    ]


def _kind_of(problem: HoldfastError) -> str:
    if isinstance(problem, WorkflowCodeError):
        return "error"
    return "difference" if "recorded" in problem.facts else "damage"


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _words(value: object) -> str | None:
    return value if isinstance(value, str) else None


def check_file(definitions: Definitions, file: HistoryFile, where: str | None = None) -> list[Finding]:
    """Replay all executions of a file."""
    return [
        found
        for one in file.executions
        for found in check_execution(definitions, one, redacted=file.redacted, where=where)
    ]


class PatchUse(msgspec.Struct, frozen=True, kw_only=True):
    """How far a change guarded by `hf.patched` has come."""

    workflow: str
    version: str
    patch: str
    #: Running executions that have taken the new branch, and those that have not.
    having: int
    lacking: int

    @property
    def is_removable(self) -> bool:
        """Nobody that runs needs the old branch."""
        return self.lacking == 0


def patches(running: Iterable[ExportedExecution]) -> list[PatchUse]:
    """Say for each patch that a running execution has recorded how many of its workflow lack it."""
    totals: dict[tuple[str, str], int] = {}
    having: dict[tuple[str, str, str], int] = {}
    for one in running:
        begun = one.events[0].kind
        if not isinstance(begun, event_kinds.OrchestrationStarted):
            continue
        totals[begun.name, begun.version] = totals.get((begun.name, begun.version), 0) + 1
        for patch in {event.kind.id: None for event in one.events if isinstance(event.kind, event_kinds.PatchRecorded)}:
            key = (begun.name, begun.version, patch)
            having[key] = having.get(key, 0) + 1
    return [
        PatchUse(workflow=name, version=version, patch=patch, having=count, lacking=totals[name, version] - count)
        for (name, version, patch), count in sorted(having.items())
    ]
