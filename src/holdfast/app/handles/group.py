"""Groups: jobs that belong together, made by one call, and the handle on one group.

A chain is a sequential group, a fan-out a concurrent one; `then=` is the job that is made when the group has ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar, overload

from holdfast.app.completion_waiter import PENDING, Look, until, within
from holdfast.app.handles.job import Job
from holdfast.app.tasks.options import demand_limit
from holdfast.errors import GroupNotFound, InvalidArguments, InvalidValue, WorkFailed
from holdfast.model.commands import CancelGroup, CreateGroup, NewJob
from holdfast.model.groups import Group as Record
from holdfast.model.groups import GroupMode, GroupStatus, OnFailure
from holdfast.model.jobs import RetryKind
from holdfast.model.outcomes import GroupCancelled, Grouped
from holdfast.model.workers import Progress
from holdfast.rules.jobs.retry import last_of
from holdfast.stores.protocol import GroupQuery, View

if TYPE_CHECKING:
    from holdfast.app.aio.groups import AioGroup
    from holdfast.app.application import Holdfast

R = TypeVar("R")
E = TypeVar("E", GroupMode, OnFailure, GroupStatus)

#: What becomes a member: a job that a task has built, or one that waits already.
Member = NewJob | Job[Any]
Mode = Literal["sequential", "concurrent"]


class GroupOptions(TypedDict, total=False):
    """What `hf.group(…)`, `hf.chain(…)` and `hf.fan_out(…)` take beside their members."""

    #: For people.
    name: str
    #: What becomes of the others when a member has failed for good.
    on_failure: Literal["stop", "continue", "skip"]
    #: The job that is made when the group has ended, however it ended: what `task.job(…)` builds.
    then: NewJob
    #: The group's own id; by default a new one. The same call with the same id finds what it made.
    id: str


def make(
    app: Holdfast, members: Iterable[Member], mode: str, options: GroupOptions, *, on_failure: str = "stop"
) -> Group[Any]:
    """Make a group of these jobs, all or none; `on_failure` where the options say nothing."""
    for name in options:
        if name not in GroupOptions.__annotations__:
            known = ", ".join(sorted(GroupOptions.__annotations__))
            raise InvalidArguments(f"a group has no option {name!r}. Nothing was stored.", hint=f"There are: {known}.")
    if not isinstance(members, Iterable):
        raise InvalidArguments(f"{members!r:.80} is no list of jobs. Nothing was stored.")
    engine = app.engine
    chosen = options.get("id")
    command = CreateGroup(
        group_id=engine.new_id() if chosen is None else chosen,
        members=tuple(_member(each) for each in members),
        namespace=app.namespace,
        name=options.get("name"),
        mode=_word(GroupMode, "mode", mode),
        on_failure=_word(OnFailure, "on_failure", options.get("on_failure", on_failure)),
        callback=options.get("then"),
    )
    outcome = engine.ask(command)
    assert isinstance(outcome, Grouped)
    return Group(app, outcome.group_id, created=outcome.created)


def _member(each: object) -> Any:
    if isinstance(each, Job):
        return each.id
    if isinstance(each, NewJob):
        return each
    raise InvalidArguments(
        f"{each!r:.80} is no job. Nothing was stored.",
        hint="A member is what `task.job(…)` builds, or the handle of a job that waits.",
    )


def _word(kind: type[E], field: str, word: str) -> E:
    try:
        return kind(word)
    except ValueError:
        raise InvalidValue(f"{field}: {word!r} is not one of {', '.join(kind)}.", field=field) from None


def find(app: Holdfast, status: str | None, limit: int) -> list[Group[Any]]:
    """List the groups of an application, newest first."""
    demand_limit(limit)
    wanted = None if status is None else _word(GroupStatus, "status", status)
    with app.engine.read() as view:
        found = view.groups(GroupQuery(namespace=app.namespace, status=wanted, limit=limit))
    return [Group(app, record.group_id) for record in found]


class Group(Generic[R]):
    """Jobs that belong together. `R` is what each of them gives."""

    def __init__(self, app: Holdfast, group_id: str, *, created: bool = True) -> None:
        """Hold the group of that id; nothing is read before it is asked for."""
        #: The application it belongs to.
        self.app = app
        #: The group's id.
        self.id = group_id
        #: False if the call met a group that was there before.
        self.created = created

    def __repr__(self) -> str:
        """Show the id."""
        return f"<Group {self.id}>"

    # --- looking ----------------------------------------------------------------------------------------------------

    def refresh(self) -> Record:
        """Read the group as it is now, with its counts. Raises GroupNotFound."""
        with self.app.engine.read() as view:
            return record_of(view, self.id)

    @property
    def status(self) -> GroupStatus:
        """How far the group is, now."""
        return self.refresh().status

    @property
    def progress(self) -> Progress:
        """How many members have ended, of how many."""
        group = self.refresh()
        ended = group.members - group.queued - group.running
        fraction = ended / group.members if group.members else None
        return Progress(fraction=fraction, done=float(ended), total=float(group.members))

    def jobs(self) -> list[Job[R]]:
        """List the members in their order. Each handle follows the automatic retries of its job."""
        with self.app.engine.read() as view:
            record_of(view, self.id)
            members = view.members(self.id)
        numbers: set[int | None] = set()
        found: list[Job[R]] = []
        for member in members:
            # The jobs of a chain have one number; the first of them stands for all.
            if member.sequence_number in numbers and member.retry_kind is RetryKind.AUTO:
                continue
            numbers.add(member.sequence_number)
            found.append(Job(self.app, member.job_id, self.app.codecs.get(member.job_type)))
        return found

    # --- waiting ----------------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> Record:
        """Wait until every member has ended, automatic retries included; give the group. One without members is over.

        Raises TimeoutError after `timeout` seconds, saying how far it is; that changes nothing.
        """
        with within(self.app, timeout) as ends_at:
            return until(self.app.engine, group_look(self.id), ends_at) or over_or_late(self.refresh(), timeout)

    @overload
    def results(self, timeout: float | None = None, *, return_exceptions: Literal[False] = False) -> list[R]: ...

    @overload
    def results(self, timeout: float | None = None, *, return_exceptions: bool) -> list[R | WorkFailed]: ...

    def results(
        self, timeout: float | None = None, *, return_exceptions: bool = False
    ) -> list[R] | list[R | WorkFailed]:
        """Wait for the group's end and give what its members returned, in their order.

        Raises JobFailed, JobDead or JobCancelled for the first that returned nothing; with `return_exceptions` these
        stand in the list instead. Raises TimeoutError after `timeout` seconds.
        """
        with within(self.app, timeout):
            self.wait(timeout)
            return self.outcomes(return_exceptions=return_exceptions)

    def outcomes(self, *, return_exceptions: bool = False) -> list[R | WorkFailed]:
        """Give what the members of a group that is over returned; `results` without the waiting."""
        jobs = self.jobs()
        with self.app.engine.read() as view:
            ends = [last_of(view, job.id) for job in jobs]
        found: list[R | WorkFailed] = []
        for job, ended in zip(jobs, ends, strict=True):
            try:
                found.append(job.outcome(ended or job.refresh()))
            except WorkFailed as failure:
                if not return_exceptions:
                    raise
                found.append(failure)
        return found

    # --- changing its fate ------------------------------------------------------------------------------------------

    def cancel(self, reason: str = "", *, running: bool = False) -> GroupCancelled:
        """End the members that wait; with `running` ask the others to stop. Raises InvalidOperation if it is over."""
        outcome = self.app.engine.ask(CancelGroup(group_id=self.id, reason=reason, running=running))
        assert isinstance(outcome, GroupCancelled)
        return outcome

    @property
    def aio(self) -> AioGroup[R]:
        """The same calls, to be awaited."""
        from holdfast.app.aio.groups import AioGroup  # noqa: PLC0415 - only programs that await pay for it

        return AioGroup(self)


def record_of(view: View, group_id: str) -> Record:
    """Read a group. Raises GroupNotFound."""
    found = view.get(Record, group_id)
    if found is None:
        raise GroupNotFound(f"there is no group {group_id}.", group_id=group_id)
    return found


def is_over(group: Record) -> bool:
    """Tell whether nothing will happen to the group any more; one without members has nothing to wait for."""
    return group.finished_at is not None or not group.members


def group_look(group_id: str) -> Look[Record]:
    """Give the look for the end of a group. It raises GroupNotFound."""

    def look(view: View) -> Record | Literal["pending"]:
        group = record_of(view, group_id)
        return group if is_over(group) else PENDING

    return look


def over_or_late(group: Record, timeout: float | None) -> Record:
    """Give a group that is over. Raises TimeoutError, which says how far it is that somebody waited for in vain."""
    if is_over(group):
        return group
    ended = group.members - group.queued - group.running
    raise TimeoutError(
        f"group {group.group_id} is {group.status} after {timeout:g} s: {ended} of {group.members} members have ended, "
        f"{group.running} run. It goes on."
    )
