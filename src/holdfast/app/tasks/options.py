"""Options of a task and of a single call: which of a job's fields users may choose, in their own units (seconds).

Three lists, each a type, so that a checker and the program refuse the same things: what a task may say for all its
calls, what a call may say on top, and what may still change while a job waits.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import msgspec

from holdfast.errors import InvalidArguments, InvalidValue
from holdfast.model.commands import Enqueue, NewJob
from holdfast.model.ids import JobId
from holdfast.model.jobs import Backoff, KeyHold, KeyScope, RetryMode
from holdfast.model.times import stamp
from holdfast.model.type_check import misfit
from holdfast.rules.validation import problem_with

if TYPE_CHECKING:
    from sqlite3 import Connection

Seconds = float | timedelta
#: The parameters of a call without any.
EMPTY = msgspec.Raw(b"{}")


class Changes(TypedDict, total=False):
    """What `job.update(…)` takes: the fields of a job that may change while it waits."""

    queue: str
    #: -100 … 100, higher first.
    priority: int
    #: Executions that may report, in total.
    max_attempts: int
    #: Lost leases after which the job is DEAD.
    max_expiries: int
    backoff: Backoff
    #: Longest single execution.
    timeout: Seconds | None
    #: Length of a lease; renewed at a third.
    lease: Seconds
    not_before: datetime | None
    #: Jobs with the same limit key share `key_limit` places.
    limit_key: str | None
    key_limit: int
    tags: dict[str, str] | None


class TaskOptions(TypedDict, total=False):
    """What `@hf.task(…)` takes, for all its calls."""

    queue: str
    #: -100 … 100, higher first.
    priority: int
    #: Executions that may report, in total.
    max_attempts: int
    #: Lost leases after which the job is DEAD.
    max_expiries: int
    retry: Literal["requeue", "chain"]
    backoff: Backoff
    #: Longest single execution.
    timeout: Seconds
    #: Length of a lease; renewed at a third.
    lease: Seconds
    #: Skipped unless started within it.
    ttl: Seconds
    delay: Seconds
    #: Jobs with the same limit key share `key_limit` places.
    limit_key: str
    key_limit: int
    key_scope: Literal["task", "queue", "namespace"]
    key_hold: Literal["active", "queued", "window", "forever"]
    key_window: Seconds
    on_conflict: Literal["return", "reject", "replace"]
    tags: dict[str, str]


class Options(TaskOptions, total=False):
    """What `.options(…)` takes: any option of the task, and what makes sense for a single call only."""

    not_before: datetime
    #: The job's own id; by default a new one.
    id: str
    #: Makes the job unique within `key_scope` for as long as `key_hold` says.
    key: str
    #: An open transaction of the same database, which the job becomes part of (`sqlite:` only).
    connection: Connection
    #: How long `.direct(…)` waits for its queue: None without limit, 0 not at all.
    wait: Seconds | None
    #: Of a call from a workflow: how long all attempts together may take.
    total_timeout: Seconds
    #: Of a call from a workflow: all calls of one session go to the same worker.
    session: str


#: Option → field of a new job, where the names differ.
_FIELDS = {
    "retry": "retry_mode",
    "timeout": "timeout_s",
    "lease": "lease_s",
    "ttl": "ttl_s",
    "delay": "delay_s",
    "id": "job_id",
    "key_window": "key_window_s",
    "total_timeout": "total_timeout_s",
}
_ENUMS: dict[str, type[RetryMode | KeyScope | KeyHold]] = {
    "retry": RetryMode,
    "key_scope": KeyScope,
    "key_hold": KeyHold,
}


class Chosen(msgspec.Struct, frozen=True):
    """Options that were chosen, as fields of a new job. Later choices win."""

    fields: dict[str, Any] = {}
    #: The caller's transaction to write in; none of a job's fields.
    connection: Any = None
    #: Seconds a direct execution waits for its queue; None without limit.
    wait: Any = None
    #: Of calls from workflows alone.
    total_timeout_s: float | None = None
    session: str | None = None

    def plus(self, options: Options | TaskOptions, kind: type = Options) -> Chosen:
        """Give these options with others on top. Raises InvalidArguments for one that `kind` does not list."""
        added = chosen_fields(options, kind)
        return Chosen(
            connection=added.pop("connection", self.connection),
            wait=added.pop("wait", self.wait),
            total_timeout_s=added.pop("total_timeout_s", self.total_timeout_s),
            session=added.pop("session", self.session),
            fields={**self.fields, **added},
        )

    def new_job(self, *, job_id: str, job_type: str, namespace: str, params: msgspec.Raw) -> NewJob:
        """Build the job these options ask for. Raises InvalidArguments for an option of calls from workflows."""
        if self.total_timeout_s is not None or self.session is not None:
            option = "session" if self.total_timeout_s is None else "total_timeout"
            raise InvalidArguments(
                f"{job_type}: {option} holds for calls from workflows only. Nothing was stored.",
                hint="Leave it out, or use .call in a workflow.",
            )
        return self._job(job_id=job_id, job_type=job_type, namespace=namespace, params=params)

    def _job(self, *, job_id: str, job_type: str, namespace: str, params: msgspec.Raw) -> NewJob:
        return NewJob(**{"job_id": JobId(job_id), **self.fields}, job_type=job_type, namespace=namespace, params=params)

    def demand_valid(self, job_type: str, namespace: str) -> None:
        """Refuse values that no job could have, where they are written, by the rule that every job meets."""
        sample = self._job(job_id="sample", job_type=job_type, namespace=namespace, params=EMPTY)
        if self.session is not None:
            sample = msgspec.structs.replace(sample, affinity=self.session)
        command = Enqueue(jobs=(sample,))
        field = misfit(command)
        if field is not None:
            raise InvalidValue(f"{job_type}: {field} is not of the type this option takes.", field=field)
        refusal = problem_with(command)
        if refusal is not None:
            raise refusal.error()


def chosen_fields(options: Options | TaskOptions | Changes, kind: type) -> dict[str, Any]:
    """Give options as fields of a job. Raises InvalidArguments for one that `kind` does not list."""
    known = kind.__annotations__
    for name in options:
        if name not in known:
            raise InvalidArguments(f"there is no option {name!r} here.", hint=f"There are: {', '.join(sorted(known))}.")
    return {_FIELDS.get(name, name): _value(name, value) for name, value in options.items()}


def _value(name: str, value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidValue(f"{name}: {value} names no time zone.", hint="Use an aware datetime.", field=name)
        return stamp(value)
    if name in _ENUMS:
        try:
            return _ENUMS[name](value)
        except ValueError:
            known = ", ".join(_ENUMS[name])
            raise InvalidValue(f"{name}: {value!r} is not one of {known}.", field=name) from None
    return value


def demand_limit(limit: int) -> None:
    """Refuse what is no number of things to list. Raises InvalidValue."""
    if type(limit) is not int or limit < 1:
        raise InvalidValue(f"limit: {limit!r:.80} is not a whole number from 1 on.", field="limit")
