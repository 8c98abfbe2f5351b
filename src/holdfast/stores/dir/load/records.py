"""Filling the tables from files: records, live jobs, and the names of ended ones. Copies are settled, strays noted.

Of several copies of one job a completed one counts always, so that it is never run again; else the newest; else the one
furthest on its way. The directory decides the status of a job; a file that says otherwise is rewritten. With `readonly`
nothing is changed: records are read as they lie.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

import msgspec

from holdfast.clock import Clock
from holdfast.errors import InvalidValue, StoreDamaged
from holdfast.journal.filesystem import FS
from holdfast.model.ids import Token
from holdfast.model.jobs import Job, JobStatus, Run
from holdfast.model.records import AUTHORITY, Authority, Record, key_of
from holdfast.model.workflows.instances import Message
from holdfast.rules.invariants import RUNS_KEPT
from holdfast.stores.dir import intent, store_files
from holdfast.stores.dir.feed import Feed
from holdfast.stores.dir.format import atomic_write, job_file, record_files, trash
from holdfast.stores.dir.format.atomic_write import path_of
from holdfast.stores.dir.format.camel_case import fields_of
from holdfast.stores.dir.format.file_names import is_canonical, is_draft, name_of, stem_of
from holdfast.stores.dir.format.job_file import JobFile, Proof
from holdfast.stores.dir.format.record_files import (
    ENDED,
    FEED,
    INSTANCES,
    INTENT,
    PENDING,
    QUARANTINE,
    RUNNING,
    STATE_OF,
    STATES,
    TRASH,
)
from holdfast.stores.dir.format.record_text import Signature, Unreadable, signature
from holdfast.stores.dir.integrity.fix_references import mended_keys, mended_turns
from holdfast.stores.dir.integrity.quarantine import Quarantine
from holdfast.stores.dir.intent import Drop, Effect, Image
from holdfast.stores.dir.job_locations import Places, is_in, state_of
from holdfast.stores.dir.load.feed_replay import jobs_in, live_in
from holdfast.stores.dir.load.recovery import Report
from holdfast.stores.dir.load.workflows import Shelf, load_instances
from holdfast.stores.dir.reader import (
    Irregular,
    as_queued,
    ended_file,
    has_lease,
    is_ours,
    shares_in,
    text_at,
    without_counters,
)
from holdfast.stores.dir.store_files import Counters
from holdfast.stores.dir.tables import DirTables

log = logging.getLogger("holdfast.stores.dir")

#: Above every number there can be.
_ANY = 1 << 62


class Stray(NamedTuple):
    """A file in the directory of a state that is not, or not yet, a record of ours there."""

    folder: str
    name: str


class HandEdit(NamedTuple):
    """A pending file that may have been changed while nobody had the store open."""

    file: JobFile
    proof: Proof


class Loading:
    """Reads what lies there, once."""

    def __init__(self, data: FS, root: str, clock: Clock, tables: DirTables, report: Report, *, readonly: bool) -> None:
        self._fs = data
        self._root = root
        self._readonly = readonly
        self.report = report
        self.tables = tables
        self.places = Places()
        self.quarantine = Quarantine(data, root, clock)
        #: Fields nobody knows, by job.
        self.extras: dict[str, msgspec.Raw] = {}
        #: Files that ask for a job.
        self.strays: list[Stray] = []
        #: Ended jobs whose files were moved to `pending/` by hand.
        self.moved: list[str] = []
        #: Pending files that were changed after the last commit.
        self.edited: list[HandEdit] = []
        #: Jobs that waited when the store was closed or its process died, and whose files are gone from `pending/`.
        self.missing: list[str] = []
        #: What brings files in order that lie wrong; images first, then what goes.
        self._fixes: list[Effect] = []
        self._settled_at = 0
        #: Jobs whose edit an earlier opening found and did not decide.
        self._undecided: frozenset[str] = frozenset()
        #: Jobs that wait or run, by name of their file, as far as counters and feed tell: surer than what a file says.
        self._live: dict[str, tuple[str, JobStatus]] = {}
        self._feed: Feed | None = None
        self._applied = 0
        self._known: Mapping[str, JobFile] | None = None
        #: Files that could not be read and, since we only look, stay where they are: with the reason.
        self.unreadable: list[tuple[str, str]] = []

    def run(self, found: Counters, kept: Counters | None, settled_at: int, feed: Feed) -> None:
        """Fill the tables of a store that has counted so far; `kept` is what its closing, if any, left."""
        self._settled_at = settled_at
        self._undecided = frozenset(kept.edited if kept is not None else ())
        # While another process writes, a record may be newer than the feed we have read.
        applied = _ANY if self._readonly else found.seq
        self._feed, self._applied = feed, found.seq
        if not self._readonly:
            live = self._live_jobs(kept, feed)
            self._live = {name_of(job_id): (job_id, status) for job_id, status in live.items()}
        self._load_records()
        self._load_messages()
        load_instances(
            Shelf(
                fs=self._fs,
                root=self._root,
                tables=self.tables,
                quarantine=self.quarantine,
                report=self.report,
                readonly=self._readonly,
                unreadable=lambda file, reason: self.unreadable.append((file, reason)),
            ),
            applied,
        )
        self._load_jobs(applied)
        self._load_authority(found.token)
        self.tables.seq, self.tables.ts = found.seq, found.ts
        self.missing = [] if self._readonly else self._missing()
        self._known = None
        if not self._readonly:
            self._fixes += mended_keys(self.tables)
            self._fixes += mended_turns(self.tables)
            self._fix()
            trash.sweep(self._fs)
        self.report.quarantined = self.quarantine.count

    def _is_there(self, folder: str) -> bool:
        return self._fs.stat(folder) is not None

    def _load_records(self) -> None:
        for kind, folder in record_files.FOLDERS.items():
            self.tables.load(kind, (found.record for found in self._records(kind, folder)))
        for folder in ("", "tasks", "queues", INSTANCES, TRASH, INTENT, FEED, QUARANTINE):
            self._sweep(folder, self._fs.listdir(folder) if not folder or self._is_there(folder) else [])

    def _load_messages(self) -> None:
        """Load what is on its way and what is set aside; of two copies of a message the newer counts."""
        newest: dict[str, record_files.Found] = {}
        for folder in record_files.PLACES[Message]:
            for found in self._records(Message, folder):
                key = key_of(found.record)
                first = newest.get(key)
                newest[key] = found if first is None or found.seq > first.seq else first
                if first is not None:
                    older = first if newest[key] is found else found
                    self._set_aside(*record_files.place_of(older.record), "a second copy of the message")
        self.tables.load(Message, [found.record for found in newest.values()])

    def _records(self, kind: type[Record], folder: str) -> Iterator[record_files.Found]:
        names = self._fs.listdir(folder) if self._is_there(folder) else []
        self._sweep(folder, names)
        for name in names:
            stem = stem_of(name)
            if stem is None:
                continue
            try:
                text = text_at(self._fs, folder, stem, untouched=kind in record_files.UNTOUCHED)
                yield record_files.read(kind, folder, stem, text)
            except Unreadable as problem:
                self._set_aside(folder, stem, str(problem))
            except Irregular:
                self._leave_alone(folder, name)
            except FileNotFoundError:
                if not self._readonly:
                    raise

    def _sweep(self, folder: str, names: list[str]) -> None:
        """Remove drafts: they are never state. In `pending/` other programs may be writing theirs."""
        shared = is_in(folder, PENDING)
        drafts = [name for name in names if is_draft(name, shared=shared)]
        if self._readonly or not drafts:
            return
        for name in drafts:
            with suppress(IsADirectoryError, PermissionError, FileNotFoundError):
                self._fs.unlink(f"{folder}/{name}" if folder else name)
                self.report.drafts += 1

    def _set_aside(self, folder: str, stem: str, reason: str) -> None:
        if self._readonly:
            log.warning("record.unreadable", extra={"file": path_of(folder, stem), "reason": reason})
            self.unreadable.append((path_of(folder, stem), reason))
        else:
            self.quarantine.take(folder, stem, reason)

    def _leave_alone(self, folder: str, name: str) -> None:
        self.report.irregular += 1
        log.warning("record.irregular", extra={"file": f"{folder}/{name}", "store": self._root})

    def _load_authority(self, token: int) -> None:
        dispatch = None
        with suppress(FileNotFoundError, Unreadable, Irregular):
            dispatch = store_files.dispatch_plan.read(fields_of(text_at(self._fs, "", store_files.DISPATCH)))
        if token or dispatch is not None:
            said = dispatch or store_files.Dispatch()
            self.tables.put(Authority, AUTHORITY, Authority(Token(token), said.paused, said.reason))

    def _load_jobs(self, applied: int) -> None:
        self.tables.opened_at = applied
        listed = self._listed()
        for name, folders in listed.items():
            if len(folders) == 1 and state_of(folders[0]) in ENDED and is_canonical(name):
                self.places.arrive(name, folders[0])
                self.tables.unread[name] = folders[0]
        live = {name: folders for name, folders in listed.items() if name not in self.tables.unread}
        files = [file for name, folders in live.items() if (file := self._settled(name, folders, applied)) is not None]
        files += self._moved_away()
        self.tables.load(Job, [file.job for file in files])
        self.tables.load(Run, [run for file in files for run in file.runs])

    def _listed(self) -> dict[str, list[str]]:
        """Give all files of jobs: name → directories. A store at work moves files meanwhile: from where it begins."""
        listed: dict[str, list[str]] = {}
        again = (PENDING,) if self._readonly else ()
        for state in (PENDING, RUNNING, *ENDED[::-1], *again):
            for folder, names in self._tree(state):
                self._sweep(folder, names)
                for name in names:
                    stem = stem_of(name)
                    if stem is not None and folder not in listed.setdefault(stem, []):
                        listed[stem].append(folder)
        return listed

    def _tree(self, state: str) -> Iterator[tuple[str, list[str]]]:
        if not self._is_there(state):
            return
        names = self._fs.listdir(state)
        yield state, names
        for share in shares_in(self._fs, state, names):
            yield share, self._fs.listdir(share)

    def _settled(self, name: str, folders: list[str], applied: int) -> JobFile | None:
        """Read the file of one job; of several copies keep the one that counts."""
        copies = [(folder, text) for folder in folders if (text := self._text(folder, name)) is not None]
        if not copies:
            return None
        if len(copies) > 1:
            copies = self._without_losers(name, copies, applied)
        folder, text = copies[0]
        state = state_of(folder)
        try:
            if not is_ours(fields_of(text), name, applied):
                return self._stranger(folder, state, name)
            if state in ENDED:
                self.places.arrive(name, folder)
                return self._kept(
                    ended_file(self._fs, folder, state, name, applied=applied, made_at=self.tables.made_at)
                )
            return self._taken_over(Stray(folder, name), text, job_file.read(text, state))
        except Unreadable as problem:
            self._set_aside_live(folder, name, str(problem))
        except (Irregular, FileNotFoundError):
            pass
        return None

    def _text(self, folder: str, name: str) -> bytes | None:
        try:
            return text_at(self._fs, folder, name)
        except Unreadable as problem:
            self._set_aside_live(folder, name, str(problem))
        except Irregular:
            self._leave_alone(folder, f"{name}.json")
        except FileNotFoundError:
            if not self._readonly:
                raise
            return self._elsewhere(name)
        return None

    def _elsewhere(self, name: str) -> bytes | None:
        """Look again for a file that its store has moved while we looked."""
        for _ in range(5):
            for state in STATES:
                with suppress(FileNotFoundError, Unreadable, Irregular):
                    return text_at(self._fs, state, name)
        return None

    def _set_aside_live(self, folder: str, name: str, reason: str) -> None:
        """Set a file aside that cannot be read; one that may still be being written is looked at again later."""
        if state_of(folder) == PENDING and not self._readonly:
            self.strays.append(Stray(folder, name))
        else:
            self._set_aside(folder, name, reason)

    def _without_losers(self, name: str, copies: list[tuple[str, bytes]], applied: int) -> list[tuple[str, bytes]]:
        """Keep the copy that counts: a completed one, else the newest, else the one furthest on its way."""
        numbered = all(self._seq(text, applied) is not None for _, text in copies)

        def weight(copy: tuple[str, bytes]) -> tuple[bool, bool, int, int]:
            state = state_of(copy[0])
            # A copy of a live file that somebody put into `completed/` has not ended.
            ended = state not in ENDED or name not in self._live or not _says_live(copy[1])
            seq = self._seq(copy[1], applied) or 0 if numbered else 0
            return ended, numbered and state == record_files.COMPLETED, seq, STATES.index(state)

        ranked = sorted(copies, key=weight, reverse=True)
        winner = ranked[0]
        for folder, text in ranked[1:]:
            theirs, ours = self._seq(text, applied), self._seq(winner[1], applied)
            self.report.copies += 1
            if self._readonly:
                continue
            if theirs is not None and ours is not None and theirs < ours:
                atomic_write.drop(self._fs, folder, name)
            else:
                self.quarantine.take(folder, name, f"a second copy of the job in {winner[0]}")
        return [winner]

    def _seq(self, text: bytes, applied: int) -> int | None:
        try:
            seq = record_files.number_in(fields_of(text))
        except Unreadable:
            return None
        return None if seq is None or seq > applied else seq

    def _stranger(self, folder: str, state: str, name: str) -> JobFile | None:
        """Note a file of somebody else: it asks for a job, or it is history."""
        if state not in ENDED:
            self.strays.append(Stray(folder, name))
            return None
        file = ended_file(self._fs, folder, state, name, applied=self.tables.opened_at, made_at=self.tables.made_at)
        right = name_of(file.job.job_id)
        if right != name and not self._readonly:
            if self._fs.stat(path_of(state, right)) is not None:
                raise Unreadable(f"job {file.job.job_id} is there already")
            self._fixes += [
                atomic_write.image_of(folder, right, 0, job_file.write(file.job, file.runs, file.extra)),
                Drop(folder, name),
            ]
        self.places.arrive(right, folder)
        return self._kept(file)

    def _taken_over(self, place: Stray, text: bytes, file: JobFile) -> JobFile | None:
        """Take over a file of ours in `pending/` or `running/`, as what its directory says it is."""
        if self._readonly:
            return self._as_it_lies(place, file)
        proof = job_file.proof_of(text)
        known = self._last_good(file.job.job_id) if proof is Proof.BROKEN else None
        _, status = self._live.get(place.name, ("", None if known is None else known.job.status))
        if status is JobStatus.RUNNING:
            leased = self._leased(place, file, proof)
            if leased is not None:
                return leased
        if proof is Proof.BROKEN and (known is None or known.job.has_ended):
            log.warning("record.not_believed", extra={"file": path_of(*place), "job": file.job.job_id})
            file = without_counters(file)
        if status is not JobStatus.QUEUED:
            return self._as_it_lies(place, file, proof)
        waiting = self._waiting(place, file, proof)
        # Nothing that was changed counts before it is decided, least of all runs: they may have the ids of others.
        if known is None or known.job.status is not JobStatus.QUEUED:
            return waiting
        return known._replace(extra=waiting.extra)

    def _leased(self, place: Stray, file: JobFile, proof: Proof) -> JobFile | None:
        """Give a job that runs as the feed knows it, its file put back; None if there is nothing to put back."""
        folder, name = place
        in_place = state_of(folder) == RUNNING
        sound = proof is Proof.WHOLE or proof is Proof.UNKNOWN
        if in_place and sound and not self._was_written(folder, name):
            return None
        good = self._last_good(file.job.job_id)
        if good is None or good.job.status is not JobStatus.RUNNING:
            if not sound or not has_lease(file):
                return None
            good = file._replace(job=msgspec.structs.replace(file.job, status=JobStatus.RUNNING))
        same = proof is Proof.WHOLE and good.job.seq == file.seq
        if in_place and (same or (good.job, good.runs) == (file.job, file.runs)):
            return None
        log.warning("record.returned", extra={"file": path_of(*place), "to": RUNNING, "job": file.job.job_id})
        good = good._replace(extra=file.extra)
        target = self.places.target(name, good.job.job_id, RUNNING)
        text = job_file.write(good.job, good.runs[-RUNS_KEPT:], good.extra)
        self._fixes.append(atomic_write.image_of(target, name, good.job.seq, text))
        if target != folder:
            self._fixes.append(Drop(folder, name))
        self.places.arrive(name, target)
        return self._kept(good)

    def _moved_away(self) -> Iterator[JobFile]:
        """Walk the jobs that run, and whose files somebody moved to where ended ones are: they go back."""
        for name, (_, status) in self._live.items():
            folder = self.tables.unread.get(name)
            if folder is None or status is not JobStatus.RUNNING:
                continue
            with suppress(Unreadable, Irregular, FileNotFoundError):
                text = text_at(self._fs, folder, name)
                if _says_live(text) and (file := job_file.read(text, RUNNING)).seq is not None:
                    leased = self._leased(Stray(folder, name), file, job_file.proof_of(text))
                    if leased is not None:
                        del self.tables.unread[name]
                        yield leased

    def _last_good(self, job_id: str) -> JobFile | None:
        """Give what the feed knows of a job. One that is not whole does not tell, and hinders no opening."""
        if self._known is None:
            self._known = {}
            with suppress(StoreDamaged, InvalidValue):
                if self._feed is not None and self._feed.firsts:
                    self._known = jobs_in(self._feed.entries(self._feed.firsts[0] - 1, self._applied))
        return self._known.get(job_id)

    def _as_it_lies(self, place: Stray, file: JobFile, proof: Proof = Proof.UNKNOWN) -> JobFile:
        """Take over a file of which nothing but itself tells what it should be."""
        folder, name = place
        state = state_of(folder)
        ended = file.state is not None and file.state not in (JobStatus.QUEUED, JobStatus.RUNNING)
        if ended and file.state is not None:
            # Moved here by hand: the job itself stays what it was.
            job = msgspec.structs.replace(file.job, status=file.state)
            self.places.arrive(name, folder)
            if state == PENDING:
                self.moved.append(job.job_id)
            else:
                self._return(name, folder, STATE_OF[file.state], file._replace(job=job))
            return self._kept(file._replace(job=job))
        if state == RUNNING and has_lease(file):
            self.places.arrive(name, folder)
            if file.state is not JobStatus.RUNNING:
                self._rewrite(name, folder, file)
            return self._kept(file)
        return self._waiting(place, file, proof)

    def _waiting(self, place: Stray, file: JobFile, proof: Proof) -> JobFile:
        """Take over the file of a job that waits; if somebody changed it, what that means is decided later."""
        folder, name = place
        self.places.arrive(name, folder, signature(self._fs.stat(path_of(folder, name))))
        queued = as_queued(file)
        odd = queued.job != file.job or queued.runs != file.runs or file.state is not JobStatus.QUEUED
        sound = proof is Proof.WHOLE or proof is Proof.UNKNOWN
        if state_of(folder) == RUNNING:
            log.warning("record.returned", extra={"file": path_of(folder, name), "to": PENDING})
            self._return(name, folder, PENDING, queued)
        if odd or not sound or file.job.job_id in self._undecided or self._was_written(folder, name):
            self.edited.append(HandEdit(queued, proof))
        return self._kept(queued)

    def _was_written(self, folder: str, name: str) -> bool:
        """Tell whether a file was written, replaced or renamed after the last commit; its own time may be set back."""
        found = self._fs.stat(path_of(folder, name))
        return found is not None and max(found.mtime_ns, found.ctime_ns) > self._settled_at

    def _kept(self, file: JobFile) -> JobFile:
        if file.extra != job_file.EMPTY:
            self.extras[file.job.job_id] = file.extra
        return file

    def _rewrite(self, name: str, folder: str, file: JobFile) -> None:
        text = job_file.write(file.job, file.runs, file.extra)
        self._fixes.append(atomic_write.image_of(folder, name, file.job.seq, text))

    def _return(self, name: str, folder: str, state: str, file: JobFile) -> None:
        target = self.places.target(name, file.job.job_id, state)
        text = job_file.write(file.job, file.runs, file.extra)
        self._fixes += [atomic_write.image_of(target, name, file.job.seq, text), Drop(folder, name)]
        if not self._readonly:
            self.places.arrive(name, target)

    def _fix(self) -> None:
        """Write what has to be written; targets first, then what goes."""
        self.report.rewritten += sum(isinstance(effect, Image) for effect in self._fixes)
        atomic_write.apply(self._fs, self._fixes, self._noted)
        self._fixes = []

    def _noted(self, image: Image, seen: Signature | None) -> None:
        if intent.is_state(image.folder):
            self.places.arrive(image.name, image.folder, seen)

    def _live_jobs(self, kept: Counters | None, feed: Feed) -> dict[str, JobStatus]:
        """Give the jobs that wait or run: those the counters name, and what the feed says has become of them since."""
        since, before = feed.firsts[0] - 1, dict[str, JobStatus]()
        if kept is not None and kept.pending is not None:
            since = kept.seq
            before = dict.fromkeys(kept.pending, JobStatus.QUEUED) | dict.fromkeys(kept.running, JobStatus.RUNNING)
        with suppress(StoreDamaged, InvalidValue):
            return live_in(feed.entries(since, self._applied), before)
        return {}

    def _missing(self) -> list[str]:
        """Give the jobs that should wait, and whose files are gone from `pending/`."""
        there = self.tables.records[Job]
        seen = {stray.name for stray in self.strays}
        gone = [(name, *one) for name, one in self._live.items() if one[0] not in there and name not in seen]
        for name, job_id, status in gone:
            if status is JobStatus.RUNNING and name not in self.tables.unread:
                log.warning("record.gone", extra={"job": job_id, "file": path_of(RUNNING, name), "store": self._root})
        return [job_id for _, job_id, status in gone if status is JobStatus.QUEUED]


def _says_live(text: bytes) -> bool:
    """Tell whether a file says that its job waits or runs."""
    with suppress(Unreadable):
        return job_file.state_in(fields_of(text)) in (JobStatus.QUEUED, JobStatus.RUNNING)
    return False
