"""What the feed knows of jobs: the last good version of a file that somebody spoilt or took away. Changes nothing.

Folding the whole feed is slow; it is asked for only where a file was touched while nobody had the store open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from holdfast.errors import CorruptState
from holdfast.model.events import GroupPruned, JobCreated, JobPruned, decode_event
from holdfast.model.jobs import Job
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


def made_in(entries: Iterable[Entry]) -> list[str]:
    """Give the jobs that were made in these events, but for those that retention has removed since."""
    groups: dict[str, str | None] = {}
    for entry in entries:
        match decode_event(entry.event, seq=entry.seq, file="feed"):
            case JobCreated(job=job):
                groups[job.job_id] = job.group_id
            case JobPruned(job_id=job_id):
                groups.pop(job_id, None)
            case GroupPruned(group_id=group_id):
                groups = {job_id: of for job_id, of in groups.items() if of != group_id}
            case _:
                pass
    return list(groups)
