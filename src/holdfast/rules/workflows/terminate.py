"""Ends by hand: an instance that no code can end, and one that ended elsewhere. Neither runs any code.

What is in a history already is never read here, so that a damaged one can get its last event. Failing is a turn that a
person takes: its lock fences out whoever held the instance before, and its commit takes the messages along.
"""

from __future__ import annotations

import msgspec

from holdfast.errors import InvalidOperation, VersionConflict, WorkflowFinished
from holdfast.model.events import Event, KeyChange, TurnLocked
from holdfast.model.ids import Token
from holdfast.model.outcomes import Begun, Done, Refusal, refuse
from holdfast.model.payloads import NULL
from holdfast.model.records import AUTHORITY, Authority
from holdfast.model.times import Timestamp, later
from holdfast.model.workflows.block_reasons import blockage_of
from holdfast.model.workflows.commands import FailInstance, ImportInstance, Metadata
from holdfast.model.workflows.instances import OVER, Instance, InstanceStatus, Turn
from holdfast.rules.decision import Decision, answer
from holdfast.rules.schedules.overlaps import next_in_line
from holdfast.rules.state import State
from holdfast.rules.workflows.commit import Commit
from holdfast.rules.workflows.instances import not_found
from holdfast.rules.workflows.messages import Post, is_expected
from holdfast.rules.workflows.rewind import base_keys, changed_keys, demand_unused, freed, revoked
from holdfast.rules.workflows.turns import demand_free

#: The lock is taken and given back in one commit; it must only be one that could be held.
LOCK_S = 30.0


def decide_fail(state: State, command: FailInstance, now: Timestamp) -> Decision:
    """End an instance that is blocked or damaged, and tell its parent."""
    name = command.instance_id
    commit = Commit(state, name, command.execution_id, command)
    problem = _unfailing(state, commit.instance, command) or demand_free(state, name, now)
    current = 1 if commit.instance is None else commit.instance.current_execution_id
    there = 0 if commit.execution is None else commit.execution.last_event_id
    if problem is None and (command.execution_id < current or there != command.last_event_id):
        problem = refuse(
            VersionConflict, f"instance {name!r} has gone on meanwhile. Nothing was changed.", instance=name
        )
    metadata = Metadata(status=InstanceStatus.FAILED, output=command.output, waiting_on=())
    problem = problem or commit.problem(command.ending, metadata)
    if problem is not None:
        return answer(problem)
    token = Token((state.get(Authority, AUTHORITY) or Authority()).last_token + 1)
    locked = TurnLocked(
        instance_id=name,
        token=token,
        locked_until=later(now, LOCK_S),
        messages=tuple(message.seq for message in state.mail(name) if message.parked is None),
        cmd=command.cmd,
        actor=command.actor,
    )
    turn = Turn(name, 0, token=token, messages=locked.messages)
    post = Post(state, command, now, known=(name,))
    for message in command.messages:
        post.send(message)
    return answer(
        Done(),
        *freed(state, name, command),
        locked,
        commit.event(command.ending, metadata, turn, (), None),
        *commit.appended(command.ending),
        *revoked(state, name, command),
        *post.events,
        *next_in_line(state, (commit.schedule_id(turn),), (name,), command.cmd),
    )


def _unfailing(state: State, instance: Instance | None, command: FailInstance) -> Refusal | None:
    """Say why an instance must not be ended so."""
    name = command.instance_id
    if instance is None and not is_expected(state, name):
        return not_found(name)
    if instance is not None and instance.status in OVER:
        message = f"instance {name!r} is {instance.status} since {instance.completed_at}. Nothing was changed."
        return refuse(WorkflowFinished, message, instance=name)
    turn = state.get(Turn, name)
    if command.damaged or (turn is not None and blockage_of(turn.reason) is not None):
        return None
    return refuse(
        InvalidOperation,
        f"instance {name!r} is neither blocked nor damaged. Nothing was changed.",
        hint=f"`holdfast workflows cancel {name}` asks it to stop; with --force it ends at once.",
        instance=name,
    )


def decide_import(state: State, command: ImportInstance) -> Decision:
    """Keep an instance that ended elsewhere, with all its executions; nothing of it is ever run."""
    name = command.instance_id
    problem = demand_unused(state, name)
    if problem is not None:
        return answer(problem)
    events: list[Event] = []
    live = {wish.key for wish in command.keys if wish.key is not None}
    for ended in command.executions:
        commit = Commit(state, name, ended.execution_id, command)
        metadata = Metadata(status=ended.status, output=ended.output, waiting_on=())
        problem = commit.problem(ended.delta, metadata)
        keys = changed_keys(ended.delta.keys, sorted(live))
        if problem is not None:
            return answer(problem)
        if isinstance(keys, Refusal):
            return answer(keys)
        committed = commit.event(ended.delta, metadata, None, keys, None)
        if committed.parent_instance_id is None or state.get(Instance, committed.parent_instance_id) is None:
            # A child without its parent is a root here: else retention would never find it.
            committed = msgspec.structs.replace(committed, parent_instance_id=None)
        if not events:
            events += base_keys(committed, command.keys, ended.delta.digest)
        events += [committed, *commit.appended(ended.delta)]
        live = {key for key in live if KeyChange(key) not in keys} | {one.key for one in keys if one.value != NULL}
    return answer(Begun(instance_id=name), *events)
