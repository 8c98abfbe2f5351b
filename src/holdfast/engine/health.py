"""What is not well with the work in a store, and what somebody should do about it.

Pure over one view, the roster and the time: each finding is one sentence, one remedy, one permanent code. What the
store's own records contradict is `check`'s; here everything is as it should be, and still nothing moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from holdfast.engine.missing_workers import LOOKED_AT, PATIENCE_S, missing_code, unserved
from holdfast.model.error_details import CORRUPT
from holdfast.model.schedules import Schedule
from holdfast.model.times import FOREVER, Timestamp, later
from holdfast.model.workers import WorkerInfo
from holdfast.model.workflows.block_reasons import blockage_of
from holdfast.model.workflows.instances import (
    MANY_BYTES,
    MANY_EVENTS,
    OVER,
    Execution,
    Instance,
    InstanceStatus,
    Message,
    execution_key,
)
from holdfast.rules.state import Lane
from holdfast.rules.workflows.messages import ORPHAN
from holdfast.stores.check_and_repair import silent_schedules
from holdfast.stores.protocol import Finding, InstanceQuery, View

#: How far beyond the size at which it should continue as new an execution is a finding.
BEYOND = 2
#: Findings of one kind that are told one by one.
TOLD = 20


def ailments(view: View, now: Timestamp, workers: Sequence[WorkerInfo]) -> Iterator[Finding]:
    """Walk all there is to say, the most urgent first."""
    yield from missing_code(view, now, workers)
    yield from unserved(view, now, workers)
    yield from blocked(view)
    yield from long_histories(view)
    yield from parked(view, now)
    yield from impossible_schedules(view, now)


def blocked(view: View) -> Iterator[Finding]:
    """Name the instances that only other code can bring on, or nothing."""
    found = []
    for turn in view.stuck_turns():
        blockage = blockage_of(turn.reason)
        instance = view.get(Instance, turn.instance_id)
        if blockage is None or (instance is not None and instance.status in OVER):
            continue
        first = (blockage.text.splitlines() or [""])[0]
        # No code reads what is damaged.
        way_out = f"end it with `holdfast workflows fail {turn.instance_id}`, or restore the store from a copy."
        remedy = way_out if blockage.kind == CORRUPT else "deploy code that fits its history."
        found.append(
            Finding(
                code="instance_blocked",
                message=f"instance {turn.instance_id} is blocked since {turn.reason_at} ({blockage.kind}): {first}",
                remedy=f"See `holdfast explain {turn.instance_id}`; {remedy}",
                id=turn.instance_id,
            )
        )
    yield from found[:TOLD]
    if len(found) > TOLD:
        rest = tuple(one.id or "" for one in found[TOLD:])
        message = f"{len(rest):,} more instances are blocked"
        yield Finding(code="instance_blocked", message=message, remedy="See `holdfast workflows ls`.", ids=rest)


def long_histories(view: View) -> Iterator[Finding]:
    """Name the instances whose history is far beyond the size at which it should begin anew."""
    for instance in view.instances(InstanceQuery(statuses=(InstanceStatus.RUNNING,))):
        execution = view.get(Execution, execution_key(instance.instance_id, instance.current_execution_id))
        if execution is None:
            continue
        if execution.event_count >= BEYOND * MANY_EVENTS or execution.history_bytes >= BEYOND * MANY_BYTES:
            yield Finding(
                code="history_long",
                message=f"instance {instance.instance_id} has a history of {execution.event_count:,} events and "
                f"{execution.history_bytes / (1 << 20):,.1f} MiB; every replay reads all of it",
                remedy="Let the workflow call hf.continue_as_new(…) when hf.should_continue_as_new() says so.",
                id=instance.instance_id,
            )


def parked(view: View, now: Timestamp) -> Iterator[Finding]:
    """Name the instances for which something was sent and which never began."""
    since = later(now, -PATIENCE_S)
    waiting: dict[str, list[Message]] = {}
    for message in islice(view.due(Lane.PARKED, FOREVER), LOOKED_AT):
        assert isinstance(message, Message)
        if message.parked == ORPHAN and message.stored_at <= since:
            waiting.setdefault(message.instance_id, []).append(message)
    for name, messages in islice(waiting.items(), TOLD):
        last = max(message.drop_at or FOREVER for message in messages)
        count = f"{len(messages)} message{'s' * (len(messages) != 1)}"
        yield Finding(
            code="messages_parked",
            message=f"{count} for instance {name}, which does not exist; the last is dropped at {last}",
            remedy="Start the instance with that id, or find out who sends to it.",
            id=name,
        )
    if len(waiting) > TOLD:
        rest = tuple(waiting)[TOLD:]
        more = f"messages for {len(rest):,} more instances that do not exist"
        yield Finding(code="messages_parked", message=more, remedy="Find out who sends to them.", ids=rest)


def impossible_schedules(view: View, now: Timestamp) -> Iterator[Finding]:
    """Name the schedules that are on and will not fire: past a clock that ran ahead, without a zone, without a time."""
    silent = silent_schedules(view, now)
    yield from silent
    known = {finding.id for finding in silent}
    since = later(now, -PATIENCE_S)
    for schedule in view.all(Schedule):
        if not schedule.enabled or schedule.schedule_id in known:
            continue
        if schedule.next_trigger_at is not None and schedule.next_trigger_at <= since:
            yield Finding(
                code="schedule_overdue",
                message=f"schedule {schedule.name} is due since {schedule.next_trigger_at}, and nobody fires it",
                remedy="Start a worker: any worker on this store fires what is due.",
                id=schedule.schedule_id,
            )
        elif schedule.next_fire_at is None and schedule.end_at is None:
            yield Finding(
                code="schedule_never",
                message=f"schedule {schedule.name} is on, and has no time at which it will fire",
                remedy=f"Run `holdfast schedules reset {schedule.name}`, or give it another time.",
                id=schedule.schedule_id,
            )
