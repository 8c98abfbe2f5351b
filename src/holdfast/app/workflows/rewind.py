"""What a person does to an instance as a whole, as commands: reset, fork, fail. Reads, and writes nothing.

What may be done is decided by the rules, with the store as it is then; if the history went on since it was read here,
they refuse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from holdfast.app.workflows.history import readable
from holdfast.app.workflows.state import state_of
from holdfast.errors import HistoryCorrupt, InvalidOperation, InvalidValue
from holdfast.model.payloads import NULL
from holdfast.model.times import at_milliseconds
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.block_reasons import Blockage, blockage_of
from holdfast.model.workflows.commands import Again, FailInstance, ForkInstance, NewMessage, ResetInstance
from holdfast.model.workflows.history import REPAIR_EVENT_ID, Event, KvEntry, OrchestrationItem
from holdfast.model.workflows.instances import OVER, Execution, Instance, Turn, execution_key
from holdfast.model.workflows.work_items import ResumeInstance, SubOrchFailed, WorkItem, encode_item
from holdfast.stores.protocol import View
from holdfast.stores.sidecar.protocol import Blobs
from holdfast.workflows.determinism.history_match import demand_whole
from holdfast.workflows.provider.payloads import item_of, text_of
from holdfast.workflows.replay.fork import (
    before_failure,
    begun_anew,
    children_left,
    copied_for_fork,
    copied_for_reset,
    delivered_again,
    demand_event,
)
from holdfast.workflows.replay.import_history import delta, text_raw, wishes
from holdfast.workflows.replay.kv_carryover import began_with
from holdfast.workflows.runtime.completion import asked_in, end_by_hand
from holdfast.workflows.runtime.result import cancelled_details


class _Found:
    """An instance as it was read: as much of its current history as can be."""

    def __init__(self, view: View, blobs: Blobs, instance_id: str) -> None:
        """Read it. Raises WorkflowNotFound."""
        self.state = state_of(view, blobs, instance_id)
        self.instance = view.get(Instance, instance_id)
        self.execution = view.get(Execution, execution_key(instance_id, self.state.execution_id))
        rows = [] if self.execution is None else view.history(self.execution.history_id)
        self.events, self.behind, self.damage = readable(blobs, rows, self.state.execution_id)
        turn = view.get(Turn, instance_id)
        is_over = self.instance is not None and self.instance.status in OVER
        self.blocked: Blockage | None = None if turn is None or is_over else blockage_of(turn.reason)

    def begun(self) -> tuple[Instance, Execution]:
        """Give its records. Raises InvalidOperation if it has had no turn, or its payloads were taken out."""
        if self.instance is None or self.execution is None or not (self.events or self.damage):
            raise InvalidOperation(
                f"instance {self.state.id!r} has not begun: there is no history. Nothing was changed.",
                instance=self.state.id,
            )
        return self.instance, self.execution

    def up_to(self, to: int | None) -> Sequence[Event]:
        """Give the events that are copied. Raises InvalidValue for no event, HistoryCorrupt for no history."""
        instance, _ = self.begun()
        if self.damage is not None and (to is None or to > len(self.events)):
            raise HistoryCorrupt(
                f"instance {instance.instance_id!r}: {self.damage.message} Nothing was changed.",
                hint=f"Events 1-{len(self.events)} can be read: name the last one that is to be kept.",
                instance=instance.instance_id,
            )
        count = before_failure(self.events, self.blocked) if to is None else demand_event(self.events, to)
        copied = self.events[: max(1, count)]
        demand_whole(copied)
        first = copied[0].kind
        if isinstance(first, event_kinds.OrchestrationStarted) and first.redacted:
            raise InvalidOperation(
                f"instance {instance.instance_id!r} was imported from a redacted file: code cannot go on with what is "
                "left of its payloads. Nothing was changed.",
                instance=instance.instance_id,
            )
        return copied

    def keys(self, view: View, blobs: Blobs) -> dict[str, KvEntry]:
        """Give the keys its execution began with, as far as they are known."""
        instance, execution = self.begun()
        histories = {execution.execution_id: [*self.events, *self.behind]}
        for earlier in view.executions(instance.instance_id):
            if earlier.execution_id < execution.execution_id:
                events, _, damage = readable(blobs, view.history(earlier.history_id), earlier.execution_id)
                histories.update({} if damage is not None else {earlier.execution_id: events})
        present = {
            found.key: KvEntry(text_of(blobs, found.live) or "", found.delta_at_ms if found.touched else found.at_ms)
            for found in view.keys(instance.instance_id)
            if found.live != NULL
        }
        return began_with(histories, execution.execution_id, present)


def reset_command(
    view: View,
    blobs: Blobs,
    instance_id: str,
    *,
    to: int | None,
    now_ms: int,
    cmd: str,
    reason: str = "",
    actor: str = "",
) -> ResetInstance:
    """Have an instance go on from event `to`, by default from before the turn that failed.

    Raises WorkflowNotFound, InvalidOperation, InvalidValue, HistoryCorrupt.
    """
    found = _Found(view, blobs, instance_id)
    _, execution = found.begun()
    kept = found.up_to(to)
    number = execution.execution_id + 1
    copied = copied_for_reset(kept, number, now_ms)
    everything = [*found.events, *found.behind]
    given_up = f"it was reset to event {len(kept)}; execution {number} goes on"
    ended = Event(
        event_id=REPAIR_EVENT_ID,
        instance=instance_id,
        execution_id=execution.execution_id,
        timestamp_ms=max(now_ms, found.events[-1].timestamp_ms),
        kind=event_kinds.OrchestrationFailed(details=cancelled_details(given_up)),
    )
    # First of all, so that it is in the first batch whatever else waits.
    again = [_again(ResumeInstance(instance=instance_id, execution_id=number), copied[0].timestamp_ms)]
    again += [_again(item, at_ms) for item, at_ms in delivered_again(kept, everything[len(kept) :])]
    if not found.state.has_ended:
        again += [_again(stop) for stop in children_left(everything, copied)]
    return ResetInstance(
        instance_id=instance_id,
        history_id=execution.history_id,
        last_event_id=execution.last_event_id,
        until=len(kept),
        begins=delta(copied),
        ending=delta([ended]),
        output=text_raw(given_up),
        messages=tuple(again),
        keys=wishes(found.keys(view, blobs)),
        reason=reason,
        cmd=cmd,
        actor=actor,
    )


def fork_command(
    view: View,
    blobs: Blobs,
    instance_id: str,
    *,
    fork: str,
    to: int | None,
    given: str | None,
    now_ms: int,
    seed: int,
    cmd: str,
    actor: str = "",
) -> ForkInstance:
    """Begin instance `fork` with the history of another up to event `to`; with other input at its start.

    Raises WorkflowNotFound, InvalidOperation, InvalidValue, HistoryCorrupt.
    """
    if given is not None and to is not None:
        raise InvalidValue("with other input it begins at the start: leave the event out. Nothing was changed.")
    found = _Found(view, blobs, instance_id)
    _, execution = found.begun()
    if given is None:
        kept = found.up_to(to)
        copied = copied_for_fork(kept, fork, now_ms)
        keys = found.keys(view, blobs)
    else:
        kept = found.up_to(1)
        copied, keys = begun_anew(kept[0], fork, given, seed, now_ms), {}
    return ForkInstance(
        instance_id=instance_id,
        fork=fork,
        execution_id=execution.execution_id,
        until=len(kept),
        begins=delta(copied),
        messages=(_again(ResumeInstance(instance=fork, execution_id=1), copied[0].timestamp_ms),),
        keys=wishes(keys),
        cmd=cmd,
        actor=actor,
    )


def fail_command(
    view: View, blobs: Blobs, instance_id: str, *, reason: str, now_ms: int, cmd: str, actor: str = ""
) -> FailInstance:
    """End an instance that is blocked or damaged. Raises WorkflowNotFound."""
    found = _Found(view, blobs, instance_id)
    is_whole = bool(found.events) or found.damage is None
    item = OrchestrationItem(
        instance=instance_id,
        orchestration_name=found.state.workflow,
        execution_id=found.state.execution_id,
        version=found.state.version or "unknown",
        history=tuple(found.events),
        messages=tuple(_mail(view, blobs, instance_id)),
        history_error=None if is_whole else str(found.damage),
    )
    commit = end_by_hand(item, reason or "it was ended by hand", now_ms)
    told = list(commit.orchestrator_items)
    end = commit.history_delta[-1].kind
    if not is_whole and isinstance(end, event_kinds.OrchestrationFailed):
        told += _told_without_start(view, blobs, found, end)
    same = found.execution is not None and commit.execution_id == found.execution.execution_id
    return FailInstance(
        instance_id=instance_id,
        execution_id=commit.execution_id,
        last_event_id=found.execution.last_event_id if same and found.execution is not None else 0,
        ending=delta(commit.history_delta),
        output=text_raw(commit.metadata.output or ""),
        messages=tuple(_message(one) for one in told),
        damaged=found.damage is not None,
        cmd=cmd,
        actor=actor,
    )


def _mail(view: View, blobs: Blobs, instance_id: str) -> list[WorkItem]:
    """Give what waits for an instance, as far as it can be read."""
    found: list[WorkItem] = []
    for message in view.mail(instance_id):
        try:
            found += [item_of(blobs, message.item)] if message.parked is None else []
        except HistoryCorrupt:
            continue
    return found


def _told_without_start(
    view: View, blobs: Blobs, found: _Found, end: event_kinds.OrchestrationFailed
) -> list[WorkItem]:
    """Tell the parent of an instance whose first event cannot be read; which call it was, the parent's history says."""
    above = None if found.state.parent is None else view.get(Instance, found.state.parent)
    if above is None:
        return []
    number = above.current_execution_id
    execution = view.get(Execution, execution_key(above.instance_id, number))
    rows = () if execution is None else view.history(execution.history_id)
    # As far as that can be read: a parent that is damaged itself must not keep its child from ending.
    before, behind, _ = readable(blobs, list(rows), number)
    asked: Mapping[int, Event] = asked_in([*before, *behind])
    return [
        SubOrchFailed(
            parent_instance=above.instance_id,
            parent_execution_id=event.execution_id,
            parent_id=event.event_id,
            details=end.details,
        )
        for event in asked.values()
        if isinstance(event.kind, event_kinds.SubOrchestrationScheduled) and event.kind.instance == found.state.id
    ]


def _message(item: WorkItem) -> NewMessage:
    return NewMessage(item=msgspec.Raw(encode_item(item)))


def _again(item: WorkItem, at_ms: int | None = None) -> Again:
    return Again(message=_message(item), at=None if at_ms is None else at_milliseconds(at_ms))
