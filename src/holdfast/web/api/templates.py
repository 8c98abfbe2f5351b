"""`/templates`: tasks with parameters and options under a name, and jobs made from them. By id, or by name."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from holdfast.engine.views.schedules import FullTemplate, TemplateRow, full_template, template_row
from holdfast.model.commands import ArchiveTemplate, DeleteTemplate, PutTemplate, UseTemplate
from holdfast.model.ids import JobId
from holdfast.model.outcomes import Saved, Submitted
from holdfast.model.payloads import NULL
from holdfast.model.templates import JobOptions, NewTemplate, Template
from holdfast.stores.protocol import View
from holdfast.web.api.bodies import Empty, as_model, no_change, object_or_null, strict, strict_whole
from holdfast.web.api.endpoint import Ask, Endpoint, Settled, done, gone, told
from holdfast.web.api.jobs import submitted, used
from holdfast.web.api.lookup import found_named, id_to_delete, list_named
from holdfast.web.api.paging import Page, PageQuery, Query

TemplateBody = strict(NewTemplate, without=("namespace",), beside={"template_id": (str | None, None)})
OptionsBody = strict_whole(JobOptions)


class TemplateChanges(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """New values for fields of a template. What is left out stays; options are given whole."""

    job_type: str | msgspec.UnsetType = msgspec.UNSET
    default_params: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    options: OptionsBody | msgspec.UnsetType = msgspec.UNSET  # type: ignore[valid-type]  # made above
    description: str | msgspec.UnsetType | None = msgspec.UNSET


class Use(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The id of the new job, and parameters laid over those of what makes it."""

    job_id: str | None = None
    params: msgspec.Raw = NULL


class Stored(msgspec.Struct, frozen=True):
    """It is as asked; each change raises the version."""

    id: str
    version: int
    created: bool


def stored(outcome: Any) -> Response:
    """Answer with what was made or changed."""
    assert isinstance(outcome, Saved)
    return told(
        Stored(outcome.id, outcome.version, outcome.created),
        201 if outcome.created else 200,
        version=outcome.version,
    )


async def list_templates(ask: Ask[PageQuery, None]) -> Response:
    """List templates by name."""
    return await list_named(ask, Template, template_row)


async def create(ask: Ask[Query, Any]) -> Response:
    """Make a template."""
    body = ask.body
    new = as_model(body, namespace=ask.namespace, default_params=object_or_null(body.default_params, "default_params"))
    chosen = ask.id_of(body.template_id, "template")
    return stored(await ask.order(PutTemplate(template_id=chosen, template=new, cmd=ask.cmd)))


async def get(ask: Ask[Query, None]) -> Response:
    """Give a template whole."""
    found = await ask.look(lambda view: _found(ask, view))
    return told(full_template(found), version=found.version)


async def update(ask: Ask[Query, TemplateChanges]) -> Response:
    """Change a template; what was read is what is changed, and nothing that came in between."""
    body, version = ask.body, ask.version()
    given = {name: getattr(body, name) for name in body.__struct_fields__}
    given = {name: value for name, value in given.items() if value is not msgspec.UNSET}
    if not given:
        raise no_change()
    if "options" in given:
        given["options"] = as_model(given["options"])
    if "default_params" in given:
        given["default_params"] = object_or_null(given["default_params"], "default_params")
    found = await ask.look(lambda view: _found(ask, view))
    kept = {name: getattr(found, name) for name in NewTemplate.__struct_fields__}
    command = PutTemplate(
        template_id=found.template_id,
        template=NewTemplate(**{**kept, **given}),
        replace=True,
        version=found.version if version is None else version,
        cmd=ask.cmd,
        request=ask.digest,
    )
    return stored(await ask.order(command))


async def delete(ask: Ask[Query, None]) -> Response:
    """Remove a template that no schedule uses."""
    template_id = await id_to_delete(ask, Template, ask.path["template_id"])
    await ask.order(DeleteTemplate(template_id=template_id, cmd=ask.cmd, request=ask.digest))
    return gone()


async def archive(ask: Ask[Query, Empty]) -> Response:
    """Make no more jobs from a template."""
    found = await ask.look(lambda view: _found(ask, view))
    await ask.order(ArchiveTemplate(template_id=found.template_id, cmd=ask.cmd))
    return done(found.template_id)


async def enqueue(ask: Ask[Query, Use]) -> Response:
    """Make a job from a template."""
    found = await ask.look(lambda view: _found(ask, view))
    job_id, params = JobId(ask.id_of(ask.body.job_id, "job", "0")), object_or_null(ask.body.params)
    return submitted(await ask.order(used(ask, found, job_id, params)))


def _found(ask: Ask[Any, Any], view: View) -> Template:
    return found_named(ask, view, Template, ask.path["template_id"])


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/templates",
        summary="List templates by name.",
        handler=list_templates,
        query=PageQuery,
        answers={200: Page[TemplateRow]},  # type: ignore[valid-type]  # made of the record
    ),
    Endpoint(
        method="POST",
        path="/templates",
        summary="Make a template.",
        handler=create,
        body=TemplateBody,
        answers={201: Stored},
        refuses=(409,),
        sends=PutTemplate,
        has_version=True,
    ),
    Endpoint(
        method="GET",
        path="/templates/{template_id}",
        summary="Give a template whole, by its id or its name.",
        handler=get,
        answers={200: FullTemplate},
        has_version=True,
    ),
    Endpoint(
        method="PATCH",
        path="/templates/{template_id}",
        summary="Change a template; jobs that were made are not touched.",
        handler=update,
        body=TemplateChanges,
        answers={200: Stored},
        refuses=(409, 412),
        sends=PutTemplate,
        headers=("If-Match",),
        has_version=True,
    ),
    Endpoint(
        method="DELETE",
        path="/templates/{template_id}",
        summary="Remove a template that no schedule uses.",
        handler=delete,
        answers={204: None},
        refuses=(409,),
        sends=DeleteTemplate,
    ),
    Endpoint(
        method="POST",
        path="/templates/{template_id}/archive",
        summary="Make no more jobs from a template, and pause its schedules.",
        handler=archive,
        body=Empty,
        answers={200: Settled},
        refuses=(409,),
        sends=ArchiveTemplate,
    ),
    Endpoint(
        method="POST",
        path="/templates/{template_id}/enqueue",
        summary="Make a job from a template.",
        handler=enqueue,
        body=Use,
        answers={201: Submitted, 200: Submitted},
        refuses=(409,),
        sends=UseTemplate,
    ),
)
