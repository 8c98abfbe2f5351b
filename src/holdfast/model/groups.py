"""Groups: jobs that belong together, one after another or side by side. Records only.

A member is a job with the group's id and a sequence number. The callback job has the group's id and no number: it is
made when the group ends and is no member.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from holdfast.model.payloads import NULL
from holdfast.model.times import Timestamp


class GroupMode(StrEnum):
    """Whether members wait for those before them."""

    SEQUENTIAL = "sequential"
    CONCURRENT = "concurrent"


class OnFailure(StrEnum):
    """What becomes of the others when a member has failed for good."""

    #: Those still QUEUED are skipped.
    STOP = "stop"
    #: They go on.
    CONTINUE = "continue"
    #: They go on, and the failed member counts as skipped.
    SKIP = "skip"


class GroupStatus(StrEnum):
    """How far a group is; derived from its members."""

    CREATED = "CREATED"
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    PARTIAL = "PARTIAL"


class Group(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Jobs that belong together. Each member is judged, and counted once, by the last job of its automatic chain."""

    group_id: str
    created_at: Timestamp
    namespace: str = ""
    name: str | None = None
    mode: GroupMode = GroupMode.SEQUENTIAL
    on_failure: OnFailure = OnFailure.STOP
    #: The job that is made when the group ends, as JSON of `NewJob`; NULL for none.
    callback: msgspec.Raw = NULL
    status: GroupStatus = GroupStatus.CREATED
    #: How many members there are, and how many of them are queued, run, or have ended in which way.
    members: int = 0
    queued: int = 0
    running: int = 0
    completed: int = 0
    #: FAILED or DEAD, for good.
    failed: int = 0
    cancelled: int = 0
    #: First lease of a member; the end of the last one.
    started_at: Timestamp | None = None
    finished_at: Timestamp | None = None
