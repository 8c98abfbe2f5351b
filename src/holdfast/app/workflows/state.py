"""What is known of an instance from outside: its record, what it published, what blocks it. Runs no code of it.

A start whose first turn nobody has run yet is told as an instance that runs.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.errors import HistoryCorrupt, HoldfastError, InvalidArguments, WorkflowCodeError, WorkflowNotFound
from holdfast.model.error_details import CODE_ERROR, CORRUPT, NONDETERMINISM
from holdfast.model.times import Timestamp
from holdfast.model.workflows.block_reasons import blockage_of
from holdfast.model.workflows.instances import OVER, Instance, InstanceStatus, Turn
from holdfast.rules.state import State
from holdfast.rules.workflows.instances import effective_status
from holdfast.stores.sidecar.protocol import Blobs
from holdfast.workflows.determinism.history_match import nondeterminism_of
from holdfast.workflows.provider.payloads import text_of


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """The instance waits for other code; rolling the code back or forward heals it."""

    #: Nondeterminism, HistoryCorrupt or Input.
    kind: str
    text: str
    since: Timestamp


class InstanceState(msgspec.Struct, frozen=True, kw_only=True):
    """An instance as it is now."""

    id: str
    workflow: str
    #: None: the first turn has not been run.
    version: str | None
    status: InstanceStatus
    execution_id: int
    #: What it says of itself, and how often it has said something.
    custom_status: Any
    custom_status_version: int
    #: One line for each thing it waits for.
    waiting_on: tuple[str, ...]
    blocked: Blocked | None
    created_at: Timestamp
    updated_at: Timestamp
    completed_at: Timestamp | None
    #: The instance that called it.
    parent: str | None
    #: The instance whose history it began with, and those that began with its own.
    forked_from: str | None = None
    forks: tuple[str, ...] = ()
    #: The access token that started it, or the instance above it; None: somebody of the machine, or a schedule.
    submitted_by: str | None = None
    #: Whether its first turn has been run; until then it waits for a worker or its time.
    has_begun: bool = True

    @property
    def has_ended(self) -> bool:
        """Tell whether it is over."""
        return self.status in OVER


def state_of(view: State, blobs: Blobs, instance_id: str) -> InstanceState:
    """Give an instance as it is now. Raises WorkflowNotFound."""
    record = view.get(Instance, instance_id)
    if record is None and (awaited := _awaited(view, instance_id)) is not None:
        return awaited
    # Of a coordinator each look is one of its own: it may have begun in between.
    record = record or view.get(Instance, instance_id)
    if record is None:
        raise WorkflowNotFound(f"there is no instance {instance_id!r}.", instance=instance_id)
    text = text_of(blobs, record.custom_status)
    return InstanceState(
        id=instance_id,
        workflow=record.orchestration_name,
        version=record.orchestration_version,
        status=effective_status(view, record),
        execution_id=record.current_execution_id,
        custom_status=None if text is None else msgspec.json.decode(text),
        custom_status_version=record.custom_status_version,
        waiting_on=record.waiting_on or (),
        blocked=None if record.status in OVER else _blocked(view, instance_id),
        created_at=record.created_at,
        updated_at=record.updated_at,
        completed_at=record.completed_at,
        parent=record.parent_instance_id,
        forked_from=record.forked_from,
        forks=record.forks,
        submitted_by=record.submitted_by,
    )


def _awaited(view: State, instance_id: str) -> InstanceState | None:
    start = next((one for one in view.beginnings(instance_id) if one.is_to_begin), None)
    if start is None or start.orchestration is None:
        return None
    return InstanceState(
        id=instance_id,
        workflow=start.orchestration,
        version=start.version,
        status=InstanceStatus.RUNNING,
        execution_id=1,
        custom_status=None,
        custom_status_version=0,
        waiting_on=(),
        blocked=_blocked(view, instance_id),
        created_at=start.stored_at,
        updated_at=start.stored_at,
        completed_at=None,
        parent=start.parent_instance_id,
        submitted_by=start.submitted_by,
        has_begun=False,
    )


def _blocked(view: State, instance_id: str) -> Blocked | None:
    turn = view.get(Turn, instance_id)
    blockage = None if turn is None else blockage_of(turn.reason)
    if turn is None or blockage is None or turn.reason_at is None:
        return None
    return Blocked(kind=blockage.kind, text=blockage.text, since=turn.reason_at)


def error_of(instance_id: str, blocked: Blocked) -> HoldfastError:
    """Give what blocks an instance as an exception."""
    if blocked.kind == NONDETERMINISM:
        return nondeterminism_of(blocked.text, instance_id)
    if blocked.kind == CODE_ERROR:
        message = blocked.text.removesuffix(f"\n  {WorkflowCodeError.default_hint}")
        return WorkflowCodeError(message, instance=instance_id)
    if blocked.kind == CORRUPT:
        hint = f"End it with `holdfast workflows fail {instance_id}`, or restore the store from a copy."
        return HistoryCorrupt(f"instance {instance_id!r} is blocked: {blocked.text}", hint=hint, instance=instance_id)
    return InvalidArguments(
        f"instance {instance_id!r} is blocked: {blocked.text}",
        hint="Its input no longer fits the function: register a new version, or change it back.",
        instance=instance_id,
    )
