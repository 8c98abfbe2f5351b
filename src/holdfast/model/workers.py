"""Workers as the roster knows them. Soft: what is said here is shown to people and changes no outcome of a job.

Only the types of signals that a worker publishes are judged by: wrong data is refused to the sender.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from holdfast.model.ids import JobId, RunId
from holdfast.model.payloads import NULL
from holdfast.model.times import Timestamp


class WorkerState(StrEnum):
    """What a worker does with new jobs."""

    READY = "ready"
    #: It takes no new leases; what it has begun it finishes.
    DRAINING = "draining"
    #: Its process is gone, or was not heard of for too long.
    LOST = "lost"


class Wish(StrEnum):
    """What an operator asks of a worker; it learns of it with its next look."""

    #: Take no new leases.
    QUIET = "quiet"
    #: Shut down cleanly.
    STOP = "stop"


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a run is. The last one said counts."""

    #: 0 … 1; None if nobody can tell.
    fraction: float | None = None
    done: float | None = None
    total: float | None = None
    message: str = ""
    data: msgspec.Raw = NULL


class LiveRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run a worker is busy with."""

    job_id: JobId
    run_id: RunId
    job_type: str
    started_at: Timestamp
    progress: Progress | None = None


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One worker, in its own words."""

    worker_id: str
    name: str
    host: str
    pid: int
    #: Of Holdfast.
    version: str
    namespace: str = ""
    queues: tuple[str, ...] = ("default",)
    #: Tasks it knows; None for any.
    job_types: tuple[str, ...] | None = None
    #: Workflows it has code for, `name version`.
    workflows: tuple[str, ...] = ()
    #: JSON schemas of the signals that its workflows declare: by `name version`, then by signal. Signals that fit none
    #: are refused to whoever sends them.
    signals: dict[str, dict[str, msgspec.Raw]] = {}
    #: Jobs it works on at once.
    slots: int = 1
    started_at: Timestamp
    last_seen: Timestamp
    #: Its opening of the store; None for a remote worker.
    session_id: str | None = None
    state: WorkerState = WorkerState.READY
    #: Left by an operator and not yet followed.
    wish: Wish | None = None
    runs: tuple[LiveRun, ...] = ()
