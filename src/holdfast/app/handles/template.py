"""Templates: a task with arguments and options under a name. What is made from one is not changed by later edits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.app.handles.job import Job
from holdfast.app.tasks.options import Chosen, TaskOptions
from holdfast.errors import InvalidArguments, TemplateNotFound
from holdfast.model.commands import ArchiveTemplate, DeleteTemplate, PutTemplate, UseTemplate
from holdfast.model.ids import JobId
from holdfast.model.outcomes import Saved
from holdfast.model.payloads import laid_over, pack
from holdfast.model.templates import JobOptions, NewTemplate
from holdfast.model.templates import Template as Record

if TYPE_CHECKING:
    from typing import Unpack

    from holdfast.app.aio.schedules import AioTemplate
    from holdfast.app.application import Holdfast
    from holdfast.app.tasks.task import Task

#: Options of a task that say something about keys; they matter only to a call that has one.
_OF_KEYS = frozenset({"key_scope", "key_hold", "key_window_s", "on_conflict"})


def standing_options(chosen: Chosen) -> JobOptions:
    """Give the options of a task as those of jobs to come. Raises InvalidArguments for what only a call can have."""
    fields = {name: value for name, value in chosen.fields.items() if name not in _OF_KEYS}
    single = sorted(set(fields) - set(JobOptions.__struct_fields__))
    if single or chosen.connection is not None:
        names = ", ".join(single or ["connection"])
        raise InvalidArguments(
            f"{names}: belongs to a single call, not to jobs that are made again and again. Nothing was changed."
        )
    return JobOptions(**fields)


def declare(
    app: Holdfast, name: str, task: Task[..., Any] | str, params: Mapping[str, Any], options: TaskOptions
) -> Template:
    """Make the template of that name, or give it this content; what is the same changes nothing."""
    chosen = Chosen() if isinstance(task, str) else task.chosen
    new = NewTemplate(
        name=name,
        namespace=app.namespace,
        job_type=task if isinstance(task, str) else task.name,
        default_params=packed(app, task if isinstance(task, str) else task.name, params),
        options=standing_options(chosen.plus(options, TaskOptions)),
    )
    return Template(app, _put(app, new).id, name)


def _put(app: Holdfast, new: NewTemplate, version: int | None = None) -> Saved:
    engine = app.engine
    command = PutTemplate(template_id=engine.new_id(), template=new, replace=True, version=version)
    saved = engine.ask(command)
    assert isinstance(saved, Saved)
    return saved


def packed(app: Holdfast, task: str, params: Mapping[str, Any]) -> msgspec.Raw:
    """Give some arguments as JSON, typed where the task is known here. Raises InvalidArguments, InvalidValue."""
    if not isinstance(params, Mapping):
        raise InvalidArguments(f"params: {params!r:.80} is no mapping of names to values. Nothing was changed.")
    codec = app.codecs.get(task)
    return pack(dict(params)) if codec is None else codec.pack_some(params)


def demand_call(app: Holdfast, task: str, *layers: msgspec.Raw) -> None:
    """Demand that a task that is known here takes these arguments, laid over each other. Raises InvalidArguments."""
    codec = app.codecs.get(task)
    if codec is not None:
        codec.check(laid_over(*layers))


class Template:
    """A handle on one template."""

    def __init__(self, app: Holdfast, template_id: str, name: str) -> None:
        """Hold the template of that id."""
        self._app = app
        self.id = template_id
        self.name = name

    def __repr__(self) -> str:
        """Show the name."""
        return f"<Template {self.name}>"

    def record(self) -> Record:
        """Read it as it is now. Raises TemplateNotFound."""
        with self._app.engine.read() as view:
            found = view.get(Record, self.id)
        if found is None:
            raise TemplateNotFound(f"there is no template {self.name}.", template_id=self.id)
        return found

    def enqueue(self, **params: Any) -> Job[Any]:
        """Create a job; the arguments are laid over those of the template. It is durable when this returns."""
        record, engine = self.record(), self._app.engine
        given = packed(self._app, record.job_type, params)
        demand_call(self._app, record.job_type, record.default_params, given)
        job_id = JobId(engine.new_id())
        engine.ask(UseTemplate(template_id=self.id, job_id=job_id, params=given))
        return Job(self._app, job_id, self._app.codecs.get(record.job_type))

    def update(
        self,
        *,
        params: Mapping[str, Any] | None = None,
        version: int | None = None,
        **options: Unpack[TaskOptions],
    ) -> None:
        """Give it other arguments, or other options. Raises VersionConflict if a `version` is given that is past."""
        record = self.record()
        chosen = Chosen(record.options.given()).plus(options, TaskOptions)
        new = NewTemplate(
            name=record.name,
            namespace=record.namespace,
            job_type=record.job_type,
            default_params=record.default_params if params is None else packed(self._app, record.job_type, params),
            options=standing_options(chosen),
            description=record.description,
        )
        _put(self._app, new, record.version if version is None else version)

    def archive(self) -> None:
        """Make no more jobs from it, and pause its schedules."""
        self._app.engine.ask(ArchiveTemplate(template_id=self.id))

    def delete(self) -> None:
        """Remove it. Raises InvalidOperation while a schedule uses it."""
        self._app.engine.ask(DeleteTemplate(template_id=self.id))

    @property
    def aio(self) -> AioTemplate:
        """The same calls, to be awaited."""
        from holdfast.app.aio.schedules import AioTemplate  # noqa: PLC0415 - only programs that await pay for it

        return AioTemplate(self)
