"""What the end of a job tells the workflow that waits for it. A consequence of decided events, in the same commit.

The owner hears the final outcome only: a job that goes back to its queue, or on to a successor, tells nothing. Nor does
one that the workflow itself cancelled, that went with its instance, or whose end is marked as untold.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.model import error_details as words
from holdfast.model.command_base import Order
from holdfast.model.error_details import Category, ErrorDetails
from holdfast.model.events import (
    Event,
    InstanceDeleted,
    JobCancelled,
    JobCompleted,
    JobCreated,
    JobDead,
    JobFailed,
    JobSkipped,
    JobSnoozed,
    LeaseExpired,
    LeaseReleased,
    MessageStored,
    TurnCommitted,
)
from holdfast.model.jobs import Job, JobStatus
from holdfast.model.payloads import NULL, ref_in
from holdfast.model.times import Timestamp
from holdfast.model.workflows.commands import NewMessage
from holdfast.model.workflows.instances import owned_by
from holdfast.rules.state import State
from holdfast.rules.workflows.messages import Post

_ENDS = (JobCompleted, JobFailed, JobSnoozed, LeaseReleased, LeaseExpired, JobCancelled, JobSkipped, JobDead)
_ENDING = frozenset(_ENDS)
#: Instance, execution, event.
Owner = tuple[str, int, int]
_encode = msgspec.json.Encoder().encode
_details = msgspec.json.Decoder(ErrorDetails)


def told_owners(state: State, events: Sequence[Event], now: Timestamp) -> list[Event]:
    """Give the messages that the ends of jobs among these events send to their owners."""
    if _ENDING.isdisjoint(map(type, events)):
        return []  # most decisions end no job, and every one of them asks
    ends = [event for event in events if isinstance(event, _ENDS)]
    if any(isinstance(event, TurnCommitted | InstanceDeleted) for event in events):
        return []
    told = {event.tells_of for event in events if isinstance(event, MessageStored)}
    post = Post(state, Order(cmd=ends[0].cmd, actor=ends[0].actor), now)
    for event in ends:
        job = _job(state, event.job_id, events)
        owner = None if job is None else owned_by(job.owner)
        if job is None or owner is None or job.job_id in told:
            continue
        message = _message(job, owner, event)
        if message is not None:
            post.send(message, tells_of=job.job_id)
    return post.events


def _job(state: State, job_id: str, events: Sequence[Event]) -> Job | None:
    found = state.get(Job, job_id)
    if found is not None:
        return found
    return next((made.job for made in events if isinstance(made, JobCreated) and made.job.job_id == job_id), None)


def _message(job: Job, owner: Owner, event: Event) -> NewMessage | None:
    """Give what one end tells, or None if it is not the end."""
    match event:
        case JobCompleted(result=result):
            return _item(owner, "ActivityCompleted", "result", _as_text(result))
        case JobFailed(to=JobStatus.FAILED, successor=None):
            return _failed(owner, _failure(job, event))
        case LeaseExpired(to=JobStatus.DEAD) | JobDead():
            said = event.reason if isinstance(event, JobDead) else "its worker did not report, too often"
            return _failed(owner, _error(Category.POISON, words.DEAD, said or "buried", job))
        case JobCancelled(untold=False, reason=reason):
            return _failed(owner, _error(Category.APPLICATION, words.CANCELLED, reason or "cancelled", job))
        case JobSkipped(reason=reason):
            return _failed(owner, _error(Category.APPLICATION, words.CANCELLED, reason, job))
        case (
            JobFailed(to=JobStatus.CANCELLED)
            | LeaseExpired(to=JobStatus.CANCELLED)
            | LeaseReleased(to=JobStatus.CANCELLED, successor=None)
            | JobSnoozed(to=JobStatus.CANCELLED, successor=None)
        ):
            return _failed(owner, _error(Category.APPLICATION, words.CANCELLED, job.cancel_reason or "cancelled", job))
        case _:
            return None


def _failure(job: Job, event: JobFailed) -> msgspec.Raw:
    """Give the details of the last run, or make them from its error text where it gave none."""
    if ref_in(event.details) is not None:
        return event.details
    try:
        known = _details.decode(event.details)
    except msgspec.MsgspecError:
        kind = {"timeout": words.TIMEOUT, "bad_params": words.ENCODING, "bad_result": words.ENCODING}
        return _error(Category.APPLICATION, kind.get(event.error_kind, words.ERROR), event.error, job, attempt=1)
    counted = msgspec.structs.replace(known, attempt_count=job.attempts + 1, max_attempts=job.max_attempts)
    return msgspec.Raw(_encode(counted))


def _error(category: Category, kind: str, message: str, job: Job, *, attempt: int = 0) -> msgspec.Raw:
    made = ErrorDetails(
        category=category,
        kind=kind,
        message=message,
        operation="activity",
        resource=job.job_type,
        attempt_count=job.attempts + attempt,
        max_attempts=job.max_attempts,
    )
    return msgspec.Raw(_encode(made))


def _as_text(payload: msgspec.Raw) -> msgspec.Raw:
    """Give a payload as an item carries it: its JSON as a text; a large one by reference, as it is."""
    if payload == NULL:
        return msgspec.Raw(b'"null"')
    return payload if ref_in(payload) is not None else msgspec.Raw(_encode(str(payload, "utf-8")))


def _failed(owner: Owner, details: msgspec.Raw) -> NewMessage:
    return _item(owner, "ActivityFailed", "details", details)


def _item(owner: Owner, kind: str, field: str, payload: msgspec.Raw) -> NewMessage:
    instance_id, execution_id, event_id = owner
    item = {"type": kind, "instance": instance_id, "execution_id": execution_id, "id": event_id, field: payload}
    return NewMessage(item=msgspec.Raw(_encode(item)), instance_id=instance_id, kind=kind)
