"""What the feed knows of jobs: the last good version of a file that somebody spoilt or took away. Changes nothing.

Folding the whole feed is slow; it is asked for only where a file was touched while nobody had the store open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from holdfast.errors import CorruptState
from holdfast.model.events import (
    JobCancelled,
    JobCompleted,
    JobCreated,
    JobDead,
    JobFailed,
    JobMended,
    JobPruned,
    JobSkipped,
    JobSnoozed,
    LeaseExpired,
    LeaseGranted,
    LeaseReleased,
    decode_event,
)
from holdfast.model.jobs import ENDED, Job, JobStatus
from holdfast.rules.fold_changes import Stamp
from holdfast.stores.dir.format.job_file import EMPTY, JobFile
from holdfast.stores.memory.batch import BatchTables
from holdfast.stores.protocol import Entry


def jobs_in(entries: Iterable[Entry]) -> Mapping[str, JobFile]:
    """Fold events; give each job they tell of. What began before the first of them is passed over."""
    tables = BatchTables()
    for entry in entries:
        event = decode_event(entry.event, seq=entry.seq, file="feed")
        if event is not None:
            with suppress(CorruptState):
                tables.replay(event, Stamp(entry.seq, entry.ts))
    return {
        job.job_id: JobFile(job, tuple(tables.runs(job.job_id)), EMPTY, job.status, job.seq) for job in tables.all(Job)
    }


def live_in(entries: Iterable[Entry], before: Mapping[str, JobStatus]) -> dict[str, JobStatus]:
    """Give the jobs that wait or run after these events, of those that did `before` and those that were made since."""
    live = dict(before)
    for entry in entries:
        match decode_event(entry.event, seq=entry.seq, file="feed"):
            case JobCreated(job=job):
                live[job.job_id] = JobStatus.QUEUED
            case LeaseGranted(job_id=job_id):
                live[job_id] = JobStatus.RUNNING
            case (
                LeaseExpired(job_id=job_id, to=to)
                | LeaseReleased(job_id=job_id, to=to)
                | JobFailed(job_id=job_id, to=to)
                | JobSnoozed(job_id=job_id, to=to)
                | JobMended(job_id=job_id, to=to)
            ):
                live[job_id] = to
            case (
                JobCompleted(job_id=job_id)
                | JobCancelled(job_id=job_id)
                | JobSkipped(job_id=job_id)
                | JobDead(job_id=job_id)
                | JobPruned(job_id=job_id)
            ):
                live.pop(job_id, None)
            case _:
                pass
    return {job_id: status for job_id, status in live.items() if status not in ENDED}
