"""`replay`: run a workflow's code along a recorded history. No store, no worker, no side effects."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CoroutineType, FrameType
from typing import Any

import msgspec

from holdfast.app.tasks.signature_codec import SignatureCodec
from holdfast.app.workflows.handle import Instance
from holdfast.errors import HistoryCorrupt, InvalidValue
from holdfast.model.error_details import ErrorDetails
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.history import Event
from holdfast.workflows.api.definitions import Definition, Definitions
from holdfast.workflows.api.workflow import Workflow
from holdfast.workflows.determinism.guard import Guard
from holdfast.workflows.determinism.history_match import describe_event, is_command
from holdfast.workflows.replay.export import ExportedExecution, HistoryFile, read_file
from holdfast.workflows.replay.fork import demand_event
from holdfast.workflows.runtime.execution import Execution
from holdfast.workflows.runtime.wait_description import waiting_on


class ReplayResult(msgspec.Struct, frozen=True, kw_only=True):
    """Where a history leads its code."""

    #: What it returned; None if it did not, or not yet.
    output: Any = None
    #: What it failed with.
    error: ErrorDetails | None = None
    #: What the code asked for, in order, in words; beyond the end of the history, too.
    commands: tuple[str, ...] = ()
    #: What it waits for now, in words.
    pending: tuple[str, ...] = ()
    #: Changes that matter to nobody but should be known.
    notes: tuple[str, ...] = ()


def replay(
    history: Sequence[Event] | str | Path | Instance[Any], workflow: Workflow[..., Any], *, until: int | None = None
) -> ReplayResult:
    """Replay a history, that of a run, or the newest one of an exported file, up to event `until`, with this code.

    The code is used whatever version was recorded. Raises NondeterminismError if it does not do what the history says,
    HistoryCorrupt if it is no history.
    """
    definitions = Definitions(SignatureCodec)
    definitions.guard = Guard()
    if isinstance(history, Instance):
        history = history.history()
    if isinstance(history, str | Path):
        file = read_file(Path(history).read_bytes(), str(history))
        return _replay(file.executions[-1], workflow.definition, definitions, until, is_redacted=file.redacted)
    if not history:
        raise HistoryCorrupt("there is no history to replay: no turn has been run. Nothing was done.")
    one = ExportedExecution(execution_id=history[0].execution_id, events=tuple(history))
    return _replay(one, workflow.definition, definitions, until)


def replay_file(
    file: HistoryFile,
    definitions: Definitions,
    *,
    until: int | None = None,
    pause: Callable[[FrameType], None] | None = None,
) -> ReplayResult:
    """Replay the newest history of a file with the code of its version; `pause` is called where the code stands then.

    Raises InvalidValue if there is no such code or event, or none of the code is left to look at, and what `replay`
    raises.
    """
    definition = definitions.get(file.workflow, file.version)
    if definition is None:
        raise InvalidValue(f"there is no workflow {file.workflow!r} {file.version} in this code. Nothing was done.")
    with definitions.guarded_by(Guard()):
        return _replay(file.executions[-1], definition, definitions, until, is_redacted=file.redacted, pause=pause)


def _replay(
    one: ExportedExecution,
    definition: Definition,
    definitions: Definitions,
    until: int | None,
    *,
    is_redacted: bool = False,
    pause: Callable[[FrameType], None] | None = None,
) -> ReplayResult:
    if until is not None:
        demand_event(one.events, until)
    events = [event for event in one.events if until is None or event.event_id <= until]
    if is_redacted:
        # Payloads were taken out: what the code gives and ends with cannot be the same.
        definition = dataclasses.replace(definition, compare_inputs=False)
        events = [event for event in events if not isinstance(event.kind, event_kinds.TERMINAL)]
    execution = Execution(definition, definitions, events[0].instance, one.execution_id, one.kv)
    try:
        execution.replay(events)
        if pause is not None:
            pause(_standing(execution))
        if execution.blocked is not None:
            raise execution.blocked
        end = execution.terminal
        given = [*filter(is_command, events), *execution.outbox.events]
        return ReplayResult(
            output=msgspec.json.decode(end.output) if isinstance(end, event_kinds.OrchestrationCompleted) else None,
            error=end.details if isinstance(end, event_kinds.OrchestrationFailed) else None,
            commands=tuple(map(describe_event, given)),
            pending=() if end is not None else waiting_on(execution),
            notes=tuple(execution.notes),
        )
    finally:
        execution.close(clean_up=False)


#: Where frames are that no author of a workflow wants to see.
_OURS = (str(Path(__file__).parents[1]), str(Path(asyncio.__file__).parent), threading.__file__)


def _standing(execution: Execution) -> FrameType:
    """Give the innermost frame of the workflow's own code that waits for something. Raises InvalidValue if none does.

    That of an `async def` is found along what it awaits, that of a `def` in the thread that stands still.
    """
    frames = _in_thread(execution.thread_id) if execution.definition.is_blocking else _awaiting(execution)
    found = [frame for frame in frames if not frame.f_code.co_filename.startswith(_OURS)]
    if not found:
        raise InvalidValue(
            f"instance {execution.instance!r}: its code has come to its end by then. Nothing was done.",
            hint="Stop behind an earlier event: --until EVENT.",
        )
    return found[-1]


def _awaiting(execution: Execution) -> Iterator[FrameType]:
    """Walk the frames of coroutines, outermost first."""
    waiting: Any = execution.main_coroutine
    while isinstance(waiting, CoroutineType):
        frame: FrameType | None = waiting.cr_frame
        if frame is not None:
            yield frame
        waiting = waiting.cr_await


def _in_thread(ident: int | None) -> list[FrameType]:
    """Give the frames of a thread, outermost first."""
    frame = sys._current_frames().get(ident or 0)  # noqa: SLF001 - there is no public way to another thread's frames
    frames: list[FrameType] = []
    while frame is not None:
        frames.insert(0, frame)
        frame = frame.f_back
    return frames
