"""Jobs and runs as records and as lines: the one place that chooses what of a job is shown, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, cast

import msgspec

from holdfast.cli.output import Record
from holdfast.cli.tables import Column, age, id_length, lines, shrink
from holdfast.cli.terminal import Screen, safe, safe_lines
from holdfast.cli.words import look_of
from holdfast.model.jobs import Job, Run
from holdfast.model.payloads import NULL
from holdfast.model.times import Timestamp, seconds_between
from holdfast.rules.explain import COUNTED, Reason, explain
from holdfast.rules.state import State
from holdfast.stores.protocol import View

#: Characters of a payload that a list shows.
PREVIEW = 120
_COLUMNS = (
    Column("STATUS"),
    Column("ID"),
    Column("TASK"),
    Column("QUEUE"),
    Column("PRIO", right=True),
    Column("AGE", right=True),
    Column("REASON"),
)
_RUN_COLUMNS = (
    Column("RUN", right=True),
    Column("STATUS"),
    Column("WORKER"),
    Column("STARTED"),
    Column("TOOK", right=True),
    Column("ENDED BY"),
)


class Reasons:
    """The reasons of many jobs in one view; each queue's line is walked once."""

    def __init__(self, view: View, now: Timestamp) -> None:
        self._view = view
        self._now = now
        self._lines: dict[tuple[str, tuple[str, ...]], list[Job]] = {}

    def of(self, job: Job) -> Reason:
        """Give the one reason why a job is where it is."""
        return explain(cast("State", self), job, self._now)

    def ready(self, namespace: str, queues: Sequence[str], job_types: object, now: Timestamp) -> Iterator[Job]:
        """Walk the line of these queues, as far as anybody counts."""
        del job_types
        name = (namespace, tuple(queues))
        if name not in self._lines:
            self._lines[name] = list(islice(self._view.ready(namespace, queues, None, now), COUNTED))
        return iter(self._lines[name])

    def __getattr__(self, name: str) -> Any:
        """Look up everything else in the view itself."""
        return getattr(self._view, name)


def row_record(job: Job, reason: Reason) -> Record:
    """Give a job as a list shows it: no payload, but how its parameters begin."""
    known = msgspec.structs.asdict(job)
    del known["params"], known["result"]
    return {**known, "preview": bytes(job.params).decode()[:PREVIEW], "reason": reason}


def full_record(job: Job, reason: Reason, runs: Sequence[Run]) -> Record:
    """Give everything known of a job."""
    return {**msgspec.structs.asdict(job), "reason": reason, "runs": [msgspec.structs.asdict(run) for run in runs]}


def job_table(jobs: Sequence[tuple[Job, Reason]], now: Timestamp, screen: Screen) -> list[str]:
    """Lay out a list of jobs."""
    size = id_length([job.job_id for job, _ in jobs], screen)
    rows = [
        [
            badge(job, reason, screen),
            safe(job.job_id[:size]),
            safe(job.job_type),
            safe(job.queue),
            str(job.priority),
            age(seconds_between(job.created_at, now)),
            safe(reason.sentence),
        ]
        for job, reason in jobs
    ]
    return lines(_COLUMNS, rows, screen)


def badge(job: Job, reason: Reason, screen: Screen) -> str:
    """Give glyph and word of a job's status."""
    look = look_of(job.status, reason.code, job.attempts)
    return f"{screen.glyph(look)} {screen.paint(job.status, look)}"


def job_page(job: Job, reason: Reason, runs: Sequence[Run], now: Timestamp, screen: Screen) -> list[str]:
    """Lay out one job: its status and reason, what is not as usual, its runs."""
    page = [f"{badge(job, reason, screen)}  {safe(reason.sentence)}"]
    page += _fields(job, now, screen)
    if job.error:
        page += [screen.faint("error"), *(f"  {line}" for line in safe_lines(job.error))]
    if runs:
        page += ["", *lines(_RUN_COLUMNS, [_run_row(run, screen) for run in runs], screen)]
    return page


def _fields(job: Job, now: Timestamp, screen: Screen) -> list[str]:
    shown = {
        "id": job.job_id,
        "task": job.job_type,
        "queue": job.queue if not job.namespace else f"{job.queue} (namespace {job.namespace})",
        "priority": f"{job.priority}, position {job.position}",
        "created": f"{job.created_at}, {age(seconds_between(job.created_at, now))} ago",
        "params": bytes(job.params).decode(),
        "attempts": f"{job.attempts} of {job.max_attempts}; {job.executions} executions, {job.expiries} lost leases",
        "not before": job.not_before,
        "latest start": job.expires_at,
        "timeout": None if job.timeout_s is None else f"{job.timeout_s:g} s",
        "key": job.key and f"{job.key} (in its {job.key_scope}, {job.key_hold})",
        "retry of": job.retry_of,
        "tags": job.tags and ", ".join(f"{name}={value}" for name, value in sorted(job.tags.items())),
        "worker": job.worker_id,
        "started": job.started_at,
        "finished": job.finished_at,
        "result": None if job.result == NULL else bytes(job.result).decode(),
    }
    titles = max(map(len, shown))
    said = [(title, safe(str(value))) for title, value in shown.items() if value]
    if screen.is_terminal:
        free = screen.width - titles - 2
        said = [
            (title, shrink(text, free, unicode=screen.unicode) if title in ("params", "result", "tags") else text)
            for title, text in said
        ]
    return [f"{screen.faint(title.ljust(titles))}  {text}" for title, text in said]


def _run_row(run: Run, screen: Screen) -> list[str]:
    status = run.status or "RUNNING"
    look = look_of(status)
    told = safe_lines(run.error or "")
    ended = ": ".join(part for part in (run.error_kind or run.reason or "", told[-1] if told else "") if part)
    took = "" if run.finished_at is None else f"{seconds_between(run.started_at, run.finished_at):.1f}s"
    return [
        str(run.run_no),
        f"{screen.glyph(look)} {screen.paint(status, look)}",
        safe(run.worker_id or ""),
        run.started_at,
        took,
        safe(ended),
    ]
