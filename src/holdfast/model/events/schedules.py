"""What happens to templates and schedules."""

from __future__ import annotations

import msgspec

from holdfast.model.events.base import Fact
from holdfast.model.ids import JobId
from holdfast.model.payloads import NULL
from holdfast.model.schedules import Schedule, ScheduleChanges
from holdfast.model.templates import JobOptions, Template
from holdfast.model.times import Timestamp


class TemplateCreated(Fact, frozen=True, kw_only=True, tag="template:created"):
    """A template can be used."""

    template: Template


class TemplateUpdated(Fact, frozen=True, kw_only=True, tag="template:updated"):
    """A template says something else now; jobs made from it before are as they were."""

    template_id: str
    name: str
    job_type: str
    version: int
    default_params: msgspec.Raw = NULL
    options: JobOptions = JobOptions()
    description: str | None = None


class TemplateArchived(Fact, frozen=True, kw_only=True, tag="template:archived"):
    """A template makes no more jobs."""

    template_id: str
    version: int


class TemplateDeleted(Fact, frozen=True, kw_only=True, tag="template:deleted"):
    """A template is gone; jobs made from it stay."""

    template_id: str


class ScheduleCreated(Fact, frozen=True, kw_only=True, tag="schedule:created"):
    """A schedule will fire."""

    schedule: Schedule


class ScheduleUpdated(Fact, frozen=True, kw_only=True, tag="schedule:updated"):
    """A schedule was edited, reset, or planned anew; the next fire is what it is from now on."""

    schedule_id: str
    version: int
    next_fire_at: Timestamp | None
    next_trigger_at: Timestamp | None
    changes: ScheduleChanges = ScheduleChanges()
    #: A one-off that was over has a new time.
    enabled: bool | msgspec.UnsetType = msgspec.UNSET
    #: The last fire is forgotten, since it lay in the future.
    is_reset: bool = False


class ScheduleFired(Fact, frozen=True, kw_only=True, tag="schedule:fired"):
    """A nominal time has come, or is made up for.

    Its job is created, or the start of its instance stored, by the next event, unless it was there before.
    """

    schedule_id: str
    fire_at: Timestamp
    #: Of the job; of the instance, where the target is a workflow.
    job_id: JobId
    next_fire_at: Timestamp | None
    next_trigger_at: Timestamp | None
    #: It was the one time of a one-off, which is disabled now.
    is_last: bool = False
    #: No instance was begun, because this one is not over.
    skipped_for: str | None = None


class ScheduleMissed(Fact, frozen=True, kw_only=True, tag="schedule:missed"):
    """Nominal times have passed without a job."""

    schedule_id: str
    count: int
    #: The last of them.
    until: Timestamp
    next_fire_at: Timestamp | None
    next_trigger_at: Timestamp | None
    is_last: bool = False


class SchedulePaused(Fact, frozen=True, kw_only=True, tag="schedule:paused"):
    """A schedule fires no more until it is resumed."""

    schedule_id: str
    version: int
    reason: str = ""


class ScheduleResumed(Fact, frozen=True, kw_only=True, tag="schedule:resumed"):
    """A schedule fires again, from now on."""

    schedule_id: str
    version: int
    next_fire_at: Timestamp | None
    next_trigger_at: Timestamp | None


class ScheduleDeleted(Fact, frozen=True, kw_only=True, tag="schedule:deleted"):
    """A schedule is gone; jobs it made stay."""

    schedule_id: str


PlanEvent = (
    TemplateCreated
    | TemplateUpdated
    | TemplateArchived
    | TemplateDeleted
    | ScheduleCreated
    | ScheduleUpdated
    | ScheduleFired
    | ScheduleMissed
    | SchedulePaused
    | ScheduleResumed
    | ScheduleDeleted
)
