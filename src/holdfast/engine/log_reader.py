"""Reading the lines that runs of a job wrote, once or until the job has ended. Lines are soft: some may be missing.

Following goes through the retries of a job and ends with it. Order: first the state, then the lines, so that whoever
saw the end of a run has read all that it said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from holdfast.engine.engine import Engine
from holdfast.errors import JobNotFound, RunNotFound
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, Run
from holdfast.model.logs import NumberedLine
from holdfast.stores.protocol import View
from holdfast.stores.sidecar.protocol import RunLogs

#: Lines read at a time.
PAGE = 1000
#: Seconds between two looks for new lines: they ring no bell.
PAUSE_S = 0.25


class Source(NamedTuple):
    """A store that is open here, or is looked at from outside."""

    look: Callable[[], AbstractContextManager[View]]
    #: Returns when there may be an event above a number, or after so many seconds.
    wait: Callable[[int, float], bool]
    #: Asked for after each look, which may open the store anew.
    logs: Callable[[], RunLogs]


def source_of(engine: Engine) -> Source:
    """Read from an engine's store."""
    return Source(engine.read, engine.store.wait, lambda: engine.store.logs)


def pages(
    source: Source, job_id: JobId, run_no: int | None, *, follow: bool, pause_s: float = PAUSE_S
) -> Iterator[tuple[Run | None, Sequence[NumberedLine]]]:
    """Walk the lines of a run, by default the newest; with `follow` until it has ended, or by default its job has.

    An empty page says that there is nothing, or when following nothing new; by then it has waited up to `pause_s`
    seconds for an event. Raises JobNotFound, RunNotFound.
    """
    at, after = run_no, 0
    while True:
        with source.look() as view:
            seen, job, runs = view.seq, view.get(Job, job_id), view.runs(job_id)
        if job is None:
            raise JobNotFound(f"there is no job {job_id}.", job_id=job_id)
        run = run_of(runs, job_id, at)
        if run is not None:
            at = run.run_no
            while found := source.logs().read(run.run_id, after, PAGE):
                after = found[-1].line_no
                yield run, found
        is_over = run is not None and run.status is not None
        if follow and run_no is None and is_over and at is not None and at < job.executions:
            at, after = at + 1, 0
            continue
        if not follow and not after:
            yield run, ()
        if not follow or job.has_ended or (run_no is not None and is_over):
            return
        source.wait(seen, pause_s)
        yield run, ()


def run_of(runs: Sequence[Run], job_id: JobId, run_no: int | None) -> Run | None:
    """Give the run of that number, or the newest; None if there is none yet. Raises RunNotFound."""
    if run_no is None:
        return runs[-1] if runs else None
    for run in runs:
        if run.run_no == run_no:
            return run
    raise RunNotFound(f"job {job_id} has no run {run_no}.", job_id=job_id, run_no=run_no)
