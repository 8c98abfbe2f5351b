"""Templates: made, edited, archived and used. What is made from one has copied values; an edit reaches no job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.errors import IdReused, InvalidOperation, InvalidValue, TemplateNotFound, VersionConflict
from holdfast.model.commands import ArchiveTemplate, DeleteTemplate, NewJob, PutTemplate, UseTemplate
from holdfast.model.events import (
    Event,
    JobCreated,
    SchedulePaused,
    TemplateArchived,
    TemplateCreated,
    TemplateDeleted,
    TemplateUpdated,
)
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job
from holdfast.model.outcomes import Done, Enqueued, Refusal, Saved, Submitted, refuse
from holdfast.model.payloads import EMPTY, NULL, laid_over
from holdfast.model.templates import JobOptions, NewTemplate, Template
from holdfast.model.times import Timestamp
from holdfast.rules.decision import Decision, answer, deny
from holdfast.rules.field_checks import Problem, check_label
from holdfast.rules.jobs.enqueue import Drafts, draft
from holdfast.rules.state import State
from holdfast.rules.validation import name_problems, new_job_problems

replace = msgspec.structs.replace


def find_template(state: State, template_id: str) -> Template | Refusal:
    """Give a template that makes jobs, or say why there is none."""
    template = state.get(Template, template_id)
    if template is None:
        return refuse(
            TemplateNotFound, f"there is no template {template_id}. Nothing was changed.", template_id=template_id
        )
    if template.archived_at is not None:
        message = f"template {template.name} is archived and makes no more jobs. Nothing was changed."
        return refuse(InvalidOperation, message, hint="Make another one.", template_id=template_id)
    return template


def option_problems(options: JobOptions, namespace: str) -> Iterator[Problem]:
    """Check options by the job they would make."""
    example = new_job(JobId("x"), "x", namespace, EMPTY, options.given())
    for field, complaint in new_job_problems(example):
        yield f"options.{field}", complaint


def new_job(job_id: JobId, job_type: str, namespace: str, params: Any, options: dict[str, Any]) -> NewJob:
    """Give the new job that options ask for."""
    return NewJob(job_id=job_id, job_type=job_type, namespace=namespace, params=params, **options)


def _problems(template: NewTemplate) -> Iterator[Problem]:
    yield from name_problems("name", template.name)
    yield from name_problems("job_type", template.job_type)
    if template.namespace:
        yield from name_problems("namespace", template.namespace)
    yield from option_problems(template.options, template.namespace)
    yield from check_label("description", template.description)


def decide_put_template(state: State, command: PutTemplate, now: Timestamp) -> Decision:
    """Make a template, or give the one of that name another content."""
    new = command.template
    for field, complaint in _problems(new):
        return deny(InvalidValue, f"{field}: {complaint}. Nothing was changed.", field=field)
    params = NULL if new.default_params == EMPTY else new.default_params
    found = state.by_name(Template, new.namespace, new.name)
    if found is not None and not command.replace:
        if found.template_id == command.template_id:
            return answer(Saved(id=found.template_id, version=1, created=True))  # sent again
        message = f"a template {new.name} exists already. Nothing was changed."
        return deny(InvalidOperation, message, hint="Update it, or choose another name.", template_id=found.template_id)
    same_id = state.get(Template, command.template_id)
    if same_id is not None and same_id is not found and same_id != found:
        return deny(IdReused, f"template {command.template_id} exists already.", template_id=command.template_id)
    if found is None:
        made = Template(
            template_id=command.template_id,
            name=new.name,
            job_type=new.job_type,
            created_at=now,
            namespace=new.namespace,
            default_params=params,
            options=new.options,
            description=new.description,
        )
        event = TemplateCreated(template=made, cmd=command.cmd, actor=command.actor)
        return answer(Saved(id=made.template_id, version=1, created=True), event)
    return _edited(found, new, params, command)


def _edited(found: Template, new: NewTemplate, params: Any, command: PutTemplate) -> Decision:
    if command.version not in (None, found.version):
        return stale("template", found.name, found.version, command.version)
    if (found.job_type, found.default_params, found.options, found.description) == (
        new.job_type,
        params,
        new.options,
        new.description,
    ):
        return answer(Saved(id=found.template_id, version=found.version))
    if found.archived_at is not None:
        message = f"template {found.name} is archived and cannot be edited. Nothing was changed."
        return deny(InvalidOperation, message, template_id=found.template_id)
    event = TemplateUpdated(
        template_id=found.template_id,
        name=new.name,
        job_type=new.job_type,
        version=found.version + 1,
        default_params=params,
        options=new.options,
        description=new.description,
        cmd=command.cmd,
        actor=command.actor,
    )
    return answer(Saved(id=found.template_id, version=event.version), event)


def stale(kind: str, name: str, version: int, read: int | None) -> Decision:
    """Refuse an edit of what was changed since it was read."""
    message = f"{kind} {name} has version {version}, and version {read} was edited. Nothing was changed."
    return deny(VersionConflict, message, hint="Read it again, and decide anew.", version=version)


def decide_archive(state: State, command: ArchiveTemplate) -> Decision:
    """Make no more jobs from a template; its schedules are paused, and say why."""
    template = state.get(Template, command.template_id)
    if template is None:
        return answer(_missing(command.template_id))
    if template.archived_at is not None:
        return answer(Saved(id=template.template_id, version=template.version))
    archived = TemplateArchived(
        template_id=template.template_id, version=template.version + 1, cmd=command.cmd, actor=command.actor
    )
    events: list[Event] = [archived]
    events += [
        SchedulePaused(
            schedule_id=schedule.schedule_id,
            version=schedule.version + 1,
            reason=f"template {template.name} was archived",
            cmd=command.cmd,
            actor=command.actor,
        )
        for schedule in state.schedules_of(template.template_id)
        if schedule.enabled
    ]
    return answer(Saved(id=template.template_id, version=archived.version), *events)


def decide_delete_template(state: State, command: DeleteTemplate) -> Decision:
    """Remove a template, unless a schedule uses it."""
    template = state.get(Template, command.template_id)
    if template is None:
        return answer(_missing(command.template_id))
    users = state.schedules_of(template.template_id)
    if users:
        message = f"template {template.name} is used by schedule {users[0].name}. Nothing was changed."
        hint = "Delete that schedule first, or archive the template."
        return deny(InvalidOperation, message, hint=hint, schedule_id=users[0].schedule_id)
    event = TemplateDeleted(template_id=template.template_id, cmd=command.cmd, actor=command.actor)
    return answer(Done(), event)


def _missing(template_id: str) -> Refusal:
    return refuse(TemplateNotFound, f"there is no template {template_id}.", template_id=template_id)


def decide_use(state: State, command: UseTemplate, now: Timestamp) -> Decision:
    """Make a job from a template, with the parameters of the call laid over its own."""
    existing = state.get(Job, command.job_id)
    if existing is not None:
        if existing.template_id == command.template_id and existing.schedule_id is None:
            return answer(Enqueued(jobs=(Submitted(existing.job_id, created=False),)))
        return deny(IdReused, f"job {existing.job_id} exists already. Nothing was stored.", job_id=existing.job_id)
    template = find_template(state, command.template_id)
    if isinstance(template, Refusal):
        return answer(template)
    params = laid_over(template.default_params, command.params)
    new = new_job(command.job_id, template.job_type, template.namespace, params, template.options.given())
    job = replace(draft(Drafts(state, command, now), new), template_id=template.template_id)
    event = JobCreated(job=job, cmd=command.cmd, actor=command.actor)
    return answer(Enqueued(jobs=(Submitted(job.job_id, created=True),)), event)
