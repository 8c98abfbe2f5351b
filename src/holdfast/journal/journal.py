"""The journal's face. Thin: each promise is kept in the module named after it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self

import msgspec

from holdfast.clock import Clock, SystemClock
from holdfast.errors import NotFound, StoreClosed, StoreFailed, StoreReadOnly
from holdfast.journal import layout, snapshots
from holdfast.journal.checkpoints import Checkpoint, Checkpoints, Copy
from holdfast.journal.filesystem import FS, OsFS, after_fork_in_child, filesystem_kind, is_network
from holdfast.journal.filesystem import Lock as FileLock
from holdfast.journal.fs_errors import telling
from holdfast.journal.group_commit import GroupCommit
from holdfast.journal.inspection import Survey, damaged, survey
from holdfast.journal.log_tail import Tail
from holdfast.journal.open_dirs import ClosedDirs
from holdfast.journal.opening import open_log, take_lock
from holdfast.journal.options import JournalOptions
from holdfast.journal.reader import Reader
from holdfast.journal.records import Record, encode_events, stamp
from holdfast.journal.repair import Plan, Problem, check, plan
from holdfast.journal.segments import Mark, Segments
from holdfast.journal.snapshots import BadSnapshot, Header
from holdfast.journal.stats import Counters, JournalStats, report
from holdfast.journal.tickets import Ticket

_CLOSED = b'{"type":"journal:closed"}'


@dataclass(frozen=True, slots=True)
class Loaded:
    """The state to begin with: what the newest usable snapshot says, or nothing."""

    #: The last record the state includes; reading goes on after it. 0 without a snapshot.
    seq: int
    header: Header | None
    #: Table and record, as JSON, in the order they were written; to be consumed once.
    records: Iterator[tuple[str, bytes]]


class Journal:
    """A log of events with snapshots. Safe to share between threads; made by `open` only."""

    def __init__(
        self,
        root: str,
        fs: FS,
        *,
        clock: Clock,
        options: JournalOptions,
        found: Survey,
        lock: FileLock | None = None,
    ) -> None:
        """Take over what opening found; without a lock, only for reading."""
        self._root = root
        self._fs = fs
        self._clock = clock
        self._options = options
        self._found = found
        self._lock = lock
        #: What goes with the journal: the lock, and the files if they were opened for it.
        self._owned = ExitStack()
        self._segments = Segments(found.segments)
        self._ending = Lock()
        self._closed = False
        #: Bytes of each segment when the journal was closed.
        self._sizes: list[int] = []
        #: Nothing has to be said at closing while the log still ends with the last closing.
        self._opened_at = found.end.seq - 1 if found.closed else -1
        self._tail: Tail | None = None
        self._commit: GroupCommit | None = None
        self._checkpoints: Checkpoints | None = None
        self._counters = Counters(replay_records=found.scanned)
        self._holder: dict[str, object] = {}
        #: The last time that was written, as given and as text; the events of one batch mostly share it.
        now = clock.now()
        self._stamped = (now, stamp(now))
        if lock is not None:
            self._tail = Tail(
                fs, self._segments, found.end, segment_bytes=options.segment_bytes, monotonic=clock.monotonic
            )
            self._counters = self._tail.counters
            self._counters.replay_records = found.scanned
            self._commit = GroupCommit(self._tail, clock, options, found.last_ts)
            newest = found.snapshot.seq if found.snapshot else 0
            self._checkpoints = Checkpoints(
                root,
                fs,
                identity=found.identity,
                commit=self._commit,
                log_segments=self._segments,
                clock=clock,
                options=options,
                counters=self._counters,
                newest=newest,
                log_bytes=found.scanned_bytes,
            )
            _open_journals.add(self)
        self._reader = Reader(root, fs, self._segments, end=self._end, unended=found.unended, options=options)

    # --- opening and closing ------------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        fs: FS | None = None,
        clock: Clock | None = None,
        options: JournalOptions | None = None,
        readonly: bool = False,
    ) -> Self:
        """Open the journal at `path`, or make it; recover what a crash left.

        With `readonly` no lock is taken and nothing is changed: it reads up to the last complete valid group. With
        `fs`, `path` is used in messages only.

        Raises StoreLocked, StoreReadOnly, StoreFull, StoreFailed, JournalDamaged, SnapshotDamaged, LogMissing, TooNew,
        NoPath, MigrationFailed; and NotFound if there is nothing to read.
        """
        root, options, clock = str(path), options or JournalOptions(), clock or SystemClock()
        with telling(root, "opening"), ExitStack() as owned:
            if fs is None:
                fs = owned.enter_context(_files(root, options, create=not readonly))
            if readonly:
                journal = cls(root, fs, clock=clock, options=options, found=_look(fs, options, root))
            else:
                began = clock.monotonic()
                lock, holder = take_lock(fs, options, clock, root)
                owned.callback(lock.release)
                found = open_log(fs, options, clock, root)
                journal = cls(root, fs, clock=clock, options=options, found=found, lock=lock)
                journal._holder = holder
                journal._counters.replay_seconds = clock.monotonic() - began
            journal._owned = owned.pop_all()
            return journal

    def close(self) -> None:
        """Flush, note the closing, sync, release the lock. Once is enough; more does no harm."""
        with self._ending:
            if self._closed:
                return
            self._closed = True
            try:
                if self._commit is not None and self._commit.state in {"open", "full"}:
                    self._say_goodbye(self._commit)
            finally:
                if self._commit is not None and self._tail is not None:
                    self._commit.stop()
                    with suppress(OSError):  # everything acknowledged was synced; closing adds nothing to it
                        self._tail.close()
                with suppress(OSError):  # for the figures alone
                    self._sizes = self._segment_sizes()
                self._owned.close()

    def _say_goodbye(self, commit: GroupCommit) -> None:
        if self._checkpoints is not None:
            self._checkpoints.finish()
        commit.wait(commit.appended)
        if commit.appended != self._opened_at:
            ticket = commit.append([_CLOSED], stamp(self._clock.now()), 1, last=True)
            commit.wait(ticket.last_seq)

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def note_url(self, url: str) -> None:
        """Write into the lock where this process can be reached, for whoever finds it taken."""
        if self._lock is not None:
            self._holder["url"] = url
            self._lock.rewrite(msgspec.json.encode(self._holder))

    # --- writing ------------------------------------------------------------------------------------------------------

    def append(self, events: Iterable[object], *, ts: datetime, v: int = 1) -> Ticket:
        """Append one atomic group: structs, mappings, or JSON objects as bytes. It is buffered, not durable yet.

        Raises InvalidValue or RecordTooLarge before anything is buffered; StoreFull, StoreFailed, StoreClosed,
        StoreReadOnly if the journal takes nothing.

        >>> ticket = journal.append([{"type": "x:hello"}], ts=now)  # doctest: +SKIP
        >>> ticket.wait()  # doctest: +SKIP
        """
        commit = self._commit or self._writable()
        known = self._stamped
        if known[0] is not ts:
            self._stamped = known = (ts, stamp(ts))
        return commit.append(encode_events(events), known[1], v)

    def flush(self) -> int:
        """Make all that was appended so far durable; gives the last durable number."""
        commit = self._writable()
        commit.wait(commit.appended)
        return commit.durable

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def checkpoint(self, copy: Callable[[], Copy], *, wait: bool = False) -> Checkpoint:
        """Make a snapshot of what `copy()`, called here and now, returns; then let the log get shorter.

        The rest runs in the background; with `wait` this returns when it is done, or raises what stopped it. While one
        runs, another call gets its handle and takes no copy.
        """
        return self._keeper().start(copy, wait=wait)

    def is_checkpoint_due(self, *, closing: bool = False) -> bool:
        """Tell whether enough was appended since the last snapshot to make another, or to make one before closing."""
        return self._keeper().is_due(closing=closing)

    def truncate_before(self, seq: int) -> int:
        """Drop records below `seq`, as far as whole files allow it; gives the bytes freed.

        Raises WouldLoseData for records that two verified snapshots do not cover; nothing is dropped then.
        """
        with telling(self._root, "compaction"):
            return self._keeper().truncate_before(seq)

    def _keeper(self) -> Checkpoints:
        self._writable()
        assert self._checkpoints is not None, "whoever may write has one"
        return self._checkpoints

    # --- reading ------------------------------------------------------------------------------------------------------

    @property
    def fs(self) -> FS:
        """The files below the root, for what a store keeps beside its log."""
        return self._fs

    @property
    def lacking(self) -> tuple[str, str]:
        """While it is full: what the last write lacked, and what to do."""
        return ("", "") if self._commit is None else self._commit.lacking

    @property
    def id(self) -> str:
        """32 hex digits that name this journal."""
        return self._found.identity.id

    @property
    def found(self) -> Survey:
        """What was on the disk when the journal was opened."""
        return self._found

    @property
    def first_seq(self) -> int:
        """The oldest record still in the log."""
        return self._segments.all[0].first

    @property
    def durable_seq(self) -> int:
        """The last record that is durable; 0 if there is none."""
        return self._commit.durable if self._commit is not None else self._found.end.seq - 1

    @property
    def last_ts(self) -> str:
        """The time of the last record found when the journal was opened, 27 characters; empty if there is none."""
        return self._found.last_ts.decode()

    def load(self) -> Loaded:
        """Give the newest usable snapshot, as it was found when the journal was opened."""
        self._check_open()
        header = self._found.snapshot
        if header is None:
            return Loaded(0, None, iter(()))
        if self._found.migrated is not None:
            return Loaded(header.seq, header, _document_records(self._found.migrated))
        return Loaded(header.seq, header, self._snapshot_records(header.seq))

    def _snapshot_records(self, seq: int) -> Iterator[tuple[str, bytes]]:
        with telling(self._root, "reading"):
            try:
                for table, rows in snapshots.read(self._fs, seq)[1]:
                    for row in rows:
                        yield table, row
            except BadSnapshot as error:
                raise damaged(
                    self._root, snapshots.path_of(seq), f"it changed since it was verified: {error}"
                ) from error

    def read(self, after: int = 0) -> Iterator[Record]:
        """Yield the durable records with a number above `after`, verified, up to the end as it is now.

        Raises LogMissing if they were compacted away (see `first_seq`), JournalDamaged at a line that is not right.
        """
        self._check_open()
        return self._reader.records(after + 1, self.durable_seq)

    # --- looking after it ---------------------------------------------------------------------------------------------

    def verify(self) -> list[Problem]:
        """Read everything up to the durable end and list what is wrong; changes nothing."""
        self._check_open()
        with nullcontext() if self._checkpoints is None else self._checkpoints.keeping_all():
            return check(self._fs, self._root, self._options, self._end())

    @staticmethod
    def check(path: str | Path, *, fs: FS | None = None, options: JournalOptions | None = None) -> list[Problem]:
        """List everything that is wrong with the journal at `path`; takes no lock and changes nothing.

        Raises NotFound if there is none.
        """
        options = options or JournalOptions()
        if fs is not None:
            return check(fs, str(path), options)
        with _files(str(path), options, create=False) as files:
            return check(files, str(path), options)

    @staticmethod
    def plan_repair(
        path: str | Path,
        *,
        fs: FS | None = None,
        options: JournalOptions | None = None,
        accept_snapshot: bool = False,
    ) -> Plan:
        """Find out what a repair would keep and lose; `apply()` on the result does it.

        With `accept_snapshot` a log that does not reach its snapshot is given up for it. Raises what no repair can
        mend.
        """
        options = options or JournalOptions()
        fs = fs or _files(str(path), options, create=False)
        return plan(fs, str(path), options, accept_snapshot=accept_snapshot)

    # --- figures ------------------------------------------------------------------------------------------------------

    def stats(self) -> JournalStats:
        """Give the journal's figures at this moment."""
        try:
            sizes = self._segment_sizes()
        except ClosedDirs:
            sizes = self._sizes
        commit = self._commit
        return report(
            self._counters,
            log_bytes=sum(sizes),
            segments=len(sizes),
            first_seq=self.first_seq,
            appended_seq=self.durable_seq if commit is None else commit.appended,
            durable_seq=self.durable_seq,
            state=commit.state if commit is not None else "closed" if self._closed else "open",
            durability=self._options.durability,
        )

    # --- inside -------------------------------------------------------------------------------------------------------

    def _segment_sizes(self) -> list[int]:
        sizes = [self._fs.stat(segment.path) for segment in self._segments.all]
        return [0 if found is None else found.size for found in sizes]

    def _end(self) -> Mark:
        """Give the place after the last durable record."""
        return self._found.end if self._tail is None else self._tail.end

    def _check_open(self) -> None:
        if self._commit is not None:
            self._commit.check_open()
        elif self._closed:
            raise StoreClosed("The journal is closed.", hint="Open it again.")

    def _writable(self) -> GroupCommit:
        if self._commit is None:
            raise StoreReadOnly(f"{self._root} was opened for reading; nothing was stored.")
        self._commit.check_open()
        return self._commit

    def _leave_to_parent(self) -> None:
        """Be closed, in a forked child: the parent goes on writing, the child must not."""
        self._closed = True
        self._ending = Lock()
        if self._commit is not None and self._tail is not None:
            self._commit.abandon_in_child()
            with suppress(OSError):
                self._tail.close()


_open_journals: weakref.WeakSet[Journal] = weakref.WeakSet()


def _close_in_child() -> None:
    for journal in list(_open_journals):
        journal._leave_to_parent()  # noqa: SLF001 - the fork concerns this module, not the class's users
    _open_journals.clear()


after_fork_in_child(_close_in_child)


def _files(root: str, options: JournalOptions, *, create: bool) -> OsFS:
    kind = filesystem_kind(root)
    if options.network != "allow" and is_network(kind):
        raise StoreFailed(
            f"{root} lies on {kind}, a network file system, where locks and syncs promise less. Nothing was opened.",
            hint="Use a local disk, or add ?network=allow to the URL if you accept that.",
            kind=kind,
        )
    try:
        return OsFS(root, create=create)
    except FileNotFoundError:
        raise NotFound(f"There is no journal at {root}.", hint="Check the path.") from None


def _look(fs: FS, options: JournalOptions, root: str) -> Survey:
    """Survey without a lock. A writer at work may remove a file between two looks; then it is looked at again."""
    for _ in range(9):
        with suppress(FileNotFoundError):
            return _look_once(fs, options, root)
    return _look_once(fs, options, root)


def _look_once(fs: FS, options: JournalOptions, root: str) -> Survey:
    identity = layout.read_identity(fs, root)
    if identity is None:
        layout.refuse_orphans(fs, root)
        raise NotFound(f"There is no journal at {root}.", hint="Check the path.")
    return survey(fs, identity, options, root)


def _document_records(document: dict[str, object]) -> Iterator[tuple[str, bytes]]:
    state = document["state"]
    assert isinstance(state, dict), "a migration keeps `state` an object"
    for table, rows in state.items():
        if table != "applied_seq":
            for row in rows:
                yield table, msgspec.json.encode(row)
