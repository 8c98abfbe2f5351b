"""Fold of workflow instances: what their events make of the records. The events say it all.

A history is only ever added to: an event of it is one new row, and the counts of its execution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from holdfast.model import events as ev
from holdfast.model.ids import Token
from holdfast.model.payloads import NULL, ref_in
from holdfast.model.records import AUTHORITY, Authority, pair
from holdfast.model.workflows.decisions import Decision
from holdfast.model.workflows.instances import (
    OVER,
    Affinity,
    Execution,
    HistoryRow,
    Instance,
    InstanceStatus,
    KeyValue,
    Message,
    Turn,
    execution_key,
    history_key,
    message_key,
)
from holdfast.rules.fold_changes import Change, Stamp, contradiction, demand, put
from holdfast.rules.state import State

replace = msgspec.structs.replace


# --- messages ---------------------------------------------------------------------------------------------------------


def _stored(state: State, event: ev.MessageStored, stamp: Stamp) -> list[Change]:
    message = Message(
        seq=stamp.seq,
        instance_id=event.instance_id,
        kind=event.kind,
        item=event.item,
        # The times of events never go back, and so do the places of messages that were not delayed.
        due_at=event.due_at or stamp.ts,
        stored_at=stamp.ts,
        visible_at=event.visible_at,
        parked=event.parked,
        drop_at=event.drop_at,
        orchestration=event.orchestration,
        version=event.version,
        parent_instance_id=event.parent_instance_id,
        execution_id=event.execution_id,
        event_id=event.event_id,
        digest=event.digest,
        schedule_id=event.schedule_id,
        submitted_by=event.submitted_by,
    )
    woken = [put(replace(_message(state, seq, stamp), visible_at=None)) for seq in event.woken]
    return [Change(Message, message_key(stamp.seq), message), *woken]


def _parked(state: State, event: ev.MessageParked, stamp: Stamp) -> list[Change]:
    message = _message(state, event.message, stamp)
    return [put(replace(message, parked=event.reason, drop_at=event.drop_at)), *_untagged(state, message, stamp)]


def _untagged(state: State, message: Message, stamp: Stamp) -> list[Change]:
    """Take a message from whoever it was handed out to: no commit of theirs is about it."""
    turn = state.get(Turn, message.instance_id)
    if turn is None or message.seq not in turn.messages:
        return []
    left = tuple(seq for seq in turn.messages if seq != message.seq)
    return [put(replace(turn, messages=left, seq=stamp.seq))]


def _unparked(state: State, event: ev.MessageUnparked, stamp: Stamp) -> list[Change]:
    return [put(replace(_message(state, event.message, stamp), parked=None, drop_at=None))]


def _dropped(state: State, event: ev.MessageDropped, stamp: Stamp) -> list[Change]:
    message = _message(state, event.message, stamp)
    return [Change(Message, message_key(event.message), None), *_untagged(state, message, stamp)]


# --- turns ------------------------------------------------------------------------------------------------------------


def _locked(state: State, event: ev.TurnLocked, stamp: Stamp) -> list[Change]:
    before = state.get(Turn, event.instance_id)
    if before is not None and before.locked_until is not None:
        raise contradiction(stamp, f"instance {event.instance_id!r} is locked while it is held")
    authority = state.get(Authority, AUTHORITY) or Authority()
    if event.token <= authority.last_token:
        raise contradiction(stamp, f"token {event.token} does not exceed {authority.last_token}")
    turn = Turn(
        instance_id=event.instance_id,
        seq=stamp.seq,
        token=event.token,
        locked_until=event.locked_until,
        locked_at=stamp.ts,
        messages=event.messages,
        session_id=event.session_id,
        cmd=event.cmd,
        reason=None if before is None else before.reason,
        reason_at=None if before is None else before.reason_at,
    )
    return [put(turn), Change(Authority, AUTHORITY, replace(authority, last_token=event.token))]


def _tagged(state: State, event: ev.TurnTagged, stamp: Stamp) -> list[Change]:
    turn = _held(state, event.instance_id, event.token, stamp)
    return [put(replace(turn, messages=(*turn.messages, *event.messages), seq=stamp.seq))]


def _extended(state: State, event: ev.TurnExtended, stamp: Stamp) -> list[Change]:
    turn = _held(state, event.instance_id, event.token, stamp)
    return [put(replace(turn, locked_until=event.locked_until, seq=stamp.seq))]


def _abandoned(state: State, event: ev.TurnAbandoned, stamp: Stamp) -> list[Change]:
    turn = state.get(Turn, event.instance_id)
    if turn is None or turn.token != event.token:
        raise contradiction(stamp, f"instance {event.instance_id!r} is given back with token {event.token}")
    changes = [
        put(replace(message, visible_at=event.visible_at, attempts=message.attempts + event.counted))
        for message in _handed_out(state, turn, stamp)
    ]
    changes += [put(replace(_message(state, seq, stamp), visible_at=event.visible_at)) for seq in event.woken]
    if event.reason is None:
        return [*changes, Change(Turn, turn.instance_id, None)]
    # The same reason again: it holds since it was first given.
    since = turn.reason_at if turn.reason == event.reason else None
    given = Turn(turn.instance_id, stamp.seq, reason=event.reason, reason_at=since or stamp.ts)
    return [*changes, put(given)]


def _turn_expired(state: State, event: ev.TurnExpired, stamp: Stamp) -> list[Change]:
    turn = _held(state, event.instance_id, event.token, stamp)
    counted = [
        put(replace(message, attempts=message.attempts + 1))
        for message in (_handed_out(state, turn, stamp) if event.counted else ())
    ]
    # The token stays for whoever held it: they learn that they were late, not that they were never there.
    late = replace(turn, locked_until=None, messages=(), session_id=None, cmd="", seq=stamp.seq)
    woken = [put(replace(_message(state, seq, stamp), visible_at=None)) for seq in event.woken]
    return [*counted, *woken, put(late)]


def _committed(state: State, event: ev.TurnCommitted, stamp: Stamp) -> list[Change]:
    changes: list[Change] = []
    if event.token is not None:
        turn = _held(state, event.instance_id, event.token, stamp)
        kept = event.kept
        changes += [Change(Message, message_key(seq), None) for seq in turn.messages if seq not in kept]
        if event.held_until is None:
            changes.append(Change(Turn, turn.instance_id, None))
        elif event.held_until != turn.locked_until or turn.messages != kept or turn.reason is not None:
            held = replace(
                turn, locked_until=event.held_until, messages=kept, reason=None, reason_at=None, seq=stamp.seq
            )
            changes.append(Change(Turn, held.instance_id, held))
    changes += [Change(Instance, event.instance_id, _instance(state, event, stamp)), *_execution(state, event, stamp)]
    if event.keys or event.kept_keys:
        changes += _keys(state, event)
    if event.asked or event.closed:
        changes += _questions(state, event, stamp)
    return changes


def _instance(state: State, event: ev.TurnCommitted, stamp: Stamp) -> Instance:
    instance = state.get(Instance, event.instance_id)
    if instance is None:
        instance = Instance(
            event.instance_id,
            event.orchestration_name,
            created_at=stamp.ts,
            updated_at=stamp.ts,
            seq=stamp.seq,
            current_execution_id=event.execution_id,
            parent_instance_id=event.parent_instance_id,
            digest=event.digest,
            schedule_id=event.schedule_id,
            submitted_by=event.submitted_by,
        )
    if event.execution_id >= instance.current_execution_id and (
        event.execution_id != instance.current_execution_id
        or event.status is not InstanceStatus.RUNNING
        or instance.status is not InstanceStatus.RUNNING
    ):
        over = event.status in OVER
        instance = replace(
            instance,
            current_execution_id=event.execution_id,
            status=event.status,
            completed_at=(instance.completed_at or stamp.ts) if over else None,
            keep_until=(event.keep_until or instance.keep_until) if over else None,
        )
    return replace(
        instance,
        orchestration_name=event.orchestration_name,
        orchestration_version=event.orchestration_version,
        updated_at=stamp.ts,
        custom_status=event.custom_status if event.said else instance.custom_status,
        custom_status_version=instance.custom_status_version + event.said,
        waiting_on=instance.waiting_on if event.waiting_on is None else event.waiting_on,
    )


def _execution(state: State, event: ev.TurnCommitted, stamp: Stamp) -> list[Change]:
    """Begin or end an execution; most commits are about one that goes on, and say nothing of it."""
    key = execution_key(event.instance_id, event.execution_id)
    before = state.get(Execution, key)
    execution = before or Execution(event.instance_id, event.execution_id, history_id=stamp.seq, started_at=stamp.ts)
    if execution.status is not InstanceStatus.RUNNING and execution.status is not event.status:
        raise contradiction(stamp, f"an execution ends as {event.status} a second time")
    is_running = event.status is InstanceStatus.RUNNING
    if before is not None and is_running and event.output == NULL and event.pinned_engine_version is None:
        return []
    after = replace(
        execution,
        status=event.status,
        completed_at=None if is_running else execution.completed_at or stamp.ts,
        output=execution.output if event.output == NULL else event.output,
        pinned_engine_version=event.pinned_engine_version or execution.pinned_engine_version,
    )
    return [Change(Execution, key, after)]


def _keys(state: State, event: ev.TurnCommitted) -> Iterator[Change]:
    """Lay changes over the keys; when the execution is over, they become the instance's own."""
    changed: dict[str, KeyValue] = {}
    for wish in event.keys:
        found = _key(state, event.instance_id, wish.key)
        changed[wish.key] = replace(found, touched=True, delta=wish.value, delta_at_ms=wish.at_ms)
    for name in event.kept_keys:
        found = changed.get(name) or _key(state, event.instance_id, name)
        changed[name] = KeyValue(event.instance_id, name, found.delta, found.delta_at_ms)
    for name, value in changed.items():
        gone = value.value == NULL and not value.touched
        yield Change(KeyValue, pair(event.instance_id, name), None if gone else value)


def _key(state: State, instance_id: str, key: str) -> KeyValue:
    return state.get(KeyValue, pair(instance_id, key)) or KeyValue(instance_id, key)


def _questions(state: State, event: ev.TurnCommitted, stamp: Stamp) -> Iterator[Change]:
    open_now: dict[str, Decision] = {}
    for asked in event.asked:
        open_now[asked.decision_id] = Decision(
            asked.decision_id,
            event.instance_id,
            event.execution_id,
            asked.event_id,
            asked.question,
            created_at=stamp.ts,
            options=asked.options,
        )
    for closed in event.closed:
        question = open_now.get(closed.decision_id) or state.get(Decision, closed.decision_id)
        if question is not None and question.closed_at is None:
            open_now[closed.decision_id] = replace(question, closed_at=stamp.ts, answer=closed.answer)
    return (put(question) for question in open_now.values())


def _appended(state: State, event: ev.HistoryAppended, stamp: Stamp) -> list[Change]:
    key = execution_key(event.instance_id, event.execution_id)
    execution = state.get(Execution, key)
    if execution is None:
        raise contradiction(stamp, f"{event.instance_id!r} has no execution {event.execution_id}")
    row = HistoryRow(execution.history_id, event.event_id, event.event)
    beside = ref_in(event.event)
    raised = replace(
        execution,
        event_count=execution.event_count + 1,
        history_bytes=execution.history_bytes + (memoryview(event.event).nbytes if beside is None else beside.size),
        last_event_id=max(execution.last_event_id, event.event_id),
    )
    return [
        Change(HistoryRow, history_key(row.history_id, row.event_id), row),
        Change(Execution, key, raised),
    ]


# --- instances --------------------------------------------------------------------------------------------------------


def _deleted(state: State, event: ev.InstanceDeleted, stamp: Stamp) -> list[Change]:
    del state, stamp
    name = event.instance_id
    return [
        *(Change(Execution, execution_key(name, number), None) for number in event.executions),
        *(Change(Message, message_key(seq), None) for seq in event.messages),
        *(Change(KeyValue, pair(name, key), None) for key in event.keys),
        *(Change(Decision, decision, None) for decision in event.decisions),
        Change(Turn, name, None),
        Change(Instance, name, None),
    ]


def _pruned(state: State, event: ev.InstancePruned, stamp: Stamp) -> list[Change]:
    del state, stamp
    return [Change(Execution, execution_key(event.instance_id, number), None) for number in event.executions]


def _reset(state: State, event: ev.InstanceReset, stamp: Stamp) -> list[Change]:
    turn = state.get(Turn, event.instance_id)
    demand(turn is None or turn.locked_until is None, stamp, f"{event.instance_id!r} is reset while it is held")
    due = [put(replace(_message(state, seq, stamp), visible_at=None)) for seq in event.messages]
    return [*due, *([] if turn is None else [Change(Turn, event.instance_id, None)])]


def _forked(state: State, event: ev.InstanceForked, stamp: Stamp) -> list[Change]:
    old, new = state.get(Instance, event.instance_id), state.get(Instance, event.fork)
    if old is None or new is None:
        raise contradiction(stamp, f"{event.instance_id!r} is forked to {event.fork!r}, and one of them is not there")
    return [put(replace(old, forks=(*old.forks, event.fork))), put(replace(new, forked_from=event.instance_id))]


def _answered(state: State, event: ev.DecisionAnswered, stamp: Stamp) -> list[Change]:
    question = state.get(Decision, event.decision_id)
    if question is None or question.closed_at is not None:
        raise contradiction(stamp, f"decision {event.decision_id} is answered and is not open")
    return [put(replace(question, answered_by=event.by))]


# --- sessions and handlers --------------------------------------------------------------------------------------------


def _claimed(state: State, event: ev.AffinityClaimed, stamp: Stamp) -> list[Change]:
    del state
    return [put(Affinity(event.session, event.owner_id, event.locked_until, stamp.ts))]


def _affinity_extended(state: State, event: ev.AffinityExtended, stamp: Stamp) -> list[Change]:
    affinity = state.get(Affinity, event.session)
    if affinity is None:
        raise contradiction(stamp, f"there is no session {event.session!r}")
    active = stamp.ts if event.active else affinity.last_activity_at
    return [put(replace(affinity, locked_until=event.locked_until, last_activity_at=active))]


def _affinity_removed(state: State, event: ev.AffinityRemoved, stamp: Stamp) -> list[Change]:
    del state, stamp
    return [Change(Affinity, event.session, None)]


def _announced(state: State, event: ev.HandlersAnnounced, stamp: Stamp) -> list[Change]:
    # Why an instance was given back stays until a turn commits: should it be given back again, it is since then.
    return [put(replace(_message(state, seq, stamp), visible_at=None)) for seq in event.messages]


# --- shared steps -----------------------------------------------------------------------------------------------------


def _message(state: State, seq: int, stamp: Stamp) -> Message:
    message = state.get(Message, message_key(seq))
    if message is None:
        raise contradiction(stamp, f"there is no message {seq}")
    return message


def _handed_out(state: State, turn: Turn, stamp: Stamp) -> list[Message]:
    return [_message(state, seq, stamp) for seq in turn.messages]


def _held(state: State, instance_id: str, token: Token, stamp: Stamp) -> Turn:
    turn = state.get(Turn, instance_id)
    if turn is None or turn.token != token or turn.locked_until is None:
        raise contradiction(stamp, f"token {token} does not hold instance {instance_id!r}")
    return turn


FLOW_FOLDS: dict[type[ev.Event], Callable[[State, Any, Stamp], list[Change]]] = {
    ev.MessageStored: _stored,
    ev.MessageParked: _parked,
    ev.MessageUnparked: _unparked,
    ev.MessageDropped: _dropped,
    ev.TurnLocked: _locked,
    ev.TurnTagged: _tagged,
    ev.TurnExtended: _extended,
    ev.TurnAbandoned: _abandoned,
    ev.TurnExpired: _turn_expired,
    ev.TurnCommitted: _committed,
    ev.HistoryAppended: _appended,
    ev.InstanceDeleted: _deleted,
    ev.InstancePruned: _pruned,
    ev.InstanceReset: _reset,
    ev.InstanceForked: _forked,
    ev.DecisionAnswered: _answered,
    ev.AffinityClaimed: _claimed,
    ev.AffinityExtended: _affinity_extended,
    ev.AffinityRemoved: _affinity_removed,
    ev.HandlersAnnounced: _announced,
}
