"""Repairing the files of single records: what cannot be read is set aside, what the feed knows is written again.

Goes by what a check finds, so that both say the same. A file in `pending/` that is gone or was edited is left to the
next opening: there it is somebody's wish. Nothing is lost: bytes that are replaced are kept in quarantine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from holdfast.journal.filesystem import FS
from holdfast.model.jobs import JobStatus
from holdfast.rules.invariants import RUNS_KEPT
from holdfast.stores.dir.format import atomic_write, job_file
from holdfast.stores.dir.format.atomic_write import path_of
from holdfast.stores.dir.format.file_names import ENDING, id_in, name_of, share_of
from holdfast.stores.dir.format.job_file import JobFile
from holdfast.stores.dir.format.record_files import INSTANCES, PENDING, QUARANTINE, STATE_OF, STATES
from holdfast.stores.dir.format.record_text import pretty
from holdfast.stores.dir.integrity.quarantine import Quarantine
from holdfast.stores.dir.job_locations import is_in
from holdfast.stores.dir.load.feed_replay import jobs_in
from holdfast.stores.dir.store import DirStore
from holdfast.stores.protocol import Finding


class FilePlan(NamedTuple):
    """What would be done about one file, what was done then, and how; without `step` it is only told."""

    plan: str
    told: str
    step: Callable[[], None] | None


def file_plans(data: FS, store: DirStore, quarantine: Quarantine) -> Iterator[FilePlan]:
    """Tell what to do about each file that a check of this store, opened for reading, finds fault with."""
    found = [one for one in store.check() if one.code in ("file_damaged", "file_missing", "file_differs")]
    if not found:
        return
    known = jobs_in(store.feed(store.feed_begins))
    told: set[str | None] = set()
    damaged = {one.file: one for one in found if one.code == "file_damaged" and one.file}
    for file, finding in damaged.items():
        folder, _, entry = file.removeprefix("data/").rpartition("/")
        if is_in(folder, INSTANCES):
            whole = "" if entry.endswith(ENDING) else ", with all in it"
            yield FilePlan(f"{file}: {finding.message}. The next opening sets it aside{whole}.", "", None)
            continue
        name = entry.removesuffix(ENDING)
        is_job = any(is_in(folder, state) for state in STATES)
        good = known.get(id_in(name) or "") if is_job else None
        yield _unreadable(data, quarantine, (folder, name), finding, good)
        told.add(None if good is None else good.job.job_id)
    for finding in found:
        good = known.get(finding.id or "")
        if finding.code != "file_damaged" and good is not None and finding.id not in told:
            yield _unlike(data, quarantine, finding, good)


def _unreadable(
    data: FS, quarantine: Quarantine, place: tuple[str, str], finding: Finding, good: JobFile | None
) -> FilePlan:
    file = f"data/{path_of(*place)}"
    if good is None:
        return FilePlan(
            f"{file}: {finding.message}. It would be set aside; the feed does not tell what it said.",
            f"{file}: set aside in data/{QUARANTINE}",
            partial(quarantine.take, *place, finding.message),
        )
    return FilePlan(
        f"{file}: {finding.message}. It would be set aside, and job {good.job.job_id} written again as the feed knows "
        f"it: {good.job.status.value}.",
        f"{file}: set aside in data/{QUARANTINE}, and job {good.job.job_id} written again",
        partial(_replace, data, quarantine, place, good, finding.message),
    )


def _unlike(data: FS, quarantine: Quarantine, finding: Finding, good: JobFile) -> FilePlan:
    job = good.job
    if job.status is JobStatus.QUEUED:
        waits = any(
            data.stat(path_of(folder, name_of(job.job_id))) is not None
            for folder in (PENDING, f"{PENDING}/{share_of(job.job_id)}")
        )
        meant = "takes what may be edited, and puts the rest back" if waits else "cancels it"
        return FilePlan(f"{finding.message}. The next opening {meant}.", "", None)
    state, name = STATE_OF[job.status], name_of(job.job_id)
    place = None if finding.code == "file_missing" else (state, name)
    kept = "" if place is None else f"; what it says now is kept in data/{QUARANTINE}"
    return FilePlan(
        f"{finding.message}. It would be written again as the feed knows it: {job.status.value}{kept}.",
        f"data/{path_of(state, name)}: written again{kept}",
        partial(_replace, data, quarantine, place, good, finding.message),
    )


def _replace(data: FS, quarantine: Quarantine, place: tuple[str, str] | None, good: JobFile, reason: str) -> None:
    """Write a job's file as the feed knows it, once what lies in its place was set aside."""
    if place is not None:
        quarantine.take(*place, reason)
    state = STATE_OF[good.job.status]
    folder = place[0] if place is not None and is_in(place[0], state) else state
    text = pretty(job_file.write(good.job, good.runs[-RUNS_KEPT:], good.extra))
    atomic_write.put(data, folder, name_of(good.job.job_id), text)
