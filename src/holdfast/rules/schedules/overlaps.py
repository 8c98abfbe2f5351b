"""Instances of a schedule: begun one at a time where overlap is not allowed. Decides who starts, and who is next.

A start that has to wait is parked, with nothing to drop it; it goes on in the commit that ends the one it waits for,
whatever ends it: a turn, a person, deletion.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import msgspec

from holdfast.model.command_base import Order
from holdfast.model.events import Event, MessageUnparked
from holdfast.model.ids import JobId, uuid5
from holdfast.model.payloads import NULL, laid_over
from holdfast.model.schedules import Overlap, Schedule
from holdfast.model.times import Timestamp
from holdfast.model.workflows.commands import NewMessage
from holdfast.model.workflows.work_items import StartOrchestration, encode_item, start_digest
from holdfast.rules.state import State
from holdfast.rules.workflows.messages import Post
from holdfast.rules.workflows.start import taken


def fire_id(schedule_id: str, fire_at: Timestamp, backfill_id: str = "") -> JobId:
    """Give the id of the job, or of the instance, of a nominal time."""
    return JobId(uuid5(schedule_id, fire_at, backfill_id))


def start_of(workflow: str, instance_id: str, params: msgspec.Raw) -> NewMessage:
    """Give the message that begins an instance; what admission works out for others is said here."""
    text = bytes(params).decode()
    item = StartOrchestration(instance=instance_id, orchestration=workflow, input=text)
    return NewMessage(
        item=msgspec.Raw(encode_item(item)),
        instance_id=instance_id,
        kind=type(item).__name__,
        orchestration=workflow,
        digest=start_digest(workflow, text),
    )


class Beginnings:
    """The instances one command begins for a schedule: they know of each other, although nothing is committed yet."""

    def __init__(self, state: State, schedule: Schedule, order: Order, now: Timestamp) -> None:
        self._state = state
        self._schedule = schedule
        self._post = Post(state, order, now)
        self._begun: str | None = None

    def _active(self) -> str | None:
        name = self._schedule.schedule_id
        return self._begun or active_instance(self._state, name) or self._state.active_of(name)

    def must_not_meet(self) -> str | None:
        """Give what is not over, and for which another instance is not begun at all; or None."""
        return self._active() if self._schedule.overlap is Overlap.SKIP else None

    def begin(self, instance_id: str, *, overlap: Overlap | None = None, params: msgspec.Raw = NULL) -> Sequence[Event]:
        """Begin an instance, or have it wait where instances of the schedule take turns."""
        schedule, before = self._schedule, len(self._post.events)
        assert schedule.workflow is not None
        waits = False
        if (overlap or schedule.overlap) is Overlap.QUEUE:
            waits = self._active() is not None or bool(self._state.held_by(schedule.schedule_id))
        start = start_of(schedule.workflow, instance_id, laid_over(schedule.param_overrides, params))
        self._post.send(start, schedule_id=schedule.schedule_id, waits=waits)
        self._begun = self._begun or instance_id
        return self._post.events[before:]


def active_instance(state: State, schedule_id: str, over: Collection[str] = ()) -> str | None:
    """Give an instance of a schedule that is not over, or None; those of `over` are, once this is committed."""
    return next((name for name in state.begun_by(schedule_id) if name not in over), None)


def next_in_line(
    state: State, schedule_ids: Collection[str | None], over: Collection[str], cmd: str
) -> Iterator[MessageUnparked]:
    """Let the next instance of each of these schedules begin, unless another is under way."""
    for schedule_id in dict.fromkeys(schedule_ids):
        if schedule_id is None or active_instance(state, schedule_id, over) is not None:
            continue
        waiting = next((start for start in state.held_by(schedule_id) if start.instance_id not in over), None)
        if waiting is not None:
            yield MessageUnparked(message=waiting.seq, cmd=cmd)


def latest_instance(state: State, schedule: Schedule) -> str | None:
    """Give the instance of the last fire, else one that is under way, or None."""
    if schedule.last_fire_at is not None:
        last = fire_id(schedule.schedule_id, schedule.last_fire_at)
        if taken(state, last) is not None:
            return last
    return active_instance(state, schedule.schedule_id)
