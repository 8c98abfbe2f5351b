"""Ack: everything a turn decided, in one commit. History, jobs, messages and the freed lock go down together.

What is in a history already is never read, so that the cost is that of the new events alone and a damaged history can
still get its last event. Order: the instance and its execution, then the events, new jobs, then those cancelled (one
may be both), then messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from holdfast.errors import InvalidOperation, InvalidValue
from holdfast.model.command_base import Order
from holdfast.model.events import (
    Closed,
    Event,
    HistoryAppended,
    InstancePruned,
    KeyChange,
    MessageDropped,
    TurnCommitted,
)
from holdfast.model.outcomes import Done, Refusal, refuse
from holdfast.model.payloads import NULL
from holdfast.model.times import Timestamp, later
from holdfast.model.workflows.commands import AckTurn, AppendHistory, Delta, Metadata
from holdfast.model.workflows.history import Status
from holdfast.model.workflows.instances import (
    MAX_KEYS,
    OVER,
    UNNAMED,
    Execution,
    HistoryRow,
    Instance,
    InstanceStatus,
    Message,
    Turn,
    execution_key,
    history_key,
    message_key,
)
from holdfast.rules.decision import Decision, answer
from holdfast.rules.schedules.overlaps import next_in_line
from holdfast.rules.state import State
from holdfast.rules.workflows.activities import cancel_activities, create_activities
from holdfast.rules.workflows.messages import Post
from holdfast.rules.workflows.turns import demand_free, live

#: Old executions that one commit forgets.
FORGOTTEN = 100
_ENDED_CLOSED = msgspec.Raw(b'{"by":"ended"}')
_DONE = Done()


def decide_ack(state: State, command: AckTurn, now: Timestamp) -> Decision:
    """Commit a turn for the instance its lock is for, whatever the events say."""
    turn = live(state, command.token, now)
    if isinstance(turn, Refusal):
        return answer(turn)
    commit = Commit(state, turn.instance_id, command.execution_id, command)
    problem = commit.problem(command.delta, command.metadata)
    if problem is not None:
        return answer(problem)
    accounted = _accounted(commit, command, turn)
    if isinstance(accounted, Refusal):
        return answer(accounted)
    kept, dropped = accounted
    keys = commit.keys(command.delta)
    if isinstance(keys, Refusal):
        return answer(keys)
    held_until = turn.locked_until if command.keep else None
    if command.hold_s is not None:
        held_until = later(now, command.hold_s)
    committed = commit.event(command.delta, command.metadata, turn, keys, held_until)
    if kept:
        committed = msgspec.structs.replace(committed, kept=kept)
    over = commit.ends(command.metadata) and committed.status in OVER
    if over and command.metadata.retention_s is not None:
        committed = msgspec.structs.replace(committed, keep_until=later(now, command.metadata.retention_s))
    jobs = create_activities(state, command.activities, command, now) if command.activities else []
    if isinstance(jobs, Refusal):
        return answer(jobs)
    # Most commits are those of a step, and have events only.
    events: list[Event] = [*dropped, committed, *commit.appended(command.delta), *jobs]
    if command.cancelled:
        events += cancel_activities(state, command.cancelled, jobs, command)
    if command.messages:
        events += _posted(state, command, commit, turn, now)
    if command.cancelled_timers:
        events += _stopped_timers(state, command, turn)
    if command.metadata.keep_executions is not None:
        events += _outdated(state, commit, command)
    if over:
        events += next_in_line(state, (commit.schedule_id(turn),), (turn.instance_id,), command.cmd)
    return Decision(tuple(events), _DONE)


def _accounted(
    commit: Commit, command: AckTurn, turn: Turn
) -> tuple[tuple[int, ...], Sequence[MessageDropped]] | Refusal:
    """List the messages of the lock that stay, and those that go without being recorded: their senders may look.

    Refuse an ack that takes a message out of the queue without an event that records it, or a reason for none.
    """
    if command.handled is None:
        return (), _too_late(commit, command, turn)
    if not command.handled:
        return turn.messages, ()
    left, recorded = dict.fromkeys(turn.messages), {new.event_id for new in command.delta.events}
    dropped: list[MessageDropped] = []
    for one in command.handled:
        if one.message not in left:
            problem = f"message {one.message} is not, or no longer, held by this lock. Nothing was committed."
            return refuse(InvalidOperation, problem, instance=turn.instance_id, message_number=one.message)
        del left[one.message]
        if one.event_id is None and one.reason:
            dropped.append(MessageDropped(message=one.message, reason=one.reason, cmd=command.cmd))
        elif one.event_id not in recorded:
            problem = f"message {one.message} would be lost: no event of this commit records it. Nothing was committed."
            return refuse(InvalidOperation, problem, instance=turn.instance_id, message_number=one.message)
    return tuple(left), dropped


def _too_late(commit: Commit, command: AckTurn, turn: Turn) -> list[MessageDropped]:
    """Tell of each message that came when its instance had ended: nobody reads it, and its sender may look for it."""
    if command.delta.events or commit.instance is None or commit.instance.status not in OVER:
        return []
    return [MessageDropped(message=seq, reason="ended", cmd=command.cmd) for seq in turn.messages]


def _outdated(state: State, commit: Commit, command: AckTurn) -> Iterator[Event]:
    """Forget the oldest executions where a new one begins, so that one that goes on for ever does not grow for ever."""
    most = command.metadata.keep_executions
    if most is None or commit.instance is None or commit.execution is not None:
        return
    having = state.executions(commit.instance_id)
    old = [one.execution_id for one in having[: max(0, len(having) + 1 - most)] if one.completed_at is not None]
    if old:
        yield InstancePruned(instance_id=commit.instance_id, executions=tuple(old[:FORGOTTEN]), cmd=command.cmd)


def decide_append(state: State, command: AppendHistory, now: Timestamp) -> Decision:
    """Write events into a history by hand; for import and repair."""
    refusal = demand_free(state, command.instance_id, now)
    if refusal is not None:
        return answer(refusal)
    commit = Commit(state, command.instance_id, command.execution_id, command)
    problem = commit.problem(command.delta, Metadata())
    if problem is not None:
        return answer(problem)
    events: list[Event] = list(commit.appended(command.delta))
    if commit.execution is None:
        events.insert(0, commit.event(command.delta, Metadata(), None, (), None))
    return answer(Done(), *events)


def _posted(state: State, command: AckTurn, commit: Commit, turn: Turn, now: Timestamp) -> Sequence[Event]:
    """Send messages; timers that are stopped by the same commit never come to be. What it starts is its starter's."""
    post = Post(state, command, now, known=(turn.instance_id,))
    stopped = set(command.cancelled_timers)
    starts = any(new.orchestration is not None for new in command.messages)
    submitted_by = commit.submitted_by(turn) if starts else None
    for new in command.messages:
        own = new.instance_id == turn.instance_id and new.execution_id == command.execution_id
        if not (own and new.event_id in stopped):
            post.send(new, at=new.fire_at, submitted_by=submitted_by)
    return post.events


def _stopped_timers(state: State, command: AckTurn, turn: Turn) -> Iterator[Event]:
    """Drop timers that nobody waits for, so that they do not wake the instance weeks later."""
    for event_id in command.cancelled_timers:
        for message in state.timers(turn.instance_id, command.execution_id, event_id):
            if message.seq not in turn.messages:
                yield MessageDropped(message=message.seq, reason="cancelled", cmd=command.cmd)


class Commit:
    """What becomes of an instance and one of its executions."""

    def __init__(self, state: State, instance_id: str, execution_id: int, order: Order) -> None:
        self.state = state
        self.order = order
        self.instance_id = instance_id
        self.execution_id = execution_id
        self.instance = state.get(Instance, instance_id)
        self.execution = state.get(Execution, execution_key(instance_id, execution_id))

    def problem(self, delta: Delta, metadata: Metadata) -> Refusal | None:
        """Say what cannot be committed: an id that is taken, another end than the one there was."""
        seen: set[int] = set()
        highest = 0 if self.execution is None else self.execution.last_event_id
        for new in delta.events:
            if new.event_id < 1:
                return refuse(InvalidValue, "event_id must be >= 1", field="event_id")
            if new.event_id in seen or (new.event_id <= highest and self._has(new.event_id)):
                where = f"Duplicate event_id {new.event_id} in execution {self.execution_id}"
                return refuse(InvalidOperation, where, instance=self.instance_id, event_id=new.event_id)
            seen.add(new.event_id)
        ended = self._ended_as()
        if ended is not None and metadata.status not in (None, ended):
            where = f"execution {self.execution_id} has already ended as {Status[ended.name]}"
            return refuse(InvalidOperation, where, instance=self.instance_id)
        return None

    def _has(self, event_id: int) -> bool:
        assert self.execution is not None
        return self.state.get(HistoryRow, history_key(self.execution.history_id, event_id)) is not None

    def _ended_as(self) -> InstanceStatus | None:
        ended = self.execution is not None and self.execution.status is not InstanceStatus.RUNNING
        return self.execution.status if ended and self.execution is not None else None

    def schedule_id(self, turn: Turn | None) -> str | None:
        """Give the schedule that began the instance, or begins it with this turn."""
        if self.instance is not None:
            return self.instance.schedule_id
        start = self._start(turn)
        return None if start is None else start.schedule_id

    def submitted_by(self, turn: Turn | None) -> str | None:
        """Give the access token that started the instance, or starts it with this turn."""
        if self.instance is not None:
            return self.instance.submitted_by
        start = self._start(turn)
        return None if start is None else start.submitted_by

    def ends(self, metadata: Metadata) -> bool:
        """Tell whether the execution ends with what is said of it."""
        return metadata.status not in (None, InstanceStatus.RUNNING) and self._ended_as() is None

    def event(
        self,
        delta: Delta,
        metadata: Metadata,
        turn: Turn | None,
        keys: tuple[KeyChange, ...],
        held_until: Timestamp | None,
    ) -> TurnCommitted:
        """Give the event that makes or changes the records."""
        instance = self.instance
        start = self._start(turn) if instance is None else None
        if instance is not None:
            name = metadata.orchestration_name or instance.orchestration_name
            version = metadata.orchestration_version or instance.orchestration_version
            parent, digest = instance.parent_instance_id, None
        else:
            said = None if start is None else start.orchestration
            name = metadata.orchestration_name or delta.orchestration_name or said or UNNAMED
            said = None if start is None else start.version
            version = metadata.orchestration_version or delta.orchestration_version or said
            said = None if start is None else start.parent_instance_id
            parent = metadata.parent_instance_id or delta.parent_instance_id or said
            digest = delta.digest if start is None else start.digest
        running = InstanceStatus.RUNNING if self.execution is None else self.execution.status
        ends = self.ends(metadata)
        return TurnCommitted(
            instance_id=self.instance_id,
            execution_id=self.execution_id,
            token=None if turn is None else turn.token,
            orchestration_name=name,
            orchestration_version=version,
            parent_instance_id=parent,
            digest=digest,
            schedule_id=None if start is None else start.schedule_id,
            submitted_by=None if start is None else start.submitted_by,
            status=metadata.status or running,
            output=metadata.output,
            pinned_engine_version=metadata.pinned_engine_version,
            waiting_on=metadata.waiting_on,
            said=delta.said,
            custom_status=delta.custom_status,
            keys=keys,
            kept_keys=tuple(self._touched(keys)) if ends else (),
            asked=delta.asked,
            closed=(*delta.closed, *self.left_open(delta)) if ends else delta.closed,
            held_until=held_until,
            cmd=self.order.cmd,
            actor=self.order.actor,
        )

    def _start(self, turn: Turn | None) -> Message | None:
        """Give the first message of a turn that begins an execution."""
        found = (self.state.get(Message, message_key(seq)) for seq in (turn.messages if turn is not None else ()))
        return next((message for message in found if message is not None and message.is_start), None)

    def appended(self, delta: Delta) -> list[HistoryAppended]:
        """Give one event of the feed for each of the history."""
        return [
            HistoryAppended(
                instance_id=self.instance_id,
                execution_id=self.execution_id,
                event_id=new.event_id,
                event=new.event,
                cmd=self.order.cmd,
                actor=self.order.actor,
            )
            for new in delta.events
        ]

    # --- keys and questions -----------------------------------------------------------------------------------------

    def keys(self, delta: Delta) -> tuple[KeyChange, ...] | Refusal:
        """Give what the events make of the keys, each once; or refuse one key too many."""
        if not delta.keys:
            return ()
        there = {} if self.instance is None else {one.key: one.live for one in self.state.keys(self.instance_id)}
        changes: dict[str, KeyChange] = {}
        for wish in delta.keys:
            if wish.key is None:
                named = {**there, **{key: change.value for key, change in changes.items()}}
                changes.update({key: KeyChange(key) for key, value in named.items() if value != NULL})
            else:
                changes[wish.key] = KeyChange(wish.key, wish.value, wish.at_ms)
        live_keys = {**there, **{key: change.value for key, change in changes.items()}}
        count = sum(value != NULL for value in live_keys.values())
        if count > MAX_KEYS:
            too_many = f"instance {self.instance_id!r} would have {count} keys; at most {MAX_KEYS} are kept"
            return refuse(InvalidValue, too_many, instance=self.instance_id, field="key")
        return tuple(changes.values())

    def _touched(self, keys: tuple[KeyChange, ...]) -> Iterator[str]:
        """Name the keys that the execution has changed, in this turn or before."""
        now = [change.key for change in keys]
        if self.instance is None:
            return iter(now)
        before = (found.key for found in self.state.keys(self.instance_id) if found.touched)
        return iter(dict.fromkeys([*now, *before]))

    def left_open(self, delta: Delta) -> Iterator[Closed]:
        """Close the questions that nobody will read an answer to."""
        done = {closed.decision_id for closed in delta.closed}
        asked = [question.decision_id for question in delta.asked]
        there = () if self.instance is None else self.state.decisions(self.instance_id)
        before = (found.decision_id for found in there if found.closed_at is None)
        for decision in dict.fromkeys([*asked, *before]):
            if decision not in done:
                yield Closed(decision, _ENDED_CLOSED)
