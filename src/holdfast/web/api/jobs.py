"""`/jobs`: make them, look at them, change their fate."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from starlette.responses import Response

from holdfast.engine.content import fetch
from holdfast.engine.records.jobs import FullJob, FullRun, JobRow, Link, behind, chain_of, full_job, full_run, job_row
from holdfast.errors import InvalidValue, PayloadTooLarge
from holdfast.model.access import Role
from holdfast.model.commands import Bury, Cancel, Enqueue, Move, NewJob, Retry, Update, UseTemplate
from holdfast.model.events import JobChanges
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, JobStatus
from holdfast.model.outcomes import CancelAnswer, Changed, Enqueued, Submitted
from holdfast.model.payloads import EMPTY, NULL, admit_object
from holdfast.model.templates import Template
from holdfast.model.times import Timestamp, parse_timestamp
from holdfast.model.workers import Progress
from holdfast.rules.access import may_list
from holdfast.rules.explain import Reason
from holdfast.stores.protocol import JobQuery, View
from holdfast.web.api.bodies import ReasonBody, as_model, strict, strict_whole
from holdfast.web.api.endpoints import Ask, Endpoint, told
from holdfast.web.api.finding import found, found_named
from holdfast.web.api.paging import Page, PageQuery, Query, cursor_of, place_in, walked

#: Jobs of one batch.
MOST = 1000
#: What only the coordinator says of a job.
NOT_ASKED = ("namespace", "owner", "affinity", "submitted_by", "created_at")

JobBody = strict(
    NewJob,
    without=NOT_ASKED,
    beside={
        "job_id": (str | None, None),
        "job_type": (str | None, None),
        "template": (str | None, None),
        "params": (msgspec.Raw, EMPTY),
    },
)
ChangesBody = strict_whole(JobChanges)


class Batch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs that are made together, all or none."""

    jobs: list[JobBody]  # type: ignore[valid-type]  # made above


class BatchMade(msgspec.Struct, frozen=True):
    """What became of a batch, in its order."""

    jobs: list[Submitted]


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


class MoveBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to; one of the three."""

    before: JobId | None = None
    after: JobId | None = None
    to: Literal["first", "last"] | None = None


class CancelBody(ReasonBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why, and whether the lease of a running job is revoked at once."""

    force: bool = False


class RetryBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The id of the new job, and what is to be different."""

    job_id: str | None = None
    params: msgspec.Raw = NULL
    priority: int | None = None


class Cancelled(msgspec.Struct, frozen=True):
    """Whether it has ended, or was asked to."""

    outcome: Literal["cancelled", "requested"]


class Placed(msgspec.Struct, frozen=True):
    """The job is as asked; its place in its band, if that was looked at."""

    job_id: JobId
    position: int | None


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


# --- making -----------------------------------------------------------------------------------------------------------


def new_job(ask: Ask[Any, Any], body: Any, number: int = 0) -> NewJob:
    """Give the job that a body asks for. Raises InvalidValue without a task, or with a template."""
    if body.job_type is None or body.template is not None:
        raise InvalidValue(
            "job_type: name the task. Nothing was stored.",
            hint="A template makes single jobs only: POST /jobs, or POST /templates/{id}/enqueue.",
            field="job_type",
        )
    made: NewJob = as_model(
        body,
        job_id=JobId(body.job_id if body.job_id is not None else ask.new_id("job", str(number))),
        params=admit_object(body.params),
        namespace=ask.namespace,
    )
    return made


async def create(ask: Ask[Query, Any]) -> Response:
    """Make a job of a task, or from a template."""
    body = ask.body
    if body.template is None:
        outcome = await ask.order(Enqueue(jobs=(new_job(ask, body),), cmd=ask.key))
    else:
        if body != JobBody(template=body.template, job_id=body.job_id, params=body.params):
            raise InvalidValue(
                "template: it says all but the id and the parameters. Nothing was stored.", field="template"
            )
        template = await ask.look(lambda view: found_named(ask, view, Template, body.template))
        job_id = JobId(body.job_id if body.job_id is not None else ask.new_id("job", "0"))
        outcome = await ask.order(
            UseTemplate(template_id=template.template_id, job_id=job_id, params=admit_object(body.params), cmd=ask.key)
        )
    return submitted(outcome)


def submitted(outcome: Any) -> Response:
    """Answer with the one job that was made, or was there before."""
    assert isinstance(outcome, Enqueued)
    (one,) = outcome.jobs
    return told(one, 201 if one.created else 200)


async def create_batch(ask: Ask[Query, Batch]) -> Response:
    """Make jobs, all or none."""
    jobs = ask.body.jobs
    if len(jobs) > MOST:
        raise PayloadTooLarge(f"{len(jobs):,} jobs are more than {MOST:,}. Nothing was stored.", field="jobs")
    if not jobs:
        raise InvalidValue("jobs: there are none. Nothing was stored.", field="jobs")
    outcome = await ask.order(Enqueue(jobs=tuple(new_job(ask, one, at) for at, one in enumerate(jobs)), cmd=ask.key))
    assert isinstance(outcome, Enqueued)
    return told(BatchMade(list(outcome.jobs)), 201)


# --- looking ----------------------------------------------------------------------------------------------------------


async def list_jobs(ask: Ask[JobsQuery, None]) -> Response:
    """List jobs, newest first. Whoever may only submit sees what they submitted."""
    query, access = ask.query, ask.access
    own = None if may_list(access, ask.namespace) else access.name
    if own is not None and not (
        Role.CLIENT in access.roles and (access.namespaces is None or ask.namespace in access.namespaces)
    ):
        raise ask.forbidden()
    since = None if query.created_after is None else parse_timestamp(query.created_after, "created_after")
    start = place_in(query.cursor, tuple[Timestamp, str])
    if start is None and query.created_before is not None:
        start = (parse_timestamp(query.created_before, "created_before"), "")
    kept = {"group_id": query.group, "schedule_id": query.schedule, "key": query.key, "submitted_by": own}
    wanted = {name: value for name, value in kept.items() if value is not None}
    tags = [one.partition("=") for one in query.tag]

    def keep(job: Job) -> bool:
        mine = job.tags or {}
        return all(getattr(job, name) == value for name, value in wanted.items()) and all(
            name in mine and (not equals or mine[name] == value) for name, equals, value in tags
        )

    def page(view: View) -> Any:
        def behind_place(at: tuple[Timestamp, str] | None, limit: int) -> list[Job]:
            jobs = view.jobs(
                JobQuery(
                    namespace=ask.namespace,
                    status=query.status,
                    queue=query.queue,
                    job_type=query.job_type,
                    before=at,
                    limit=limit,
                )
            )
            return [job for job in jobs if since is None or job.created_at > since]

        jobs, at = walked(behind_place, _place, start, query.limit, keep if wanted or tags else None)
        reasons = ask.reasons(view)
        rows = [job_row(job, reasons.of(job)) for job in jobs]
        return Page(items=rows, next_cursor=None if at is None else cursor_of(at), as_of=view.seq)

    return told(await ask.look(page))


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
        jobs = chain_of(view, found(ask, view, Job, ask.path["job_id"]))
        reasons = ask.reasons(view)
        return Chain([job_row(job, reasons.of(job)) for job in jobs], view.seq)

    return told(await ask.look(links))


async def explain(ask: Ask[Query, None]) -> Response:
    """Say why a job is where it is."""

    def why(view: View) -> JobExplained:
        job, reasons = found(ask, view, Job, ask.path["job_id"]), ask.reasons(view)
        reason = reasons.of(job)
        links = [Link(role, one.job_id, one.status, reasons.of(one)) for role, one in behind(view, job, reason)]
        return JobExplained(job.job_id, job.status, reason, links)

    return told(await ask.look(why))


# --- changing ---------------------------------------------------------------------------------------------------------


async def update(ask: Ask[Query, Any]) -> Response:
    """Edit a job that waits."""
    changes: JobChanges = as_model(ask.body)
    if not changes.given():
        raise InvalidValue("there is nothing to change. Nothing was changed.", field="")
    return _placed(await ask.order(Update(job_id=_id(ask), changes=changes, cmd=ask.key)))


async def move(ask: Ask[Query, MoveBody]) -> Response:
    """Give a job that waits another place in its band."""
    body = ask.body
    command = Move(job_id=_id(ask), before=body.before, after=body.after, to=body.to, cmd=ask.key)
    return _placed(await ask.order(command))


async def cancel(ask: Ask[Query, CancelBody]) -> Response:
    """End a job that waits, or ask a running one to stop."""
    command = Cancel(job_id=_id(ask), reason=ask.body.reason, force=ask.body.force, cmd=ask.key)
    outcome = await ask.order(command)
    assert isinstance(outcome, CancelAnswer)
    return told(Cancelled(outcome.outcome))


async def bury(ask: Ask[Query, ReasonBody]) -> Response:
    """Declare a job DEAD."""
    return _placed(await ask.order(Bury(job_id=_id(ask), reason=ask.body.reason, cmd=ask.key)))


async def retry(ask: Ask[Query, RetryBody]) -> Response:
    """Run an ended job again, as a new job."""
    return await retried(ask, _id(ask))


async def retried(ask: Ask[Any, RetryBody], job_id: JobId) -> Response:
    """Run an ended job again, and answer with the new one."""
    body = ask.body
    new_id = JobId(ask.new_id("job", "0") if body.job_id is None else body.job_id)
    params = NULL if body.params == NULL else admit_object(body.params)
    command = Retry(job_id=job_id, new_job_id=new_id, params=params, priority=body.priority, cmd=ask.key)
    return submitted(await ask.order(command))


def _id(ask: Ask[Any, Any]) -> JobId:
    return JobId(ask.path["job_id"])


def _placed(outcome: Any) -> Response:
    assert isinstance(outcome, Changed)
    return told(Placed(outcome.job_id, outcome.position))


_SEEN = "reader, operator, admin; client: what it submitted"

ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/jobs",
        summary="Make a job of a task, or from a template.",
        handler=create,
        body=JobBody,
        answers={201: Submitted, 200: Submitted},
        refuses=(404, 409),
        sends=Enqueue,
    ),
    Endpoint(
        method="POST",
        path="/jobs/batch",
        summary=f"Make up to {MOST:,} jobs, all or none.",
        handler=create_batch,
        body=Batch,
        answers={201: BatchMade},
        refuses=(409,),
        sends=Enqueue,
    ),
    Endpoint(
        method="GET",
        path="/jobs",
        summary="List jobs, newest first.",
        handler=list_jobs,
        query=JobsQuery,
        answers={200: Page[JobRow]},  # type: ignore[valid-type]  # made of the record
        roles=_SEEN,
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job_id}",
        summary="Give a job whole.",
        handler=get,
        answers={200: FullJob},
        roles=_SEEN,
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job_id}/runs",
        summary="List the runs of a job, oldest first.",
        handler=list_runs,
        answers={200: Runs},
        roles=_SEEN,
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job_id}/chain",
        summary="List the jobs that are retries of each other, the first one first.",
        handler=chain,
        answers={200: Chain},
        roles=_SEEN,
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job_id}/explain",
        summary="Say why a job is where it is.",
        handler=explain,
        answers={200: JobExplained},
        roles=_SEEN,
    ),
    Endpoint(
        method="PATCH",
        path="/jobs/{job_id}",
        summary="Edit a job that waits.",
        handler=update,
        body=ChangesBody,
        answers={200: Placed},
        refuses=(409,),
        sends=Update,
    ),
    Endpoint(
        method="POST",
        path="/jobs/{job_id}/move",
        summary="Give a job that waits another place in its band.",
        handler=move,
        body=MoveBody,
        answers={200: Placed},
        refuses=(409,),
        sends=Move,
    ),
    Endpoint(
        method="POST",
        path="/jobs/{job_id}/cancel",
        summary="End a job that waits, or ask a running one to stop.",
        handler=cancel,
        body=CancelBody,
        answers={200: Cancelled},
        refuses=(409,),
        sends=Cancel,
    ),
    Endpoint(
        method="DELETE",
        path="/jobs/{job_id}",
        summary="The same as cancel.",
        handler=cancel,
        body=CancelBody,
        answers={200: Cancelled},
        refuses=(409,),
        sends=Cancel,
    ),
    Endpoint(
        method="POST",
        path="/jobs/{job_id}/retry",
        summary="Run an ended job again, as a new job with a full budget.",
        handler=retry,
        body=RetryBody,
        answers={201: Submitted, 200: Submitted},
        refuses=(409,),
        sends=Retry,
    ),
    Endpoint(
        method="POST",
        path="/jobs/{job_id}/bury",
        summary="Declare a job DEAD.",
        handler=bury,
        body=ReasonBody,
        answers={200: Placed},
        refuses=(409,),
        sends=Bury,
    ),
)
