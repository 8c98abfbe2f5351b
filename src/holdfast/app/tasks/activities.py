"""Tasks as workflows call them: which options of a task an activity takes, in the fields of its job."""

from __future__ import annotations

from typing import Any

from holdfast.app.tasks.options import Chosen
from holdfast.app.tasks.signature_codec import SignatureCodec
from holdfast.errors import InvalidArguments
from holdfast.model.times import milliseconds
from holdfast.model.workflows.work_items import ActivityOptions
from holdfast.workflows.api.workflow import Activity
from holdfast.workflows.runtime.history_size import delay_ms

#: Fields of a job that an activity takes as they are.
_TAKEN = ("priority", "max_attempts", "max_expiries", "timeout_s", "lease_s", "backoff", "limit_key", "key_limit")
#: What names one job, or one transaction; the call of a workflow is named by its place in the history.
_REFUSED = ("job_id", "key")


def activity_of(
    name: str, codec: SignatureCodec, chosen: Chosen, raises: tuple[type[BaseException], ...], now_ms: int
) -> Activity[Any, Any]:
    """Give a task as a workflow calls it; a delay begins at `now_ms`.

    `ttl`, `tags` and the options of keys are a job's alone. Raises InvalidArguments for an option that names one job,
    InvalidValue for a value that no job could have.
    """
    fields = chosen.fields
    for field in _REFUSED:
        if field in fields:
            option = "id" if field == "job_id" else field
            raise InvalidArguments(
                f"{name}: {option} does not go with a call from a workflow. Nothing was done.",
                hint="Such a call is unique by its place in the workflow.",
            )
    if chosen.connection is not None:
        raise InvalidArguments(f"{name}: connection does not go with a call from a workflow. Nothing was done.")
    chosen.demand_valid(name, "")
    if chosen.total_timeout_s is not None:
        delay_ms(chosen.total_timeout_s)
    not_before_ms = None
    if fields.get("delay_s") is not None:
        not_before_ms = now_ms + delay_ms(fields["delay_s"])
    elif fields.get("not_before") is not None:
        not_before_ms = milliseconds(fields["not_before"])
    retry = fields.get("retry_mode")
    return Activity(
        name,
        codec,
        options=ActivityOptions(
            **{field: fields[field] for field in _TAKEN if field in fields},
            **({} if retry is None else {"retry_mode": retry.value}),
            not_before_ms=not_before_ms,
        ),
        tag=fields.get("queue"),
        session_id=chosen.session,
        total_timeout_s=chosen.total_timeout_s,
        raises=raises,
    )
