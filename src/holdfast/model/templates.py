"""Templates: a task with parameters and options under a name, and the options that templates and schedules keep.

Records only. What is made from a template is a job with copied values; a later edit does not reach it.
"""

from __future__ import annotations

import msgspec

from holdfast.model.jobs import Backoff, RetryMode
from holdfast.model.payloads import NULL
from holdfast.model.times import Timestamp


class JobOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Fields of jobs that are still to be made. None leaves the default of a new job."""

    queue: str | None = None
    priority: int | None = None
    #: Seconds from the creation of the job.
    delay_s: float | None = None
    ttl_s: float | None = None
    timeout_s: float | None = None
    lease_s: float | None = None
    retry_mode: RetryMode | None = None
    max_attempts: int | None = None
    max_expiries: int | None = None
    backoff: Backoff | None = None
    limit_key: str | None = None
    key_limit: int | None = None
    tags: dict[str, str] | None = None

    def given(self) -> dict[str, object]:
        """Give the options that are chosen, by name."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in fields.items() if value is not None}


class NewTemplate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a template says."""

    name: str
    job_type: str
    namespace: str = ""
    #: JSON object; NULL for none.
    default_params: msgspec.Raw = NULL
    options: JobOptions = JobOptions()
    description: str | None = None


class Template(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A task with parameters and options, to be used again and again."""

    template_id: str
    name: str
    job_type: str
    created_at: Timestamp
    namespace: str = ""
    #: JSON object laid under the parameters of a call; NULL for none.
    default_params: msgspec.Raw = NULL
    options: JobOptions = JobOptions()
    description: str | None = None
    #: Raised by each edit.
    version: int = 1
    #: Since when it makes no more jobs.
    archived_at: Timestamp | None = None
    updated_at: Timestamp | None = None
