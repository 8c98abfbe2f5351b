"""What an execution waits for, in words, for `explain` and for differences.

Not all of it: a turn's cost must not grow with a fan-out.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING

from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.event_kinds import AnyKind
from holdfast.model.workflows.history import Event
from holdfast.workflows.determinism.history_match import describe_event, describe_step

if TYPE_CHECKING:
    from holdfast.workflows.runtime.execution import Execution

#: Lines; more are counted only.
MAX_WAITING = 20


def waiting_on(execution: Execution) -> tuple[str, ...]:
    """Say what it waits for, one line each."""
    lines: list[str] = []
    if execution.open or execution.timers:
        lines += islice(chain(_asked(execution), _timers(execution)), MAX_WAITING)
    lines += [describe_step(step.step_no, step.name) for step in islice(execution.steps.values(), MAX_WAITING)]
    total = len(execution.open) + len(execution.timers) + len(execution.steps)
    if total > MAX_WAITING:
        lines[MAX_WAITING:] = [f"and {total - MAX_WAITING} more"]
    names = execution.mailboxes.awaited()[:MAX_WAITING]
    if names:
        lines += [f"signal {name!r}" for name in names]
        lines += [line for name in names if (line := _rejected(execution, name)) is not None]
    return tuple(lines)


def _rejected(execution: Execution, name: str) -> str | None:
    found = execution.mailboxes.rejected(name)
    return None if found is None else f"set aside: {found[0]} of signal {name!r}, the last one because {found[1]:.200}"


def idle_words(execution: Execution) -> str:
    """Word what the code does when it gives no command: it has ended, or waits."""
    if execution.terminal is not None:
        return describe_event(
            Event(event_id=0, instance="", execution_id=0, timestamp_ms=execution.now_ms, kind=execution.terminal)
        )
    waiting = waiting_on(execution)
    return f"nothing; it waits for {', '.join(waiting[:3])}" if waiting else "nothing"


def _asked(execution: Execution) -> Iterator[str]:
    for event_id, opened in execution.open.items():
        yield _line(event_id, opened.kind)


def _timers(execution: Execution) -> Iterator[str]:
    for event_id, timer in execution.timers.items():
        yield f"timer {event_id} until {timer.fire_at_ms}"


def _line(event_id: int, kind: AnyKind) -> str:
    match kind:
        case event_kinds.ActivityScheduled():
            return f"activity {event_id} {kind.name!r}"
        case event_kinds.SubOrchestrationScheduled():
            return f"child {kind.name!r} {kind.instance!r}"
        case event_kinds.DecisionRequested():
            return f"decision {event_id} {kind.prompt!r:.200}"
        case _:
            return type(kind).__name__
