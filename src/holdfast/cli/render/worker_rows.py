"""Workers as records and as lines."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.cli.render.bars import progress_text
from holdfast.cli.render.output import Record
from holdfast.cli.render.status_labels import look_of, look_of_worker
from holdfast.cli.render.tables import Column, age, ago, id_length, lines
from holdfast.cli.render.terminal import Screen, safe
from holdfast.engine.views.workers import Staff, worker_row
from holdfast.model.jobs import Job
from holdfast.model.times import Timestamp, seconds_between
from holdfast.model.workers import Progress, Wish, WorkerInfo, WorkerState

#: Cells of a progress bar in a table.
BAR = 12
_COLUMNS = (
    Column("STATE"),
    Column("WORKER"),
    Column("NAME", spare=True),
    Column("SLOTS", right=True),
    Column("SEEN", right=True),
    Column("QUEUES", spare=True),
    Column("HOST", spare=True),
    Column("PID", right=True, spare=True),
    Column("VERSION", spare=True),
    Column("RUNNING"),
)
_LEASE_COLUMNS = (
    Column("STATUS"),
    Column("ID"),
    Column("TASK"),
    Column("QUEUE", spare=True),
    Column("AGE", right=True),
    Column("LEASE", right=True),
    Column("PROGRESS", least=36),
)


def progresses(workers: Sequence[WorkerInfo]) -> dict[str, Progress]:
    """Give run id → what it last said, as far as the roster knows. A lost worker may tell of runs long over."""
    said = [run for worker in workers for run in worker.runs]
    return {run.run_id: run.progress for run in said if run.progress is not None}


def worker_record(one: Staff) -> Record:
    """Give a worker as programs read it."""
    found: Record = msgspec.structs.asdict(worker_row(one.worker, one))
    return found


def worker_table(found: Sequence[Staff], now: Timestamp, screen: Screen) -> list[str]:
    """Lay out a list of workers."""
    size = id_length([held.job.job_id for one in found for held in one.jobs], screen)
    return lines(_COLUMNS, [_row(one, size, now, screen) for one in found], screen)


def _row(one: Staff, size: int, now: Timestamp, screen: Screen) -> list[str]:
    worker = one.worker
    return [
        badge(worker, screen),
        safe(worker.worker_id),
        safe(_own_name(worker)),
        f"{one.used}/{worker.slots}",
        age(seconds_between(worker.last_seen, now)),
        safe(",".join(worker.queues)),
        safe(worker.host),
        str(worker.pid or ""),
        safe(worker.version),
        safe(" ".join(held.job.job_id[:size] for held in one.jobs)),
    ]


def _own_name(worker: WorkerInfo) -> str:
    """Give the name somebody chose; without one a worker is called like its id."""
    return "" if worker.name == worker.worker_id else worker.name


def badge(worker: WorkerInfo, screen: Screen) -> str:
    """Give glyph and word of a worker's state."""
    look = look_of_worker(worker.state)
    return f"{screen.glyph(look)} {screen.paint(worker.state, look)}"


def worker_page(one: Staff, now: Timestamp, screen: Screen) -> list[str]:
    """Lay out one worker: what it is, what it takes, what it holds."""
    worker = one.worker
    shown = {
        "id": worker.worker_id,
        "name": _own_name(worker),
        # A worker of few words, elsewhere, says nothing of its process.
        "process": worker.pid and f"{worker.pid} on {worker.host}",
        "version": worker.version,
        "namespace": worker.namespace,
        "queues": ", ".join(worker.queues),
        "tasks": "any" if worker.job_types is None else ", ".join(worker.job_types) or "none",
        "slots": f"{one.used} of {worker.slots} in use",
        "started": f"{worker.started_at}, {ago(seconds_between(worker.started_at, now))}",
        "wish": worker.wish and f"asked to {'take no new jobs' if worker.wish is Wish.QUIET else 'stop'}",
    }
    titles = max(map(len, shown))
    page = [f"{badge(worker, screen)}  {_sentence(worker, now)}"]
    page += [f"{screen.faint(title.ljust(titles))}  {safe(text)}" for title, text in shown.items() if text]
    return [*page, "", *lease_table(one, now, screen)] if one.jobs else page


def _sentence(worker: WorkerInfo, now: Timestamp) -> str:
    seen = f"seen {ago(seconds_between(worker.last_seen, now))}"
    match worker.state:
        case WorkerState.READY:
            return f"takes jobs; {seen}"
        case WorkerState.DRAINING:
            return f"takes no new jobs, ends what it has begun; {seen}"
        case WorkerState.LOST:
            return f"{seen}, then not again; others take over what it held"


def lease_table(one: Staff, now: Timestamp, screen: Screen) -> list[str]:
    """Lay out what a worker holds, with the time each lease has left."""
    said = progresses([one.worker])
    size = id_length([held.job.job_id for held in one.jobs], screen)
    look = look_of("RUNNING")
    rows = []
    for job, since, run_id in one.jobs:
        told = said.get(run_id)
        rows.append(
            [
                f"{screen.glyph(look)} {screen.paint(job.status, look)}",
                safe(job.job_id[:size]),
                safe(job.job_type),
                safe(job.queue),
                age(seconds_between(since, now)),
                countdown(job, now),
                "" if told is None else progress_text(told, screen, BAR),
            ]
        )
    return lines(_LEASE_COLUMNS, rows, screen)


def countdown(job: Job, now: Timestamp) -> str:
    """Write how long a lease still holds."""
    left = 0.0 if job.lease_expires_at is None else seconds_between(now, job.lease_expires_at)
    return age(left) if left > 0 else "lapsed"
