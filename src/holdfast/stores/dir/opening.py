"""Opening a directory: what is there, what a crash left undone, what people moved. A second opening changes nothing.

The order: lock → which store → directories → the feed's end, torn lines cut → the one intent that may be open → records
→ live jobs, with copies settled → what does not fit is rewritten, or set aside. With `readonly` no lock is taken and
nothing is changed: records are read as they lie.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from holdfast.clock import Clock
from holdfast.errors import StoreDamaged, StoreFailed
from holdfast.journal.fs import FS
from holdfast.model.ids import Token
from holdfast.model.jobs import Job, JobStatus, Run
from holdfast.model.records import AUTHORITY, Authority, Record
from holdfast.model.times import Timestamp
from holdfast.stores.dir import feed, identity, intent, jobfile, kinds, writing
from holdfast.stores.dir.camel import fields_of
from holdfast.stores.dir.feed import Feed
from holdfast.stores.dir.identity import Counters
from holdfast.stores.dir.intent import Drop, Effect, Image, Intent
from holdfast.stores.dir.jobfile import JobFile
from holdfast.stores.dir.kinds import ENDED, FEED, INTENT, MADE, PENDING, QUARANTINE, RUNNING, STATE_OF, STATES
from holdfast.stores.dir.mending import mended_keys
from holdfast.stores.dir.names import DRAFT, is_canonical, is_share, name_of, stem_of
from holdfast.stores.dir.places import Places, state_of
from holdfast.stores.dir.quarantine import Quarantine
from holdfast.stores.dir.reader import Irregular, as_queued, ended_file, has_lease, is_ours, text_at
from holdfast.stores.dir.tables import DirTables
from holdfast.stores.dir.text import Unreadable, signature
from holdfast.stores.dir.writing import path_of

log = logging.getLogger("holdfast.stores.dir")


#: Above every number there can be.
_ANY = 1 << 62


@dataclass
class Report:
    """What opening found and did, counted."""

    #: Drafts removed, torn lines cut (1 or 0), intents that were done and that were applied now.
    drafts: int = 0
    torn: int = 0
    done: int = 0
    applied: int = 0
    #: Second copies of a job removed, files rewritten or returned to where they belong, and set aside.
    copies: int = 0
    rewritten: int = 0
    quarantined: int = 0
    #: What is no regular file, left alone.
    irregular: int = 0


class Stray(NamedTuple):
    """A file in the directory of a state that is not, or not yet, a record of ours there."""

    folder: str
    name: str


@dataclass
class Opened:
    """Everything an opening hands over."""

    tables: DirTables
    places: Places
    feed: Feed
    quarantine: Quarantine
    #: Fields nobody knows, by job.
    extras: dict[str, msgspec.Raw] = field(default_factory=dict)
    #: Files that ask for a job.
    strays: list[Stray] = field(default_factory=list)
    #: Ended jobs whose files were moved to `pending/` by hand.
    moved: list[str] = field(default_factory=list)
    #: Jobs that waited when the store was closed, and whose files are not there any more.
    missing: list[str] = field(default_factory=list)
    #: Pending files that were changed after the last commit.
    edited: list[JobFile] = field(default_factory=list)
    report: Report = field(default_factory=Report)


# --- the store as a whole ---------------------------------------------------------------------------------------------


def demand_private(root: str) -> None:
    """Refuse a directory that others can write or own; warn of one they can read."""
    found = os.stat(root)  # noqa: PTH116 - the path may be bytes that are no text
    if found.st_uid != os.geteuid():
        raise StoreFailed(
            f"{root} belongs to user {found.st_uid}, this process is of user {os.geteuid()}. Nothing was opened.",
            hint="Run as its owner, or use a directory of your own.",
        )
    if found.st_mode & 0o022:
        raise StoreFailed(
            f"{root} can be written by others (mode {found.st_mode & 0o777:o}). Nothing was opened.",
            hint=f"Run `chmod go-w {root}`: whoever can write there can have any task run.",
        )
    if found.st_mode & 0o044:
        log.warning("dir.readable", extra={"file": root, "mode": f"{found.st_mode & 0o777:o}"})


def prepare(fs: FS, data: FS, root: str, clock: Clock) -> None:
    """Find the store, or make one around what is there."""
    known = identity.read_identity(fs, root)
    for folder in ("data",):
        if fs.stat(folder) is None:
            fs.mkdir(folder)
    fs.sync_dir("")
    made = [folder for folder in MADE if data.stat(folder) is None]
    for folder in made:
        data.mkdir(folder)
    for folder in dict.fromkeys(folder.rpartition("/")[0] for folder in made):
        data.sync_dir(folder)
    if known is None:
        if not feed.files(data) and identity.read_counters(data) is None and not _has_numbers(data):
            identity.write_counters(data, Counters())
        identity.write_identity(fs, clock.now())


def _has_numbers(data: FS) -> bool:
    """Tell whether a directory without counters was a store: an intent is never in one that was not."""
    return any(stem_of(name) for name in data.listdir(INTENT))


def refuse_missing(fs: FS, root: str) -> None:
    """Refuse to read where there is no store."""
    if identity.read_identity(fs, root) is None and fs.stat("data/tasks") is None:
        raise StoreFailed(f"{root} is no store of this kind. Nothing was opened.", hint="Check the path.", file=root)


# --- the order of opening ---------------------------------------------------------------------------------------------


class Opening:
    """One opening under way."""

    def __init__(self, data: FS, root: str, clock: Clock, tables: DirTables, *, readonly: bool) -> None:
        self._fs = data
        self._root = root
        self._readonly = readonly
        self.places = Places()
        self.tables = tables
        self.quarantine = Quarantine(data, root, clock)
        self.report = Report()
        self._extras: dict[str, msgspec.Raw] = {}
        self._strays: list[Stray] = []
        self._moved: list[str] = []
        self._edited: list[JobFile] = []
        #: Time of the last commit, or of the last closing.
        self._settled_at = 0
        #: What brings files in order that lie wrong; images first, then what goes.
        self._fixes: list[Effect] = []

    def run(self) -> Opened:
        """Do all of it."""
        counters, firsts = identity.read_counters(self._fs), feed.files(self._fs) if self._is_there(FEED) else []
        end = feed.end_of(self._fs, firsts[-1]) if firsts else None
        marks = [self._fs.stat(path_of("", identity.META)), self._fs.stat(feed.path_of(firsts[-1])) if firsts else None]
        self._settled_at = max((mark.mtime_ns for mark in marks if mark is not None), default=0)
        intents = self._intents()
        applied = max(counters.seq if counters else 0, end.seq if end else 0)
        lost = counters is None or end is None
        if lost and (counters is None or firsts or self._any_number_above(applied)):
            applied = max(applied, self._highest())
        token = max(counters.token if counters else 0, end.token if end else 0)
        ts = max(counters.ts if counters else Timestamp(""), end.ts if end else Timestamp(""))
        following = Feed(self._fs, self._root, firsts, end)
        if not self._readonly:
            applied, ts, token = self._recover(following, end, intents, Counters(applied, ts, token), lost=lost)
        self._load_records()
        # While another process writes, a record may be newer than the feed we have read.
        self._load_jobs(_ANY if self._readonly else applied)
        if counters is None:
            token = max(token, self._highest_token())
        self._load_authority(token)
        self.tables.seq, self.tables.ts = applied, ts
        if not self._readonly:
            self._mend_keys()
            self._fix()
        self.report.quarantined = self.quarantine.count
        missing = self._missing(counters, applied)
        return Opened(
            self.tables,
            self.places,
            following,
            self.quarantine,
            self._extras,
            self._strays,
            self._moved,
            missing,
            self._edited,
            self.report,
        )

    def _is_there(self, folder: str) -> bool:
        return self._fs.stat(folder) is not None

    # --- intents and the feed -----------------------------------------------------------------------------------------

    def _intents(self) -> list[Intent]:
        """Read the intents, oldest first. Raises StoreDamaged."""
        if not self._is_there(INTENT):
            return []
        stems = [stem for name in self._fs.listdir(INTENT) if (stem := stem_of(name)) and intent.is_intent(stem)]
        found: list[Intent] = []
        for stem in stems:
            with suppress(FileNotFoundError):  # its store, at work while we only read, has dropped it
                text = _whole(self._fs, path_of(INTENT, stem))
                found.append(intent.read(self._root, stem, text))
        return found

    def _any_number_above(self, applied: int) -> bool:
        """Tell whether a store without feed has records all the same."""
        return applied == 0 and any(True for _ in self._numbers())

    def _numbers(self) -> Iterator[int]:
        """Walk the numbers of all records."""
        for folder in (*self._shares(), *kinds.FOLDERS.values()):
            for name in self._fs.listdir(folder) if self._is_there(folder) else ():
                stem = stem_of(name)
                if stem is None:
                    continue
                with suppress(Unreadable, Irregular, FileNotFoundError):
                    seq = kinds.number_in(fields_of(text_at(self._fs, folder, stem)))
                    if seq is not None and is_canonical(stem.replace(",", "")):
                        yield seq

    def _shares(self) -> Iterator[str]:
        for state in STATES:
            yield state
            for name in self._fs.listdir(state) if self._is_there(state) else ():
                if is_share(name):
                    yield f"{state}/{name}"

    def _highest(self) -> int:
        """Give the highest number of any record: that of the newest intent begun, if nothing else tells."""
        return max(self._numbers(), default=0)

    def _recover(
        self, following: Feed, end: feed.End | None, intents: list[Intent], found: Counters, *, lost: bool
    ) -> tuple[int, Timestamp, int]:
        """Bring files and feed to the state after the last intent; gives number, time and token."""
        applied, ts, token = found.seq, found.ts, found.token
        # Of a store that lost its feed the newest intent may be half applied; those before it are done.
        open_ones = [one for one in intents if one.last > applied or (lost and one.last == applied)]
        if len(open_ones) > 1 or (open_ones and not lost and open_ones[0].first > applied + 1):
            raise StoreDamaged(
                f"{self._root}/data/{INTENT}/{open_ones[-1].name}.json follows event {applied}, with a gap before "
                "it. Nothing was changed.",
                hint=f"Run `holdfast store repair dir:{self._root}`, or restore the store from a copy.",
                file=f"{self._root}/data/{INTENT}/{open_ones[-1].name}.json",
                reason="a gap in the numbers",
            )
        if lost and open_ones:
            # The events just before it left no record that tells their number.
            applied = max(applied, open_ones[0].first - 1)
        if end is not None and end.is_torn:
            self._cut(following, end, open_ones)
        # What a process that died wrote may be in the cache only: nothing may rest on it before it is durable.
        self._fs.sync_dir(INTENT)
        if end is not None:
            self._sync(feed.path_of(following.firsts[-1]))
        if not following.firsts or following.seq < applied:
            self._renew_feed(following, Counters(applied, ts, token))
        for one in open_ones:
            self._apply(one)
            lacking = [told for told in one.body.events if told.seq > following.seq]
            if lacking:
                following.append(lacking)
            applied, ts = one.last, max(ts, one.body.events[-1].ts)
            token = max([token, *(feed.token_of(told.event) for told in one.body.events)])
            self.report.applied += 1
        self.report.done += len(intents) - len(open_ones)
        for one in intents:
            self._fs.unlink(path_of(INTENT, one.name))
        if intents:
            self._fs.sync_dir(INTENT)
        return applied, ts, token

    def _cut(self, following: Feed, end: feed.End, open_ones: list[Intent]) -> None:
        """Cut what follows the last whole line, keeping its bytes beside; it must be in the open intent."""
        first = following.firsts[-1]
        if not any(one.first <= end.seq + 1 <= one.last for one in open_ones):
            raise following.damaged(first, end.seq + 1)
        path = feed.path_of(first)
        text = _whole(self._fs, path)
        writing.put(self._fs, FEED, f"{first:016}-{end.seq + 1:016}.torn", text[end.good :])
        handle = self._fs.open(path, "append")
        try:
            self._fs.truncate(handle, end.good)
            self._fs.sync(handle, metadata=True)
        finally:
            self._fs.close(handle)
        self.report.torn += 1
        log.warning("feed.cut", extra={"file": f"{self._root}/data/{path}", "bytes": end.size - end.good})

    def _renew_feed(self, following: Feed, counters: Counters) -> None:
        """Begin a file of the feed that goes on after the counters."""
        identity.write_counters(self._fs, counters)
        if counters.seq + 1 in following.firsts:  # begun, and nothing was written
            following.firsts.remove(counters.seq + 1)
            self._fs.unlink(feed.path_of(counters.seq + 1))
        following.begin(counters.seq + 1)

    def _apply(self, one: Intent) -> None:
        """Do what an intent says, where that is not done; make durable what is."""
        todo: list[Effect] = []
        for effect in one.body.effects:
            if isinstance(effect, Image) and self._has(effect):
                self._sync(path_of(effect.folder, effect.name))
                self._fs.sync_dir(effect.folder)
            else:
                todo.append(effect)
        writing.apply(self._fs, todo, lambda _image, _seen: None)
        # Images that were there already may share a directory with what has just gone: their names were synced above.

    def _has(self, image: Image) -> bool:
        """Tell whether the file of an image is there, in this state or a later one."""
        try:
            seq = kinds.number_in(fields_of(text_at(self._fs, image.folder, image.name)))
        except (FileNotFoundError, Unreadable, Irregular):
            return False
        return seq is not None and seq >= image.seq

    def _sync(self, path: str) -> None:
        handle = self._fs.open(path, "append")
        try:
            self._fs.sync(handle, metadata=True)
        finally:
            self._fs.close(handle)

    # --- records ------------------------------------------------------------------------------------------------------

    def _load_records(self) -> None:
        for kind, folder in kinds.FOLDERS.items():
            self.tables.load(kind, self._records(kind, folder))
        for folder in ("", "tasks", "queues", INTENT, FEED, QUARANTINE):
            self._sweep(folder, self._fs.listdir(folder) if not folder or self._is_there(folder) else [])

    def _records(self, kind: type[Record], folder: str) -> Iterator[Record]:
        names = self._fs.listdir(folder) if self._is_there(folder) else []
        self._sweep(folder, names)
        for name in names:
            stem = stem_of(name)
            if stem is None:
                continue
            try:
                yield kinds.read(kind, stem, text_at(self._fs, folder, stem)).record
            except Unreadable as problem:
                self._set_aside(folder, stem, str(problem))
            except Irregular:
                self._leave_alone(folder, name)
            except FileNotFoundError:
                if not self._readonly:
                    raise

    def _sweep(self, folder: str, names: list[str]) -> None:
        """Remove drafts: they are never state."""
        drafts = [name for name in names if name.startswith(DRAFT)]
        if self._readonly or not drafts:
            return
        for name in drafts:
            with suppress(IsADirectoryError, PermissionError, FileNotFoundError):
                self._fs.unlink(f"{folder}/{name}" if folder else name)
                self.report.drafts += 1

    def _set_aside(self, folder: str, stem: str, reason: str) -> None:
        if self._readonly:
            log.warning("record.unreadable", extra={"file": path_of(folder, stem), "reason": reason})
        else:
            self.quarantine.take(folder, stem, reason)

    def _leave_alone(self, folder: str, name: str) -> None:
        self.report.irregular += 1
        log.warning("record.irregular", extra={"file": f"{folder}/{name}", "store": self._root})

    def _load_authority(self, token: int) -> None:
        dispatch = None
        with suppress(FileNotFoundError, Unreadable, Irregular):
            dispatch = identity.dispatch_plan.read(fields_of(text_at(self._fs, "", identity.DISPATCH)))
        if token or dispatch is not None:
            said = dispatch or identity.Dispatch()
            self.tables.put(Authority, AUTHORITY, Authority(Token(token), said.paused, said.reason))

    def _highest_token(self) -> int:
        self.tables.read_all()
        return max((run.token or 0 for run in self.tables.all(Run)), default=0)

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def _load_jobs(self, applied: int) -> None:
        self.tables.opened_at = applied
        listed = self._listed()
        for name, folders in listed.items():
            if len(folders) == 1 and state_of(folders[0]) in ENDED and is_canonical(name):
                self.places.arrive(name, folders[0])
                self.tables.unread[name] = folders[0]
        live = {name: folders for name, folders in listed.items() if name not in self.tables.unread}
        files = [file for name, folders in live.items() if (file := self._settled(name, folders, applied)) is not None]
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
        for name in names:
            if is_share(name):
                found = self._fs.stat(f"{state}/{name}")
                if found is not None and found.kind == "dir":
                    yield f"{state}/{name}", self._fs.listdir(f"{state}/{name}")

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
            if not is_ours(text, name, applied):
                return self._stranger(folder, state, name)
            if state in ENDED:
                self.places.arrive(name, folder)
                return self._kept(ended_file(self._fs, folder, state, name, applied))
            return self._live(name, folder, state, jobfile.read(text, state))
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
        if state_of(folder) == PENDING:
            self._strays.append(Stray(folder, name))
        else:
            self._set_aside(folder, name, reason)

    def _without_losers(self, name: str, copies: list[tuple[str, bytes]], applied: int) -> list[tuple[str, bytes]]:
        """Keep the copy that counts: a completed one, else the newest, else the one furthest on its way."""

        def weight(copy: tuple[str, bytes]) -> tuple[bool, int, int]:
            state = state_of(copy[0])
            return state == kinds.COMPLETED, self._seq(copy[1], applied) or 0, STATES.index(state)

        numbered = all(self._seq(text, applied) is not None for _, text in copies)
        ranked = sorted(copies, key=weight if numbered else lambda copy: STATES.index(state_of(copy[0])), reverse=True)
        winner = ranked[0]
        for folder, text in ranked[1:]:
            theirs, ours = self._seq(text, applied), self._seq(winner[1], applied)
            self.report.copies += 1
            if self._readonly:
                continue
            if theirs is not None and ours is not None and theirs < ours:
                writing.drop(self._fs, folder, name)
            else:
                self.quarantine.take(folder, name, f"a second copy of the job in {winner[0]}")
        return [winner]

    def _seq(self, text: bytes, applied: int) -> int | None:
        try:
            seq = kinds.number_in(fields_of(text))
        except Unreadable:
            return None
        return None if seq is None or seq > applied else seq

    def _stranger(self, folder: str, state: str, name: str) -> JobFile | None:
        """Note a file of somebody else: it asks for a job, or it is history."""
        if state not in ENDED:
            self._strays.append(Stray(folder, name))
            return None
        file = ended_file(self._fs, folder, state, name, self.tables.opened_at)
        right = name_of(file.job.job_id)
        if right != name and not self._readonly:
            if self._fs.stat(path_of(state, right)) is not None:
                raise Unreadable(f"job {file.job.job_id} is there already")
            self._fixes += [
                writing.image_of(folder, right, 0, jobfile.write(file.job, file.runs, file.extra)),
                Drop(folder, name),
            ]
        self.places.arrive(right, folder)
        return self._kept(file)

    def _live(self, name: str, folder: str, state: str, file: JobFile) -> JobFile | None:
        """Take over a file of ours in `pending/` or `running/`, as what its directory says it is."""
        ended = file.state is not None and file.state not in (JobStatus.QUEUED, JobStatus.RUNNING)
        if ended and file.state is not None:
            # Moved here by hand: the job itself stays what it was.
            job = msgspec.structs.replace(file.job, status=file.state)
            self.places.arrive(name, folder)
            if state == PENDING:
                self._moved.append(job.job_id)
            else:
                self._return(name, folder, STATE_OF[file.state], file._replace(job=job))
            return self._kept(file._replace(job=job))
        if state == RUNNING and has_lease(file):
            self.places.arrive(name, folder)
            if file.state is not JobStatus.RUNNING:
                self._rewrite(name, folder, file)
            return self._kept(file)
        self.places.arrive(name, folder, signature(self._fs.stat(path_of(folder, name))))
        queued = as_queued(file)
        if state == RUNNING:
            log.warning("record.returned", extra={"file": path_of(folder, name), "to": PENDING})
            self._return(name, folder, PENDING, queued)
        elif queued.job != file.job or queued.runs != file.runs or file.state is not JobStatus.QUEUED:
            self._rewrite(name, folder, queued)
        elif (found := self._fs.stat(path_of(folder, name))) is not None and found.mtime_ns > self._settled_at:
            self._edited.append(queued)
        return self._kept(queued)

    def _kept(self, file: JobFile) -> JobFile:
        if file.extra != jobfile.EMPTY:
            self._extras[file.job.job_id] = file.extra
        return file

    def _rewrite(self, name: str, folder: str, file: JobFile) -> None:
        text = jobfile.write(file.job, file.runs, file.extra)
        self._fixes.append(writing.image_of(folder, name, file.job.seq, text))

    def _return(self, name: str, folder: str, state: str, file: JobFile) -> None:
        target = self.places.target(name, file.job.job_id, state)
        text = jobfile.write(file.job, file.runs, file.extra)
        self._fixes += [writing.image_of(target, name, file.job.seq, text), Drop(folder, name)]
        if not self._readonly:
            self.places.arrive(name, target)

    def _fix(self) -> None:
        """Write what has to be written; targets first, then what goes."""
        self.report.rewritten += sum(isinstance(effect, Image) for effect in self._fixes)
        writing.apply(self._fs, self._fixes, self._noted)
        self._fixes = []

    def _noted(self, image: Image, seen: tuple[int, int, int] | None) -> None:
        if intent.is_state(image.folder):
            self.places.arrive(image.name, image.folder, seen)

    def _mend_keys(self) -> None:
        """Let go of keys whose job is not there, or not live, any more; take those again that live jobs hold."""
        self._fixes += mended_keys(self.tables)

    def _missing(self, counters: Counters | None, applied: int) -> list[str]:
        """Give the jobs that waited when the store was closed in order, and whose files are gone from `pending/`."""
        if counters is None or counters.pending is None or counters.seq != applied or self._readonly:
            return []
        live, strays = self.tables.records[Job], {stray.name for stray in self._strays}
        return [job_id for job_id in counters.pending if job_id not in live and name_of(job_id) not in strays]


def _whole(fs: FS, path: str) -> bytes:
    """Read a file of whatever size."""
    found = fs.stat(path)
    if found is None:
        raise FileNotFoundError(2, "no such file", path)
    handle = fs.open(path, "read")
    try:
        text = b""
        while len(text) < found.size and (piece := fs.read(handle, found.size - len(text), len(text))):
            text += piece
        return text
    finally:
        fs.close(handle)
