"""Which values a command may carry. Checked before anything is decided; the answer names the field."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from operator import attrgetter

import msgspec

from holdfast.errors import InvalidValue
from holdfast.model.commands import (
    Command,
    EndSession,
    EndSessions,
    Enqueue,
    Expire,
    Extend,
    Fail,
    Lease,
    NewJob,
    Normalize,
    PauseQueue,
    Prune,
    Release,
    ResumeQueue,
    Retry,
    SetQueue,
    Snooze,
    Update,
)
from holdfast.model.events import JobChanges, QueueChanges
from holdfast.model.ids import is_id, is_name
from holdfast.model.jobs import Backoff, KeyHold
from holdfast.model.outcomes import Refusal, refuse
from holdfast.model.times import is_timestamp

#: The longest duration in seconds that a field takes: ten years.
MAX_DURATION_S = 10 * 366 * 86_400
#: Bytes of a text that is kept beside a job and never looked into.
MAX_TEXT = 1000
#: Bytes of a progress: 4 KiB of the handler's own data, a message, a few numbers.
MAX_PROGRESS = 8192
MAX_JOBS = 1000
MAX_LEASES = 100
MAX_SWEEP = 10_000
MAX_PLACES = 1_000_000
#: The longest period of a rate in seconds, 31 days: its runs are kept as long, whatever retention says.
MAX_PERIOD_S = 31 * 86_400

Problem = tuple[str, str]


def problem_with(command: Command) -> Refusal | None:
    """Give the refusal for the first value that its field does not take, or None."""
    for field, complaint in _problems(command):
        return refuse(InvalidValue, f"{field}: {complaint}. Nothing was changed.", field=field)
    return None


def _problems(command: Command) -> Iterator[Problem]:
    yield from _label("cmd", command.cmd or None)
    yield from _text("actor", command.actor)
    yield from _named(command)
    match command:
        case Enqueue(jobs=jobs):
            if not 1 <= len(jobs) <= MAX_JOBS:
                yield "jobs", f"{len(jobs)} jobs; one command takes 1 to {MAX_JOBS}"
            yield from _new_jobs(jobs)
        case Lease():
            yield from _lease(command)
        case Extend(lease_s=lease_s):
            if lease_s is not None:
                yield from _between("lease_s", lease_s, 1, 86_400)
        case Fail(retry_after_s=after_s):
            yield from _duration("retry_after_s", after_s)
        case Snooze(delay_s=delay_s) | Release(delay_s=delay_s):
            yield from _duration("delay_s", delay_s)
        case Update(changes=changes):
            yield from _changes(changes)
        case Retry(new_job_id=new_job_id, priority=priority):
            if not is_id(new_job_id):
                yield "new_job_id", f"{new_job_id!r:.80} is not an id"
            if priority is not None:
                yield from _between("priority", priority, -100, 100)
        case PauseQueue(namespace=namespace, queue=queue) | ResumeQueue(namespace=namespace, queue=queue):
            yield from _queue(namespace, queue)
        case Normalize(namespace=namespace, queue=queue):
            yield from _queue(namespace, queue)
        case SetQueue(namespace=namespace, queue=queue, changes=settings):
            yield from _queue(namespace, queue)
            yield from _settings(settings)
        case Expire(limit=limit) | EndSessions(limit=limit) | EndSession(limit=limit):
            yield from _between("limit", limit, 1, MAX_SWEEP)
        case Prune(retention=retention, limit=limit):
            yield from _between("limit", limit, 1, MAX_SWEEP)
            yield from _between("retention.done_s", retention.done_s, 0, math.inf)
            yield from _between("retention.failed_s", retention.failed_s, 0, math.inf)
        case _:
            return


def _named(command: Command) -> Iterator[Problem]:
    """Check what a command says about one job: which, by which token, and how its process ended."""
    for field in _fields_among(type(command), ("job_id", "before", "after")):
        text = getattr(command, field)
        if text is not None and not is_id(text):
            yield from _label(field, text)
    progress = getattr(command, "progress", None)
    if progress is not None and (size := memoryview(progress).nbytes) > MAX_PROGRESS:
        yield "progress", f"{size:,} bytes are more than the {MAX_PROGRESS:,} that are kept"
    for field in _fields_among(type(command), ("token", "exit_code")):
        number = getattr(command, field)
        if number is not None and not -(1 << 63) <= number < 1 << 63:
            yield field, f"{_shown(number)} does not fit 64 bits"


@cache
def _fields_among(kind: type[Command], names: tuple[str, ...]) -> tuple[str, ...]:
    """Give the names that are fields of a kind of command; worked out once, as every report asks."""
    return tuple(name for name in names if name in kind.__struct_fields__)


def _new_jobs(jobs: Sequence[NewJob]) -> Iterator[Problem]:
    """Check jobs of one command: what each has alone, and the rest only where it differs from the job before."""
    before: object = None
    for job in jobs:
        yield from _own(job)
        options = _options(job)
        if options != before:
            yield from _new_job(job)
            before = options


_options = attrgetter(*(name for name in NewJob.__struct_fields__ if name not in ("job_id", "params", "key")))


def _own(job: NewJob) -> Iterator[Problem]:
    if not is_id(job.job_id):
        yield "job_id", f"{job.job_id!r:.80} is not an id (1-200 characters, no control characters, no outer blanks)"
    if job.key is not None:
        yield from _label("key", job.key)


def _new_job(job: NewJob) -> Iterator[Problem]:
    if not is_name(job.job_type):
        yield "job_type", f"{job.job_type!r:.80} is not a name (1-128 letters, digits and . _ - : /)"
    yield from _queue(job.namespace, job.queue)
    yield from _between("priority", job.priority, -100, 100)
    yield from _between("lease_s", job.lease_s, 1, 86_400)
    yield from _between("max_attempts", job.max_attempts, 1, 1000)
    if job.max_expiries is not None:
        yield from _between("max_expiries", job.max_expiries, 1, 100)
    elif job.owner is None:
        yield "max_expiries", "only an activity may have no limit"
    yield from _between("key_limit", job.key_limit, 1, 1_000_000)
    if job.timeout_s is not None:
        yield from _between("timeout_s", job.timeout_s, 0.001, MAX_DURATION_S)
    yield from _duration("delay_s", job.delay_s)
    yield from _duration("ttl_s", job.ttl_s)
    yield from _time("not_before", job.not_before)
    yield from _time("expires_at", job.expires_at)
    yield from _backoff(job.backoff)
    yield from _key(job)
    yield from _label("limit_key", job.limit_key)
    for field in ("owner", "affinity", "submitted_by", "traceparent"):
        yield from _text(field, getattr(job, field))
    yield from _tags(job.tags)


def _key(job: NewJob) -> Iterator[Problem]:
    if job.key_window_s is not None:
        yield from _between("key_window_s", job.key_window_s, 0.001, MAX_DURATION_S)
    if (job.key_hold is KeyHold.WINDOW) != (job.key_window_s is not None):
        yield "key_window_s", "belongs to key_hold 'window', and only to it"


def _lease(command: Lease) -> Iterator[Problem]:
    yield from _label("worker_id", command.worker_id)
    yield from _label("session_id", command.session_id)
    for job_type in command.job_types or ():
        if not is_name(job_type):
            yield "job_types", f"{job_type!r:.80} is not a name (1-128 letters, digits and . _ - : /)"
    yield from _between("n", command.n, 1, MAX_LEASES)
    if command.lease_s is not None:
        yield from _between("lease_s", command.lease_s, 1, 86_400)
    if not command.queues:
        yield "queues", "name at least one queue"
    for queue in command.queues:
        yield from _queue(command.namespace, queue)


def _changes(changes: JobChanges) -> Iterator[Problem]:
    given = changes.given()
    if not given:
        yield "changes", "name at least one field to change"
    if isinstance(changes.queue, str):
        yield from _queue("", changes.queue)
    if isinstance(changes.priority, int):
        yield from _between("priority", changes.priority, -100, 100)
    if isinstance(changes.lease_s, int | float):
        yield from _between("lease_s", changes.lease_s, 1, 86_400)
    if isinstance(changes.timeout_s, int | float):
        yield from _between("timeout_s", changes.timeout_s, 0.001, MAX_DURATION_S)
    if isinstance(changes.max_attempts, int):
        yield from _between("max_attempts", changes.max_attempts, 1, 1000)
    if isinstance(changes.max_expiries, int):
        yield from _between("max_expiries", changes.max_expiries, 1, 100)
    if isinstance(changes.key_limit, int):
        yield from _between("key_limit", changes.key_limit, 1, 1_000_000)
    if isinstance(changes.not_before, str):
        yield from _time("not_before", changes.not_before)
    if isinstance(changes.expires_at, str):
        yield from _time("expires_at", changes.expires_at)
    if isinstance(changes.backoff, Backoff):
        yield from _backoff(changes.backoff)
    if isinstance(changes.limit_key, str):
        yield from _label("limit_key", changes.limit_key)
    if isinstance(changes.tags, dict):
        yield from _tags(changes.tags)


def _settings(changes: QueueChanges) -> Iterator[Problem]:
    given = changes.given()
    if not given:
        yield "changes", "name at least one setting to change"
    if isinstance(changes.max_running, int):
        yield from _between("max_running", changes.max_running, 1, MAX_PLACES)
    if isinstance(changes.rate_count, int):
        yield from _between("rate_count", changes.rate_count, 1, MAX_PLACES)
    if isinstance(changes.rate_period_s, int | float):
        yield from _between("rate_period_s", changes.rate_period_s, 0.001, MAX_PERIOD_S)
    if isinstance(changes.aging_s, int | float):
        yield from _between("aging_s", changes.aging_s, 0.001, MAX_DURATION_S)
    pair = (given.get("rate_count", msgspec.UNSET), given.get("rate_period_s", msgspec.UNSET))
    if len({msgspec.UNSET if part is msgspec.UNSET else part is None for part in pair}) > 1:
        yield "rate_period_s", "a rate is a number of starts and a period: set both, or take both away"


def _queue(namespace: str, queue: str) -> Iterator[Problem]:
    if not is_name(queue):
        yield "queue", f"{queue!r:.80} is not a name (1-128 letters, digits and . _ - : /)"
    if namespace and not is_name(namespace):
        yield "namespace", f"{namespace!r:.80} is not a name"


def _between(field: str, value: float, low: float, high: float) -> Iterator[Problem]:
    # `not (a <= b <= c)` is also true for NaN.
    if not low <= value <= high:
        yield field, f"{_shown(value)} is not between {low} and {high}"


def _duration(field: str, seconds: float | None) -> Iterator[Problem]:
    if seconds is not None and not 0 <= seconds <= MAX_DURATION_S:
        yield field, f"{_shown(seconds)} is not a number of seconds between 0 and ten years"


def _shown(number: float) -> str:
    """Write a number for a message, unless it is so long that Python would refuse to."""
    if isinstance(number, int) and number.bit_length() > 64:
        return f"an integer of {number.bit_length()} bits"
    return repr(number)


def _time(field: str, when: str | None) -> Iterator[Problem]:
    if when is not None and not is_timestamp(when):
        yield field, f"{when!r:.40} is not a time such as 2026-01-06T10:15:30.000000Z"


def _backoff(backoff: Backoff) -> Iterator[Problem]:
    yield from _duration("backoff.base_s", backoff.base_s)
    yield from _duration("backoff.cap_s", backoff.cap_s)
    yield from _between("backoff.factor", backoff.factor, 1, 1000)
    yield from _between("backoff.jitter", backoff.jitter, 0, 1)


def _label(field: str, text: str | None) -> Iterator[Problem]:
    if text is not None and not is_id(text):
        yield field, f"{text!r:.80} must have 1-200 characters, no control characters and no outer blanks"


def _text(field: str, text: str | None) -> Iterator[Problem]:
    if text and (len(text) > MAX_TEXT or not text.isascii()):
        try:
            fits = len(text.encode()) <= MAX_TEXT
        except UnicodeEncodeError:
            fits = False
        if not fits:
            yield field, f"{text!r:.80} must be readable text of at most {MAX_TEXT} bytes"


def _tags(tags: dict[str, str] | None) -> Iterator[Problem]:
    if tags is None:
        return
    if len(tags) > 16:
        yield "tags", f"{len(tags)} pairs; a job takes 16"
    for name, text in tags.items():
        yield from _label("tags", name)
        yield from _label("tags", text)
