"""What people did to the files: looked for, and told as ordinary commands. What they lead to is decided elsewhere.

A new file asks for a job (`Enqueue`), a changed one for an edit (`Update`), a missing one for a cancellation
(`Cancel`), an ended job's file in `pending/` for a retry (`Retry`). What cannot be meant is put back as it was, or set
aside. A file that does not parse may still be being written: it is left alone until it has lain for ten seconds. So is
one that an editor has renamed to save a new one; any other that is gone is looked for twice.

Called with the store's lock held, so that files move only by other hands.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice

import msgspec

from holdfast.clock import Clock
from holdfast.journal.filesystem import FS
from holdfast.model.commands import Cancel, Command, Enqueue, Retry, Update
from holdfast.model.events import JobChanges
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, JobStatus, Run
from holdfast.stores.dir import foreign_files
from holdfast.stores.dir.foreign_files import agrees, stranger
from holdfast.stores.dir.format import atomic_write, job_file
from holdfast.stores.dir.format.atomic_write import path_of
from holdfast.stores.dir.format.camel_case import fields_of
from holdfast.stores.dir.format.file_names import ENDING, id_in, is_canonical, name_of, stem_of
from holdfast.stores.dir.format.job_file import JobFile, Proof
from holdfast.stores.dir.format.record_files import COMPLETED, FAILED, PENDING, RUNNING, number_in
from holdfast.stores.dir.format.record_text import Signature, Unreadable, read_bytes, signature
from holdfast.stores.dir.integrity.fix_references import mended_keys
from holdfast.stores.dir.intent import Drop, Effect, Image
from holdfast.stores.dir.job_effects import job_effects
from holdfast.stores.dir.job_locations import is_in
from holdfast.stores.dir.load.feed_replay import jobs_in
from holdfast.stores.dir.load.records import HandEdit, Stray
from holdfast.stores.dir.opening import Opened
from holdfast.stores.dir.pending_scan import Scan
from holdfast.stores.dir.reader import (
    REMOVED,
    Irregular,
    as_queued,
    is_ours,
    mtime_of,
    text_at,
    without_counters,
)
from holdfast.stores.protocol import Wish

log = logging.getLogger("holdfast.stores.dir")

#: A file that does not parse is left alone for so many seconds after its last change.
PATIENCE_S = 10.0
#: Files that are seen to at a time: whoever else waits for the store waits no longer than these take.
AT_ONCE = 50
#: A pending file must be missing for so many seconds before its job is cancelled: some programs remove and write anew.
GRACE_S = 1.0
#: What no file has: the job waits until somebody has decided what its file says.
_UNSEEN: Signature = (0, 0, 0)


class Wishes:
    """The wishes that lie in the files of one store."""

    def __init__(self, fs: FS, opened: Opened, errands: dict[str, list[Effect]], clock: Clock) -> None:
        """Look after what `opened` has; `errands` are effects that go with the next change of a job."""
        self._fs = fs
        self._clock = clock
        self._errands = errands
        self._tables, self._places, self._extras = opened.tables, opened.places, opened.extras
        self._quarantine, self._feed = opened.quarantine, opened.feed
        #: Jobs whose pending files were found changed when they were about to be given out.
        self.suspects: set[str] = set()
        self._strays: dict[Stray, None] = dict.fromkeys(opened.strays)
        #: What was done to jobs while nobody had the store open, and is not decided yet: files moved here, taken away,
        #: edited.
        self._moved = deque(opened.moved)
        self.missing = deque(opened.missing)
        self.edited = {edit.file.job.job_id: edit for edit in opened.edited}
        #: Jobs whose pending files are gone → since when, by the monotonic clock.
        self._gone: dict[str, float] = {}
        self._scan = Scan(fs, opened.places, clock)
        #: What is no regular file, or has a name that is no text: told once.
        self._irregular: set[str] = set()
        #: Wishes given by the last look that were neither granted nor refused yet.
        self._unanswered: list[Wish] = []
        #: What the feed knows, folded when it is first asked for.
        self._known: Mapping[str, JobFile] | None = None
        #: The look that is under way, file by file; None between two looks.
        self._looking: Iterator[Wish | None] | None = None

    # --- looking ------------------------------------------------------------------------------------------------------

    def some(self, new_id: Callable[[], str]) -> list[Wish]:
        """Look, or go on looking, and give what is wished; what needs no deciding is done on the way."""
        for unanswered in self._unanswered:
            self._note_again(unanswered)
        if self._looking is None:
            self._looking = self._files(new_id)
        seen = list(islice(self._looking, AT_ONCE))
        if len(seen) < AT_ONCE:
            self._looking = None
        wishes = [wish for wish in seen if wish is not None]
        self._unanswered = [wish for wish in wishes if wish.command is not None]
        return wishes

    @property
    def has_more(self) -> bool:
        """Whether the look under way has not seen to all it found."""
        return self._looking is not None

    def _files(self, new_id: Callable[[], str]) -> Iterator[Wish | None]:
        """See to what there is to see now, one file after another. What is noted meanwhile is for the next look."""
        self._look()
        yield from self._after_opening(new_id)
        strays, self._strays = list(self._strays), {}
        asked: set[str] = set()
        for stray in strays:
            yield self._of_file(stray, new_id, asked)
        suspects, self.suspects = sorted(self.suspects), set()
        for job_id in suspects:
            yield self._of_suspect(job_id)
        self._known = None

    def _note_again(self, wish: Wish) -> None:
        """Note what nobody answered: the disk was full, or whoever asked was interrupted."""
        match wish.command:
            case Update(job_id=job_id) | Cancel(job_id=job_id):
                self.suspects.add(job_id)
            case Retry(job_id=job_id) if self._places.folders.get(name_of(job_id)) == _place(wish)[0]:
                self._moved.append(job_id)
            case _:
                self._strays[Stray(*_place(wish))] = None

    def _look(self) -> None:
        """Note files that are new, gone or changed."""
        seen = self._scan.look()
        self._strays.update(dict.fromkeys(Stray(*one) for one in seen.new))
        for name in seen.changed:
            self.suspects.update(self._job_of(name))
        for folder, shown in seen.odd:
            self._leave_alone(folder, shown)

    def _job_of(self, name: str) -> list[str]:
        """Give the job whose file has that name."""
        job_id = id_in(name)
        if job_id is not None:
            return [job_id]
        return [job.job_id for job in self._tables.records[Job].values() if name_of(job.job_id) == name]

    def _signature(self, folder: str, name: str) -> Signature | None:
        return signature(self._fs.stat(path_of(folder, name)))

    def _of_file(self, stray: Stray, new_id: Callable[[], str], asked: set[str]) -> Wish | None:
        try:
            return self._of_stray(stray, new_id, asked)
        except Irregular:
            self._leave_alone(stray.folder, f"{stray.name}{ENDING}")
        except FileNotFoundError:
            pass
        return None

    def _leave_alone(self, folder: str, entry: str) -> None:
        """Tell once of what cannot be a record, and leave it where it is."""
        file = f"{folder}/{entry}"
        if file not in self._irregular:
            log.warning("record.irregular", extra={"file": file})
            self._irregular.add(file)

    # --- new files ----------------------------------------------------------------------------------------------------

    def _of_stray(self, stray: Stray, new_id: Callable[[], str], asked: set[str]) -> Wish | None:
        folder, name = stray
        if self._places.folders.get(name) == folder:
            return None  # taken over meanwhile
        before = self._signature(folder, name)
        try:
            text = text_at(self._fs, folder, name)
        except Unreadable as problem:
            if self._has_lain(folder, name):
                self._set_aside(folder, name, str(problem))
            else:
                self._strays[stray] = None
            return None
        if self._signature(folder, name) != before:
            self._strays[stray] = None  # it was being written while we read
            return None
        try:
            return self._asked_for(stray, text, new_id, asked)
        except Unreadable as problem:
            self._set_aside(folder, name, str(problem))
        return None

    def _asked_for(self, stray: Stray, text: bytes, new_id: Callable[[], str], asked: set[str]) -> Wish | None:
        folder, name = stray
        if is_ours(fields_of(text), name, self._tables.seq):
            known = self._tables.get(Job, id_in(name) or "") if "~" not in name else None
            if known is not None and known.has_ended and not self._is_in_place(known):
                return self._retry(known, new_id, stray)
            if known is None:
                job_file.read(text, PENDING)  # a file of ours must be whole; what is not is no new wish
        found = stranger(text, name, mtime_of(self._fs.stat(path_of(folder, name))), new_id())
        job_id = found.job.job_id
        if job_id in asked:  # by another file of this round: it is looked at in the next
            self._strays[stray] = None
            return None
        job = self._tables.get(Job, job_id)
        if job is not None:
            if not self._goes_back(stray, job):
                self._known_already(stray, text, job)
            return None
        lost = self._lost(name)
        if lost is not None and lost.job.job_id == job_id:
            # It could not be read when the store was opened: somebody was saving it.
            self._bring_back(lost)
            self._places.arrive(name, folder, _UNSEEN)
            self.suspects.add(job_id)
            return None
        if number_in(fields_of(text)) is not None and lost is not None:
            raise Unreadable(f"what is inside belongs to job {job_id}")
        asked.add(job_id)
        if stray != self._target(job_id):
            self._errands[job_id] = [Drop(folder, name)]
        if found.extra != job_file.EMPTY:
            self._extras[job_id] = found.extra
        return _wish(Enqueue(jobs=(found.job,)), stray)

    def _goes_back(self, stray: Stray, job: Job) -> bool:
        """Put a live job's own file, found under another name or in the wrong directory, back; False if it has one."""
        name = name_of(job.job_id)
        place = Stray(self._places.folders.get(name, PENDING), name)
        if job.has_ended or place == stray or self._signature(*place) is not None:
            return False
        log.warning("record.returned", extra={"file": path_of(*stray), "to": path_of(*place), "job": job.job_id})
        if job.status is JobStatus.RUNNING:
            self._restore(job.job_id)
            atomic_write.drop(self._fs, *stray)
            return True
        self._fs.rename(path_of(*stray), path_of(*place))
        for folder in dict.fromkeys((place.folder, stray.folder)):
            self._fs.sync_dir(folder)
        self.suspects.add(job.job_id)  # what it says is looked at next
        return True

    def _target(self, job_id: str) -> Stray:
        name = name_of(job_id)
        return Stray(self._places.target(name, job_id, PENDING), name)

    def _is_in_place(self, job: Job) -> bool:
        """Tell whether the file of a job lies where we left it."""
        name = name_of(job.job_id)
        folder = self._places.folders.get(name)
        return folder is not None and not is_in(folder, PENDING) and self._signature(folder, name) is not None

    def _known_already(self, stray: Stray, text: bytes, job: Job) -> None:
        """Remove a file that asks for a job we have, if it says the same; else set it aside."""
        runs = job_file.kept_runs(self._tables, job, self._tables.ts)
        if agrees(text, job_file.write(job, runs, self._extras.get(job.job_id, job_file.EMPTY))):
            log.info("record.same", extra={"file": path_of(*stray), "job": job.job_id})
            atomic_write.drop(self._fs, *stray)
        else:
            self._quarantine.take(*stray, f"job {job.job_id} is there already, and is another")

    def _has_lain(self, folder: str, name: str) -> bool:
        found = self._fs.stat(path_of(folder, name))
        if found is None:
            return False
        return self._clock.now() >= datetime.fromtimestamp(found.mtime_ns / 1e9, UTC) + timedelta(seconds=PATIENCE_S)

    def _set_aside(self, folder: str, name: str, reason: str) -> None:
        """Set a file aside; if it was that of a job of ours, bring back its last good version."""
        self._quarantine.take(folder, name, reason)
        good = self._lost(name)
        if good is not None:
            self._bring_back(good)
            self._restore(good.job.job_id)

    def _lost(self, name: str) -> JobFile | None:
        """Give what the feed knows of a job that should wait, and whose file of that name is lost."""
        job_id = id_in(name) if is_canonical(name) else None
        good = None if job_id is None or self._tables.get(Job, job_id) is not None else self._last_good(job_id)
        return good if good is not None and good.job.status is JobStatus.QUEUED else None

    # --- after an opening ---------------------------------------------------------------------------------------------

    def _after_opening(self, new_id: Callable[[], str]) -> Iterator[Wish | None]:
        """Tell what was done while nobody had the store open."""
        while self._moved:
            job_id = self._moved.popleft()
            job = self._tables.get(Job, job_id)
            if job is not None:
                name = name_of(job_id)
                yield self._retry(job, new_id, Stray(self._places.folders[name], name))
        while self.missing:
            yield self._taken_away(self.missing.popleft())
        while self.edited:
            job_id = next(iter(self.edited))
            yield self._compared(self.edited.pop(job_id))

    def _last_good(self, job_id: str) -> JobFile | None:
        if self._known is None:
            firsts = self._feed.firsts
            self._known = jobs_in(self._feed.entries(firsts[0] - 1, self._tables.seq) if firsts else ())
        return self._known.get(job_id)

    def _bring_back(self, good: JobFile) -> None:
        self._tables.enter(good)
        atomic_write.apply(self._fs, mended_keys(self._tables), lambda _image, _seen: None)

    def _taken_away(self, job_id: str) -> Wish | None:
        """See to a job that waited when the store was closed, and whose file is not in `pending/` any more.

        Moved to where ended jobs are, it is cancelled. Gone, it is noted: another file of this look may turn out to be
        its own, under a new name.
        """
        name = name_of(job_id)
        folder = self._tables.unread.pop(name, None)
        good = self._last_good(job_id)
        if good is None or good.job.status is not JobStatus.QUEUED:
            good = None if folder is None else self._in_file(folder, name)
        if good is None:
            log.warning("record.gone", extra={"job": job_id, "file": path_of(PENDING, name)})
            return None
        self._bring_back(good)
        if folder is None:
            self._places.arrive(name, PENDING, _UNSEEN)
            self._gone[job_id] = self._clock.monotonic() - GRACE_S
            self.suspects.add(job_id)
            return None
        self._places.leave(name)
        self._errands[job_id] = [Drop(folder, name)] if not is_in(folder, FAILED) else []
        return self._cancel(JobId(job_id), Stray(folder, name))

    def _in_file(self, folder: str, name: str) -> JobFile | None:
        """Give a job that waited as its own file says, wherever that lies now; None if it cannot be read."""
        try:
            text = text_at(self._fs, folder, name)
            file = as_queued(job_file.read(text, PENDING))
        except (Unreadable, Irregular, FileNotFoundError):
            return None
        return without_counters(file) if job_file.proof_of(text) is Proof.BROKEN else file

    def _compared(self, edit: HandEdit) -> Wish | None:
        """Compare a file that was changed while nobody had the store open with what the feed knows of its job."""
        file, proof = edit
        job_id = file.job.job_id
        good, job = self._last_good(job_id), self._tables.get(Job, JobId(job_id))
        if job is None or job.status is not JobStatus.QUEUED:
            return None
        name = name_of(job_id)
        place = Stray(self._places.folders[name], name)
        if good is None or good.job.status is not JobStatus.QUEUED:
            if proof is Proof.WHOLE:
                self._rewrite_unless_right(file)
                return None
            # Nobody knows what it said before: all that may be edited counts as edited.
            changes = foreign_files.all_of(file)
        else:
            same = proof is Proof.WHOLE and good.job.seq == file.seq
            if same or (good.job, good.runs) == (file.job, file.runs):
                self._rewrite_unless_right(file, proof)
                return None
            # Places in line change without an event of the job's own.
            believed = proof is Proof.EDITED or proof is Proof.UNKNOWN
            position = job.position if believed else good.job.position
            kept = msgspec.structs.replace(good.job, position=position)
            for run in self._tables.runs(JobId(job_id)):  # also those that somebody made up
                self._tables.put(Run, run.run_id, None)
            self._tables.enter(good._replace(job=kept))
            # A copy of what the store wrote earlier is no edit: the job has gone on since.
            changes = JobChanges() if proof is Proof.WHOLE else foreign_files.edit(kept, file)
        if proof is not Proof.EDITED:
            log.warning("record.restored", extra={"file": path_of(*place), "job": job_id})
        if changes == JobChanges():
            self._restore(job_id)
            return None
        self._places.seen[name] = _UNSEEN
        return _wish(Update(job_id=JobId(job_id), changes=changes), place)

    def _rewrite_unless_right(self, file: JobFile, proof: Proof = Proof.WHOLE) -> None:
        """Write the file of a job anew whose state or sum is not what it should be; nothing else is."""
        if file.state is not JobStatus.QUEUED or proof is not Proof.WHOLE:
            job_id = file.job.job_id
            log.warning("record.restored", extra={"file": path_of(PENDING, name_of(job_id)), "job": job_id})
            self._restore(job_id)

    # --- changed and missing files ------------------------------------------------------------------------------------

    def _of_suspect(self, job_id: str) -> Wish | None:
        job = self._tables.get(Job, job_id)
        name = name_of(job_id)
        folder = self._places.folders.get(name)
        if job is None or job.status is not JobStatus.QUEUED:
            self._gone.pop(job_id, None)
            return None
        if folder is None:  # brought back from the feed, to be cancelled
            return self._cancel(job.job_id, Stray(PENDING, name))
        now = self._signature(folder, name)
        if now is None:
            return self._removed(job, folder, name)
        self._gone.pop(job_id, None)
        if now == self._places.seen.get(name):
            return None
        try:
            text = text_at(self._fs, folder, name)
        except Unreadable as problem:
            self._spoilt(job, folder, name, str(problem), wait=True)
            return None
        except (Irregular, FileNotFoundError):
            self.suspects.add(job_id)
            return None
        if self._signature(folder, name) != now:
            self.suspects.add(job_id)
            return None
        return self._edit(job, folder, name, text)

    def _edit(self, job: Job, folder: str, name: str, text: bytes) -> Wish | None:
        try:
            file = job_file.read(text, PENDING)
        except Unreadable as problem:
            self._spoilt(job, folder, name, str(problem))
            return None
        if file.job.job_id != job.job_id:
            self._spoilt(job, folder, name, f"what is inside belongs to job {file.job.job_id}")
            return None
        proof = job_file.proof_of(text)
        # A copy of what the store wrote earlier is no edit: the job has gone on since.
        changes = JobChanges() if proof is Proof.WHOLE else foreign_files.edit(job, file)
        if proof is Proof.BROKEN or (proof is Proof.WHOLE and file.seq != job.seq):
            log.warning("record.restored", extra={"file": path_of(folder, name), "job": job.job_id})
        if changes == JobChanges():
            self._restore(job.job_id)
            return _wish(None, Stray(folder, name))
        return _wish(Update(job_id=job.job_id, changes=changes), Stray(folder, name))

    def _spoilt(self, job: Job, folder: str, name: str, reason: str, *, wait: bool = False) -> None:
        """Keep an edit that cannot be used, and go back to the last good version."""
        if wait and not self._has_lain(folder, name):
            self.suspects.add(job.job_id)
            return
        try:
            self._quarantine.keep(folder, name, read_bytes(self._fs, path_of(folder, name)), reason)
        except FileNotFoundError:
            pass
        except PermissionError:
            self._quarantine.take(folder, name, reason)
        self._restore(job.job_id)

    def _removed(self, job: Job, folder: str, name: str) -> Wish | None:
        """Cancel a job whose file was taken away; one that was put into `running/` comes back."""
        if self._signature(RUNNING, name) is not None:
            log.warning("record.returned", extra={"file": path_of(RUNNING, name), "to": folder, "job": job.job_id})
            self._restore(job.job_id)
            atomic_write.drop(self._fs, RUNNING, name)
            return None
        for ended in (COMPLETED, FAILED):
            if self._signature(ended, name) is not None:
                self._errands[job.job_id] = [Drop(COMPLETED, name)] if ended == COMPLETED else []
                return self._cancel(job.job_id, Stray(ended, name))
        now = self._clock.monotonic()
        missed_s = now - self._gone.setdefault(job.job_id, now)
        if missed_s < (PATIENCE_S + GRACE_S if self._is_being_saved(folder, name) else GRACE_S):
            self.suspects.add(job.job_id)
            return None
        return self._cancel(job.job_id, Stray(folder, name))

    def _is_being_saved(self, folder: str, name: str) -> bool:
        """Tell whether something beside it shows that an editor has put a file out of its way to write a new one."""
        inode, _, _ = self._places.seen.get(name, _UNSEEN)
        for entry in self._fs.listdir(folder):
            if stem_of(entry) is not None:
                continue
            if f"{name}{ENDING}" in entry:  # x.json~, x.json.bak, .x.json.swp, #x.json#
                return True
            found = self._fs.stat(f"{folder}/{entry}")
            if found is not None and found.kind == "file" and found.inode == inode:
                return True
        return False

    def _cancel(self, job_id: JobId, place: Stray) -> Wish:
        """Ask to cancel a job whose file was taken away, or moved to this place."""
        log.warning("record.removed", extra={"file": path_of(*place), "job": job_id})
        return _wish(Cancel(job_id=job_id, reason=REMOVED), place)

    def _retry(self, job: Job, new_id: Callable[[], str], stray: Stray) -> Wish:
        """Ask for a retry of an ended job whose file was moved to `pending/`; its own file returns with it."""
        made = JobId(new_id())
        self._errands[made] = self._returning(job, stray)
        return _wish(Retry(job_id=job.job_id, new_job_id=made), stray)

    def _returning(self, job: Job, stray: Stray) -> list[Effect]:
        effects = job_effects(self._tables, self._places, self._extras, job.job_id)
        return effects if Drop(*stray) in effects else [*effects, Drop(*stray)]

    def _restore(self, job_id: str) -> None:
        """Write the file of a job as the tables have it."""
        atomic_write.apply(self._fs, job_effects(self._tables, self._places, self._extras, job_id), self._noted)

    def _noted(self, image: Image, seen: Signature | None) -> None:
        self._places.arrive(image.name, image.folder, seen)

    # --- what came of them --------------------------------------------------------------------------------------------

    def granted(self, wish: Wish) -> None:
        """Tidy up after a wish that was fulfilled."""
        self._unanswered.remove(wish)
        stray = Stray(*_place(wish))
        match wish.command:
            case Enqueue(jobs=jobs):
                job = jobs[0]
                # Sent again, nothing was written: then the file is one too many.
                if stray != Stray(self._places.folders.get(name_of(job.job_id), ""), name_of(job.job_id)):
                    atomic_write.drop(self._fs, *stray)
            case Cancel(job_id=job_id):
                self._gone.pop(job_id, None)
            case Update(job_id=job_id):
                if self._signature(*stray) != self._places.seen.get(stray.name):
                    self._restore(job_id)
            case _:
                pass
        self._errands.pop(_job_asked_for(wish.command), None)

    def refused(self, wish: Wish, reason: str) -> None:
        """Set aside, or put back, what a wish that was refused left lying."""
        self._unanswered.remove(wish)
        stray = Stray(*_place(wish))
        self._errands.pop(_job_asked_for(wish.command), None)
        match wish.command:
            case Enqueue(jobs=jobs):
                self._extras.pop(jobs[0].job_id, None)
                self._set_aside(*stray, reason)
            case Update(job_id=job_id):
                job = self._tables.get(Job, job_id)
                if job is not None and job.status is JobStatus.QUEUED:
                    self._spoilt(job, *stray, reason)
            case Retry(job_id=job_id):
                log.warning("record.returned", extra={"file": path_of(*stray), "reason": reason})
                job = self._tables.get(Job, job_id)
                if job is not None:
                    atomic_write.apply(self._fs, self._returning(job, stray), self._noted)
            case _:
                log.warning("wish.refused", extra={"file": path_of(*stray), "reason": reason})


def _wish(command: Command | None, stray: Stray) -> Wish:
    return Wish(command, path_of(*stray))


def _place(wish: Wish) -> tuple[str, str]:
    folder, _, entry = wish.file.rpartition("/")
    return folder, entry.removesuffix(".json")


def _job_asked_for(command: Command | None) -> str:
    match command:
        case Enqueue(jobs=jobs):
            return jobs[0].job_id
        case Retry(new_job_id=made):
            return made
        case Update(job_id=job_id) | Cancel(job_id=job_id):
            return job_id
        case _:
            return ""
