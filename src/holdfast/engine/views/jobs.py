"""Jobs and runs as programs read them, and the jobs that stand behind one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from holdfast.engine.views.projection import fill, preview, shown
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, JobStatus, Run
from holdfast.model.workers import Progress
from holdfast.rules.explain import Reason
from holdfast.stores.protocol import View

#: Links of a chain of retries that are followed each way to explain a job; and that are listed.
LINKS, MOST_LINKS = 20, 1000

RunRow = shown("RunRow", Run, without=("params_snapshot", "details", "artifacts"), preview=str)
FullRun = shown("FullRun", Run)
JobRow = shown("JobRow", Job, without=("params", "result"), preview=str, reason=Reason)
FullJob = shown("FullJob", Job, reason=Reason, progress=Progress | None, runs=list[FullRun])  # type: ignore[valid-type]  # made above

#: Gives content that lies beside a record.
Fetch = Callable[[msgspec.Raw], msgspec.Raw]


class Link(msgspec.Struct, frozen=True):
    """A job that stands behind the reason of another."""

    #: first in line, before it, retry of, retried by.
    role: str
    job_id: JobId
    status: JobStatus
    reason: Reason


def job_row(job: Job, reason: Reason) -> Any:
    """Give a job as a list shows it."""
    return fill(JobRow, job, preview=preview(job.params), reason=reason)


def full_job(job: Job, reason: Reason, runs: Sequence[Run], progress: Progress | None, fetch: Fetch) -> Any:
    """Give everything known of a job, with its runs."""
    return fill(
        FullJob,
        job,
        params=fetch(job.params),
        result=fetch(job.result),
        reason=reason,
        progress=progress,
        runs=[full_run(run, fetch) for run in runs],
    )


def run_row(run: Run) -> Any:
    """Give a run as a list shows it."""
    return fill(RunRow, run, preview=preview(run.params_snapshot))


def full_run(run: Run, fetch: Fetch) -> Any:
    """Give everything known of a run."""
    return fill(FullRun, run, params_snapshot=fetch(run.params_snapshot), details=fetch(run.details))


def behind(view: View, job: Job, reason: Reason) -> list[tuple[str, Job]]:
    """Give the jobs behind a reason: what it waits behind, what it retries, what retries it."""
    found: list[tuple[str, Job]] = []
    for code, role in (("behind", "first in line"), ("group_wait", "before it")):
        ahead = view.get(Job, reason.holder) if reason.code == code and reason.holder is not None else None
        found += [(role, ahead)] if ahead is not None else []
    found += [("retry of", earlier) for earlier in _earlier(view, job, LINKS)]
    found += [("retried by", later) for later in view.successors(job.job_id)[:LINKS]]
    return found


def chain_of(view: View, job: Job) -> list[Job]:
    """Give all jobs that are retries of each other, this one among them: the first, then what followed each."""
    root = job
    for earlier in _earlier(view, job, MOST_LINKS):
        root = earlier
    found: list[Job] = []
    waiting = [root]
    while waiting and len(found) < MOST_LINKS:
        found.append(waiting.pop(0))
        waiting += view.successors(found[-1].job_id)
    return found


def _earlier(view: View, job: Job, most: int) -> Iterator[Job]:
    for _ in range(most):
        earlier = None if job.retry_of is None else view.get(Job, job.retry_of)
        if earlier is None:
            return
        yield earlier
        job = earlier
