"""Options of a task and of a single call: which of a job's fields users may choose, in their own units (seconds)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict

import msgspec

from holdfast.errors import InvalidArguments, InvalidValue
from holdfast.model.commands import NewJob
from holdfast.model.ids import JobId
from holdfast.model.jobs import Backoff, KeyHold, KeyScope, RetryMode
from holdfast.model.times import stamp

Seconds = float | timedelta


class Options(TypedDict, total=False):
    """What `.options(…)` takes."""

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
    not_before: datetime
    #: The job's own id; by default a new one.
    id: str
    key: str
    key_scope: Literal["task", "queue", "namespace"]
    key_hold: Literal["active", "queued", "window", "forever"]
    key_window: Seconds
    on_conflict: Literal["return", "reject", "replace"]
    tags: dict[str, str]


#: Option → field of a new job, where the names differ.
_FIELDS = {
    "retry": "retry_mode",
    "timeout": "timeout_s",
    "lease": "lease_s",
    "ttl": "ttl_s",
    "delay": "delay_s",
    "id": "job_id",
    "key_window": "key_window_s",
}
_ENUMS: dict[str, type[RetryMode | KeyScope | KeyHold]] = {
    "retry": RetryMode,
    "key_scope": KeyScope,
    "key_hold": KeyHold,
}


class Chosen(msgspec.Struct, frozen=True):
    """Options that were chosen, as fields of a new job. Later choices win."""

    fields: dict[str, Any] = {}

    def plus(self, options: Options) -> Chosen:
        """Give these options with others on top. Raises InvalidArguments for an unknown one."""
        return Chosen({**self.fields, **{_field(name): _value(name, value) for name, value in options.items()}})

    def new_job(self, *, job_id: str, job_type: str, namespace: str, params: msgspec.Raw) -> NewJob:
        """Build the job these options ask for."""
        return NewJob(**{"job_id": JobId(job_id), **self.fields}, job_type=job_type, namespace=namespace, params=params)


def _field(name: str) -> str:
    if name not in Options.__annotations__:
        known = ", ".join(sorted(Options.__annotations__))
        raise InvalidArguments(f"there is no option {name!r}.", hint=f"There are: {known}.")
    return _FIELDS.get(name, name)


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
