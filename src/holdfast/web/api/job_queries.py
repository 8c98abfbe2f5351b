"""`/jobs`, read: lists, one whole, its runs, its chain, and why it is where it is."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from holdfast.engine.blob_content import fetch
from holdfast.engine.views.jobs import FullJob, FullRun, JobRow, Link, behind, chain_of, full_job, full_run, job_row
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, JobStatus
from holdfast.model.times import Timestamp, parse_timestamp
from holdfast.model.workers import Progress
from holdfast.rules.explain import Reason
from holdfast.stores.protocol import JobQuery, View
from holdfast.web.api.endpoint import SEEN, Ask, Endpoint, told
from holdfast.web.api.lookup import found
from holdfast.web.api.paging import Page, PageQuery, Query, walked


class JobsQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs to list, newest first."""

    status: JobStatus | None = None
    queue: str | None = None
    job_type: str | None = None
    group: str | None = None
    schedule: str | None = None
    key: str | None = None
    #: NAME or NAME=VALUE; all of them must fit.
    tag: tuple[str, ...] = ()
    created_after: str | None = None
    created_before: str | None = None


class JobExplained(msgspec.Struct, frozen=True):
    """Why a job is where it is, and the jobs behind that."""

    job_id: JobId
    status: JobStatus
    reason: Reason
    chain: list[Link]


class Runs(msgspec.Struct, frozen=True):
    """All runs of a job, oldest first."""

    items: list[FullRun]  # type: ignore[valid-type]  # made of the record
    as_of: int


class Chain(msgspec.Struct, frozen=True):
    """Jobs that are retries of each other, the first one first."""

    items: list[JobRow]  # type: ignore[valid-type]  # the same
    as_of: int


async def list_jobs(ask: Ask[JobsQuery, None]) -> Response:
    """List jobs, newest first. Whoever may only submit sees what they submitted."""
    query, own = ask.query, ask.submitter(namespace=ask.namespace)
    since = None if query.created_after is None else parse_timestamp(query.created_after, "created_after")
    start = ask.place(tuple[Timestamp, str])
    if start is None and query.created_before is not None:
        start = (parse_timestamp(query.created_before, "created_before"), "")
    kept = {"group_id": query.group, "schedule_id": query.schedule, "key": query.key}
    wanted = {name: value for name, value in kept.items() if value is not None}
    tags = [one.partition("=") for one in query.tag]

    def keep(job: Job) -> bool:
        mine = job.tags or {}
        return all(getattr(job, name) == value for name, value in wanted.items()) and all(
            name in mine and (not equals or mine[name] == value) for name, equals, value in tags
        )

    def rows(view: View) -> Any:
        def behind_place(at: tuple[Timestamp, str] | None, limit: int) -> list[Job]:
            jobs = view.jobs(
                JobQuery(
                    namespace=ask.namespace,
                    status=query.status,
                    queue=query.queue,
                    job_type=query.job_type,
                    submitted_by=own,
                    before=at,
                    limit=limit,
                )
            )
            return [job for job in jobs if since is None or job.created_at > since]

        jobs, at = walked(behind_place, _place, start, query.limit, keep if wanted or tags else None)
        reasons = ask.reasons(view)
        return [job_row(job, reasons.of(job)) for job in jobs], at

    return await ask.page(rows)


def _place(job: Job) -> tuple[Timestamp, str]:
    return job.created_at, job.job_id


async def get(ask: Ask[Query, None]) -> Response:
    """Give a job whole."""

    def whole(view: View) -> Any:
        job = found(ask, view, Job, ask.path["job_id"])
        store = ask.engine.store
        runs = view.runs(job.job_id)
        said: dict[str, Progress | None] = {run.run_id: run.progress for one in store.workers.all() for run in one.runs}
        progress = said.get(runs[-1].run_id) if runs else None
        return full_job(job, ask.reasons(view).of(job), runs, progress, lambda raw: fetch(store, raw))

    return told(await ask.look(whole))


async def list_runs(ask: Ask[Query, None]) -> Response:
    """List the runs of a job, oldest first."""

    def runs(view: View) -> Runs:
        job = found(ask, view, Job, ask.path["job_id"])
        store = ask.engine.store
        return Runs([full_run(run, lambda raw: fetch(store, raw)) for run in view.runs(job.job_id)], view.seq)

    return told(await ask.look(runs))


async def chain(ask: Ask[Query, None]) -> Response:
    """List the jobs that are retries of each other, this one among them."""

    def links(view: View) -> Chain:
        whole = chain_of(view, found(ask, view, Job, ask.path["job_id"]))
        jobs = [job for job in whole if ask.sees(job, view)]
        reasons = ask.reasons(view)
        return Chain([job_row(job, reasons.of(job)) for job in jobs], view.seq)

    return told(await ask.look(links))


async def explain(ask: Ask[Query, None]) -> Response:
    """Say why a job is where it is."""

    def why(view: View) -> JobExplained:
        job, reasons = found(ask, view, Job, ask.path["job_id"]), ask.reasons(view)
        reason = reasons.of(job)
        links = [
            Link(role, one.job_id, one.status, reasons.of(one))
            for role, one in behind(view, job, reason)
            if ask.sees(one, view)
        ]
        return JobExplained(job.job_id, job.status, reason, links)

    return told(await ask.look(why))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/jobs",
        summary="List jobs, newest first.",
        handler=list_jobs,
        query=JobsQuery,
        answers={200: Page[JobRow]},  # type: ignore[valid-type]  # made of the record
        roles=SEEN,
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job_id}",
        summary="Give a job whole.",
        handler=get,
        answers={200: FullJob},
        roles=SEEN,
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job_id}/runs",
        summary="List the runs of a job, oldest first.",
        handler=list_runs,
        answers={200: Runs},
        roles=SEEN,
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job_id}/chain",
        summary="List the jobs that are retries of each other, the first one first.",
        handler=chain,
        answers={200: Chain},
        roles=SEEN,
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job_id}/explain",
        summary="Say why a job is where it is.",
        handler=explain,
        answers={200: JobExplained},
        roles=SEEN,
    ),
)
