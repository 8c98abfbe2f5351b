"""`/jobs`, made and changed."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from starlette.responses import Response

from holdfast.errors import InvalidValue, PayloadTooLarge
from holdfast.model.commands import Bury, Cancel, Enqueue, Move, NewJob, Retry, Update, UseTemplate
from holdfast.model.events import JobChanges
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job
from holdfast.model.outcomes import CancelAnswer, Changed, Enqueued, Submitted
from holdfast.model.payloads import EMPTY, NULL, admit_object
from holdfast.model.templates import Template
from holdfast.web.api.bodies import ReasonBody, as_model, changes_of, object_or_null, strict, strict_whole
from holdfast.web.api.endpoint import Ask, Endpoint, told
from holdfast.web.api.lookup import found_named, id_within
from holdfast.web.api.paging import Query

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


# --- making -----------------------------------------------------------------------------------------------------------


def new_job(ask: Ask[Any, Any], body: Any, number: int = 0) -> NewJob:
    """Give the job that a body asks for. Raises InvalidValue without a task, or with a template."""
    if body.template is not None:
        raise InvalidValue(
            "template: it makes single jobs only. Nothing was stored.",
            hint="POST /jobs, or POST /templates/{id}/enqueue.",
            field="template",
        )
    if body.job_type is None:
        raise InvalidValue("job_type: name the task. Nothing was stored.", field="job_type")
    made: NewJob = as_model(
        body,
        job_id=JobId(ask.id_of(body.job_id, "job", str(number))),
        params=admit_object(body.params),
        namespace=ask.namespace,
    )
    return made


async def create(ask: Ask[Query, Any]) -> Response:
    """Make a job of a task, or from a template."""
    body = ask.body
    if body.template is None and body.job_type is None:
        raise InvalidValue("job_type: name the task, or a template. Nothing was stored.", field="job_type")
    if body.template is None:
        outcome = await ask.order(Enqueue(jobs=(new_job(ask, body),), cmd=ask.cmd, request=ask.digest))
    else:
        if body != JobBody(template=body.template, job_id=body.job_id, params=body.params):
            raise InvalidValue(
                "template: it says all but the id and the parameters. Nothing was stored.", field="template"
            )
        template = await ask.look(lambda view: found_named(ask, view, Template, body.template))
        job_id, params = JobId(ask.id_of(body.job_id, "job", "0")), admit_object(body.params)
        outcome = await ask.order(used(ask, template, job_id, params))
    return submitted(outcome)


def used(ask: Ask[Any, Any], template: Template, job_id: JobId, params: msgspec.Raw) -> UseTemplate:
    """Give the command that makes a job from a template."""
    return UseTemplate(template_id=template.template_id, job_id=job_id, params=params, cmd=ask.cmd, request=ask.digest)


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
    made = tuple(new_job(ask, one, at) for at, one in enumerate(jobs))
    outcome = await ask.order(Enqueue(jobs=made, cmd=ask.cmd, request=ask.digest))
    assert isinstance(outcome, Enqueued)
    return told(BatchMade(list(outcome.jobs)), 201)


# --- changing ---------------------------------------------------------------------------------------------------------


async def update(ask: Ask[Query, Any]) -> Response:
    """Edit a job that waits."""
    changes: JobChanges = changes_of(ask.body)
    return _placed(await ask.order(Update(job_id=await _id(ask), changes=changes, cmd=ask.cmd)))


async def move(ask: Ask[Query, MoveBody]) -> Response:
    """Give a job that waits another place in its band."""
    body = ask.body
    command = Move(job_id=await _id(ask), before=body.before, after=body.after, to=body.to, cmd=ask.cmd)
    return _placed(await ask.order(command))


async def cancel(ask: Ask[Query, CancelBody]) -> Response:
    """End a job that waits, or ask a running one to stop."""
    command = Cancel(job_id=await _id(ask), reason=ask.body.reason, force=ask.body.force, cmd=ask.cmd)
    outcome = await ask.order(command)
    assert isinstance(outcome, CancelAnswer)
    return told(Cancelled(outcome.outcome))


async def bury(ask: Ask[Query, ReasonBody]) -> Response:
    """Declare a job DEAD."""
    return _placed(await ask.order(Bury(job_id=await _id(ask), reason=ask.body.reason, cmd=ask.cmd)))


async def retry(ask: Ask[Query, RetryBody]) -> Response:
    """Run an ended job again, as a new job."""
    return await retried(ask, await _id(ask))


async def retried(ask: Ask[Any, RetryBody], job_id: JobId) -> Response:
    """Run an ended job again, and answer with the new one."""
    body = ask.body
    new_id, params = JobId(ask.id_of(body.job_id, "job", "0")), object_or_null(body.params)
    command = Retry(
        job_id=job_id, new_job_id=new_id, params=params, priority=body.priority, cmd=ask.cmd, request=ask.digest
    )
    return submitted(await ask.order(command))


async def _id(ask: Ask[Any, Any]) -> JobId:
    return JobId(await id_within(ask, Job, ask.path["job_id"]))


def _placed(outcome: Any) -> Response:
    assert isinstance(outcome, Changed)
    return told(Placed(outcome.job_id, outcome.position))


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
