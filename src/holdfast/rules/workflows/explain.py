"""Explain: why an instance is where it is, and what it waits for. Exactly one reason, the first that applies. Pure.

Ended, blocked, without code, in somebody's hands, with mail, or waiting for what its code asked for. The same sentence
is shown everywhere: Python, command line, HTTP, dashboard.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import msgspec

from holdfast.model.jobs import Job
from holdfast.model.payloads import ref_in
from holdfast.model.times import FOREVER, Timestamp, at_milliseconds
from holdfast.model.workers import WorkerInfo, WorkerState
from holdfast.model.workflows.block_reasons import blockage_of, is_unregistered, unregistered_reason
from holdfast.model.workflows.instances import (
    OVER,
    Execution,
    Instance,
    InstanceStatus,
    Message,
    Turn,
    execution_key,
    owned_by,
)
from holdfast.rules.explain import Reason
from holdfast.rules.state import State
from holdfast.rules.workflows.turns import is_live

#: Things it waits for that the sentence names; the lines have all that are recorded.
NAMED = 3
#: Characters of an error that the sentence shows.
SHOWN = 200
_TIMER = re.compile(r"timer \d+ until (\d+)")
_ACTIVITY = re.compile(r"activity (\d+) (.*)")

#: Why an activity's job is where it is.
JobReason = Callable[[Job], str]


def explain_instance(
    state: State, instance_id: str, now: Timestamp, workers: Sequence[WorkerInfo], job_reason: JobReason
) -> Reason | None:
    """Give the one reason why an instance is where it is; None: there is no such, nor is one to begin."""
    instance = state.get(Instance, instance_id)
    mail = state.mail(instance_id)
    if instance is None and not any(message.is_to_begin for message in mail):
        return None
    if instance is None and all(message.parked is not None for message in mail if message.is_start):
        return _held(state, mail)
    if instance is not None and instance.status in OVER:
        return _ended(state, instance)
    turn = state.get(Turn, instance_id)
    due = [message for message in mail if is_delivered(message, now)]
    return (
        _blocked(turn)
        or _unregistered(instance, mail, turn, workers, now=now)
        or _running(instance, turn, now, workers)
        or _mail(due, now, workers)
        or _waiting(state, instance, job_reason)
    )


def _ended(state: State, instance: Instance) -> Reason:
    said = f"{instance.status.lower()} at {instance.completed_at}"
    execution = state.get(Execution, execution_key(instance.instance_id, instance.current_execution_id))
    if instance.status is not InstanceStatus.COMPLETED and execution is not None and ref_in(execution.output) is None:
        text = msgspec.json.decode(execution.output)
        # The message alone: it says what happened first, then what can be done. The class is in the history.
        lines = text.strip().splitlines() if isinstance(text, str) else []
        said += f": {_shortened(lines[0])}" if lines else ""
    return Reason(code="ended", sentence=said)


def _shortened(line: str) -> str:
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"


def _held(state: State, mail: Sequence[Message]) -> Reason:
    """Say for which instance of its schedule the start waits."""
    schedule = next(message.schedule_id for message in mail if message.is_to_begin) or ""
    other = next(iter(state.begun_by(schedule)), None)
    until = "another one of its schedule has begun and ended" if other is None else f"instance {other} has ended"
    return Reason(code="waiting", sentence=f"waits until {until}; one at a time", holder=other)


def _blocked(turn: Turn | None) -> Reason | None:
    blockage = None if turn is None else blockage_of(turn.reason)
    if turn is None or blockage is None:
        return None
    first, *rest = blockage.text.splitlines() or [""]
    sentence = f"blocked since {turn.reason_at} ({blockage.kind}): {first}"
    return Reason(code="blocked", sentence=sentence, holder=blockage.kind, lines=tuple(rest))


def _unregistered(
    instance: Instance | None,
    mail: Sequence[Message],
    turn: Turn | None,
    workers: Sequence[WorkerInfo],
    *,
    now: Timestamp,
) -> Reason | None:
    """Say that nobody has its code: its last holder said so, or it has something to do and no live worker has it."""
    said = turn is not None and is_unregistered(turn.reason)
    is_due = waits_since(mail, now) is not None
    if not said and not (is_due and (turn is None or turn.locked_until is None)):
        return None
    name, version = code_of(instance, mail)
    having = versions_of(name, workers)
    if has_code(having, name, version):
        return None  # whoever said so was another one, or it has come since
    since = turn.reason_at if said and turn is not None else waits_since(mail, now)
    there = f"; live workers have {', '.join(having)}" if having else ""
    sentence = f"{unregistered_reason(name, version)}, since {since}{there}"
    return Reason(code="unregistered", sentence=sentence, holder=name if version is None else f"{name} {version}")


def versions_of(name: str, workers: Sequence[WorkerInfo]) -> list[str]:
    """Give what live workers have of a workflow, as `name version`, sorted."""
    live = [worker for worker in workers if worker.state is WorkerState.READY]
    return sorted({one for worker in live for one in worker.workflows if one.rpartition(" ")[0] == name})


def has_code(having: Sequence[str], name: str, version: str | None) -> bool:
    """Tell whether the version that is needed is among those there are of a workflow; None: any is."""
    return bool(having) if version is None else f"{name} {version}" in having


def code_of(instance: Instance | None, mail: Sequence[Message]) -> tuple[str, str | None]:
    """Give the workflow, and the version that its next turn needs; None: any."""
    if instance is not None and instance.status is InstanceStatus.RUNNING:
        return instance.orchestration_name, instance.orchestration_version
    start = next((message for message in mail if message.orchestration is not None), None)
    if start is not None and start.orchestration is not None:
        return start.orchestration, start.version
    return ("" if instance is None else instance.orchestration_name), None


def _running(
    instance: Instance | None, turn: Turn | None, now: Timestamp, workers: Sequence[WorkerInfo]
) -> Reason | None:
    if turn is None or not is_live(turn, now):
        return None
    holder = next((one.worker_id for one in workers if turn.session_id and one.session_id == turn.session_id), None)
    steps = tuple(line for line in (instance.waiting_on or () if instance else ()) if line.startswith("step "))
    doing = f", {'; '.join(steps[:NAMED])}" if steps else ""
    sentence = (
        f"{holder or 'a worker'} runs a turn of it since {turn.locked_at}{doing}; locked until {turn.locked_until}"
    )
    return Reason(code="turn_running", sentence=sentence, holder=holder, until=turn.locked_until, lines=steps)


def waits_since(mail: Sequence[Message], now: Timestamp) -> Timestamp | None:
    """Give since when an instance has had something to do, or None if it has nothing: a timer counts from its time."""
    due = (max(message.stored_at, message.due_at) for message in mail if is_delivered(message, now))
    return min(due, default=None)


def is_delivered(message: Message, now: Timestamp) -> bool:
    """Tell whether it is a message's time, or was before it was given back."""
    if message.parked is not None:
        return False
    return message.visible_at is None or message.visible_at <= now or message.due_at < message.visible_at


def _mail(due: Sequence[Message], now: Timestamp, workers: Sequence[WorkerInfo]) -> Reason | None:
    if not due:
        return None
    oldest = min(message.stored_at for message in due)
    first = min(message.visible_at or now for message in due)
    when = f"; next try at {first}" if first > now else ""
    polls = any(worker.state is WorkerState.READY and worker.workflows for worker in workers)
    nobody = "" if polls else "; no live worker runs workflows"
    count = f"{len(due)} message{'s wait' if len(due) > 1 else ' waits'}"
    sentence = f"{count} to be delivered, since {oldest}{when}{nobody}"
    return Reason(code="messages_waiting", sentence=sentence, until=first if first > now else None)


def _waiting(state: State, instance: Instance | None, job_reason: JobReason) -> Reason:
    lines = () if instance is None else tuple(_lines(state, instance, job_reason))
    if not lines:
        return Reason(code="waiting", sentence="waits for nothing that was recorded")
    more = f"; and {len(lines) - NAMED} more" if len(lines) > NAMED else ""
    fires = [match[1] for line in (instance.waiting_on or () if instance else ()) if (match := _TIMER.match(line))]
    until = min((at_milliseconds(int(at)) for at in fires), default=FOREVER)
    return Reason(
        code="waiting",
        sentence=f"waits for {'; '.join(lines[:NAMED])}{more}",
        until=None if until == FOREVER else until,
        lines=lines,
    )


def _lines(state: State, instance: Instance, job_reason: JobReason) -> Iterator[str]:
    """Say what each thing it waits for is, with times as people read them and jobs with their own reasons."""
    jobs: dict[int, Job] | None = None
    for line in instance.waiting_on or ():
        timer, activity = _TIMER.fullmatch(line), _ACTIVITY.fullmatch(line)
        if timer is not None:
            yield f"a timer at {at_milliseconds(int(timer[1]))}"
        elif activity is not None:
            if jobs is None:
                jobs = _jobs(state, instance)
            job = jobs.get(int(activity[1]))
            why = "its job is gone" if job is None else f"job {job.job_id} is {job.status}, {job_reason(job)}"
            yield f"activity {activity[2]}: {why}"
        else:
            yield line


def _jobs(state: State, instance: Instance) -> dict[int, Job]:
    """Give the jobs of an instance by the events that asked for them: after a reset an earlier execution may have."""
    asked = [(owned_by(job.owner), job) for job in state.activities_of(instance.instance_id)]
    known = sorted(((owner[1], job.job_id, owner[2], job) for owner, job in asked if owner is not None))
    return {event_id: job for _, _, event_id, job in known}
