"""Schedules: when a job is to be made again and again. A record only: what is due is worked out in `rules`."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from holdfast.model.payloads import NULL
from holdfast.model.templates import JobOptions
from holdfast.model.times import Timestamp


class CatchUp(StrEnum):
    """What becomes of fires that nobody was there for."""

    #: They are counted.
    NONE = "none"
    #: The newest of them makes a job, the others are counted.
    LATEST = "latest"
    #: Each within the window makes a job.
    ALL = "all"


class Overlap(StrEnum):
    """What becomes of a fire while a job of the schedule is QUEUED or RUNNING, or an instance of it is not over."""

    #: Its job is made and skipped at once; an instance is not begun.
    SKIP = "skip"
    #: Its job, or instance, waits until no other of the schedule runs.
    QUEUE = "queue"
    #: Nothing special.
    ALLOW = "allow"


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A wish for jobs, or instances of a workflow, at certain times.

    One of the three targets and one of the three kinds of time is set.
    """

    schedule_id: str
    name: str
    created_at: Timestamp
    namespace: str = ""
    #: The three targets.
    template_id: str | None = None
    job_type: str | None = None
    workflow: str | None = None
    #: The three kinds of time.
    cron_expression: str | None = None
    interval_s: float | None = None
    run_at: Timestamp | None = None
    timezone: str = "UTC"
    enabled: bool = True
    pause_reason: str | None = None
    #: JSON object laid over the target's own parameters; NULL for none.
    param_overrides: msgspec.Raw = NULL
    #: Options of the jobs it makes, beside the target's own; the two below come before them.
    options: JobOptions = JobOptions()
    priority: int | None = None
    queue: str | None = None
    catch_up: CatchUp = CatchUp.LATEST
    #: How far back missed fires are made up for, in seconds. None: a day for `all`, without limit for `latest`.
    catch_up_window_s: float | None = None
    #: A fire this many seconds late is still on time.
    grace_s: float = 60.0
    overlap: Overlap = Overlap.SKIP
    #: Each fire is put off by a random part of this many seconds.
    jitter_s: float = 0.0
    #: Fires lie in [start_at, end_at).
    start_at: Timestamp | None = None
    end_at: Timestamp | None = None
    #: Nominal times; the trigger is the nominal time with its jitter.
    last_fire_at: Timestamp | None = None
    next_fire_at: Timestamp | None = None
    last_triggered_at: Timestamp | None = None
    next_trigger_at: Timestamp | None = None
    fires: int = 0
    missed: int = 0
    #: Declared in the application's code, or made by a call.
    source: Literal["code", "api"] = "api"
    version: int = 1
    updated_at: Timestamp | None = None


class NewSchedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a schedule is asked to be: the fields of `Schedule` that people choose, with the same meaning."""

    name: str
    namespace: str = ""
    template_id: str | None = None
    job_type: str | None = None
    workflow: str | None = None
    cron_expression: str | None = None
    interval_s: float | None = None
    run_at: Timestamp | None = None
    timezone: str = "UTC"
    param_overrides: msgspec.Raw = NULL
    options: JobOptions = JobOptions()
    priority: int | None = None
    queue: str | None = None
    catch_up: CatchUp = CatchUp.LATEST
    catch_up_window_s: float | None = None
    grace_s: float = 60.0
    overlap: Overlap = Overlap.SKIP
    jitter_s: float = 0.0
    start_at: Timestamp | None = None
    end_at: Timestamp | None = None
    source: Literal["code", "api"] = "api"


class ScheduleChanges(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """New values for fields of a schedule. What is unset stays."""

    name: str | msgspec.UnsetType = msgspec.UNSET
    template_id: str | msgspec.UnsetType | None = msgspec.UNSET
    job_type: str | msgspec.UnsetType | None = msgspec.UNSET
    workflow: str | msgspec.UnsetType | None = msgspec.UNSET
    cron_expression: str | msgspec.UnsetType | None = msgspec.UNSET
    interval_s: float | msgspec.UnsetType | None = msgspec.UNSET
    run_at: Timestamp | msgspec.UnsetType | None = msgspec.UNSET
    timezone: str | msgspec.UnsetType = msgspec.UNSET
    #: An empty object takes them away; NULL leaves them.
    param_overrides: msgspec.Raw = NULL
    options: JobOptions | msgspec.UnsetType = msgspec.UNSET
    priority: int | msgspec.UnsetType | None = msgspec.UNSET
    queue: str | msgspec.UnsetType | None = msgspec.UNSET
    catch_up: CatchUp | msgspec.UnsetType = msgspec.UNSET
    catch_up_window_s: float | msgspec.UnsetType | None = msgspec.UNSET
    grace_s: float | msgspec.UnsetType = msgspec.UNSET
    overlap: Overlap | msgspec.UnsetType = msgspec.UNSET
    jitter_s: float | msgspec.UnsetType = msgspec.UNSET
    start_at: Timestamp | msgspec.UnsetType | None = msgspec.UNSET
    end_at: Timestamp | msgspec.UnsetType | None = msgspec.UNSET
    source: Literal["code", "api"] | msgspec.UnsetType = msgspec.UNSET

    def given(self) -> dict[str, object]:
        """Give the fields that are set, by name."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in fields.items() if value is not msgspec.UNSET and value != NULL}
