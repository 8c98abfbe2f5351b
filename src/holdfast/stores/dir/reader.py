"""Reading the files of jobs: what lies there, and what is made of it where it is not quite as we left it.

Knows nothing of commands; changes nothing. What cannot be read raises Unreadable, and its caller decides.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.journal.filesystem import FS, Stat
from holdfast.model.jobs import ENDED, Job, JobStatus, RunStatus
from holdfast.model.times import Timestamp, stamp
from holdfast.rules.fold import LOST
from holdfast.stores.dir.foreign_files import history
from holdfast.stores.dir.format import job_file
from holdfast.stores.dir.format.atomic_write import path_of
from holdfast.stores.dir.format.camel_case import Fields, fields_of
from holdfast.stores.dir.format.file_names import is_canonical, is_share, name_of
from holdfast.stores.dir.format.job_file import MAY_BE, JobFile
from holdfast.stores.dir.format.record_files import number_in
from holdfast.stores.dir.format.record_text import Unreadable, compacted, read_bytes, unblanked, whole

replace = msgspec.structs.replace

#: What opening answers for what is no regular file: links, directories, pipes, sockets.
IRREGULAR = frozenset({errno.ELOOP, errno.EISDIR, errno.EINVAL, errno.ENXIO, errno.ENOTDIR, errno.EMLINK})
#: Why a job is cancelled whose file was taken away.
REMOVED = "file removed"
#: A lease, and who holds it.
NO_LEASE: dict[str, Any] = dict.fromkeys(
    ("worker_id", "token", "lease_expires_at", "deadline_at", "session_id", "grant_cmd")
)


class Irregular(Exception):
    """Not a regular file: reported, and left alone."""


def text_at(fs: FS, folder: str, name: str, *, untouched: bool = False) -> bytes:
    """Read a file without blanks; `untouched`, one that nobody but us writes, however large or deep it is.

    Raises Unreadable, Irregular, FileNotFoundError, and OSError for a failing disk.
    """
    try:
        path = path_of(folder, name)
        return unblanked(whole(fs, path)) if untouched else compacted(read_bytes(fs, path))
    except PermissionError as error:
        # One file that somebody left here stops no store; where whole directories are closed, setting it aside fails.
        raise Unreadable(f"this user may not read it: {error.strerror}") from None
    except OSError as error:
        if error.errno in IRREGULAR:
            raise Irregular(path_of(folder, name)) from None
        raise


def is_ours(fields: Fields, name: str, applied: int) -> bool:
    """Tell a file of this store from one that somebody put here. Raises Unreadable."""
    seq = number_in(fields)
    if seq is None or seq > applied:
        return False
    task = fields.get("taskId")
    try:
        return task is not None and name_of(msgspec.json.decode(task, type=str)) == name
    except msgspec.MsgspecError:
        return False


def shares_in(fs: FS, folder: str, names: list[str]) -> Iterator[str]:
    """Walk the shares of a crowded directory with these names in it; a link that looks like one is none."""
    for name in names:
        if is_share(name):
            found = fs.stat(f"{folder}/{name}")
            if found is not None and found.kind == "dir":
                yield f"{folder}/{name}"


def mtime_of(found: Stat | None) -> Timestamp:
    """Give the time of a file's last change."""
    return _time(0 if found is None else found.mtime_ns)


def _time(ns: int) -> Timestamp:
    return stamp(datetime.fromtimestamp(ns / 1e9, UTC))


def ended_file(fs: FS, folder: str, state: str, name: str, *, applied: int, made_at: Timestamp) -> JobFile:
    """Read the file of an ended job, ours or somebody's history. Raises what `text_at` does.

    `made_at` is when this store began: history that was there before was adopted then, other history when it came.
    """
    text = text_at(fs, folder, name)
    fields = fields_of(text)
    if not is_ours(fields, name, applied):
        found = fs.stat(path_of(folder, name))
        came_at = _time(0 if found is None else found.ctime_ns)
        return _right_name(name, history(text, name, state, mtime_of(found), max(made_at, came_at)))
    file = job_file.read_fields(fields, state)
    if file.state in MAY_BE[state] and file.job.finished_at is not None and file.job.token is None:
        return file
    # Moved here by hand. It stays what it says it is; one that says it has not ended will never run.
    ended = file.state if file.state in ENDED else JobStatus.CANCELLED
    why = file.job.cancel_reason if file.state in ENDED else REMOVED
    when = file.job.finished_at or mtime_of(fs.stat(path_of(folder, name)))
    job = replace(file.job, status=ended, cancel_reason=why, finished_at=when, not_before=None, **NO_LEASE)
    return without_lease(file)._replace(job=job)


def _right_name(name: str, file: JobFile) -> JobFile:
    """Refuse what lies under the name of another job; a name that is no job's may hold any."""
    right = name_of(file.job.job_id)
    if right != name and is_canonical(name):
        raise Unreadable(f"what is inside belongs into {right}.json")
    return file


def without_lease(file: JobFile) -> JobFile:
    """Give a file as that of a job nobody holds: no lease, no open run."""
    runs = tuple(
        run
        if run.status is not None
        else replace(run, status=RunStatus.LOST, finished_at=run.started_at, error=LOST, error_kind="lost")
        for run in file.runs
    )
    return file._replace(job=replace(file.job, **NO_LEASE), runs=runs)


def has_lease(file: JobFile) -> bool:
    """Tell whether a file in `running/` says who runs the job, until when, and as which run."""
    job: Job = file.job
    held = job.token is not None and job.worker_id is not None and job.lease_expires_at is not None
    return held and any(run.status is None and run.token == job.token for run in file.runs)


def without_counters(file: JobFile) -> JobFile:
    """Give a file as that of a job that never ran: none of the numbers somebody else wrote into it is believed."""
    job = replace(file.job, attempts=0, executions=0, expiries=0, snoozes=0, deliveries=0, started_at=None, **NO_LEASE)
    return file._replace(job=job, runs=())


def as_queued(file: JobFile) -> JobFile:
    """Give a file as that of a job that waits in its queue."""
    freed = without_lease(file)
    return freed._replace(job=replace(freed.job, status=JobStatus.QUEUED, finished_at=None))
