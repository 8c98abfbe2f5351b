"""Jobs and runs as records and as lines: the one place that chooses what of a job is shown, and in which order."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from holdfast.cli.render.bars import progress_of, progress_text, size_text
from holdfast.cli.render.output import Record
from holdfast.cli.render.status_labels import look_of
from holdfast.cli.render.tables import Column, age, ago, id_length, lines, shrink
from holdfast.cli.render.terminal import Screen, safe, safe_lines
from holdfast.engine.views.jobs import Fetch, full_job, job_row
from holdfast.model.artifacts import Artifact
from holdfast.model.jobs import Job, Run, RunStatus
from holdfast.model.payloads import NULL, ref_in
from holdfast.model.times import Timestamp, seconds_between
from holdfast.model.workers import Progress
from holdfast.rules.explain import Reason

_COLUMNS = (
    Column("STATUS"),
    Column("ID"),
    Column("TASK"),
    Column("QUEUE", spare=True),
    Column("PRIO", right=True, spare=True),
    Column("AGE", right=True),
    Column("REASON", least=32),
)
_RUN_COLUMNS = (
    Column("RUN", right=True),
    Column("STATUS"),
    Column("WORKER", spare=True),
    Column("STARTED"),
    Column("TOOK", right=True),
    Column("ENDED BY", least=24),
)
_ARTIFACT_COLUMNS = (
    Column("RUN", right=True),
    Column("ARTIFACT"),
    Column("SIZE", right=True),
    Column("TYPE", spare=True),
    Column("WHERE"),
)
#: Cells of the progress bar on a page.
BAR = 24


class Known(NamedTuple):
    """A job with what is known of it."""

    job: Job
    reason: Reason
    runs: Sequence[Run]
    #: What its run last said; None if it does not run or said nothing.
    progress: Progress | None = None


def row_record(job: Job, reason: Reason) -> Record:
    """Give a job as a list shows it: no payload, but how its parameters begin."""
    return msgspec.structs.asdict(job_row(job, reason))


def full_record(known: Known, fetch: Fetch) -> Record:
    """Give everything known of a job; `fetch` gives content that lies beside the record."""
    return msgspec.structs.asdict(full_job(known.job, known.reason, known.runs, known.progress, fetch))


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


def job_page(known: Known, now: Timestamp, screen: Screen) -> list[str]:
    """Lay out one job: its status and reason, what is not as usual, its runs and what they left behind."""
    job, reason = known.job, known.reason
    page = [f"{badge(job, reason, screen)}  {safe(reason.sentence)}"]
    page += _fields(known, now, screen)
    if job.error:
        page += [screen.faint("error"), *(f"  {line}" for line in safe_lines(job.error))]
    if known.runs:
        page += ["", *lines(_RUN_COLUMNS, [_run_row(run, now, screen) for run in known.runs], screen)]
    artifacts = [row for run in known.runs for row in _artifact_rows(run)]
    if artifacts:
        page += ["", *lines(_ARTIFACT_COLUMNS, artifacts, screen)]
    return page


def _fields(known: Known, now: Timestamp, screen: Screen) -> list[str]:
    job = known.job
    shown = {
        "id": job.job_id,
        "task": job.job_type,
        "queue": job.queue if not job.namespace else f"{job.queue} (namespace {job.namespace})",
        "priority": f"{job.priority}, position {job.position}",
        "created": f"{job.created_at}, {ago(seconds_between(job.created_at, now))}",
        "params": _payload(job, "params"),
        "attempts": _attempts(job),
        "not before": job.not_before,
        "latest start": job.expires_at,
        "timeout": None if job.timeout_s is None else f"{job.timeout_s:g} s",
        "key": job.key and f"{job.key} (in its {job.key_scope}, {job.key_hold})",
        "limit key": job.limit_key and f"{job.limit_key} ({job.key_limit} at a time)",
        "group": _group(job),
        "retry of": job.retry_of,
        "tags": job.tags and ", ".join(f"{name}={value}" for name, value in sorted(job.tags.items())),
        "worker": job.worker_id,
        "started": job.started_at,
        "finished": job.finished_at,
        "progress": known.progress and progress_text(known.progress, screen, BAR),
        "result": None if job.result == NULL else _payload(job, "result"),
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


def _group(job: Job) -> str | None:
    if job.group_id is None:
        return None
    number = job.sequence_number
    return f"{job.group_id}, called back by it" if number is None else f"{job.group_id}, number {number + 1}"


def _attempts(job: Job) -> str:
    executions, lost = (
        f"{count} {noun}{'s' * (count != 1)}"
        for count, noun in ((job.executions, "execution"), (job.expiries, "lost lease"))
    )
    return f"{job.attempts} of {job.max_attempts}; {executions}, {lost}"


def _payload(job: Job, field: str) -> str:
    """Show a payload, or how large it is and the command that prints it, where it lies beside the record."""
    raw: msgspec.Raw = getattr(job, field)
    ref = ref_in(raw)
    if ref is None:
        return bytes(raw).decode()
    return f"{size_text(ref.size)}: holdfast jobs show {shlex.quote(job.job_id)} --{field}"


def _run_row(run: Run, now: Timestamp, screen: Screen) -> list[str]:
    status = run.status or "RUNNING"
    look = look_of(status)
    told = safe_lines(run.error or "")
    ended = ": ".join(part for part in (run.error_kind or run.reason or "", told[-1] if told else "") if part)
    said = progress_of(run.progress)
    if not ended and said is not None and run.status is not RunStatus.COMPLETED:
        ended = progress_text(said, screen)
    if run.finished_at is None:
        took = age(seconds_between(run.started_at, now))
    else:
        took = f"{seconds_between(run.started_at, run.finished_at):.1f}s"
    return [
        str(run.run_no),
        f"{screen.glyph(look)} {screen.paint(status, look)}",
        safe(run.worker_id or ""),
        # Microseconds are for programs.
        f"{run.started_at[:19]}Z" if screen.is_terminal else run.started_at,
        took,
        safe(ended),
    ]


def _artifact_rows(run: Run) -> list[list[str]]:
    if run.artifacts == NULL:
        return []
    found = msgspec.json.decode(run.artifacts, type=list[Artifact])
    return [
        [str(run.run_no), safe(one.name), size_text(one.size), safe(one.media_type), safe(one.path or one.sha256)]
        for one in found
    ]
