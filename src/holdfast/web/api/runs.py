"""`/runs`: attempts of jobs, what they said and what they left behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.responses import Response, StreamingResponse

from holdfast.app.handles.artifact import artifacts_of
from holdfast.engine.blob_content import fetch
from holdfast.engine.log_reader import PAGE
from holdfast.engine.views.jobs import FullRun, RunRow, full_run, run_row
from holdfast.errors import InvalidOperation, NotFound
from holdfast.model.commands import Retry
from holdfast.model.ids import RunId
from holdfast.model.jobs import Job, Run, RunStatus
from holdfast.model.outcomes import Submitted
from holdfast.model.times import Timestamp
from holdfast.stores.protocol import JobQuery, View
from holdfast.web.api.endpoint import BYTES, TEXT, Ask, Endpoint, told
from holdfast.web.api.jobs import RetryBody, retried
from holdfast.web.api.lookup import found
from holdfast.web.api.paging import LOOKED_AT, MOST, Page, PageQuery, Query

#: A run's place in lists: its job's, and its number.
Place = tuple[Timestamp, str, int]


class RunsQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which runs to list: those of the newest job first, of each job the newest first."""

    job_id: str | None = None
    queue: str | None = None
    job_type: str | None = None
    status: RunStatus | None = None


async def list_runs(ask: Ask[RunsQuery, None]) -> Response:
    """List runs."""
    query = ask.query
    start: Place | None = ask.place(Place)

    def rows(view: View) -> Any:
        if query.job_id is None:
            kept, at = _newest(view, ask, start, ask.submitter(namespace=ask.namespace))
        else:
            job = found(ask, view, Job, query.job_id)
            kept, at = _of([job], view, query, start, [])
        return map(run_row, kept), at

    return await ask.page(rows)


def _newest(
    view: View, ask: Ask[RunsQuery, None], start: Place | None, own: str | None
) -> tuple[list[Run], Place | None]:
    """Walk jobs, newest first, of all or of who submitted them, and give their runs; `start` may lie inside a job."""
    query, kept, looked = ask.query, list[Run](), 0
    before = None if start is None else start[:2]
    first = None if start is None else view.get(Job, start[1])
    # A cursor is what anybody can make: a job that it names is shown only if this walk comes by it.
    if first is not None and (first.created_at, first.job_id) == before and _is_listed(first, ask, own):
        kept, at = _of([first], view, query, start, kept)
        if at is not None:
            return kept, at
    while looked < LOOKED_AT:
        jobs = view.jobs(
            JobQuery(
                namespace=ask.namespace,
                queue=query.queue,
                job_type=query.job_type,
                submitted_by=own,
                before=before,
                limit=MOST,
            )
        )
        kept, at = _of(jobs, view, query, None, kept)
        if at is not None:
            return kept, at
        if len(jobs) < MOST:
            return kept, None
        before = (jobs[-1].created_at, jobs[-1].job_id)
        looked += len(jobs)
    assert before is not None
    return kept, (*before, 0)


def _is_listed(job: Job, ask: Ask[RunsQuery, None], own: str | None) -> bool:
    query = ask.query
    return (
        job.namespace == ask.namespace
        and own in (None, job.submitted_by)
        and query.queue in (None, job.queue)
        and query.job_type in (None, job.job_type)
    )


def _of(
    jobs: Any, view: View, query: RunsQuery, start: Place | None, kept: list[Run]
) -> tuple[list[Run], Place | None]:
    """Add runs of these jobs until the page is full; then give its last place."""
    for job in jobs:
        for run in reversed(view.runs(job.job_id)):
            if start is not None and run.run_no >= start[2]:
                continue
            if query.status is not None and run.status is not query.status:
                continue
            if len(kept) == query.limit:
                last = view.get(Job, kept[-1].job_id)
                assert last is not None
                return kept, (last.created_at, last.job_id, kept[-1].run_no)
            kept.append(run)
    return kept, None


def _found(ask: Ask[Any, Any], view: View) -> Run:
    """Give the run of the path. Raises RunNotFound or Forbidden."""
    return found(ask, view, Run, ask.path["run_id"])


async def get(ask: Ask[Query, None]) -> Response:
    """Give a run whole."""
    store = ask.engine.store
    return told(await ask.look(lambda view: full_run(_found(ask, view), lambda raw: fetch(store, raw))))


async def log(ask: Ask[Query, None]) -> Response:
    """Give what a run said, line by line, as text."""
    run = await ask.look(lambda view: _found(ask, view))
    return StreamingResponse(
        _lines(ask, run.run_id), media_type=TEXT, headers={"Cache-Control": "no-store", **NO_SNIFF}
    )


#: What workers wrote is data, never a page.
NO_SNIFF = {"X-Content-Type-Options": "nosniff"}


async def _lines(ask: Ask[Any, Any], run_id: RunId) -> AsyncIterator[bytes]:
    after = 0
    while True:
        page = await ask.coordinator.in_thread(lambda at=after: ask.engine.store.logs.read(run_id, at, PAGE))  # type: ignore[misc]  # mypy cannot infer a default
        if not page:
            return
        after = page[-1].line_no
        yield "".join(f"{one.line.text}\n" for one in page).encode()


class _Whole(msgspec.Struct, frozen=True):
    name: str
    content: bytes


async def artifact(ask: Ask[Query, None]) -> Response:
    """Give a file that a run left behind."""

    def read(view: View) -> _Whole:
        run, number = _found(ask, view), ask.path["number"]
        listed = artifacts_of(ask.engine.store, run)
        if not (number.isascii() and number.isdecimal() and len(number) < 8 and int(number) < len(listed)):
            raise NotFound(f"run {run.run_id} left {len(listed)} artifacts; there is none {number!r:.20}, from 0 on.")
        one = listed[int(number)]
        if one.path is not None:
            raise InvalidOperation(
                f"artifact {one.name!r:.200} was too large to be copied; it lies where the run was.",
                hint="Fetch it from the machine of the worker.",
                run_id=run.run_id,
            )
        return _Whole(one.name, one.read())

    whole = await ask.look(read)
    named = f"attachment; filename*=UTF-8''{quote(whole.name, safe='')}"
    return Response(whole.content, media_type=BYTES, headers={"Content-Disposition": named, **NO_SNIFF})


async def retry(ask: Ask[Query, RetryBody]) -> Response:
    """Run the job of a run again, as a new job."""
    run = await ask.look(lambda view: _found(ask, view))
    return await retried(ask, run.job_id)


_SEEN = "reader, operator, admin; client: those of jobs it submitted"

ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/runs",
        summary="List runs: those of the newest job first, of each job the newest first.",
        handler=list_runs,
        query=RunsQuery,
        answers={200: Page[RunRow]},  # type: ignore[valid-type]  # made of the record
        refuses=(404,),
        roles=_SEEN,
    ),
    Endpoint(
        method="GET",
        path="/runs/{run_id}",
        summary="Give a run whole.",
        handler=get,
        answers={200: FullRun},
        roles=_SEEN,
    ),
    Endpoint(
        method="GET",
        path="/runs/{run_id}/log",
        summary="Give what a run said, as text.",
        handler=log,
        answers={200: TEXT},
        roles=_SEEN,
    ),
    Endpoint(
        method="GET",
        path="/runs/{run_id}/artifacts/{number}",
        summary="Give a file that a run left behind; the first one is number 0.",
        handler=artifact,
        answers={200: BYTES},
        refuses=(409,),
        roles=_SEEN,
    ),
    Endpoint(
        method="POST",
        path="/runs/{run_id}/retry",
        summary="Run the job of a run again, as a new job with a full budget.",
        handler=retry,
        body=RetryBody,
        answers={201: Submitted, 200: Submitted},
        refuses=(409,),
        sends=Retry,
    ),
)
