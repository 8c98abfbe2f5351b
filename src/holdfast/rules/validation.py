"""Which values a command may carry. Checked before anything is decided; the answer names the field."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from operator import attrgetter

import msgspec

from holdfast.errors import InvalidValue
from holdfast.model.commands import (
    Backfill,
    ClaimDeliveries,
    Command,
    CreateGroup,
    DropRuns,
    EndDelivery,
    Enqueue,
    Extend,
    Fail,
    Fire,
    Lease,
    NewJob,
    Normalize,
    PauseQueue,
    Prune,
    Release,
    RenewReservation,
    Replan,
    Reserve,
    ResumeQueue,
    Retry,
    SetQueue,
    Snooze,
    StartDirect,
    Update,
)
from holdfast.model.events import JobChanges, QueueChanges
from holdfast.model.ids import is_id, is_name
from holdfast.model.jobs import Backoff, KeyHold
from holdfast.model.outcomes import Refusal, refuse
from holdfast.model.retention import OF_THE_STORE, Retention
from holdfast.model.workflows.instances import is_owner, owned_by
from holdfast.rules.field_checks import (
    MAX_DURATION_S,
    Problem,
    check_backoff,
    check_between,
    check_duration,
    check_instance_id,
    check_label,
    check_queue,
    check_tags,
    check_text,
    check_time,
    shown,
)

#: Bytes of a progress: 4 KiB of the handler's own data, a message, a few numbers.
MAX_PROGRESS = 8192
MAX_JOBS = 1000
#: Bytes of the text that names an activity: the longest id of an instance, escaped, with two numbers.
MAX_OWNER = 4096
#: The shortest and the longest time in seconds that a reservation holds unless it is renewed.
TTL_S = (1, 86_400)
MAX_LEASES = 100
#: Members of a group.
MAX_MEMBERS = 10_000
MAX_SWEEP = 10_000
#: Deliveries that one command claims.
MAX_CLAIMS = 100
MAX_PLACES = 1_000_000
#: The most ended jobs, or events, that a number can ask to keep.
MAX_KEPT = 1_000_000_000
#: The longest period of a rate in seconds, 31 days: its runs are kept as long, whatever retention says.
MAX_PERIOD_S = 31 * 86_400


#: Fields that are ids, in whatever command they are.
_IDS = (
    "job_id",
    "before",
    "after",
    "schedule_id",
    "template_id",
    "webhook_id",
    "delivery_id",
    "reservation_id",
    "group_id",
)


def problem_with(command: Command) -> Refusal | None:
    """Give the refusal for the first value that its field does not take, or None."""
    for field, complaint in _problems(command):
        return refuse(InvalidValue, f"{field}: {complaint}. Nothing was changed.", field=field)
    return None


def _problems(command: Command) -> Iterator[Problem]:
    yield from check_label("cmd", command.cmd or None)
    yield from check_text("actor", command.actor)
    yield from _named(command)
    match command:
        case Enqueue(jobs=jobs):
            if not 1 <= len(jobs) <= MAX_JOBS:
                yield "jobs", f"{len(jobs)} jobs; one command takes 1 to {MAX_JOBS}"
            yield from _new_jobs(jobs)
        case CreateGroup():
            yield from _group(command)
        case Lease():
            yield from _lease(command)
        case Extend(lease_s=lease_s):
            if lease_s is not None:
                yield from check_between("lease_s", lease_s, 1, 86_400)
        case Fail(retry_after_s=after_s):
            yield from check_duration("retry_after_s", after_s)
        case Snooze(delay_s=delay_s) | Release(delay_s=delay_s):
            yield from check_duration("delay_s", delay_s)
        case Update(changes=changes):
            yield from _changes(changes)
        case Retry(new_job_id=new_job_id, priority=priority):
            if not is_id(new_job_id):
                yield "new_job_id", f"{new_job_id!r:.80} is not an id"
            if priority is not None:
                yield from check_between("priority", priority, -100, 100)
        case PauseQueue(namespace=namespace, queue=queue) | ResumeQueue(namespace=namespace, queue=queue):
            yield from check_queue(namespace, queue)
        case Normalize(namespace=namespace, queue=queue):
            yield from check_queue(namespace, queue)
        case SetQueue(namespace=namespace, queue=queue, changes=settings):
            yield from check_queue(namespace, queue)
            yield from _settings(settings)
        case Reserve() | RenewReservation() | StartDirect():
            yield from _reserving(command)
        case Backfill(backfill_id=backfill_id, since=since, until=until):
            yield from check_label("backfill_id", backfill_id)
            yield from check_time("since", since)
            yield from check_time("until", until)
        case Fire(expected=expected) | Replan(expected=expected):
            yield from check_time("expected", expected)
        case EndDelivery():
            yield from _sending(command)
        case DropRuns(runs=runs):
            if not 1 <= len(runs) <= MAX_SWEEP:
                yield "runs", f"{len(runs)} runs; one command takes 1 to {MAX_SWEEP:,}"
            for run_id in runs:
                yield from check_label("runs", run_id)
        case Prune(retention=retention):
            yield from retention_problems(retention, math.inf)
        case _:
            return


def _sending(command: EndDelivery) -> Iterator[Problem]:
    yield from check_time("claimed_until", command.claimed_until)
    if command.status is not None:
        yield from check_between("status", command.status, 100, 999)


def _reserving(command: Reserve | RenewReservation | StartDirect) -> Iterator[Problem]:
    if isinstance(command, RenewReservation):
        yield from check_between("ttl_s", command.ttl_s, *TTL_S)
        return
    yield from check_label("session_id", command.session_id)
    if isinstance(command, StartDirect):
        yield from check_label("worker_id", command.worker_id)
        yield from _new_jobs((command.job,))
        return
    yield from check_queue(command.namespace, command.queue)
    yield from check_label("reserved_by", command.reserved_by)
    yield from check_between("ttl_s", command.ttl_s, *TTL_S)


def _named(command: Command) -> Iterator[Problem]:
    """Check what a command says about one job: which, by which token, and how its process ended."""
    for field in _fields_among(type(command), _IDS):
        text = getattr(command, field)
        if text is not None and not is_id(text):
            yield from check_label(field, text)
    progress = getattr(command, "progress", None)
    if progress is not None and (size := memoryview(progress).nbytes) > MAX_PROGRESS:
        yield "progress", f"{size:,} bytes are more than the {MAX_PROGRESS:,} that are kept"
    for field in _fields_among(type(command), ("token", "exit_code")):
        number = getattr(command, field)
        if number is not None and not -(1 << 63) <= number < 1 << 63:
            yield field, f"{shown(number)} does not fit 64 bits"
    for field in _fields_among(type(command), ("limit",)):
        most = MAX_CLAIMS if isinstance(command, ClaimDeliveries) else MAX_SWEEP
        yield from check_between(field, getattr(command, field), 1, most)


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
            yield from new_job_problems(job)
            before = options


_options = attrgetter(*(name for name in NewJob.__struct_fields__ if name not in ("job_id", "params", "key")))


def _group(command: CreateGroup) -> Iterator[Problem]:
    if len(command.members) > MAX_MEMBERS:
        yield "members", f"{len(command.members)} members; a group takes {MAX_MEMBERS:,}"
    if command.namespace:
        yield from name_problems("namespace", command.namespace)
    yield from check_label("name", command.name)
    new = [member for member in command.members if isinstance(member, NewJob)]
    yield from _new_jobs(new)
    for member in command.members:
        if isinstance(member, str):
            yield from check_label("members", member)
    ids = [member if isinstance(member, str) else member.job_id for member in command.members]
    if command.callback is not None:
        yield from _callback(command.callback, ids)
        new.append(command.callback)
        ids.append(command.callback.job_id)
    if any(job.namespace != command.namespace for job in new):
        yield "members", "all jobs of a group are of its namespace"
    if len(set(ids)) < len(ids):
        yield "members", "a job can be in a group only once"


def _callback(job: NewJob, ids: Sequence[str]) -> Iterator[Problem]:
    yield from _new_jobs([job])
    if not ids:
        yield "callback", "a group without members never ends, and would never call back"
    if job.key is not None:
        yield "callback", "takes no key: the end of a group cannot wait until one is free"


def _own(job: NewJob) -> Iterator[Problem]:
    if not is_id(job.job_id):
        yield "job_id", f"{job.job_id!r:.80} is not an id (1-200 characters, no control characters, no outer blanks)"
    if job.key is not None:
        yield from check_label("key", job.key)


def name_problems(field: str, name: str) -> Iterator[Problem]:
    """Check a name."""
    if not is_name(name):
        yield field, f"{name!r:.80} is not a name (1-128 letters, digits and . _ - : /)"


def _owner(owner: str | None) -> Iterator[Problem]:
    wrong = tuple(check_text("owner", owner, MAX_OWNER))
    yield from wrong
    if owner is not None and not wrong and not is_owner(owner):
        yield "owner", "must name an activity: instance, execution and event, as a JSON list"
    elif owner is not None and not wrong:
        named = owned_by(owner)
        yield from () if named is None else check_instance_id("owner", named[0])


def new_job_problems(job: NewJob) -> Iterator[Problem]:
    """Check the options of a job."""
    yield from name_problems("job_type", job.job_type)
    yield from check_queue(job.namespace, job.queue)
    yield from check_between("priority", job.priority, -100, 100)
    yield from check_between("lease_s", job.lease_s, 1, 86_400)
    yield from check_between("max_attempts", job.max_attempts, 1, 1000)
    if job.max_expiries is not None:
        yield from check_between("max_expiries", job.max_expiries, 1, 100)
    elif job.owner is None:
        yield "max_expiries", "only an activity may have no limit"
    yield from check_between("key_limit", job.key_limit, 1, 1_000_000)
    if job.timeout_s is not None:
        yield from check_between("timeout_s", job.timeout_s, 0.001, MAX_DURATION_S)
    yield from check_duration("delay_s", job.delay_s)
    yield from check_duration("ttl_s", job.ttl_s)
    yield from check_time("not_before", job.not_before)
    yield from check_time("expires_at", job.expires_at)
    yield from check_time("created_at", job.created_at)
    yield from check_backoff(job.backoff)
    yield from _key(job)
    yield from check_label("limit_key", job.limit_key)
    yield from _owner(job.owner)
    for field in ("affinity", "submitted_by", "traceparent"):
        yield from check_text(field, getattr(job, field))
    yield from check_tags(job.tags)


def _key(job: NewJob) -> Iterator[Problem]:
    if job.key_window_s is not None:
        yield from check_between("key_window_s", job.key_window_s, 0.001, MAX_DURATION_S)
    if (job.key_hold is KeyHold.WINDOW) != (job.key_window_s is not None):
        yield "key_window_s", "belongs to key_hold 'window', and only to it"


def _lease(command: Lease) -> Iterator[Problem]:
    yield from check_label("worker_id", command.worker_id)
    yield from check_label("session_id", command.session_id)
    for job_type in command.job_types or ():
        if not is_name(job_type):
            yield "job_types", f"{job_type!r:.80} is not a name (1-128 letters, digits and . _ - : /)"
    yield from check_between("n", command.n, 1, MAX_LEASES)
    if command.lease_s is not None:
        yield from check_between("lease_s", command.lease_s, 1, 86_400)
    if not command.queues:
        yield "queues", "name at least one queue"
    for queue in command.queues:
        yield from check_queue(command.namespace, queue)


def _changes(changes: JobChanges) -> Iterator[Problem]:
    given = changes.given()
    if not given:
        yield "changes", "name at least one field to change"
    if isinstance(changes.queue, str):
        yield from check_queue("", changes.queue)
    if isinstance(changes.priority, int):
        yield from check_between("priority", changes.priority, -100, 100)
    if isinstance(changes.lease_s, int | float):
        yield from check_between("lease_s", changes.lease_s, 1, 86_400)
    if isinstance(changes.timeout_s, int | float):
        yield from check_between("timeout_s", changes.timeout_s, 0.001, MAX_DURATION_S)
    if isinstance(changes.max_attempts, int):
        yield from check_between("max_attempts", changes.max_attempts, 1, 1000)
    if isinstance(changes.max_expiries, int):
        yield from check_between("max_expiries", changes.max_expiries, 1, 100)
    if isinstance(changes.key_limit, int):
        yield from check_between("key_limit", changes.key_limit, 1, 1_000_000)
    if isinstance(changes.not_before, str):
        yield from check_time("not_before", changes.not_before)
    if isinstance(changes.expires_at, str):
        yield from check_time("expires_at", changes.expires_at)
    if isinstance(changes.backoff, Backoff):
        yield from check_backoff(changes.backoff)
    if isinstance(changes.limit_key, str):
        yield from check_label("limit_key", changes.limit_key)
    if isinstance(changes.tags, dict):
        yield from check_tags(changes.tags)


def retention_problems(retention: Retention, longest_s: float = MAX_DURATION_S) -> Iterator[Problem]:
    """Check how ended work is kept."""
    for field in ("done_s", "failed_s", "logs_s", "deliveries_s", "reservations_s", "workflows_s", "feed_s"):
        seconds = getattr(retention, field)
        if seconds is not None:
            yield from check_between(f"retention.{field}", seconds, 0, longest_s)
    if retention.executions_max is not None:
        yield from check_between("retention.executions_max", retention.executions_max, 1, MAX_KEPT)
    for field in ("done_max", "failed_max", "feed_max"):
        most = getattr(retention, field)
        if most is not None:
            yield from check_between(f"retention.{field}", most, 0, MAX_KEPT)


def _settings(changes: QueueChanges) -> Iterator[Problem]:
    given = changes.given()
    if not given:
        yield "changes", "name at least one setting to change"
    if isinstance(changes.max_running, int):
        yield from check_between("max_running", changes.max_running, 1, MAX_PLACES)
    if isinstance(changes.rate_count, int):
        yield from check_between("rate_count", changes.rate_count, 1, MAX_PLACES)
    if isinstance(changes.rate_period_s, int | float):
        yield from check_between("rate_period_s", changes.rate_period_s, 0.001, MAX_PERIOD_S)
    if isinstance(changes.aging_s, int | float):
        yield from check_between("aging_s", changes.aging_s, 0.001, MAX_DURATION_S)
    if isinstance(changes.retention, Retention):
        yield from retention_problems(changes.retention)
        for field in OF_THE_STORE:
            if getattr(changes.retention, field) is not None:
                yield f"retention.{field}", "is for the store as a whole, not for a queue"
    pair = (given.get("rate_count", msgspec.UNSET), given.get("rate_period_s", msgspec.UNSET))
    if len({msgspec.UNSET if part is msgspec.UNSET else part is None for part in pair}) > 1:
        yield "rate_period_s", "a rate is a number of starts and a period: set both, or take both away"
