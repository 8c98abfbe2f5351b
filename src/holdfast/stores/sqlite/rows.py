"""Records as rows and back. A row is the record's fields in order, then what the table keeps beside them.

Conversion goes by position, and only where SQL has no such type: enums become their text, payloads and small structs
JSON text, booleans 0 and 1. What is bound is exactly what comes back, so the sum of a row needs no decoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, cast
from zlib import crc32

import msgspec

from holdfast.model.jobs import Backoff, Job, JobStatus, KeyHold, KeyScope, RetryKind, RetryMode, Run, RunStatus
from holdfast.model.records import Authority, DoneCommand, HeldKey, Key, Queue, Record, pair
from holdfast.model.retention import Retention
from holdfast.model.schedules import CatchUp, Overlap, Schedule
from holdfast.model.templates import JobOptions, Template
from holdfast.stores.sqlite.statements import COLUMNS, SQL, assigned, inserted

Row = tuple[Any, ...]

_astuple = msgspec.structs.astuple
_json = msgspec.json.Encoder().encode
_tags: msgspec.json.Decoder[dict[str, str]] = msgspec.json.Decoder(dict[str, str])
_backoff: msgspec.json.Decoder[Backoff] = msgspec.json.Decoder(Backoff)
_retention: msgspec.json.Decoder[Retention | None] = msgspec.json.Decoder(Retention | None)

#: Where `lane` and `waits` stand in the sum of a job's row.
LANE_BIT = 32
WAITS_BIT = 33


def sum_of(fields: Sequence[Any]) -> int:
    """Give the checksum of a row's fields."""
    return crc32(_json(fields))


def chained(before: int, seq: int, ts: str, event: bytes) -> int:
    """Give the sum of an event, continued from that of the event before."""
    return crc32(event, crc32(b"%d %b " % (seq, ts.encode()), before))


@lru_cache(1024)
def _write_backoff(backoff: Backoff) -> str:
    # One text for equal backoffs: 10 and 10.0 are equal, and another process reads the second from the first.
    return _json(Backoff(*map(float, _astuple(backoff)))).decode()


_read_backoff = lru_cache(1024)(_backoff.decode)


# --- jobs -------------------------------------------------------------------------------------------------------------

_AT = {name: at for at, name in enumerate(COLUMNS["jobs"])}
_PARAMS, _STATUS, _RETRY_MODE, _BACKOFF = _AT["params"], _AT["status"], _AT["retry_mode"], _AT["backoff"]
_RETRY_KIND, _DIRECT, _SCOPE, _HOLD = _AT["retry_kind"], _AT["direct"], _AT["key_scope"], _AT["key_hold"]
_TAGS, _RESULT, _LEASE_S, _TIMEOUT_S = _AT["tags"], _AT["result"], _AT["lease_s"], _AT["timeout_s"]

#: Members of enums as plain text: binding a subclass of str takes a slow way round.
_plain: dict[str, str] = {
    member: member.value for kind in (JobStatus, RunStatus, RetryMode, RetryKind, KeyScope, KeyHold) for member in kind
}
_statuses: dict[str, JobStatus] = {status.value: status for status in JobStatus}
_modes: dict[str, RetryMode] = {mode.value: mode for mode in RetryMode}
_kinds: dict[str, RetryKind] = {kind.value: kind for kind in RetryKind}
_scopes: dict[str, KeyScope] = {scope.value: scope for scope in KeyScope}
_holds: dict[str, KeyHold] = {hold.value: hold for hold in KeyHold}


def job_row(job: Job) -> Row:
    """Write a job: its fields, its lane, whether it waits for others, its sum."""
    row: list[Any] = list(_astuple(job))
    row[_PARAMS] = str(job.params, "utf-8")
    row[_STATUS] = _plain[job.status]
    row[_LEASE_S] = float(job.lease_s)
    row[_RETRY_MODE] = _plain[job.retry_mode]
    row[_BACKOFF] = _write_backoff(job.backoff)
    row[_DIRECT] = int(job.direct)
    row[_SCOPE] = _plain[job.key_scope]
    row[_HOLD] = _plain[job.key_hold]
    if job.timeout_s is not None:
        row[_TIMEOUT_S] = float(job.timeout_s)
    if job.retry_kind is not None:
        row[_RETRY_KIND] = _plain[job.retry_kind]
    if job.tags is not None:
        row[_TAGS] = _json(job.tags).decode()
    if job.result is not None:
        row[_RESULT] = str(job.result, "utf-8")
    lane = int(job.not_before is not None and job.status is JobStatus.QUEUED)
    total = crc32(_json(row)) | lane << LANE_BIT
    return (*row, lane, None, total)


def as_waiting(row: Row) -> Row:
    """Give the row of a queued job that waits for its turn in a group: held back, whatever its time."""
    return (*row[:-3], 1, 1, row[-1] | 1 << LANE_BIT | 1 << WAITS_BIT)


def job_of(row: Row) -> Job:
    """Read a job from its fields."""
    fields = list(row)
    fields[_PARAMS] = msgspec.Raw(row[_PARAMS])
    fields[_STATUS] = _statuses[row[_STATUS]]
    fields[_RETRY_MODE] = _modes[row[_RETRY_MODE]]
    fields[_BACKOFF] = _read_backoff(row[_BACKOFF])
    fields[_DIRECT] = row[_DIRECT] != 0
    fields[_SCOPE] = _scopes[row[_SCOPE]]
    fields[_HOLD] = _holds[row[_HOLD]]
    if row[_RETRY_KIND] is not None:
        fields[_RETRY_KIND] = _kinds[row[_RETRY_KIND]]
    if row[_TAGS] is not None:
        fields[_TAGS] = _tags.decode(row[_TAGS])
    if row[_RESULT] is not None:
        fields[_RESULT] = msgspec.Raw(row[_RESULT])
    return Job(*fields)


# --- runs -------------------------------------------------------------------------------------------------------------

_RUN_AT = {name: at for at, name in enumerate(COLUMNS["job_runs"])}
_RUN_STATUS, _SNAPSHOT = _RUN_AT["status"], _RUN_AT["params_snapshot"]
_RUN_RAW = tuple(_RUN_AT[name] for name in ("details", "artifacts", "progress"))
_ends: dict[str, RunStatus] = {status.value: status for status in RunStatus}


def run_row(run: Run) -> Row:
    """Write a run: its fields, its sum."""
    row: list[Any] = list(_astuple(run))
    row[_SNAPSHOT] = str(run.params_snapshot, "utf-8")
    if run.status is not None:
        row[_RUN_STATUS] = _plain[run.status]
    for at in _RUN_RAW:
        if row[at] is not None:
            row[at] = str(row[at], "utf-8")
    row.append(crc32(_json(row)))
    return tuple(row)


def run_of(row: Row) -> Run:
    """Read a run from its fields."""
    fields = list(row)
    fields[_SNAPSHOT] = msgspec.Raw(row[_SNAPSHOT])
    if row[_RUN_STATUS] is not None:
        fields[_RUN_STATUS] = _ends[row[_RUN_STATUS]]
    for at in _RUN_RAW:
        if row[at] is not None:
            fields[at] = msgspec.Raw(row[at])
    return Run(*fields)


# --- the small tables -------------------------------------------------------------------------------------------------


def _summed(*fields: Any) -> Row:
    return (*fields, sum_of(fields))


def _float(number: float | None) -> float | None:
    """Write a number as its column gives it back: 10 and 10.0 are equal, but not their sums."""
    return None if number is None else float(number)


def queue_row(queue: Queue) -> Row:
    """Write a queue's settings: its fields, its sum."""
    return _summed(
        queue.namespace,
        queue.name,
        int(queue.paused),
        queue.pause_reason,
        queue.max_running,
        queue.rate_count,
        _float(queue.rate_period_s),
        queue.rate_scope,
        _float(queue.aging_s),
        _json(queue.retention).decode(),
    )


def queue_of(row: Row) -> Queue:
    """Read a queue's settings from its fields."""
    namespace, name, paused, reason, running, count, period, scope, aging, retention = row
    kept = _retention.decode(retention)
    return Queue(namespace, name, paused != 0, reason, running, count, period, scope, aging, kept)


def held_key_row(held: HeldKey) -> Row:
    """Write a held key: its fields, its sum."""
    return _summed(held.namespace, held.unique_key, held.job_id, _plain[held.hold], held.held_until)


def held_key_of(row: Row) -> HeldKey:
    """Read a held key from its fields."""
    namespace, name, job_id, hold, until = row
    return HeldKey(namespace, name, job_id, _holds[hold], until)


def command_row(done: DoneCommand) -> Row:
    """Write a remembered command: its fields, its sum."""
    return _summed(done.cmd, done.digest, str(done.outcome, "utf-8"), done.at)


def command_of(row: Row) -> DoneCommand:
    """Read a remembered command from its fields."""
    cmd, digest, outcome, at = row
    return DoneCommand(cmd, digest, msgspec.Raw(outcome), at)


# --- templates and schedules ------------------------------------------------------------------------------------------

_options: msgspec.json.Decoder[JobOptions] = msgspec.json.Decoder(JobOptions)
_NO_OPTIONS = JobOptions()
_TEMPLATE_AT = {name: at for at, name in enumerate(COLUMNS["job_templates"])}
_DEFAULTS, _TEMPLATE_OPTIONS = _TEMPLATE_AT["default_params"], _TEMPLATE_AT["options"]


def _write_options(options: JobOptions) -> str:
    # Read once before it is written: 10 and 10.0 are equal, and another process would sum up the second.
    return "{}" if options == _NO_OPTIONS else _json(_options.decode(_json(options))).decode()


def template_row(template: Template) -> Row:
    """Write a template: its fields, its sum."""
    row: list[Any] = list(_astuple(template))
    row[_DEFAULTS] = str(template.default_params, "utf-8")
    row[_TEMPLATE_OPTIONS] = _write_options(template.options)
    return _summed(*row)


def template_of(row: Row) -> Template:
    """Read a template from its fields."""
    fields = list(row)
    fields[_DEFAULTS] = msgspec.Raw(row[_DEFAULTS])
    fields[_TEMPLATE_OPTIONS] = _options.decode(row[_TEMPLATE_OPTIONS])
    return Template(*fields)


_SCHEDULE_AT = {name: at for at, name in enumerate(COLUMNS["schedules"])}
_OVERRIDES, _SCHEDULE_OPTIONS = _SCHEDULE_AT["param_overrides"], _SCHEDULE_AT["options"]
_ENABLED, _CATCH_UP, _OVERLAP = _SCHEDULE_AT["enabled"], _SCHEDULE_AT["catch_up"], _SCHEDULE_AT["overlap"]
_SECONDS = tuple(_SCHEDULE_AT[name] for name in ("interval_s", "catch_up_window_s", "grace_s", "jitter_s"))


def schedule_row(schedule: Schedule) -> Row:
    """Write a schedule: its fields, its sum."""
    row: list[Any] = list(_astuple(schedule))
    row[_OVERRIDES] = str(schedule.param_overrides, "utf-8")
    row[_SCHEDULE_OPTIONS] = _write_options(schedule.options)
    row[_ENABLED] = int(schedule.enabled)
    row[_CATCH_UP] = schedule.catch_up.value
    row[_OVERLAP] = schedule.overlap.value
    for at in _SECONDS:
        row[at] = _float(row[at])
    return _summed(*row)


def schedule_of(row: Row) -> Schedule:
    """Read a schedule from its fields."""
    fields = list(row)
    fields[_OVERRIDES] = msgspec.Raw(row[_OVERRIDES])
    fields[_SCHEDULE_OPTIONS] = _options.decode(row[_SCHEDULE_OPTIONS])
    fields[_ENABLED] = row[_ENABLED] != 0
    fields[_CATCH_UP] = CatchUp(row[_CATCH_UP])
    fields[_OVERLAP] = Overlap(row[_OVERLAP])
    return Schedule(*fields)


# --- the store's own row ----------------------------------------------------------------------------------------------


class Meta(NamedTuple):
    """What the store as a whole remembers; columns as in `META_COLUMNS`."""

    store_id: str
    #: None: there is no record `Authority` yet.
    last_token: int | None
    dispatch_paused: int
    dispatch_reason: str | None
    #: Number, time and sum of the last event.
    seq: int
    ts: str
    chain: int
    #: Number and sum of the last event that was trimmed.
    trimmed_seq: int
    trimmed_chain: int

    @property
    def authority(self) -> Authority | None:
        """Give the record kept here, or None if it was never written."""
        if self.last_token is None:
            return None
        return Authority(self.last_token, self.dispatch_paused != 0, self.dispatch_reason)  # type: ignore[arg-type]  # the column holds tokens only

    def row(self) -> Row:
        """Write it: its fields, its sum."""
        return (*self, sum_of(self))


# --- tables -----------------------------------------------------------------------------------------------------------


class Insert:
    """An INSERT for records that have nothing in the columns it leaves out."""

    def __init__(self, table: str, sql: str, beside: tuple[str, ...]) -> None:
        self.sql = sql
        columns = (*COLUMNS[table], *beside)
        named = inserted(sql)
        self.bind: Callable[[Row], Row] = itemgetter(*(columns.index(name) for name in named))
        left_out = [at for at, name in enumerate(columns) if name not in named]
        self._left_out = itemgetter(*left_out) if left_out else None
        self._nothing = (None,) * len(left_out)

    def fits(self, row: Row) -> bool:
        """Tell whether the whole row is written by it."""
        return self._left_out is None or self._left_out(row) == self._nothing


class Update:
    """An UPDATE for records whose other columns stay. Each column that is set rewrites the indexes it is part of."""

    def __init__(self, table: str, sql: str, beside: tuple[str, ...], changeable: Iterable[str]) -> None:
        self.sql = sql
        columns = (*COLUMNS[table], *beside)
        named = assigned(sql)
        self.bind: Callable[[Row], Row] = itemgetter(*(columns.index(name) for name in named if named[name] == "?"))
        fixed = {name: value for name, value in named.items() if value != "?"}
        self._fixed = attrgetter(*fixed) if fixed else None
        self._values = tuple(fixed.values())
        others = [name for name in changeable if name not in named]
        self._others = attrgetter(*others) if others else None

    def fits(self, before: Record, after: Record) -> bool:
        """Tell whether all that changed is written by it."""
        if self._fixed is not None and self._fixed(after) != self._values:
            return False
        return self._others is None or self._others(before) == self._others(after)


class Table(NamedTuple):
    """How one kind of record is kept. `meta` is no such table: its row is more than its record."""

    kind: type[Record]
    read: Callable[[Row], Any]
    write: Callable[[Any], Row]
    get: str
    all: str
    #: The narrowest first; the last fits every row of `write`.
    inserts: tuple[Insert, ...]
    #: The narrowest first; what none of them fits is written by the insert, which replaces.
    updates: tuple[Update, ...]
    delete: str
    #: Whether its key has two parts.
    paired: bool = False
    #: How the key is made from a row, where it is not its first column, or its first two.
    row_key: Callable[[Row], Key] | None = None

    def key_in(self, row: Row) -> Key:
        """Give the key of the record that a row holds."""
        if self.row_key is not None:
            return self.row_key(row)
        return pair(row[0], row[1]) if self.paired else cast("Key", row[0])

    def key(self, key: Key) -> tuple[str, ...]:
        """Split a key into the columns it is made of."""
        return key.partition("\0")[::2] if self.paired else (key,)


_JOB_BESIDE = ("lane", "waits", "sum")
_JOB_CHANGEABLE = [name for name in assigned(SQL["edit_job"]) if name not in (*_JOB_BESIDE, "job_id")]
JOBS = Table(
    Job,
    job_of,
    job_row,
    SQL["job"],
    SQL["all_jobs"],
    tuple(Insert("jobs", sql, _JOB_BESIDE) for sql in (SQL["insert_plain_job"], SQL["insert_job"])),
    tuple(
        Update("jobs", sql, _JOB_BESIDE, _JOB_CHANGEABLE)
        for sql in (SQL["lease_job"], SQL["complete_job"], SQL["update_job"], SQL["edit_job"])
    ),
    SQL["delete_job"],
)
_RUN_CHANGEABLE = [name for name in assigned(SQL["update_run"]) if name not in ("sum", "run_id")]
RUNS = Table(
    Run,
    run_of,
    run_row,
    SQL["run"],
    SQL["all_runs"],
    tuple(Insert("job_runs", sql, ("sum",)) for sql in (SQL["insert_open_run"], SQL["insert_run"])),
    tuple(Update("job_runs", sql, ("sum",), _RUN_CHANGEABLE) for sql in (SQL["end_run"], SQL["update_run"])),
    SQL["delete_run"],
)
QUEUES = Table(
    Queue,
    queue_of,
    queue_row,
    SQL["queue"],
    SQL["all_queues"],
    (Insert("queues", SQL["save_queue"], ("sum",)),),
    (),
    SQL["delete_queue"],
    paired=True,
)
HELD_KEYS = Table(
    HeldKey,
    held_key_of,
    held_key_row,
    SQL["held_key"],
    SQL["all_held_keys"],
    (Insert("job_keys", SQL["save_held_key"], ("sum",)),),
    (),
    SQL["delete_held_key"],
    paired=True,
)
COMMANDS = Table(
    DoneCommand,
    command_of,
    command_row,
    SQL["command"],
    SQL["all_commands"],
    (Insert("commands", SQL["save_command"], ("sum",)),),
    (),
    SQL["delete_command"],
)
_TEMPLATE_CHANGEABLE = [name for name in assigned(SQL["update_template"]) if name not in ("sum", "template_id")]
TEMPLATES = Table(
    Template,
    template_of,
    template_row,
    SQL["template"],
    SQL["all_templates"],
    (Insert("job_templates", SQL["insert_template"], ("sum",)),),
    (Update("job_templates", SQL["update_template"], ("sum",), _TEMPLATE_CHANGEABLE),),
    SQL["delete_template"],
)
_SCHEDULE_CHANGEABLE = [name for name in assigned(SQL["update_schedule"]) if name not in ("sum", "schedule_id")]
SCHEDULES = Table(
    Schedule,
    schedule_of,
    schedule_row,
    SQL["schedule"],
    SQL["all_schedules"],
    (Insert("schedules", SQL["insert_schedule"], ("sum",)),),
    tuple(
        Update("schedules", sql, ("sum",), _SCHEDULE_CHANGEABLE)
        for sql in (SQL["fire_schedule"], SQL["update_schedule"])
    ),
    SQL["delete_schedule"],
)
