"""What is not well with the work in a store, and what somebody should do about it.

Pure over one view, the roster and the time: each finding is one sentence, one remedy, one permanent code. What the
store's own records contradict is `check`'s; here everything is as it should be, and still nothing moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice

from holdfast.engine.missing_workers import LOOKED_AT, PATIENCE_S, missing_code, unserved
from holdfast.model.error_details import CODE_ERROR, CORRUPT
from holdfast.model.jobs import Job
from holdfast.model.reservations import Reservation
from holdfast.model.schedules import Schedule
from holdfast.model.times import FOREVER, Timestamp, later
from holdfast.model.workers import WorkerInfo
from holdfast.model.workflows.block_reasons import blockage_of
from holdfast.model.workflows.instances import (
    MANY_BYTES,
    MANY_EVENTS,
    OVER,
    Affinity,
    Execution,
    Instance,
    InstanceStatus,
    Message,
    Turn,
    execution_key,
)
from holdfast.rules.far_expiries import Granted, Held, far_expiries
from holdfast.rules.state import Lane
from holdfast.rules.workflows.explain import code_of, has_code, is_delivered, versions_of, waits_since
from holdfast.rules.workflows.messages import ORPHAN
from holdfast.rules.workflows.turns import is_live
from holdfast.stores.check_and_repair import silent_schedules
from holdfast.stores.protocol import Finding, InstanceQuery, View

#: How far beyond the size at which it should continue as new an execution is a finding.
BEYOND = 2
#: What is held, as people call it.
_HELD: dict[type[Held], str] = {Job: "job", Turn: "instance", Reservation: "reservation", Affinity: "session"}
#: Findings of one kind that are told one by one.
TOLD = 20


def ailments(
    view: View, now: Timestamp, workers: Sequence[WorkerInfo], granted: Granted | None = None
) -> Iterator[Finding]:
    """Walk all there is to say, the most urgent first.

    `granted` has how long holds were granted for, if the clock was set back; None if it was not.
    """
    if granted is not None:
        yield from far_holds(view, now, granted)
    yield from missing_code(view, now, workers)
    yield from unserved(view, now, workers)
    yield from blocked(view)
    yield from undelivered(view, now, workers)
    yield from waiting_for_nothing(view, now)
    yield from long_histories(view)
    yield from parked(view, now)
    yield from impossible_schedules(view, now)


def far_holds(view: View, now: Timestamp, granted: Granted) -> Iterator[Finding]:
    """Name the holds whose expiry, since the clock was set back, is further off than they are long."""
    found = []
    for hold in far_expiries(view, now, granted):
        kind, name = hold.key
        found.append(
            Finding(
                code="expiry_far",
                message=f"{_HELD[kind]} {name} is held until {hold.until}, which is further off than the "
                f"{hold.length_s:,.10g} s it was granted for: the clock was set back, and it is {now}",
                remedy="Keep a worker or the coordinator running: it ends what is held once these seconds have passed.",
                id=name,
            )
        )
    yield from _first(
        found, "are held for longer than they were granted for", "Keep a worker or the coordinator running."
    )


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
        fitting = "gets further" if blockage.kind == CODE_ERROR else "fits its history"
        remedy = way_out if blockage.kind == CORRUPT else f"deploy code that {fitting}."
        found.append(
            Finding(
                code="instance_blocked",
                message=f"instance {turn.instance_id} is blocked since {turn.reason_at} ({blockage.kind}): {first}",
                remedy=f"See `holdfast explain {turn.instance_id}`; {remedy}",
                id=turn.instance_id,
            )
        )
    yield from _first(found, "instances are blocked", "See `holdfast workflows ls`.")


def _first(found: Sequence[Finding], what: str, remedy: str) -> Iterator[Finding]:
    """Tell the first of a kind one by one, and count the others."""
    yield from found[:TOLD]
    if len(found) > TOLD:
        rest = tuple(one.id or "" for one in found[TOLD:])
        yield Finding(code=found[0].code, message=f"{len(rest):,} more {what}", remedy=remedy, ids=rest)


def undelivered(view: View, now: Timestamp, workers: Sequence[WorkerInfo]) -> Iterator[Finding]:
    """Name the instances whose messages nobody delivers, though live workers have the code and no turn is running."""
    since = later(now, -PATIENCE_S)
    given_back = (turn.instance_id for turn in view.stuck_turns())
    found = []
    for name in dict.fromkeys(islice(chain(view.candidates(now), given_back), LOOKED_AT)):
        turn = view.get(Turn, name)
        is_known = turn is not None and (is_live(turn, now) or blockage_of(turn.reason) is not None)
        mail = [message for message in view.mail(name) if is_delivered(message, now)]
        oldest = waits_since(mail, now)
        if is_known or oldest is None or oldest > since:
            continue
        workflow, version = code_of(view.get(Instance, name), mail)
        if not has_code(versions_of(workflow, workers), workflow, version):
            continue  # that is what is wrong, and is said elsewhere
        why = f"; it was given back: {turn.reason:.200}" if turn is not None and turn.reason else ""
        count = f"{len(mail)} message{'s' * (len(mail) != 1)}"
        found.append(
            Finding(
                code="messages_undelivered",
                message=f"{count} for instance {name} not delivered, the first since {oldest}{why}",
                remedy=f"See `holdfast explain {name}` and the logs of the workers: are their turns used up, or do "
                "they hang? Restart them, or start one more.",
                id=name,
            )
        )
    yield from _first(found, "instances have messages that are not delivered", "See `holdfast workers ls`.")


def waiting_for_nothing(view: View, now: Timestamp) -> Iterator[Finding]:
    """Name the instances whose code waits, and for nothing that could ever come."""
    since = later(now, -PATIENCE_S)
    found = []
    for instance in view.instances(InstanceQuery(statuses=(InstanceStatus.RUNNING,))):
        name = instance.instance_id
        # None: its runtime does not say what it waits for.
        if instance.waiting_on != () or instance.updated_at > since:
            continue
        turn = view.get(Turn, name)
        if turn is not None and (turn.locked_until is not None or blockage_of(turn.reason) is not None):
            continue
        if any(message.parked is None for message in view.mail(name)):
            continue
        found.append(
            Finding(
                code="instance_waits_for_nothing",
                message=f"instance {name} has waited since {instance.updated_at} for nothing that was recorded: no "
                "event will resume it",
                remedy=f"See `holdfast workflows history {name}`: its code awaits something that no event completes, "
                f"such as an asyncio.Event that nobody sets. End it with `holdfast workflows cancel {name}`.",
                id=name,
            )
        )
    yield from _first(found, "instances wait for nothing that was recorded", "See `holdfast workflows ls`.")


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
