"""Files that other programs and people wrote: what job they ask for, and which edit of a job they mean.

A stranger is read leniently where it says little, strictly in what it says. What is ours to say (lease, counters, runs,
numbers) is passed over; what nobody knows is kept as `extra`. Whether the job may be is decided where every other is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from holdfast.errors import UsageError
from holdfast.model.commands import NewJob
from holdfast.model.events import JobChanges
from holdfast.model.ids import is_id
from holdfast.model.jobs import Job, JobStatus
from holdfast.model.payloads import admit_object
from holdfast.model.times import FIRST, Timestamp, parse_timestamp
from holdfast.stores.dir.format.camel_case import NULL, Fields, encode, fields_of, plan_of, text_in
from holdfast.stores.dir.format.file_names import id_in
from holdfast.stores.dir.format.job_file import EDITABLE, EMPTY, MAY_BE, PARTS, JobFile, joined, state_in
from holdfast.stores.dir.format.record_text import Unreadable

Raw = msgspec.Raw

#: Fields of a new job that are not for files: ids and parameters have their places, an owner is a workflow.
_NOT_GIVEN = {"jobId", "jobType", "params", "createdAt", "onConflict", "owner"}
#: What an ended file of another program may tell beside the job it was.
_TOLD = ("result", "error", "finishedAt", "startedAt")


class Stranger(NamedTuple):
    """The job that a file asks for."""

    job: NewJob
    extra: Raw


def stranger(text: bytes, stem: str, mtime: Timestamp, new_id: str) -> Stranger:
    """Read a file that asks for a job; its text is without blanks. Raises Unreadable."""
    fields = fields_of(text)
    if state_in(fields) not in (None, JobStatus.QUEUED, JobStatus.RUNNING):
        raise Unreadable("state: a file that asks for a job says PENDING, or nothing")
    job_type, params = _payload(fields)
    job_id = text_in(fields, "taskId")
    if job_id is None:
        named = id_in(stem)
        job_id = named if named is not None and is_id(named) else new_id
    plan = plan_of(NewJob)
    given = {name: value for name, value in fields.items() if name not in PARTS and name not in _NOT_GIVEN}
    known = {name: value for name, value in given.items() if name in plan.names.values()}
    known |= {
        "jobId": Raw(encode(job_id)),
        "jobType": Raw(encode(job_type)),
        "params": params,
        "createdAt": Raw(encode(_created_at(fields, mtime))),
        "onConflict": Raw(b'"reject"'),
    }
    return Stranger(plan.read(known), _extra(fields, given))


def _extra(fields: Fields, given: Fields) -> Raw:
    jobs = plan_of(Job).unknown(given)
    unknown = {name: value for name, value in jobs.items() if name not in plan_of(NewJob).names.values()}
    extra = fields.get("extra", EMPTY)
    fields_of(extra)
    return joined(extra, unknown)


def _payload(fields: Fields) -> tuple[str, Raw]:
    payload = fields_of(fields.get("payload", Raw(NULL)))
    job_type = text_in(payload, "type")
    if job_type is None:
        raise Unreadable("payload.type: is missing")
    data = payload.get("data", EMPTY)
    if bytes(data)[:1] != b"{":
        data = Raw(encode({"data": data}))
    try:
        return job_type, admit_object(data, "payload.data")
    except UsageError as problem:
        raise Unreadable(problem.message) from None


def _created_at(fields: Fields, mtime: Timestamp) -> Timestamp:
    said = text_in(fields, "createdAt")
    try:
        return mtime if said is None else parse_timestamp(said, "createdAt")
    except UsageError as problem:
        raise Unreadable(problem.message) from None


def history(text: bytes, stem: str, state: str, mtime: Timestamp, adopted_at: Timestamp = FIRST) -> JobFile:
    """Read an ended job that another program left in `completed/` or `failed/`. Raises Unreadable.

    It counts as finished when it was adopted, or retention would remove old history as soon as it is opened.
    """
    fields = fields_of(text)
    said = state_in(fields)
    job_type, params = _payload(fields)
    job_id = text_in(fields, "taskId") or id_in(stem)
    if job_id is None or not is_id(job_id):
        raise Unreadable("taskId: is missing")
    plan = plan_of(Job)
    asked = {name: value for name, value in fields.items() if name in _HISTORY}
    known: dict[str, Any] = asked | {
        "jobId": Raw(encode(job_id)),
        "jobType": Raw(encode(job_type)),
        "params": params,
        "createdAt": Raw(encode(_created_at(fields, mtime))),
        "status": Raw(encode(said if said in MAY_BE[state] else MAY_BE[state][0])),
    }
    job: Job = plan.read(known)
    finished_at = max(job.finished_at or mtime, job.created_at, adopted_at)
    job = msgspec.structs.replace(job, finished_at=finished_at)
    given = {name: value for name, value in fields.items() if name not in PARTS}
    return JobFile(job, (), _extra(fields, given), said, None)


_HISTORY = frozenset({*_TOLD, "namespace", "queue", "priority", "tags"})


def edit(job: Job, file: JobFile) -> JobChanges:
    """Give what an edited file of a pending job changes, of that which may be changed."""
    after = file.job
    changed = {name: getattr(after, name) for name in EDITABLE if getattr(after, name) != getattr(job, name)}
    if job.started_at is None and after.params != job.params:
        changed["params"] = after.params
    return JobChanges(**changed)


def all_of(file: JobFile) -> JobChanges:
    """Give all that a file of a pending job says of what may be changed."""
    said = {name: getattr(file.job, name) for name in EDITABLE}
    return JobChanges(**said) if file.job.started_at is not None else JobChanges(params=file.job.params, **said)


def agrees(text: bytes, known: bytes) -> bool:
    """Tell whether everything a file says of its job is what the file we have says, too. Raises Unreadable."""
    theirs, ours = fields_of(text), fields_of(known)
    if _payload(theirs) != _payload(ours):
        return False
    if "createdAt" in theirs and _created_at(theirs, FIRST) != _created_at(ours, FIRST):
        return False
    return all(ours.get(name) == value for name, value in theirs.items() if name not in _COMPARED)


_COMPARED = frozenset({"payload", "createdAt", "state", "sum"})
