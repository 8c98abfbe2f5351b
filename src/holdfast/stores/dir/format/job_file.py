"""The job file: what one job says of itself, its runs included, and how it is read.

Names are those of document 000 where it has some (`taskId`, `state`, `createdAt`, `payload`), else our fields in
camelCase. The directory decides the status; `state` is a check. Fields at their default are left out, except those that
everyone looks for. A run has no parameters of its own here: they are frozen, and the job's.

`sum` tells whether the file still says what this store wrote: eight hex digits of what is the store's alone to say
(counters, runs, keys), and eight of everything. It guards against hands, not against malice.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from holdfast.model.ids import is_id, is_name
from holdfast.model.jobs import Job, JobStatus, Run
from holdfast.model.times import Timestamp, later
from holdfast.rules.invariants import RUNS_KEPT
from holdfast.rules.jobs.limits import settings_of
from holdfast.rules.state import State
from holdfast.stores.dir.format import camel_case
from holdfast.stores.dir.format.camel_case import Fields, encode, fields_of, plan_of, text_in
from holdfast.stores.dir.format.record_files import COMPLETED, FAILED, PENDING, RUNNING, number_in
from holdfast.stores.dir.format.record_text import Unreadable

Raw = msgspec.Raw

#: Fields that have another name or another form in the file.
_APART = {"jobId", "status", "createdAt", "jobType", "params", "seq"}
#: Written although they are at their default.
_ALWAYS = {"queue": "queue", "priority": "priority", "position": "position"}
_ALWAYS |= {"maxAttempts": "max_attempts", "attempts": "attempts"}
#: What a run has in common with its job, unless the job was edited since.
_SHARED = ("namespace", "queue", "limit_key", "template_id")
_WORDS = {status: "PENDING" if status is JobStatus.QUEUED else status.value for status in JobStatus}
_RAW = {status: Raw(encode(status)) for status in JobStatus}
_STATUS = {word: status for status, word in _WORDS.items()}
#: Directory → statuses its jobs may have; the first is taken where the file names none of them.
MAY_BE = {
    PENDING: (JobStatus.QUEUED,),
    RUNNING: (JobStatus.RUNNING,),
    COMPLETED: (JobStatus.COMPLETED,),
    FAILED: (JobStatus.FAILED, JobStatus.DEAD, JobStatus.CANCELLED),
}
#: Parts of a job file that are no fields of a job.
PARTS = frozenset({"taskId", "state", "createdAt", "payload", "runs", "runsDropped", "extra", "seq", "sum"})
EMPTY = Raw(b"{}")
#: What an edit of a pending file may change, beside the parameters.
EDITABLE = ("priority", "not_before", "expires_at", "max_attempts", "timeout_s", "tags")
#: Parts of a file that people may change; unknown fields are theirs.
_THEIRS = frozenset({"payload", "extra", *map(camel_case.camel, EDITABLE)})


class Proof(Enum):
    """Whether a file says what this store wrote."""

    #: All of it.
    WHOLE = "whole"
    #: Only what people may edit was changed.
    EDITED = "edited"
    #: Something that is the store's alone to say was changed: none of its numbers is believed.
    BROKEN = "broken"
    #: It does not tell: an earlier version wrote it.
    UNKNOWN = "unknown"


class JobFile(NamedTuple):
    """What a job's file says."""

    #: With the status its directory gives it.
    job: Job
    runs: tuple[Run, ...]
    #: Fields of a hand-made file that nobody knows, kept as they were.
    extra: Raw
    #: What the file itself says it is; None if it does not.
    state: JobStatus | None
    #: Number of the event that last changed it; None for a file that another program wrote.
    seq: int | None


# --- writing ----------------------------------------------------------------------------------------------------------


def write(job: Job, runs: Sequence[Run], extra: Raw = EMPTY) -> bytes:
    """Give the text of a job's file, without blanks. `runs` are those to be kept."""
    fields = plan_of(Job).write(job)
    payload = {"type": job.job_type, "data": job.params}
    page: dict[str, Any] = {
        "taskId": job.job_id,
        "state": _WORDS[job.status],
        "createdAt": job.created_at,
        "payload": payload,
    }
    for name, outside in plan_of(Job).names.items():
        if outside in _APART:
            continue
        if outside in fields:
            page[outside] = fields[outside]
        elif outside in _ALWAYS:
            page[outside] = getattr(job, name)
    page["runs"] = [_run(job, run) for run in runs]
    dropped = job.executions - sum(run.run_no > 0 for run in runs)
    if dropped > 0:
        page["runsDropped"] = dropped
    if extra != EMPTY:
        page["extra"] = extra
    page["seq"] = job.seq
    text = encode(page)
    return text[:-1] + b',"sum":"' + _sum(text).encode() + b'"}'


def _sum(text: bytes) -> str:
    """Give the sums of what is ours to say, and of everything; how an editor or a tool formats it does not count."""
    page = _plain(text)
    page.pop("sum", None)
    ours = {name: value for name, value in page.items() if name not in _THEIRS}
    payload = page.get("payload")
    ours["payload"] = payload.get("type") if isinstance(payload, dict) else None
    return f"{crc32(_sorted(ours)):08x}{crc32(_sorted(page)):08x}"


def _number(text: str) -> float:
    """Read 5.0 as 5: tools that rewrite JSON do so, too."""
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < _EXACT else number


#: Up to here every whole number is itself as a float.
_EXACT = 2**53
_plain = msgspec.json.Decoder(dict[str, Any], float_hook=_number).decode
_sorted = msgspec.json.Encoder(order="sorted").encode


def proof_of(text: bytes) -> Proof:
    """Tell whether the file of a job, its text without blanks, says what this store wrote. Raises Unreadable."""
    told = text_in(fields_of(text), "sum")
    if told is None:
        return Proof.UNKNOWN
    found = _sum(text)
    if told == found:
        return Proof.WHOLE
    return Proof.EDITED if told[:8] == found[:8] else Proof.BROKEN


def _run(job: Job, run: Run) -> dict[str, Any]:
    fields: dict[str, Any] = dict(plan_of(Run).write(run))
    del fields["jobId"], fields["paramsSnapshot"]
    for name in _SHARED:
        if getattr(run, name) == getattr(job, name):
            fields.pop(camel_case.camel(name), None)
        else:
            fields[camel_case.camel(name)] = getattr(run, name)
    return fields


def kept_runs(state: State, job: Job, now: Timestamp) -> Sequence[Run]:
    """Give the runs of a job that its file keeps: the newest, and those that still count for a rate."""
    runs = state.runs(job.job_id)
    older = sum(run.run_no > 0 for run in runs) - RUNS_KEPT
    if older <= 0:
        return runs
    first = next((at for at, run in enumerate(runs[:older]) if _counts(state, run, now)), older)
    return runs[first:]


def _counts(state: State, run: Run, now: Timestamp) -> bool:
    period_s = settings_of(state, run.namespace, run.queue).rate_period_s
    return period_s is not None and run.started_at > later(now, -period_s)


# --- reading ----------------------------------------------------------------------------------------------------------


def read(text: bytes, state: str) -> JobFile:
    """Read a job's file that lies in the directory `state`, its text without blanks. Raises Unreadable."""
    return read_fields(fields_of(text), state)


def read_fields(fields: Fields, state: str) -> JobFile:
    """Read what the fields of a job's file say. Raises Unreadable."""
    seq = number_in(fields)
    said = state_in(fields)
    status = said if said in MAY_BE[state] else MAY_BE[state][0]
    payload = fields_of(fields.get("payload", Raw(b"null")))
    known = {name: value for name, value in fields.items() if name not in PARTS and name not in _APART}
    unknown = plan_of(Job).unknown(known)
    known |= {
        "jobId": fields.get("taskId", Raw(b"null")),
        "status": _RAW[status],
        "createdAt": fields.get("createdAt", Raw(b"null")),
        "jobType": payload.get("type", Raw(b"null")),
        "params": payload.get("data", EMPTY),
        "seq": fields.get("seq", Raw(b"0")),
    }
    job: Job = plan_of(Job).read(known)
    _demand_sound(job)
    told = fields.get("runs")
    runs = () if told is None or told == b"[]" else tuple(_read_run(job, run) for run in _list_of(told))
    return JobFile(job, runs, joined(fields.get("extra", EMPTY), unknown), said, seq)


def state_in(fields: Fields) -> JobStatus | None:
    """Give the status a file says its job has; None if it says none. Raises Unreadable for a word that is none."""
    word = text_in(fields, "state")
    if word is None:
        return None
    if word not in _STATUS:
        raise Unreadable(f"state: {word!r:.40} is none of {', '.join(_STATUS)}")
    return _STATUS[word]


def joined(extra: Raw, unknown: Fields) -> Raw:
    """Give what is kept of fields that nobody knows."""
    if not unknown:
        return extra
    return Raw(encode({**fields_of(extra), **unknown}))


def _read_run(job: Job, text: Raw) -> Run:
    fields = fields_of(text)
    shared = {camel_case.camel(name): Raw(encode(getattr(job, name))) for name in _SHARED}
    given = {**shared, **fields, "jobId": Raw(encode(job.job_id)), "paramsSnapshot": job.params}
    run: Run = plan_of(Run).read(given)
    return run


def _list_of(text: Raw) -> list[Raw]:
    try:
        return msgspec.json.decode(text, type=list[Raw])
    except msgspec.MsgspecError as problem:
        raise Unreadable(f"runs: {problem}") from None


def _demand_sound(job: Job) -> None:
    """Refuse what no rule would have written and the next look-up would stumble over."""
    if not is_id(job.job_id):
        raise Unreadable(f"taskId: {job.job_id!r:.80} is not an id")
    if not is_name(job.queue) or (job.namespace and not is_name(job.namespace)) or not is_name(job.job_type):
        raise Unreadable("queue, namespace or payload.type: is not a name")
    if bytes(job.params)[:1] != b"{":
        raise Unreadable("payload.data: must be an object")
    if not -100 <= job.priority <= 100:
        raise Unreadable(f"priority: {job.priority} is not between -100 and 100")
    if min(job.attempts, job.executions, job.max_attempts - 1) < 0:
        raise Unreadable("attempts, executions or maxAttempts: is too small a number")
