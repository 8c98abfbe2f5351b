"""The `Holdfast` object: what people hold in their hands. Each noun it gives a handle on has a module of its own.

Making one touches no disk: the store is opened by the first call that needs it (`store_connection`). Tasks are made by
its decorator (`app.tasks.task.decorator`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from holdfast.app.completion_waiter import Lookout
from holdfast.app.handles import group as groups
from holdfast.app.handles import reservation
from holdfast.app.handles import schedule as schedules
from holdfast.app.handles import template as templates
from holdfast.app.handles import webhook as webhooks
from holdfast.app.handles.group import Group, GroupOptions, Member, Mode
from holdfast.app.handles.job import Job
from holdfast.app.handles.queue import Dispatch, Queue
from holdfast.app.handles.reservation import TTL_S, Reservation
from holdfast.app.handles.schedule import Schedule, ScheduleOptions, Target, report_undeclared, synchronise
from holdfast.app.handles.template import Template
from holdfast.app.handles.webhook import Webhook, WebhookOptions
from holdfast.app.queue_wait import Wait
from holdfast.app.retention import checked
from holdfast.app.tasks.options import TaskOptions, demand_limit
from holdfast.app.tasks.task import Call, Task
from holdfast.app.workflows import decisions
from holdfast.app.workflows import handle as instances
from holdfast.app.workflows.decisions import Decision
from holdfast.app.workflows.handle import Instance
from holdfast.app.workflows.workflow import HasWorkflows
from holdfast.clock import Clock
from holdfast.errors import InvalidOperation, InvalidValue, RunNotFound
from holdfast.model.commands import Retention
from holdfast.model.groups import GroupStatus
from holdfast.model.ids import NAME_HINT, is_name
from holdfast.model.jobs import JobStatus, Run
from holdfast.model.schedules import Schedule as ScheduleRecord
from holdfast.model.templates import Template as TemplateRecord
from holdfast.model.webhooks import Webhook as WebhookRecord
from holdfast.model.workers import WorkerInfo
from holdfast.model.workflows.instances import InstanceStatus
from holdfast.rules.webhooks.addresses import parse_networks
from holdfast.stores.protocol import JobQuery
from holdfast.workers.handlers import context
from holdfast.workers.handlers.context import Context, current
from holdfast.workflows.determinism.guard import Guard

if TYPE_CHECKING:
    from typing import Unpack

    from holdfast.app.aio.application import AioHoldfast
    from holdfast.app.event_feed import FeedEvent
    from holdfast.app.lifespan import Lifespan
    from holdfast.workers.worker import Worker

R = TypeVar("R")


class Holdfast(HasWorkflows):
    """An application's jobs and workflows, on one store.

    >>> hf = Holdfast("sqlite:jobs.db")
    >>> @hf.task(queue="mail", max_attempts=4, timeout=30)
    ... def send(to: str, subject: str) -> str: ...
    """

    def __init__(
        self,
        url: str,
        *,
        namespace: str = "",
        clock: Clock | None = None,
        durability: Literal["sync", "relaxed"] = "sync",
        retention: Retention | None = None,
        webhook_allow: Sequence[str] = (),
        access_token: str | None = None,
        guard_workflows: bool = False,
    ) -> None:
        """Name the store; it is opened when it is first needed. Raises InvalidValue for what is no URL or no retention.

        With `durability="relaxed"`, where the store has it, an answer may leave up to 10 ms before it is on the disk.
        Webhooks go to public addresses, and to the networks of `webhook_allow`, such as `10.0.0.0/8`.
        A coordinator (`http://HOST:PORT`) is shown the `access_token`, or that of HOLDFAST_ACCESS_TOKEN.
        With `guard_workflows`, calls of workflow code that cannot be replayed raise WorkflowNotAllowed. Its Python then
        runs slower; nothing else in the process does.
        """
        if durability != "sync":
            url = f"{url}{'&' if '?' in url else '?'}durability={durability}"
        super().__init__(url, namespace=namespace, clock=clock, access_token=access_token)
        self.retention = checked(retention or Retention())
        if self.retention.executions_max is not None:
            self.workflows.executions_max = self.retention.executions_max
        if guard_workflows:
            self.workflows.guard = Guard()
        #: Networks that are not public and may be told of ended runs all the same.
        self.webhook_allow = _networks(webhook_allow)
        self._lookout: Lookout | None = None
        #: Pause and resume leasing altogether.
        self.dispatch = Dispatch(self)

    @property
    def lifespan(self) -> Lifespan:
        """What Starlette and FastAPI take as `lifespan`: the store is open while the server runs.

        >>> FastAPI(lifespan=hf.lifespan)  # doctest: +SKIP
        >>> FastAPI(lifespan=hf.lifespan.working(concurrency=4))  # doctest: +SKIP
        """
        from holdfast.app.lifespan import Lifespan  # noqa: PLC0415 - only programs with an event loop pay for it

        return Lifespan(self)

    # --- working ------------------------------------------------------------------------------------------------------

    def worker(
        self,
        queues: Sequence[str] | None = None,
        concurrency: int | None = None,
        *,
        name: str = "",
        until_idle: bool = False,
    ) -> Worker:
        """Make a worker on this application's store, to be started, drained and joined by the caller.

        Raises InvalidValue for a queue or worker that is no name, or a concurrency below 1.
        """
        from holdfast.workers.worker import Worker  # noqa: PLC0415 - programs that only enqueue do not pay for it

        if context.is_child:
            raise InvalidOperation(
                "a child process of a worker cannot be a worker.",
                hint='Put hf.work() behind `if __name__ == "__main__":`, as the file is imported again for processes.',
            )
        names = sorted({"default", *self._queues}) if queues is None else list(queues)
        for queue in names:
            if not is_name(queue):
                raise InvalidValue(f"queues: {queue!r} is not a name.", hint=NAME_HINT, field="queues")
        if name and not is_name(name):
            raise InvalidValue(f"name: {name!r} is not a name.", hint=NAME_HINT, field="name")
        size = min(32, 4 * (os.cpu_count() or 1)) if concurrency is None else concurrency
        if not names or size < 1:
            raise InvalidValue("a worker needs at least one queue and a concurrency of at least 1.")
        engine = self.engine
        # Tasks may have been defined since the store was opened.
        synchronise(engine, list(self._declared.values()))
        if engine.is_authority:  # it reads all schedules, which a coordinator does not show to a mere worker
            report_undeclared(engine, self.namespace, list(self._declared.values()))
        return Worker(
            engine,
            self.tasks,
            tuple(names),
            concurrency=size,
            namespace=self.namespace,
            name=name,
            retention=self.retention,
            webhook_allow=parse_networks(self.webhook_allow),
            workflows=self.workflows,
            until_idle=until_idle,
        )

    def work(
        self, queues: Sequence[str] | None = None, concurrency: int | None = None, *, until_idle: bool = False
    ) -> None:
        """Run jobs in this process until SIGTERM or SIGINT; with `until_idle` until nothing runs and nothing is due.

        Takes jobs of the given queues, by default of those that its tasks name. A first signal lets handlers end for
        up to 30 s, a second one releases them at once.
        """
        try:
            self.worker(queues, concurrency, until_idle=until_idle).run()
        finally:
            # A handler that was left behind must not keep a queue for as long as this process lives.
            self.held.release(of_handlers=True)

    # --- jobs and queues ----------------------------------------------------------------------------------------------

    def job(self, job_id: str) -> Job[Any]:
        """Give a handle on the job of that id. Raises JobNotFound."""
        handle: Job[Any] = Job(self, job_id)
        handle.refresh()
        return handle

    def jobs(
        self,
        *,
        status: JobStatus | str | None = None,
        queue: str | None = None,
        task: str | None = None,
        limit: int = 50,
    ) -> Sequence[Job[Any]]:
        """List jobs, newest first. Raises InvalidValue for a status that is none, or a limit below 1."""
        demand_limit(limit)
        query = JobQuery(
            namespace=self.namespace,
            status=None if status is None else _status(status),
            queue=queue,
            job_type=task,
            limit=limit,
        )
        with self.engine.read() as view:
            return [Job(self, record.job_id) for record in view.jobs(query)]

    def run(self, run_id: str) -> Run:
        """Give the run of that id. Raises RunNotFound."""
        with self.engine.read() as view:
            found = view.get(Run, run_id)
        if found is None:
            raise RunNotFound(f"there is no run {run_id}.", run_id=run_id)
        return found

    def queue(self, name: str) -> Queue:
        """Give a handle on a queue. Raises InvalidValue for what is no name."""
        return Queue(self, name)

    def reserve(
        self, queue: str, *, wait: Wait = None, by: str | None = None, ttl: float | timedelta = TTL_S
    ) -> Reservation:
        """Hold a queue inside a `with` block: nothing of it is dispatched, what runs goes on.

        Renewed by itself at a third of `ttl` (seconds), which is how long a holder that dies blocks others at most.
        Waits for it without limit, for `wait` seconds, or with 0 not at all. `by` tells others who holds it.

        >>> with hf.reserve("mail", by="the nightly import") as held:  # doctest: +SKIP
        ...     held.wait_idle()

        Raises InvalidValue. Entering it raises ReservationConflict (`wait=0`) or ReservationTimeout.
        """
        return reservation.reserve(self, queue, wait, by, ttl)

    # --- groups -------------------------------------------------------------------------------------------------------

    def group(
        self, members: Iterable[Member], *, mode: Mode = "sequential", **options: Unpack[GroupOptions]
    ) -> Group[Any]:
        """Make a group of jobs, all or none: what `task.job(…)` builds, and handles of jobs that wait.

        >>> hf.group([fetch.job(1), merge.job()], on_failure="stop", then=report.job())  # doctest: +SKIP

        Raises InvalidOperation for a job that does not wait or belongs to a group already.
        """
        return groups.make(self, members, mode, options)

    def chain(self, *jobs: Member, **options: Unpack[GroupOptions]) -> Group[Any]:
        """Make jobs that run one after another; by default the rest is skipped when one has failed for good.

        >>> hf.chain(fetch.job(1), merge.job(), send.job("a@example.com"))  # doctest: +SKIP
        """
        return groups.make(self, jobs, "sequential", options)

    def fan_out(self, task: Task[..., R], calls: Iterable[Call], **options: Unpack[GroupOptions]) -> Group[R]:
        """Make a job of the task for each call, side by side; by default the others go on when one has failed.

        A call is a tuple of arguments, a mapping of names, or what `task.job(…)` built.

        >>> hf.fan_out(resize, [(path,) for path in paths], then=publish.job())  # doctest: +SKIP
        """
        jobs = [task.job_of(call) for call in calls]
        return groups.make(self, jobs, "concurrent", options, on_failure="continue")

    def find_group(self, group_id: str) -> Group[Any]:
        """Give a handle on the group of that id. Raises GroupNotFound."""
        handle: Group[Any] = Group(self, group_id)
        handle.refresh()
        return handle

    def groups(self, *, status: GroupStatus | str | None = None, limit: int = 50) -> Sequence[Group[Any]]:
        """List groups, newest first. Raises InvalidValue for a status that is none, or a limit below 1."""
        return groups.find(self, status, limit)

    @property
    def current_group(self) -> Group[Any] | None:
        """Inside a handler: the group its job is a member of, or that has called it back; None if there is none."""
        group_id = self.current.job.group_id
        return None if group_id is None else Group(self, group_id)

    # --- workflows ----------------------------------------------------------------------------------------------------

    def instance(self, instance_id: str, *, missing_ok: bool = False) -> Instance[Any]:
        """Give a handle on the instance of that id. Raises WorkflowNotFound, unless it need not be there yet.

        >>> hf.instance("user-42", missing_ok=True).signal("paid", 9, hold=60)  # doctest: +SKIP
        """
        handle: Instance[Any] = Instance(self, instance_id)
        if not missing_ok:
            handle.status()
        return handle

    def instances(
        self, *, status: InstanceStatus | str | None = None, workflow: str | None = None, limit: int = 50
    ) -> Sequence[Instance[Any]]:
        """List instances, newest first; before them those that no worker has begun yet (`status().has_begun`).

        Raises InvalidValue for a status that is none.
        """
        return instances.listed(self, status, workflow, limit)

    def decisions(
        self,
        *,
        open: bool | None = True,  # noqa: A002 - the word for it
        instance: str | None = None,
        limit: int = 50,
    ) -> Sequence[Decision]:
        """List questions that workflows asked people, oldest first: open ones, closed ones, or both (None)."""
        return decisions.listed(self, is_open=open, instance=instance, limit=limit)

    def decision_record(self, decision_id: str) -> Decision:
        """Give a handle on a question that a workflow asked. Raises DecisionNotFound."""
        handle = Decision(self, decision_id)
        handle.record()
        return handle

    # --- schedules and templates --------------------------------------------------------------------------------------

    def schedule(self, name: str, target: Target, **options: Unpack[ScheduleOptions]) -> Schedule:
        """Make the schedule of that name, or give it this content. Whether it is paused stays.

        >>> hf.schedule("nightly", report, cron="0 3 * * *", timezone="Europe/Berlin")  # doctest: +SKIP

        Raises InvalidValue for what is no schedule or would never fire, InvalidArguments if the task does not take the
        arguments; nothing was changed then.
        """
        return schedules.declare(self, name, target, options)

    def schedules(self) -> list[Schedule]:
        """List the schedules, by name."""
        with self.engine.read() as view:
            found = [record for record in view.all(ScheduleRecord) if record.namespace == self.namespace]
        return [Schedule(self, record.schedule_id, record.name) for record in sorted(found, key=lambda one: one.name)]

    def template(
        self,
        name: str,
        task: Task[..., Any] | str,
        params: Mapping[str, Any] | None = None,
        **options: Unpack[TaskOptions],
    ) -> Template:
        """Make the template of that name, or give it this content.

        >>> hf.template("welcome", send, {"subject": "Welcome"}, queue="mail").enqueue(to="a@x.org")  # doctest: +SKIP
        """
        return templates.declare(self, name, task, params or {}, options)

    def templates(self) -> list[Template]:
        """List the templates, by name; archived ones, too."""
        with self.engine.read() as view:
            found = [record for record in view.all(TemplateRecord) if record.namespace == self.namespace]
        return [Template(self, record.template_id, record.name) for record in sorted(found, key=lambda one: one.name)]

    # --- webhooks -----------------------------------------------------------------------------------------------------

    def webhook(self, url: str, **options: Unpack[WebhookOptions]) -> Webhook:
        """Tell an address whenever a run ends; give the webhook of that id, made or changed to this content.

        Without `id`, an address has one webhook: the same call again changes nothing. Without `secret` one is made; it
        is in `.secret` of what this returns, and never shown again.

        >>> hf.webhook("https://example.com/hook", events=["job.run.failed"])  # doctest: +SKIP

        Raises InvalidValue for an address that is none or not public, or an event that is none.
        """
        return webhooks.declare(self, url, options)

    def webhooks(self) -> list[Webhook]:
        """List the webhooks, oldest first."""
        with self.engine.read() as view:
            found = [record for record in view.all(WebhookRecord) if record.namespace == self.namespace]
        found.sort(key=lambda one: (one.created_at, one.webhook_id))
        return [Webhook(self, record.webhook_id) for record in found]

    def workers(self) -> Sequence[WorkerInfo]:
        """List the workers of the last day, of every namespace; those that are gone have the state `lost`."""
        return self.engine.store.workers.all()

    def feed(self, after: int = 0, *, follow: bool = False) -> Iterator[FeedEvent]:
        """Walk the events of the store above number `after`, each once and in order; with `follow` on and on.

        Raises InvalidValue if they have been forgotten, StoreBusy if a coordinator is away and it is not followed.
        """
        from holdfast.app.event_feed import feed  # noqa: PLC0415 - only programs that read it pay for it

        return feed(self.engine, after, follow=follow)

    @property
    def current(self) -> Context:
        """Inside a handler: its own execution. Raises InvalidOperation elsewhere."""
        try:
            return current.get()
        except LookupError:
            raise InvalidOperation("hf.current is known only inside a handler that a worker runs.") from None

    @property
    def aio(self) -> AioHoldfast:
        """The same calls, to be awaited."""
        from holdfast.app.aio.application import AioHoldfast  # noqa: PLC0415 - only programs that await pay for it

        return AioHoldfast(self)

    def lookout(self) -> Lookout:
        """Give what looks after awaited jobs on the store as it is open now."""
        engine = self.engine
        with self._lock:
            if self._lookout is None or self._lookout.engine is not engine:
                self._lookout = Lookout(engine)
            return self._lookout


def _networks(texts: Sequence[str]) -> tuple[str, ...]:
    if isinstance(texts, str):
        message = f"webhook_allow: {texts!r:.80} is one text, not a list of networks."
        raise InvalidValue(message, hint=f"Write [{texts!r:.80}].", field="webhook_allow")
    parse_networks(texts)
    return tuple(texts)


def _status(name: str) -> JobStatus:
    try:
        return JobStatus(name)
    except ValueError:
        raise InvalidValue(f"status: {name!r} is not one of {', '.join(JobStatus)}.", field="status") from None
