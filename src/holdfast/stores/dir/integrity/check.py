"""Checking: every file against what is known of it, every line of the feed, every invariant. Changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import pairwise

from holdfast.journal.filesystem import FS
from holdfast.model.jobs import Job
from holdfast.rules.invariants import reported
from holdfast.stores.dir import feed
from holdfast.stores.dir.format import job_file, record_files
from holdfast.stores.dir.format.atomic_write import path_of
from holdfast.stores.dir.format.file_names import is_draft, name_of, stem_of
from holdfast.stores.dir.format.job_file import JobFile, Proof
from holdfast.stores.dir.format.record_files import INTENT, PENDING, STATE_OF, STATES
from holdfast.stores.dir.format.record_text import Unreadable
from holdfast.stores.dir.integrity.workflow_check import instance_files
from holdfast.stores.dir.job_locations import is_in
from holdfast.stores.dir.load.feed_replay import jobs_in
from holdfast.stores.dir.opening import Opened
from holdfast.stores.dir.reader import Irregular, shares_in, text_at
from holdfast.stores.protocol import Finding, finding_of
from holdfast.stores.sidecar.check import missing_blobs
from holdfast.stores.sidecar.protocol import Blobs


def findings(fs: FS, root: str, opened: Opened, last: int, blobs: Blobs, *, compare: bool) -> list[Finding]:
    """List what is wrong. With `compare` nobody else writes, and each file must say what the tables say."""
    tables = opened.tables
    tables.read_all()
    found = [finding_of(fault) for fault in reported(tables)]
    found += missing_blobs(blobs, list(tables.named()))
    found += _feed_faults(fs, opened, last)
    if compare:
        found += _job_files(fs, opened)
        found += _record_files(fs, opened)
        found += instance_files(fs, tables)
    else:
        found += [
            Finding(code="file_damaged", message=reason, file=f"data/{file}", remedy=_see_repair(root))
            for file, reason in opened.unreadable
        ]
        found += _unlike_the_feed(opened, last, _see_repair(root))
        found += _changed_by_hand(fs, opened, {one.id for one in found}, _see_repair(root))
    found += [
        Finding(
            code="quarantined",
            message=f"{aside.reason}",
            remedy=f"Mend data/{aside.place} and run `holdfast store repair dir:{root}`, or remove it.",
            file=f"data/{aside.place}",
        )
        for aside in opened.quarantine.all()
    ]
    return found


def _see_repair(root: str) -> str:
    return f"Run `holdfast store repair dir:{root}`: it tells what becomes of it, and changes nothing without --yes."


def _unlike_the_feed(opened: Opened, last: int, remedy: str) -> Iterator[Finding]:
    """Compare jobs with what the feed knows of them. It says nothing of those that were made before it begins."""
    firsts = opened.feed.firsts
    if opened.torn or not firsts or firsts[0] != 1:
        return
    tables = opened.tables
    for job_id, known in jobs_in(opened.feed.entries(0, last)).items():
        job = tables.get(Job, job_id)
        if job is None:
            yield Finding(code="file_missing", message=f"job {job_id} has no file", id=job_id, remedy=remedy)
        elif job.seq <= known.job.seq and job != known.job:
            names = (name for name in job.__struct_fields__ if getattr(job, name) != getattr(known.job, name))
            message = f"job {job_id} is not what the feed says: {', '.join(names)}"
            yield Finding(code="file_differs", message=message, id=job_id, remedy=remedy)


def _feed_faults(fs: FS, opened: Opened, last: int) -> Iterator[Finding]:
    firsts = opened.feed.firsts
    if opened.torn:
        message, file = "something follows the last whole line", f"data/{feed.path_of(firsts[-1])}"
        yield Finding(code="feed_damaged", message=message, file=file, seq=last + 1)
    for first, following in pairwise([*firsts, last + 1]):
        end = feed.end_of(fs, first)
        if end.seq < following - 1:
            line = end.seq - first + 2
            message = f"line {line} is not the whole event {end.seq + 1}"
            yield Finding(code="feed_damaged", message=message, file=f"data/{feed.path_of(first)}", line=line)


def _job_files(fs: FS, opened: Opened) -> Iterator[Finding]:
    tables, places = opened.tables, opened.places
    expected: set[tuple[str, str]] = set()
    for job in tables.records[Job].values():
        name = name_of(job.job_id)
        folder = places.folders.get(name)
        if folder is None or not is_in(folder, STATE_OF[job.status]):
            if job.job_id not in opened.moved:
                yield Finding(code="file_missing", message=f"job {job.job_id} has no file", id=job.job_id)
            continue
        expected.add((folder, name))
        if job.seq:  # what another program left behind stays as it was
            runs, extra = tables.runs(job.job_id), opened.extras.get(job.job_id, job_file.EMPTY)
            expected_file = JobFile(job, tuple(runs), extra, job.status, job.seq)
            yield from _compare(fs, folder, name, expected_file)
    for state in STATES:
        for folder in (state, *shares_in(fs, state, fs.listdir(state))):
            for entry in fs.listdir(folder):
                stem = stem_of(entry)
                if is_draft(entry, shared=state == PENDING) or (stem is not None and (folder, stem) not in expected):
                    yield Finding(code="file_unknown", message="no record has this file", file=f"data/{folder}/{entry}")
    for entry in fs.listdir(INTENT):
        yield Finding(code="intent_left", message="a commit is not finished", file=f"data/{INTENT}/{entry}")


def _record_files(fs: FS, opened: Opened) -> Iterator[Finding]:
    for kind, folders in record_files.PLACES.items():
        records = {record_files.place_of(record): record for record in opened.tables.records[kind].values()}
        there = {(folder, stem) for folder in folders for entry in fs.listdir(folder) if (stem := stem_of(entry))}
        for folder, name in sorted(records.keys() | there):
            try:
                text = text_at(fs, folder, name, untouched=kind in record_files.UNTOUCHED)
                found = record_files.read(kind, folder, name, text).record
            except (Unreadable, Irregular, FileNotFoundError):
                found = None
            if found != records.get((folder, name)):
                yield differs(path_of(folder, name))


def differs(path: str) -> Finding:
    """Say that a file is not what it should be."""
    return Finding(code="file_differs", message="the file does not say what the store knows", file=f"data/{path}")


#: Of ended jobs the files alone tell what they were, unless the feed reaches so far back.
_CHANGED = "somebody changed the file since the store wrote it"


def _is_changed(text: bytes) -> bool:
    return job_file.proof_of(text) in (Proof.EDITED, Proof.BROKEN)


def _changed_by_hand(fs: FS, opened: Opened, told: Collection[str | None], remedy: str) -> Iterator[Finding]:
    """List files of ended jobs that do not say what this store wrote, but for jobs that were told of already."""
    for job in opened.tables.records[Job].values():
        name = name_of(job.job_id)
        folder = opened.places.folders.get(name)
        if folder is None or not job.has_ended or job.job_id in told:
            continue
        with suppress(Unreadable, Irregular, FileNotFoundError):  # told elsewhere, or moved by a store at work
            if _is_changed(text_at(fs, folder, name)):
                file = f"data/{path_of(folder, name)}"
                yield Finding(code="file_differs", message=_CHANGED, file=file, id=job.job_id, remedy=remedy)


def _compare(fs: FS, folder: str, name: str, known: JobFile) -> Iterator[Finding]:
    file, job_id = f"data/{path_of(folder, name)}", known.job.job_id
    try:
        text = text_at(fs, folder, name)
        if job_file.read(text, STATE_OF[known.job.status]) != known:
            message = "the file does not say what the store knows"
            yield Finding(code="file_differs", message=message, file=file, id=job_id)
        elif known.job.has_ended and _is_changed(text):
            yield Finding(code="file_differs", message=_CHANGED, file=file, id=job_id)
    except Unreadable as problem:
        yield Finding(code="file_damaged", message=str(problem), file=file, id=job_id)
    except (Irregular, FileNotFoundError):
        yield Finding(code="file_missing", message=f"job {job_id} has no file", file=file, id=job_id)
