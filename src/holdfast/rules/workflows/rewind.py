"""Reset and fork: an execution that begins with a copy of another's history.

Whoever asks has read the history and says what is copied; here it is decided whether that may be, and what goes with
it. Nothing that was open is sent off here: the first turn of the copy does that, with its code at hand. Order of a
reset: what held it back goes, then the work of the old execution, its end, the keys as they were, the next execution,
and what is to be delivered again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from holdfast.errors import InvalidOperation, InvalidValue, VersionConflict, WorkflowAlreadyStarted
from holdfast.model.command_base import Order
from holdfast.model.events import (
    Event,
    InstanceForked,
    InstanceReset,
    JobCancelled,
    KeyChange,
    MessageDropped,
    TurnCommitted,
)
from holdfast.model.outcomes import Begun, Refusal, refuse
from holdfast.model.payloads import NULL
from holdfast.model.times import Timestamp
from holdfast.model.workflows.block_reasons import blockage_of
from holdfast.model.workflows.commands import Delta, ForkInstance, KeyWish, ResetInstance
from holdfast.model.workflows.instances import MAX_KEYS, OVER, Execution, Instance, InstanceStatus, Turn, execution_key
from holdfast.rules.decision import Decision, answer
from holdfast.rules.state import State
from holdfast.rules.workflows.activities import NOT_AWAITED
from holdfast.rules.workflows.commit import Commit
from holdfast.rules.workflows.instances import not_found
from holdfast.rules.workflows.messages import Post, held_back
from holdfast.rules.workflows.start import taken
from holdfast.rules.workflows.turns import demand_free, turn_expiry

# --- reset ------------------------------------------------------------------------------------------------------------


def decide_reset(state: State, command: ResetInstance, now: Timestamp) -> Decision:
    """Give up the current execution, if it is not over, and begin the next with a part of its history."""
    instance = state.get(Instance, command.instance_id)
    if instance is None:
        return answer(not_found(command.instance_id))
    name = instance.instance_id
    problem = demand_free(state, name, now) or demand_stopped(state, instance, "reset")
    old = state.get(Execution, execution_key(name, instance.current_execution_id))
    if problem is None and (old is None or (old.history_id, old.last_event_id) != _read(command)):
        problem = refuse(
            VersionConflict, f"instance {name!r} has gone on meanwhile. Nothing was changed.", instance=name
        )
    if problem is not None or old is None:
        return answer(problem or not_found(name))
    base = {wish.key: wish for wish in command.keys if wish.key is not None}
    following = Commit(state, name, old.execution_id + 1, command)
    changes = changed_keys(command.begins.keys, base)
    if isinstance(changes, Refusal):
        return answer(changes)
    post = Post(state, command, now)
    for again in command.messages:
        post.send(again.message, at=again.at, submitted_by=instance.submitted_by)
    return answer(
        Begun(instance_id=name),
        *freed(state, name, command),
        InstanceReset(
            instance_id=name,
            execution_id=following.execution_id,
            copied_from=old.execution_id,
            until=command.until,
            messages=tuple(held_back(state.mail(name))),
            reason=command.reason,
            cmd=command.cmd,
            actor=command.actor,
        ),
        *_dropped_timers(state, old, command),
        *revoked(state, name, command),
        *_given_up(state, instance, old, command, base),
        _begun(instance, following, command.begins, changes, old.pinned_engine_version),
        *following.appended(command.begins),
        *post.events,
    )


def _read(command: ResetInstance) -> tuple[int, int]:
    return command.history_id, command.last_event_id


def demand_stopped(state: State, instance: Instance, verb: str) -> Refusal | None:
    """Refuse what must not happen to an instance that goes on by itself."""
    turn = state.get(Turn, instance.instance_id)
    if instance.status in OVER or (turn is not None and blockage_of(turn.reason) is not None):
        return None
    return refuse(
        InvalidOperation,
        f"instance {instance.instance_id!r} is running, and not blocked. Nothing was changed.",
        hint=f"Only what has ended or is blocked can be {verb}; `holdfast workflows cancel` stops it.",
        instance=instance.instance_id,
    )


def freed(state: State, instance_id: str, order: Order) -> Iterator[Event]:
    """Revoke a lock whose time is over, before somebody else takes the instance."""
    turn = state.get(Turn, instance_id)
    if turn is not None and turn.locked_until is not None:
        yield turn_expiry(state, turn, "timeout", order.cmd)


def _dropped_timers(state: State, old: Execution, order: Order) -> Iterator[Event]:
    """Drop the timers of an execution: the next one has its own."""
    for message in state.mail(old.instance_id):
        if message.event_id is not None and message.execution_id == old.execution_id:
            yield MessageDropped(message=message.seq, reason="cancelled", cmd=order.cmd)


def revoked(state: State, instance_id: str, order: Order) -> Iterator[Event]:
    """Revoke the jobs that an instance has on the way."""
    for job in state.activities_of(instance_id):
        if not job.has_ended:
            yield JobCancelled(job_id=job.job_id, reason=NOT_AWAITED, token=job.token, cmd=order.cmd, actor=order.actor)


def _given_up(
    state: State, instance: Instance, old: Execution, command: ResetInstance, base: dict[str, KeyWish]
) -> Iterator[Event]:
    """End the old execution, unless it is over, and make the keys what they were when it began."""
    ends = old.status is InstanceStatus.RUNNING
    names = dict.fromkeys([*(found.key for found in state.keys(instance.instance_id)), *base])
    commit = Commit(state, instance.instance_id, old.execution_id, command)
    yield TurnCommitted(
        instance_id=instance.instance_id,
        execution_id=old.execution_id,
        orchestration_name=instance.orchestration_name,
        orchestration_version=instance.orchestration_version,
        parent_instance_id=instance.parent_instance_id,
        status=InstanceStatus.CANCELLED if ends else old.status,
        output=command.output if ends else NULL,
        keys=tuple(
            KeyChange(key, wish.value, wish.at_ms) if (wish := base.get(key)) else KeyChange(key) for key in names
        ),
        kept_keys=tuple(names),
        closed=tuple(commit.left_open(Delta())),
        cmd=command.cmd,
        actor=command.actor,
    )
    if ends:
        yield from commit.appended(command.ending)


def _begun(
    instance: Instance, commit: Commit, delta: Delta, keys: tuple[KeyChange, ...], pinned: str | None
) -> TurnCommitted:
    return TurnCommitted(
        instance_id=commit.instance_id,
        execution_id=commit.execution_id,
        orchestration_name=delta.orchestration_name or instance.orchestration_name,
        orchestration_version=delta.orchestration_version or instance.orchestration_version,
        parent_instance_id=instance.parent_instance_id,
        status=InstanceStatus.RUNNING,
        pinned_engine_version=pinned,
        waiting_on=(),
        said=delta.said,
        custom_status=delta.custom_status,
        keys=keys,
        asked=delta.asked,
        cmd=commit.order.cmd,
        actor=commit.order.actor,
    )


def changed_keys(wishes: Iterable[KeyWish], base: Iterable[str]) -> tuple[KeyChange, ...] | Refusal:
    """Give what events make of the keys there were, each once; or refuse one key too many."""
    live = dict.fromkeys(base, True)
    changes: dict[str, KeyChange] = {}
    for wish in wishes:
        if wish.key is None:
            changes.update({key: KeyChange(key) for key, there in live.items() if there})
            live = dict.fromkeys(live, False)
        else:
            changes[wish.key] = KeyChange(wish.key, wish.value, wish.at_ms)
            live[wish.key] = wish.value != NULL
    if sum(live.values()) > MAX_KEYS:
        return refuse(InvalidValue, f"an instance has at most {MAX_KEYS} keys", field="key")
    return tuple(changes.values())


# --- fork -------------------------------------------------------------------------------------------------------------


def decide_fork(state: State, command: ForkInstance, now: Timestamp) -> Decision:
    """Begin an instance with a part of another's history; that one only learns its name."""
    instance = state.get(Instance, command.instance_id)
    if instance is None:
        return answer(not_found(command.instance_id))
    problem = demand_unused(state, command.fork)
    base = {wish.key: wish for wish in command.keys if wish.key is not None}
    changes = changed_keys(command.begins.keys, base)
    if problem is not None:
        return answer(problem)
    if isinstance(changes, Refusal):
        return answer(changes)
    old = state.get(Execution, execution_key(command.instance_id, command.execution_id))
    commit = Commit(state, command.fork, 1, command)
    root = Instance(command.fork, instance.orchestration_name, created_at=now, updated_at=now, seq=0)
    begun = _begun(root, commit, command.begins, changes, None if old is None else old.pinned_engine_version)
    post = Post(state, command, now)
    post.begin(command.fork)
    for again in command.messages:
        post.send(again.message, at=again.at, submitted_by=instance.submitted_by)
    return answer(
        Begun(instance_id=command.fork),
        *base_keys(begun, tuple(base.values()), command.begins.digest, instance.submitted_by),
        begun,
        *commit.appended(command.begins),
        InstanceForked(
            instance_id=command.instance_id,
            fork=command.fork,
            execution_id=command.execution_id,
            until=command.until,
            cmd=command.cmd,
            actor=command.actor,
        ),
        *post.events,
    )


def demand_unused(state: State, instance_id: str) -> Refusal | None:
    """Refuse an id that another instance has."""
    having = taken(state, instance_id)
    if having is None:
        return None
    return refuse(
        WorkflowAlreadyStarted,
        f"there is an instance {instance_id!r} already, of workflow {having[0]!r}. Nothing was started.",
        hint="Use another id.",
        instance=instance_id,
    )


def base_keys(
    begun: TurnCommitted, keys: Sequence[KeyWish], digest: str | None, submitted_by: str | None = None
) -> Iterator[TurnCommitted]:
    """Make an instance with the keys that its first execution finds."""
    yield TurnCommitted(
        instance_id=begun.instance_id,
        execution_id=begun.execution_id,
        orchestration_name=begun.orchestration_name,
        orchestration_version=begun.orchestration_version,
        parent_instance_id=begun.parent_instance_id,
        digest=digest,
        submitted_by=submitted_by,
        status=InstanceStatus.RUNNING,
        keys=tuple(KeyChange(wish.key, wish.value, wish.at_ms) for wish in keys if wish.key is not None),
        kept_keys=tuple(wish.key for wish in keys if wish.key is not None),
        cmd=begun.cmd,
        actor=begun.actor,
    )
