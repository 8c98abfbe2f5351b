"""`wal:` — the tables of `memory:`, folded from a journal. One process, one fsync per batch.

Order of a commit: decide and fold under the lock → append all groups → sync → publish. If the sync fails, the batch is
undone before anyone can read it and the store takes no more writes; what the disk holds is known after reopening. While
the disk is full the batch is set aside: readers see what is durable, and nobody else writes.
"""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from holdfast.clock import Clock, SystemClock
from holdfast.errors import (
    BadEvent,
    CorruptState,
    InvalidValue,
    LogMissing,
    RecordTooLarge,
    StoreClosed,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreReadOnly,
)
from holdfast.failpoints import reach
from holdfast.journal import Journal, JournalOptions, Loaded, Ticket
from holdfast.journal.filesystem import FS, OsFS
from holdfast.journal.fs_errors import telling
from holdfast.journal.records import Record as JournalRecord
from holdfast.journal.repair import Problem
from holdfast.journal.stats import JournalStats
from holdfast.json_decoders import reader_of
from holdfast.model.events import (
    SCHEMA_VERSION,
    Event,
    HistoryAppended,
    JobCreated,
    MessageStored,
    decode_event,
    encode_event,
)
from holdfast.model.ids import Token
from holdfast.model.jobs import Job
from holdfast.model.records import AUTHORITY, TABLES, Authority, Record
from holdfast.model.times import Timestamp, moment, stamp
from holdfast.model.workflows.instances import HistoryRow, Message
from holdfast.rules.fold_changes import Stamp
from holdfast.rules.invariants import reported
from holdfast.stores.feed_errors import forgotten
from holdfast.stores.memory.batch import BatchTables
from holdfast.stores.memory.tables import Tables
from holdfast.stores.protocol import Durability, Entry, Finding, Promises, finding_of
from holdfast.stores.sidecar.blob_files import FileBlobs
from holdfast.stores.sidecar.check import missing_blobs
from holdfast.stores.sidecar.log_files import FileLogs
from holdfast.stores.sidecar.sessions import LockedSessions
from holdfast.stores.sidecar.worker_files import FileRoster

log = logging.getLogger("holdfast.stores.wal")

#: Seconds that a commit waits for the disk before it looks whether that is full, and then between two looks.
LOOK_S: Final = 0.25
#: Bytes an encoded event may have, so that its line with all around it stays below the journal's 16 MiB.
MAX_EVENT: Final = 15 * 1024 * 1024


class _Group(NamedTuple):
    """What one command has changed, and when."""

    events: Sequence[Event]
    encoded: list[bytes]
    ts: Timestamp


@dataclass(frozen=True)
class _Copy:
    """The state at one moment, for a snapshot. Records are frozen, so copying the tables is enough."""

    applied_seq: int
    tables: dict[str, Sequence[Record]]


class WalStore:
    """A store in one directory, held by one process."""

    def __init__(self, journal: Journal, path: str, *, clock: Clock | None = None, readonly: bool = False) -> None:
        """Take over an open journal; use `open`."""
        relaxed = journal.stats().durability == "relaxed"
        self.promises = Promises(
            name="wal",
            durability=Durability.RELAXED if relaxed else Durability.SYNC,
            many_processes=False,
            reopens=True,
        )
        self.journal = journal
        self._path = path
        self._lock = threading.RLock()
        self._added = threading.Condition(self._lock)
        self._tables = BatchTables()
        #: Number of the last event for the feed: the journal's own notes come after it, and nobody waits for them.
        self._last_event = 0
        self._failure: StoreError | None = None
        #: A batch is set aside until there is room for it.
        self._is_full = False
        self._closed = False
        self._readonly = readonly
        clock, fs = clock or SystemClock(), journal.fs
        self.blobs = FileBlobs(fs, path, clock, self._each_unnamed, readonly=readonly)
        self.logs = FileLogs(fs, path, readonly=readonly)
        self.sessions = LockedSessions(
            f"{path}/sessions", f"{path}/waiting", readonly=readonly or not isinstance(fs, OsFS)
        )
        self.workers = FileRoster(fs, path, clock, self.sessions, readonly=readonly)

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
        options: JournalOptions | None = None,
        readonly: bool = False,
    ) -> WalStore:
        """Open or create the store at `path`: take its lock, load the snapshot, fold the rest of the log.

        Raises StoreLocked if another process has it, StoreDamaged if acknowledged data cannot be read.
        """
        settings = with_versions(options or JournalOptions())
        journal = Journal.open(path, fs=fs, clock=clock, options=settings, readonly=readonly)
        try:
            with telling(str(path), "opening"):
                store = cls(journal, str(path), clock=clock, readonly=readonly)
                store._replay()
        except BaseException:
            journal.close()
            raise
        return store

    def announce(self, url: str) -> None:
        """Note where this process is to be asked."""
        self.journal.note_url(url)

    def _replay(self) -> None:
        """Build the tables: snapshot first, then every later record, each once and in order."""
        # A million new records would make the collector walk them again and again, and none of them is garbage.
        collects = gc.isenabled()
        gc.disable()
        try:
            self._fold_journal(self._tables)
        finally:
            if collects:
                gc.enable()

    def _fold_journal(self, tables: BatchTables) -> None:
        loaded = self.journal.load()
        for name, rows in _by_table(loaded):
            tables.load(TABLES[name], rows)
        tables.seq = self._last_event = loaded.seq
        shared = _Shared()
        for record in self.journal.read(after=tables.seq):
            if record.seq != tables.seq + 1:
                raise CorruptState(
                    f"{self._path}: record {record.seq} follows {tables.seq}. Nothing was changed.", seq=record.seq
                )
            event = decode_event(record.raw, seq=record.seq, file=self._path)
            if event is not None:
                self._last_event = record.seq
            at = Stamp(record.seq, stamp(record.ts))
            if isinstance(event, JobCreated):
                event = msgspec.structs.replace(event, job=shared.slim(event.job))
            elif isinstance(event, HistoryAppended):
                event = msgspec.structs.replace(event, event=event.event.copy())
            elif isinstance(event, MessageStored):
                event = msgspec.structs.replace(event, item=event.item.copy())
            if event is not None:
                tables.replay(event, at)
            elif _may_miss(record.event):
                _leave_room(tables)
            tables.seq, tables.ts = at
        tables.let_go()
        tables.ts = Timestamp(self.journal.last_ts)

    # --- writing ----------------------------------------------------------------------------------------------------

    @contextmanager
    def write(self) -> Iterator[BatchTables]:
        """Open a batch; left normally, it is durable."""
        with self._lock:
            self._demand_writable()
            groups: list[_Group] = []

            def keep(events: Sequence[Event], first: int, ts: Timestamp) -> None:
                del first
                groups.append(_Group(events, [_encoded(event) for event in events], ts))

            self._tables.begin(keep)
            try:
                yield self._tables
            except BaseException:
                self._tables.undo()
                raise
            if groups:
                self._commit(groups)
        if groups:
            # The commit stands. A store that was closed meanwhile, or cannot make a snapshot, does not take it back.
            with suppress(StoreError):
                if self.journal.is_checkpoint_due():
                    self._checkpoint()

    def _commit(self, groups: list[_Group]) -> None:
        """Append all groups and wait until they are on disk; on failure take everything back."""
        interruption: BaseException | None = None
        try:
            at, last = moment(groups[0].ts), groups[0].ts
            for group in groups:
                if group.ts != last:
                    at, last = moment(group.ts), group.ts
                ticket = self.journal.append(group.encoded, ts=at, v=SCHEMA_VERSION)
            self._demand_same_seq(ticket.last_seq)
            reach("wal.appended")
            try:
                self._settle(ticket, groups)
            except StoreError:
                raise
            except BaseException as error:  # noqa: BLE001 - an interrupted wait is repeated: half a commit is none
                interruption = error
                self._settle(ticket, groups)
        except BaseException as error:
            self._tables.undo()
            self._failure = (
                error if isinstance(error, StoreError) else StoreFailed(f"{self._path}: commit interrupted.")
            )
            raise
        # It is durable, whatever interrupts from here on.
        self._tables.let_go()
        self._last_event = self._tables.seq
        self._added.notify_all()
        reach("wal.synced")
        if interruption is not None:
            raise interruption

    def _settle(self, ticket: Ticket, groups: Sequence[_Group]) -> None:
        """Wait until a batch is durable; aside, if that takes until somebody has made room."""
        while True:
            try:
                return ticket.wait(LOOK_S)
            except TimeoutError:
                if self.journal.stats().state == "full":
                    break
        self._tables.undo()
        try:
            self._is_full = True
            reach("wal.set_aside")
            while not ticket.done():
                self._added.wait(LOOK_S)  # lets others have the lock meanwhile
        finally:
            self._is_full = False
            # As it was: nobody else has written. Should there be no room after all, it is taken back as any other.
            self._tables.begin(lambda _events, _first, _ts: None)
            for group in groups:
                self._tables.add(group.events, group.ts)
        return ticket.wait()

    def _demand_same_seq(self, logged: int) -> None:
        if logged != self._tables.seq:
            raise CorruptState(
                f"{self._path}: the log is at {logged}, the state at {self._tables.seq}. The store stops.", seq=logged
            )

    # --- reading ----------------------------------------------------------------------------------------------------

    @contextmanager
    def read(self) -> Iterator[Tables]:
        """Open a view of what is durable; writers wait while it is open."""
        with self._lock:
            self._demand_open()
            yield self._tables

    def feed(self, after: int) -> Iterator[Entry]:
        """Walk the events above `after`, as far back as the log reaches."""
        self._demand_open()
        first = self.journal.first_seq
        if after + 1 < first and after < self._last_event:
            raise _gone(first)
        return self._entries(self.journal.read(after=max(after, first - 1)))

    def _entries(self, records: Iterator[JournalRecord]) -> Iterator[Entry]:
        try:
            for record in records:
                if not record.event.startswith(b'{"type":"journal:'):
                    yield Entry(record.seq, stamp(record.ts), record.raw)
        except LogMissing as gone:
            # A snapshot was made meanwhile, and the log became shorter faster than it was walked.
            raise _gone(self.journal.first_seq) from gone

    def journal_stats(self) -> JournalStats:
        """Give the journal's figures."""
        return self.journal.stats()

    def wait(self, after: int, timeout: float | None) -> bool:
        """Wait for an event above `after`."""
        with self._lock:
            return self._added.wait_for(lambda: self._closed or self._last_event > after, timeout)

    # --- looking after bytes ----------------------------------------------------------------------------------------

    def trim(self, before: Timestamp, limit: int, *, upto: int = 0) -> int:
        """Do nothing: the log is shortened by checkpoints, back to the snapshot before the last."""
        del before, limit, upto
        return 0

    def check(self) -> list[Finding]:
        """Verify the journal and the invariants of the records."""
        self._demand_open()
        found = [finding(problem) for problem in self.journal.verify()]
        with self._lock:
            faults = list(reported(self._tables))
            named = list(self._tables.named())
        found += missing_blobs(self.blobs, named)
        return found + [finding_of(fault) for fault in faults]

    def snapshot(self) -> None:
        """Write a snapshot now and wait for it."""
        self._checkpoint(wait=True)

    def _checkpoint(self, *, wait: bool = False) -> None:
        with self._lock:
            self._demand_writable()
            checkpoint = self.journal.checkpoint(self._copy)
        if wait:
            checkpoint.wait()

    def _copy(self) -> _Copy:
        tables = self._tables
        return _Copy(tables.seq, {name: list(tables.records[kind].values()) for name, kind in TABLES.items()})

    def close(self) -> None:
        """Write a snapshot if much was added, close the journal, let go of waiters."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._added.notify_all()
        try:
            # A snapshot only makes the next opening fast: the log has it all. The journal logs and counts its failure.
            with suppress(StoreError):
                if self._failure is None and not self._readonly and self.journal.is_checkpoint_due(closing=True):
                    self.journal.checkpoint(self._copy, wait=True)
        finally:
            self.sessions.close()
            self.journal.close()

    def _each_unnamed(self, digests: Collection[str], action: Callable[[str], None]) -> None:
        """Do something with each blob that no record names, while nobody can begin to name it."""
        with self._lock:
            if self._is_full:
                return  # what is set aside may name it
            for digest in digests:
                if not self._tables.names(digest):
                    action(digest)

    def _demand_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"the store wal:{self._path} was closed.")

    def _demand_writable(self) -> None:
        self._demand_open()
        if self._readonly:
            raise StoreReadOnly(f"{self._path} was opened for reading; nothing was stored.")
        if self._failure is not None:
            raise StoreFailed(f"{self._path} takes no more writes: {self._failure.message}") from self._failure
        if self._is_full:
            what, hint = self.journal.lacking
            raise StoreFull(f"{self._path}: {what[:1].lower()}{what[1:]}; nothing was stored.", hint=hint)


def _gone(first: int) -> InvalidValue:
    return forgotten(first - 1, "are only in the snapshot")


def with_versions(options: JournalOptions) -> JournalOptions:
    """Tell a journal which versions of records and events this program writes."""
    return replace(options, schema_version=SCHEMA_VERSION, event_version=SCHEMA_VERSION)


def _encoded(event: Event) -> bytes:
    raw = encode_event(event)
    if len(raw) > MAX_EVENT:
        raise RecordTooLarge(f"an event of {len(raw):,} bytes does not fit the log. Nothing was stored.")
    return raw


class _Note(msgspec.Struct):
    """The part of the journal's own notes that concerns a store."""

    type: str
    #: A repair removed records that may have been acknowledged.
    acknowledged: bool = False


_note = msgspec.json.Decoder(_Note)

#: Tokens left out after a repair: more than the records it removed can have granted. Room for a million repairs below
#: 2⁵³, where JSON readers stop being exact.
ROOM = 1 << 32


def _may_miss(raw: bytes) -> bool:
    return raw.startswith(b'{"type":"journal:repaired"') and _note.decode(raw).acknowledged


def _leave_room(tables: BatchTables) -> None:
    """Raise the token counter past every token that the removed records may have granted to someone still at work."""
    authority = tables.get(Authority, AUTHORITY) or Authority()
    tables.put(Authority, AUTHORITY, msgspec.structs.replace(authority, last_token=Token(authority.last_token + ROOM)))


class _Shared(dict[str, str]):
    """Texts that many records have in common, kept once. What is decoded afresh is else kept a million times."""

    def slim(self, job: Job) -> Job:
        """Give the job without the line it was decoded from, sharing what it shares with others."""
        if len(self) > 10_000:
            self.clear()
        return msgspec.structs.replace(
            job,
            params=job.params.copy(),
            job_type=self.setdefault(job.job_type, job.job_type),
            queue=self.setdefault(job.queue, job.queue),
            created_at=Timestamp(self.setdefault(job.created_at, job.created_at)),
        )


def _on_its_own(row: Record) -> Record:
    """Give a record of an instance without the line it was decoded from."""
    if isinstance(row, HistoryRow):
        return msgspec.structs.replace(row, event=row.event.copy())
    return msgspec.structs.replace(row, item=row.item.copy()) if isinstance(row, Message) else row


def _by_table(loaded: Loaded) -> Iterator[tuple[str, list[Record]]]:
    """Decode a snapshot's rows, table by table."""
    decoders = {name: reader_of(kind) for name, kind in TABLES.items()}
    shared = _Shared()
    rows: list[Record] = []
    current: str | None = None
    for name, raw in loaded.records:
        if name != current:
            if current is not None:
                yield current, rows
            current, rows = name, []
        try:
            row = decoders[name].decode(raw)
            rows.append(shared.slim(row) if isinstance(row, Job) else _on_its_own(row))
        except (KeyError, msgspec.MsgspecError) as problem:
            raise BadEvent(f"the snapshot holds a row of {name!r} that cannot be read: {problem}.") from None
    if current is not None:
        yield current, rows


def finding(problem: Problem) -> Finding:
    """Tell a problem of the journal in the words of the stores."""
    return Finding(**msgspec.structs.asdict(problem))
