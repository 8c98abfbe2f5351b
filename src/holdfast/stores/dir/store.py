"""`dir:` — one JSON file a record, readable with `ls` and an editor. One process; one intent file per batch.

Order of a commit: decide and fold under the lock → put the intent (this is the commit) → bring the files to what it
says → append to the feed (this marks it as applied) → publish → drop the intent. A failure before the intent has its
name leaves nothing; after it, the store takes no more writes, and reopening finishes the commit.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from holdfast.clock import Clock, SystemClock
from holdfast.errors import RecordTooLarge, StoreClosed, StoreError, StoreFailed, StoreFull, StoreReadOnly
from holdfast.failpoints import reach
from holdfast.journal import JournalOptions
from holdfast.journal.filesystem import FS, Lock, OsFS, filesystem_kind, is_network, process_id, write_all
from holdfast.journal.fs_errors import telling, told
from holdfast.journal.opening import take_lock
from holdfast.journal.stats import Counters as LogCounters
from holdfast.journal.stats import JournalStats, report
from holdfast.model.events import Event, JobCreated, encode_event
from holdfast.model.ids import JobId, Token
from holdfast.model.jobs import Job, JobStatus, Run
from holdfast.model.records import AUTHORITY, Authority, Key, Record
from holdfast.model.times import Timestamp, stamp
from holdfast.model.workflows.instances import Turn
from holdfast.rules.invariants import RUNS_KEPT
from holdfast.stores.dir import intent, store_files
from holdfast.stores.dir.feed import ROTATE
from holdfast.stores.dir.format import atomic_write, job_file, trash
from holdfast.stores.dir.format.atomic_write import path_of
from holdfast.stores.dir.format.file_names import name_of
from holdfast.stores.dir.format.histories import Histories
from holdfast.stores.dir.format.job_file import JobFile
from holdfast.stores.dir.format.record_files import INTENT
from holdfast.stores.dir.format.record_text import MAX_FILE, Signature, signature
from holdfast.stores.dir.format.subdirectory_fs import Below
from holdfast.stores.dir.integrity.check import findings
from holdfast.stores.dir.intent import Drop, Effect, Image, Told, Trash
from holdfast.stores.dir.job_effects import plan_of
from holdfast.stores.dir.load.ended_jobs import read_ended
from holdfast.stores.dir.load.unfinished import as_finished
from holdfast.stores.dir.manual_edits import Wishes
from holdfast.stores.dir.opening import UNOPENED, demand_private, foreign_jobs, load, prepare, refuse_missing, was_store
from holdfast.stores.dir.store_files import Counters, Identity
from holdfast.stores.dir.tables import DirTables
from holdfast.stores.dir.workflow_effects import BatchPlan
from holdfast.stores.memory.tables import Tables
from holdfast.stores.protocol import Adopted, Durability, Entry, Finding, Promises, Wish
from holdfast.stores.sidecar.blob_files import FileBlobs
from holdfast.stores.sidecar.log_files import FileLogs
from holdfast.stores.sidecar.sessions import LockedSessions
from holdfast.stores.sidecar.worker_files import FileRoster

log = logging.getLogger("holdfast.stores.dir")

#: Bytes an encoded event may have.
MAX_EVENT: Final = 15 << 20
#: Bytes of a job's file that its payloads may fill; the rest is for names and blanks.
MAX_PAYLOADS: Final = MAX_FILE - (MAX_FILE >> 3)
#: Jobs that wait or run, and files of jobs in all, up to which this store is meant to be used.
MOST_LIVE: Final = 10_000
MOST_FILES: Final = 100_000


#: What to do after an error at which the store stopped.
REOPEN: Final = (
    "The store takes no more writes. See to the disk, reopen the store, then send the same command again: it gives the "
    "first outcome."
)


class DirStore:
    """A store in one directory, held by one process."""

    promises = Promises(name="dir", durability=Durability.SYNC, many_processes=False, reopens=True)

    def __init__(self, fs: FS, path: str, clock: Clock, *, lock: Lock | None, fresh: bool = False) -> None:
        """Take over a directory, locked unless it is only to be read; use `open`."""
        readonly = lock is None
        self._path = path
        self._fs = as_finished(fs, path) if readonly else Below(fs, "data")
        #: Its directory as it was opened, and how it is found by its name.
        self._root = fs.stat("")
        self._look_up = partial(fs.stat, "")
        self._clock = clock
        self._readonly = readonly
        self._file_lock = lock
        #: What goes with the store: the lock, and the files if they were opened for it.
        self._owned = ExitStack()
        #: What the lock says of this process.
        self._holder: dict[str, object] = {}
        self._pid = process_id()
        self._lock = threading.RLock()
        self._added = threading.Condition(self._lock)
        self._failure: StoreError | None = None
        self._closed = False
        #: Further effects that go with the next change of a job.
        self._errands: dict[str, list[Effect]] = {}
        self._tables = DirTables(self._read_ended, self._is_touched, Histories(self._fs, path))
        identity = store_files.read_identity(fs, path)
        self._tables.made_at = stamp(clock.now()) if identity is None else Timestamp(identity.created_at)
        #: What lay here when this became a store, and when that was; None if nothing did, or it is no store yet.
        self.adopted = None if identity is None else _adopted(identity)
        if identity is None and not was_store(self._fs) and (foreign := foreign_jobs(self._fs)) is not None:
            log.warning("dir.not_adopted", extra={"file": path, **msgspec.structs.asdict(foreign), "next": UNOPENED})
        began = clock.monotonic()
        opened = load(self._fs, path, clock, self._tables, readonly=readonly, fresh=fresh)
        self._opened = opened
        #: Of intents and the feed, which are this store's log.
        self._counted = LogCounters(replay_seconds=clock.monotonic() - began, replay_records=opened.feed.held)
        if opened.uncounted:
            self._count_tokens()
        self.report = opened.report
        self._places, self._feed, self._quarantine = opened.places, opened.feed, opened.quarantine
        self._extras = opened.extras
        self._wishes = Wishes(self._fs, opened, self._errands, clock)
        self._last = self._tables.seq
        self._kept_counters: Counters | None = store_files.read_counters(self._fs)
        root = f"{path}/data"
        self.blobs = FileBlobs(self._fs, root, clock, self._each_unnamed, readonly=readonly)
        self.logs = FileLogs(self._fs, root, readonly=readonly)
        soft = f"{path}/SESSIONS", f"{path}/WAITING"
        self.sessions = LockedSessions(*soft, readonly=readonly or not isinstance(fs, OsFS))
        self.workers = FileRoster(self._fs, root, clock, self.sessions, readonly=readonly)

    @property
    def path(self) -> str:
        """Where it lies."""
        return self._path

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        fs: FS | None = None,
        clock: Clock | None = None,
        network: bool = False,
        readonly: bool = False,
    ) -> DirStore:
        """Open or create the store at `path`: take its lock, finish what a crash left, read what lives.

        Raises StoreLocked if another process has it, StoreDamaged if acknowledged data cannot be read.
        """
        root, clock = str(path), clock or SystemClock()
        with telling(root, "opening"), ExitStack() as owned:
            if fs is None:
                fs = owned.enter_context(_files(root, network=network, create=not readonly))
            if readonly:
                refuse_missing(fs, root)
                store = cls(fs, root, clock, lock=None)
                store._owned = owned.pop_all()
                return store
            lock, holder = take_lock(fs, JournalOptions(), clock, root)
            owned.callback(lock.release)
            fresh = prepare(fs, Below(fs, "data"), root, clock)
            store = cls(fs, root, clock, lock=lock, fresh=fresh)
            store._holder = holder
            store._owned = owned.pop_all()
        log.info("dir.opened", extra={"file": root, **vars(store.report)})
        store._warn_if_crowded()
        return store

    def announce(self, url: str) -> None:
        """Note where this process is to be asked."""
        if self._file_lock is not None:
            self._holder["url"] = url
            self._file_lock.rewrite(msgspec.json.encode(self._holder))

    def _warn_if_crowded(self) -> None:
        """Say when there is more than this store is meant for: it works, another one works better."""
        live, files = len(self._tables.records[Job]), len(self._places.folders)
        if live > MOST_LIVE or files > MOST_FILES:
            log.warning(
                "dir.crowded",
                extra={"file": self._path, "live": live, "files": files, "better": "a sqlite: store"},
            )

    def _count_tokens(self) -> None:
        """Find the highest token in the runs of all jobs and in all turns, since nothing else tells it."""
        authority = self._tables.get(Authority, AUTHORITY) or Authority()
        granted = (*(run.token for run in self._tables.all(Run)), *(turn.token for turn in self._tables.all(Turn)))
        highest = max((token or 0 for token in granted), default=0)
        if highest > authority.last_token:
            self._tables.put(Authority, AUTHORITY, msgspec.structs.replace(authority, last_token=Token(highest)))

    # --- writing ------------------------------------------------------------------------------------------------------

    @contextmanager
    def write(self) -> Iterator[DirTables]:
        """Open a batch; left normally, it is durable."""
        self._demand_own()
        with self._lock:
            self._demand_writable()
            events: list[Told] = []

            def keep(added: Sequence[Event], first: int, ts: Timestamp) -> None:
                told_of = [Told(seq, ts, _encoded(event)) for seq, event in enumerate(added, start=first)]
                for event in added:
                    self._demand_fits(event)
                events.extend(told_of)

            self._tables.begin(keep)
            try:
                yield self._tables
            except BaseException:
                self._tables.undo()
                raise
            if events:
                self._commit(events)

    def _commit(self, events: list[Told]) -> None:
        """Make a batch durable, or take it back."""
        begun = False
        try:
            with telling(self._path, "committing"):
                self._rotate()
                plan = plan_of(self._tables, self._places, self._extras, self._errands)
                intended = intent.intent_of(events, plan.effects)
                began, had = self._clock.monotonic(), self._feed.size
                draft, size = self._draft(intended)
                begun = True
                self._fs.rename(draft, path_of(INTENT, intended.name))
                reach("dir.renamed")
                # With this the commit is made.
                self._fs.sync_dir(INTENT)
                self._see_that_it_is_ours()
                took_s = self._clock.monotonic() - began
                reach("dir.intended")
                atomic_write.apply(self._fs, plan.effects, self._noted)
                reach("dir.applied")
                self._feed.append(events)
                reach("dir.told")
        except StoreFull as error:
            self._counted.flush_errors_total += 1
            self._tables.undo()
            if begun:
                # The next opening finishes this commit: whoever waits must not hear that nothing happened.
                self._failure = StoreFailed(
                    f"{error.message} The commit is not finished.",
                    hint="Free some space and reopen the store, then send the same command again: it gives the first "
                    "outcome.",
                )
                raise self._failure from error
            # Before the intent has its name nothing has happened, and what failed was thrown away.
            if error.facts.get("synced"):
                self._stop_at(error)
            raise
        except BaseException as error:
            self._counted.flush_errors_total += 1
            self._tables.undo()
            self._stop_at(error if isinstance(error, StoreError) else StoreFailed(f"{self._path}: interrupted."))
            raise
        # It is durable, whatever comes from here on.
        self._counted.batch(len(events), size + self._feed.size - had, took_s)
        self._last = self._tables.seq
        self._publish(plan)
        self._added.notify_all()
        # If its removal does not reach the disk, the next opening removes it: the feed has its events.
        with suppress(OSError):
            self._fs.unlink(path_of(INTENT, intended.name))
        self._tidy(plan)
        reach("dir.committed")

    def _stop_at(self, error: StoreError) -> None:
        """Take no more writes after an error, and say so: sending again helps only once the store was reopened."""
        error.hint = REOPEN
        self._failure = error

    def _see_that_it_is_ours(self) -> None:
        """Notice a directory that was moved or replaced beneath us: who opens the store next would find another one."""
        found, root = self._look_up(), self._root
        if root is not None and (found is None or (found.inode, found.device) != (root.inode, root.device)):
            raise StoreFailed(
                f"{self._path} was moved or replaced while it was open. What was in flight is not acknowledged; "
                "reopening shows whether it is there."
            )

    def _tidy(self, plan: BatchPlan) -> None:
        """Remove what nothing counts any more: the next opening does it, where this does not."""
        if any(isinstance(effect, Trash) for effect in plan.effects):
            with suppress(OSError):
                trash.sweep(self._fs)
        for folder in plan.hollow:
            with suppress(OSError):
                self._fs.rmdir(folder)

    def _draft(self, intended: intent.Intent) -> tuple[str, int]:
        """Write the intent under a name that counts for nothing; give that and its bytes. Raises StoreFull."""
        draft, text = atomic_write.draft_of(INTENT, intended.name), intent.written(intended)
        syncing = False
        try:
            with suppress(FileNotFoundError):
                self._fs.unlink(draft)
            handle = self._fs.open(draft, "create")
            try:
                write_all(self._fs, handle, text)
                syncing = True
                self._fs.sync(handle, metadata=True)
            finally:
                self._fs.close(handle)
        except OSError as error:
            with suppress(OSError):
                self._fs.unlink(draft)
            failure = told(self._path, "writing the intent", error)
            if isinstance(failure, StoreFull):
                failure.facts["synced"] = syncing
                raise failure from error
            raise
        return draft, len(text)

    def _rotate(self) -> None:
        """Begin the next file of the feed, if this one is full and no intent is open."""
        if self._feed.size >= ROTATE:
            self._begin_feed(self._tables.changed())

    def _begin_feed(self, batch: Mapping[tuple[type[Record], Key], Record | None] | None = None) -> None:
        """Begin the next file of the feed. The counters first: they must not be known by an older file alone."""
        self._keep_counters(batch)
        self._feed.begin(self._last + 1)

    def _noted(self, image: Image, seen: Signature | None) -> None:
        if intent.is_state(image.folder):
            self._places.arrive(image.name, image.folder, seen)

    def _publish(self, plan: BatchPlan) -> None:
        """Bring what is only in memory to what the files say."""
        kept = self._tables.histories.kept
        for history_id, now in plan.kept.items():
            if now is None:
                kept.pop(history_id, None)
            else:
                kept[history_id] = now
        for effect in plan.effects:
            if isinstance(effect, Drop) and self._places.folders.get(effect.name) == effect.folder:
                self._places.leave(effect.name)
        for kind, key in self._tables.changed():
            if kind is Run and (run := self._tables.records[Run].get(key)) is not None:
                self._forget_runs(run.job_id)
            elif kind is Job and key not in self._tables.records[Job]:
                self._extras.pop(key, None)
        self._tables.let_go()

    def _forget_runs(self, job_id: JobId) -> None:
        """Forget the runs that a job's file does not keep."""
        job = self._tables.records[Job].get(job_id)
        if job is None:
            return
        runs, kept = self._tables.runs(job_id), job_file.kept_runs(self._tables, job, self._tables.ts)
        for run in runs[: len(runs) - len(kept)]:
            self._tables.put(Run, run.run_id, None)

    def _demand_fits(self, event: Event) -> None:
        """Refuse what would make a job's file too large to be read again."""
        job_id = event.job.job_id if isinstance(event, JobCreated) else getattr(event, "job_id", None)
        job = None if job_id is None else self._tables.records[Job].get(job_id)
        if job is None or job_id is None:
            return
        size = memoryview(job.params).nbytes + memoryview(job.result).nbytes
        for run in self._tables.runs(job_id)[-(RUNS_KEPT + 1) :]:
            size += sum(memoryview(part).nbytes for part in (run.details, run.artifacts, run.progress))
            size += len(run.error or "")
        if size > MAX_PAYLOADS:
            raise RecordTooLarge(
                f"job {job_id}: {size:,} bytes with its runs do not fit a file of {MAX_FILE:,}. Nothing was stored.",
                hint="Keep large content in a file of your own and pass its name, or use sqlite:.",
                job_id=job_id,
            )

    # --- reading ------------------------------------------------------------------------------------------------------

    @contextmanager
    def read(self) -> Iterator[Tables]:
        """Open a view of what is durable; writers wait while it is open."""
        self._demand_own()
        with self._lock:
            self._demand_open()
            yield self._tables

    def _read_ended(self, name: str, folder: str) -> JobFile | None:
        return read_ended(self._fs, self._path, self._opened, name, folder, readonly=self._readonly)

    def _is_touched(self, job: Job) -> bool:
        """Tell whether somebody changed or took away the file of a job that waits."""
        name = name_of(job.job_id)
        seen = self._places.seen.get(name)
        if seen is None:
            return False
        if job.job_id in self._wishes.edited:
            return True
        with suppress(OSError):
            if signature(self._fs.stat(path_of(self._places.folders[name], name))) != seen:
                self._wishes.suspects.add(job.job_id)
                return True
        return False

    def feed(self, after: int) -> Iterator[Entry]:
        """Walk the events above `after`, as far back as the feed reaches."""
        self._demand_own()
        with self._lock:
            self._demand_open()
            return self._feed.entries(after, self._last)

    def journal_stats(self) -> JournalStats:
        """Give the figures of intents and feed, which are the log here; there are no snapshots of it."""
        self._demand_own()
        with self._lock:
            state = "failed" if self._failure is not None else "closed" if self._closed else "open"
            return report(
                self._counted,
                log_bytes=self._feed.all_bytes(),
                segments=len(self._feed.firsts),
                first_seq=self._feed.firsts[0] if self._feed.firsts else self._last + 1,
                appended_seq=self._last,
                durable_seq=self._last,
                state=state,
            )

    @property
    def feed_begins(self) -> int:
        """The number after which the feed begins; what happened before it tells no more."""
        return self._feed.firsts[0] - 1 if self._feed.firsts else self._last

    def wait(self, after: int, timeout: float | None) -> bool:
        """Wait for an event above `after`."""
        self._demand_own()
        with self._lock:
            return self._added.wait_for(lambda: self._closed or self._last > after, timeout)

    # --- what people do to the files ----------------------------------------------------------------------------------

    def wishes(self, new_id: Callable[[], str]) -> Sequence[Wish]:
        """Look for what people did to the files since the last look, or go on with a look that found much."""
        self._demand_own()
        with self._lock, self._failing("looking at the files"):
            self._demand_writable()
            return self._wishes.some(new_id)

    @property
    def has_more(self) -> bool:
        """Whether the look under way has not seen to all it found."""
        with self._lock:
            return self._wishes.has_more

    def granted(self, wish: Wish) -> None:
        """Tidy up after a wish that was fulfilled."""
        with self._lock, self._failing("tidying up"):
            self._demand_writable()
            self._wishes.granted(wish)

    def refused(self, wish: Wish, reason: str) -> None:
        """Set aside or put back what a wish that was refused left lying."""
        with self._lock, self._failing("setting a file aside"):
            self._demand_writable()
            self._wishes.refused(wish, reason)

    def set_aside(self) -> int:
        """Count the files in quarantine."""
        with self._lock, telling(self._path, "looking at the quarantine"):
            self._demand_open()
            return len(self._quarantine.all())

    @contextmanager
    def _failing(self, doing: str) -> Iterator[None]:
        """Stop the store if a write fails: what the files are then, only reopening tells."""
        try:
            with telling(self._path, doing):
                yield
        except StoreClosed:
            raise
        except StoreError as error:
            if self._failure is None:
                self._stop_at(error)
            raise

    # --- looking after files ------------------------------------------------------------------------------------------

    def trim(self, before: Timestamp, limit: int, *, upto: int = 0) -> int:
        """Forget the oldest file of the feed, if all in it is older; whole files only, never the newest."""
        del limit
        with self._lock, telling(self._path, "shortening the feed"):
            self._demand_writable()
            return self._feed.trim(before, upto)

    def check(self) -> list[Finding]:
        """Read every file and compare it with what is known; list what is wrong."""
        self._demand_own()
        with self._lock, telling(self._path, "checking"):
            self._demand_open()
            return findings(self._fs, self._path, self._opened, self._last, self.blobs, compare=not self._readonly)

    def snapshot(self) -> None:
        """Write the counters, and begin a new file of the feed, so that the old ones can go."""
        with self._lock, telling(self._path, "writing the counters"):
            self._demand_writable()
            if self._feed.size:
                self._begin_feed()

    def _keep_counters(self, batch: Mapping[tuple[type[Record], Key], Record | None] | None = None) -> None:
        """Write how far the store has counted, and which jobs live: what happens to their files is then noticed.

        `batch` is what a batch that is not durable yet has changed, as it was before.
        """
        authority = self._tables.records[Authority].get(AUTHORITY) or Authority()
        live = self._live_jobs(batch or {})
        counters = Counters(
            self._last,
            self._tables.ts,
            authority.last_token,
            # What was done to files before this opening and nobody decided must be found by the next one, too.
            pending=tuple(sorted({*live[JobStatus.QUEUED], *self._wishes.missing})),
            running=tuple(sorted(live[JobStatus.RUNNING])),
            edited=tuple(self._wishes.edited),
        )
        if counters != self._kept_counters:
            store_files.write_counters(self._fs, counters)
            self._kept_counters = counters

    def _live_jobs(self, batch: Mapping[tuple[type[Record], Key], Record | None]) -> dict[JobStatus, list[str]]:
        """Give the jobs that wait and those that run, as they were before a batch."""
        before = {key: record for (kind, key), record in batch.items() if kind is Job}
        live: dict[JobStatus, list[str]] = {JobStatus.QUEUED: [], JobStatus.RUNNING: []}
        for job_id, now in self._tables.records[Job].items():
            job = before.get(job_id, now)
            if isinstance(job, Job) and job.status in live:
                live[job.status].append(job_id)
        return live

    def close(self) -> None:
        """Write the counters, let go of the lock and of waiters."""
        if process_id() != self._pid:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._added.notify_all()
            try:
                if self._failure is None and not self._readonly:
                    # They only make the next opening know more: what was acknowledged is in the files.
                    with suppress(OSError):
                        self._keep_counters()
            finally:
                self.sessions.close()
                with suppress(OSError):
                    self._feed.close()
                self._owned.close()

    def _each_unnamed(self, digests: Collection[str], action: Callable[[str], None]) -> None:
        """Do something with each blob that no record names, while nobody can begin to name it."""
        with self._lock:
            for digest in digests:
                if not self._tables.names(digest):
                    action(digest)

    def _demand_own(self) -> None:
        if process_id() != self._pid:
            raise StoreClosed(
                f"the store dir:{self._path} was opened before the process forked and belongs to the parent.",
                hint="Open it again in the child, once the parent has closed it.",
            )

    def _demand_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"the store dir:{self._path} was closed.")

    def _demand_writable(self) -> None:
        self._demand_open()
        if self._readonly:
            raise StoreReadOnly(f"{self._path} was opened for reading; nothing was stored.")
        if self._failure is not None:
            raise StoreFailed(f"{self._path} takes no more writes: {self._failure.message}") from self._failure


def _adopted(identity: Identity) -> Adopted | None:
    found = identity.adopted
    if found is None:
        return None
    return Adopted(Timestamp(identity.created_at), found.pending + found.running, found.completed, found.failed)


def _encoded(event: Event) -> msgspec.Raw:
    raw = encode_event(event)
    if len(raw) > MAX_EVENT:
        raise RecordTooLarge(f"an event of {len(raw):,} bytes does not fit the feed. Nothing was stored.")
    return msgspec.Raw(raw)


def _files(root: str, *, network: bool, create: bool) -> OsFS:
    kind = filesystem_kind(root)
    if not network and is_network(kind):
        raise StoreFailed(
            f"{root} lies on {kind}, a network file system, where locks and syncs promise less. Nothing was opened.",
            hint="Use a local disk, or add ?network=allow to the URL if you accept that.",
            kind=kind,
        )
    try:
        fs = OsFS(root, create=create)
    except NotADirectoryError:
        raise StoreFailed(
            f"{root}: is no directory. Nothing was opened.", hint="Give the path of a directory.", file=root
        ) from None
    try:
        demand_private(root)
    except BaseException:
        fs.close_dirs()
        raise
    return fs
