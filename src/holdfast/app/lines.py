"""Reading the lines that runs of a job wrote, once or until the job has ended. Lines are soft: some may be missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.engine.engine import Engine
from holdfast.errors import JobNotFound, RunNotFound
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, Run
from holdfast.model.logs import LogLine

#: Lines read at a time.
PAGE = 1000
#: Seconds between two looks for new lines: they ring no bell.
PAUSE_S = 0.25


def pages(
    engine: Engine, job_id: JobId, run_no: int | None, *, follow: bool, pause_s: float
) -> Iterator[list[LogLine]]:
    """Walk the lines of a run, by default the newest; with `follow` until it has ended, or by default its job has.

    An empty page says that there is nothing new; by then it has waited up to `pause_s` seconds for an event.
    """
    at, after = run_no, 0
    while True:
        seen, job, run, has_next = _look(engine, job_id, at)
        if run is not None:
            at = run.run_no
            # Read after looking: what was written before the end is read by whoever saw the end.
            while found := engine.store.logs.read(run.run_id, after, PAGE):
                after = found[-1].line_no
                yield [numbered.line for numbered in found]
        if run is not None and run.status is not None and has_next and run_no is None and follow:
            at, after = run.run_no + 1, 0
            continue
        if not follow or job.has_ended or (run_no is not None and run is not None and run.status is not None):
            return
        engine.store.wait(seen, pause_s)
        yield []


def _look(engine: Engine, job_id: JobId, run_no: int | None) -> tuple[int, Job, Run | None, bool]:
    """Give how far the store is, the job, the run of that number (None: the newest), and whether a later one exists."""
    with engine.read() as view:
        job = view.get(Job, job_id)
        runs = view.runs(job_id)
        seen = view.seq
    if job is None:
        raise JobNotFound(f"there is no job {job_id}.", job_id=job_id)
    return seen, job, run_of(runs, job_id, run_no), bool(runs) and run_no is not None and runs[-1].run_no > run_no


def run_of(runs: Sequence[Run], job_id: JobId, run_no: int | None) -> Run | None:
    """Give the run of that number, or the newest; None if there is none yet. Raises RunNotFound."""
    if run_no is None:
        return runs[-1] if runs else None
    for run in runs:
        if run.run_no == run_no:
            return run
    raise RunNotFound(f"job {job_id} has no run {run_no}.", job_id=job_id, run_no=run_no)
