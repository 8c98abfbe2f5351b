"""Which values a command about instances may carry. The names in the messages are those of the provider face."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from holdfast.errors import InvalidValue
from holdfast.model.ids import is_name
from holdfast.model.outcomes import Refusal, refuse
from holdfast.model.retention import FOR_EVER_S
from holdfast.model.workflows.commands import (
    AbandonActivity,
    AbandonTurn,
    AckActivity,
    AckTurn,
    Again,
    AnnounceHandlers,
    AnswerDecision,
    AppendHistory,
    CleanSessions,
    DeleteEnded,
    DeleteInstances,
    Delta,
    FailInstance,
    FetchActivity,
    FetchMore,
    FetchTurn,
    FlowCommand,
    ForkInstance,
    ImportInstance,
    NewActivity,
    NewMessage,
    ParkMessages,
    PruneExecutions,
    RenewActivity,
    RenewSessions,
    RenewTurn,
    ResetInstance,
    SendMessage,
    StartActivity,
    StartInstance,
    TellInstance,
)
from holdfast.model.workflows.decisions import OURS
from holdfast.model.workflows.instances import OVER, InstanceStatus
from holdfast.model.workflows.work_items import SubOrchCompleted, SubOrchFailed
from holdfast.rules.field_checks import check_instance_id, check_label, check_text, shown
from holdfast.rules.validation import new_job_problems
from holdfast.rules.workflows.activities import as_job
from holdfast.rules.workflows.turns import version_of

#: The longest a lock is held without being renewed, in seconds.
MAX_LOCK_S = 86_400
MAX_INT = 1 << 63
MAX_TAGS = 64


def flow_problem_with(command: FlowCommand) -> Refusal | None:
    """Give the refusal for the first value that its field does not take, or None."""
    complaint = next(_problems(command), None)
    return None if complaint is None else refuse(InvalidValue, complaint)


def _problems(command: FlowCommand) -> Iterator[str]:
    """Say what is wrong with the values of a command, in the words of the face."""
    yield from _common(command)
    match command:
        case SendMessage(message=message, delay_s=delay_s, hold_s=hold_s):
            yield from _duration("delay", delay_s)
            yield from _duration("hold", hold_s)
            yield from _message(message)
        case FetchTurn(lock_s=lock_s, n=n):
            yield from _lock("lock_timeout", lock_s)
            yield from _whole("n", n)
        case RenewTurn(lock_s=lock_s):
            yield from _lock("extend_for", lock_s)
        case AckTurn():
            yield from _ack(command)
        case AbandonTurn(delay_s=delay_s) | AbandonActivity(delay_s=delay_s):
            yield from _duration("delay", delay_s)
        case AppendHistory(instance_id=instance_id, execution_id=execution_id, delta=delta):
            yield from instance_problems("instance", instance_id)
            yield from _whole("execution_id", execution_id)
            yield from _delta(delta)
        case StartActivity(activity=activity):
            yield from _activity(activity)
        case FetchActivity():
            yield from _fetch(command)
        case AckActivity(completion=completion):
            yield from () if completion is None else _message(completion)
        case RenewActivity(lease_s=lease_s):
            yield from _lock("extend_for", lease_s)
        case RenewSessions(lock_s=lock_s, idle_s=idle_s):
            yield from _lock("extend_for", lock_s)
            yield from _duration("idle_timeout", idle_s)
        case DeleteInstances():
            yield from _deletion(command)
        case DeleteEnded(limit=limit) | CleanSessions(limit=limit):
            yield from _whole("limit", limit) if limit > 0 else ("limit must be >= 1",)
        case PruneExecutions(instance_id=instance_id, keep_last=keep_last):
            yield from instance_problems("instance", instance_id)
            yield from () if keep_last is None else _whole("keep_last", keep_last)
        case AnswerDecision(message=message):
            yield from _message(message)
        case StartInstance():
            yield from _start(command)
        case TellInstance(message=message, hold_s=hold_s):
            yield from _duration("hold", hold_s)
            yield from _message(message)
        case ResetInstance() | ForkInstance() | FailInstance() | ImportInstance():
            yield from _by_hand(command)
        case ParkMessages(messages=numbers):
            yield from (problem for number in numbers for problem in _whole("messages", number))
        case FetchMore() | AnnounceHandlers():
            return


def _common(command: FlowCommand) -> Iterator[str]:
    if command.cmd or command.actor:  # those of a worker have neither
        for field, complaint in (*check_label("cmd", command.cmd or None), *check_text("actor", command.actor)):
            yield f"invalid {field}: {complaint}"
    if not -MAX_INT <= getattr(command, "token", 0) < MAX_INT:
        yield "invalid token: does not fit 64 bits"


def _deletion(command: DeleteInstances) -> Iterator[str]:
    if command.tree and len(set(command.instance_ids)) != 1:
        yield "a tree is deleted by its one root"
    for name in command.instance_ids:
        yield from instance_problems("instance", name)


def _by_hand(command: ResetInstance | ForkInstance | FailInstance | ImportInstance) -> Iterator[str]:
    """Check what a person does to an instance as a whole."""
    yield from instance_problems("instance", command.instance_id)
    match command:
        case ResetInstance(messages=messages, begins=begins, until=until):
            yield from _copy(begins, until, messages)
            for field, complaint in check_text("reason", command.reason):
                yield f"invalid {field}: {complaint}"
        case ForkInstance(messages=messages, begins=begins, until=until):
            yield from instance_problems("fork", command.fork)
            yield from _whole("execution_id", command.execution_id)
            yield from _copy(begins, until, messages)
        case FailInstance(messages=told):
            yield from _whole("execution_id", command.execution_id)
            for message in told:
                yield from _message(message)
        case ImportInstance(executions=executions):
            numbers = [ended.execution_id for ended in executions]
            if not numbers or numbers != sorted(set(numbers)) or numbers[0] < 1:
                yield "executions must be numbered from 1 on, ascending"
            for number in numbers:
                yield from _whole("execution_id", number)
            if any(ended.status is InstanceStatus.RUNNING for ended in executions):
                yield "executions must be over"
            if any(not ended.delta.events for ended in executions):
                yield "executions must have a history"
            if executions and executions[-1].status not in OVER:
                yield "the last of the executions must end the instance"


def _copy(begins: Delta, until: int, messages: Sequence[Again]) -> Iterator[str]:
    if not begins.events or begins.orchestration_name is None or until < 1:
        yield "a copy must have the first event of a history"
    for again in messages:
        yield from _message(again.message)


def instance_problems(field: str, text: str) -> Iterator[str]:
    """Check the id of an instance."""
    for name, complaint in check_instance_id(field, text):
        yield f"invalid {name}: {complaint}"


def _lock(name: str, seconds: float) -> Iterator[str]:
    if not 0 < seconds <= MAX_LOCK_S:  # also true for NaN
        yield f"{name} must be above 0 and at most {MAX_LOCK_S} seconds, got {shown(seconds)}"


def _duration(name: str, seconds: float | None) -> Iterator[str]:
    if seconds is not None and not 0 <= seconds <= sys.float_info.max:  # also true for NaN and for an int beyond it
        yield f"{name} must be a finite number of seconds, 0 or more, got {shown(seconds)}"


def _whole(name: str, number: int) -> Iterator[str]:
    if not 0 <= number < MAX_INT:
        yield f"invalid {name}: must be between 0 and 2**63 - 1, is {shown(number)}"


#: Items that name the instance they go to as the parent of the one that sends them.
_TO_PARENTS = frozenset({SubOrchCompleted.__name__, SubOrchFailed.__name__})


def _message(message: NewMessage) -> Iterator[str]:
    goes_to = "parent_instance" if message.kind in _TO_PARENTS else "instance"
    yield from instance_problems(goes_to, message.instance_id)
    if message.parent_instance_id is not None:
        yield from instance_problems("parent_instance", message.parent_instance_id)


def _start(command: StartInstance) -> Iterator[str]:
    yield from _message(command.message)
    if command.message.kind != "StartOrchestration" or command.message.parent_instance_id is not None:
        yield "message must begin an instance that has no parent"
    for signal in command.signals:
        if signal.kind != "QueueMessage" or signal.instance_id != command.message.instance_id:
            yield "signals must be signals to the instance that begins"
        elif signal.name is not None and signal.name.startswith(OURS):
            # An answer to a question it has not asked yet, say.
            yield f"invalid signal: names that begin with {OURS!r} are not for users"
    for field, complaint in check_text("submitted_by", command.submitted_by):
        yield f"invalid {field}: {complaint}"


def _activity(activity: NewActivity) -> Iterator[str]:
    for field, complaint in new_job_problems(as_job(activity)):
        yield f"invalid {_FIELDS.get(field, field)}: {complaint}"


#: The fields of a job by the names they have in an item.
_FIELDS = {"job_type": "name", "queue": "tag", "affinity": "session_id", "owner": "instance"}


def _delta(delta: Delta) -> Iterator[str]:
    if delta.parent_instance_id is not None:
        yield from instance_problems("parent_instance", delta.parent_instance_id)


def _ack(command: AckTurn) -> Iterator[str]:
    yield from _duration("hold", command.hold_s)
    yield from _whole("execution_id", command.execution_id)
    yield from _delta(command.delta)
    for message in command.messages:
        yield from _message(message)
    for activity in command.activities:
        yield from _activity(activity)
    for number in command.cancelled_timers:
        yield from _whole("cancelled_timers", number)
    for one in command.handled or ():
        if not 0 <= one.message < MAX_INT:
            yield from _whole("handled", one.message)
    metadata = command.metadata
    if metadata.retention_s is not None and not 0 <= metadata.retention_s <= FOR_EVER_S:
        yield f"retention_s must be 0-{FOR_EVER_S:.0f}, got {metadata.retention_s}"
    if metadata.keep_executions is not None and metadata.keep_executions < 1:
        yield f"keep_executions must be >= 1, got {metadata.keep_executions}"
    if metadata.parent_instance_id is not None:
        yield from instance_problems("parent_instance_id", metadata.parent_instance_id)
    pinned = metadata.pinned_engine_version
    if pinned is not None and version_of(pinned) is None:
        yield f"invalid pinned_engine_version: {pinned!r:.80} is not a version such as 1.2.3"


def _fetch(command: FetchActivity) -> Iterator[str]:
    yield from _lock("lock_timeout", command.lease_s)
    for field, complaint in check_label("worker_id", command.worker_id):
        yield f"invalid {field}: {complaint}"
    for queue in command.queues or ():
        if not is_name(queue):
            yield f"invalid tag: {queue!r:.80} is not a name (1-128 letters, digits and . _ - : /)"
    if command.affinity_owner is not None:
        yield from _lock("session.lock_timeout", command.affinity_s)
        for _, complaint in check_label("owner_id", command.affinity_owner):
            yield f"invalid owner_id: {complaint}"
