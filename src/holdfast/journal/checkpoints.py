"""Checkpoints: a snapshot of the state at record S, and after it, perhaps, a shorter log.

Knows no table. The steps, and the one order that must never change:

    1  the caller's thread: copy; S := its applied_seq
    2  flush until S is durable; roll the segment
    3  stream into a draft     4  sync it     5  read it back and compare
    6  rename it               7  sync its directory
    8  delete snapshots older than the previous one
    9  drop records up to the previous snapshot

Step 9 never begins before step 7 has returned, and never drops what only the newest snapshot covers: should that one
prove unreadable, the previous and the log still give the same state. A failing step ends the checkpoint, removes the
draft and leaves the log alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from typing import Protocol
from zlib import crc32

from holdfast.clock import Clock
from holdfast.errors import InvalidValue, SnapshotDamaged, WouldLoseData
from holdfast.failpoints import reach
from holdfast.journal import snapshots
from holdfast.journal.compaction import drop_before, place_of
from holdfast.journal.filesystem import FS
from holdfast.journal.fs_errors import told
from holdfast.journal.group_commit import GroupCommit
from holdfast.journal.inspection import damaged_at, verify_snapshot
from holdfast.journal.layout import Identity
from holdfast.journal.log_tail import Tail
from holdfast.journal.options import JournalOptions
from holdfast.journal.records import stamp
from holdfast.journal.scan import BadRecord
from holdfast.journal.segments import Segments
from holdfast.journal.snapshots import BadSnapshot, Header, Written
from holdfast.journal.stats import Counters

log = logging.getLogger(__name__)


class Copy(Protocol):
    """A consistent copy of the state, cheap to take: its records are shared, not cloned."""

    @property
    def applied_seq(self) -> int:
        """The last record the state includes."""
        ...

    @property
    def tables(self) -> Mapping[str, Iterable[object]]:
        """Table name to its records: anything msgspec encodes as an object, or such JSON as bytes."""
        ...


class Checkpoint:
    """The handle of one checkpoint."""

    def __init__(self) -> None:
        #: The record it covers; 0 until the copy is taken.
        self.seq = 0
        #: What ended it early.
        self.error: BaseException | None = None
        self._done = Event()

    def wait(self, timeout: float | None = None) -> None:
        """Return when all steps are done; raises what stopped it, or TimeoutError."""
        if not self._done.wait(timeout):
            raise TimeoutError(f"the checkpoint at record {self.seq} was not done in {timeout} s")
        if self.error is not None:
            raise self.error

    def done(self) -> bool:
        """Tell whether it has ended, well or not."""
        return self._done.is_set()

    def end(self, error: BaseException | None = None) -> None:
        """Say that it has ended."""
        self.error = error
        self._done.set()


class Checkpoints:
    """Makes checkpoints of one journal, one at a time, and guards its log against being shortened too far."""

    def __init__(
        self,
        root: str,
        fs: FS,
        *,
        identity: Identity,
        commit: GroupCommit,
        log_segments: Segments,
        clock: Clock,
        options: JournalOptions,
        counters: Counters,
        newest: int,
        log_bytes: int,
    ) -> None:
        """`newest` is the snapshot that opening verified, 0 if none; `log_bytes` the length of the log after it."""
        self._root = root
        self._fs = fs
        self._identity = identity
        self._commit = commit
        self._segments = log_segments
        self._clock = clock
        self._options = options
        self._counters = counters
        #: Snapshots known to be readable and to have a durable name, by number.
        self._verified = {newest} - {0}
        self._newest = newest
        self._mutex = Lock()
        self._shortening = Lock()
        self._running: Checkpoint | None = None
        self._thread: Thread | None = None
        self._last_try = clock.monotonic()
        self._bytes_before = counters.bytes_written_total - log_bytes

    # --- when ---------------------------------------------------------------------------------------------------------

    def is_due(self, *, closing: bool = False) -> bool:
        """Tell whether the log has grown enough since the last snapshot; after a failure not before its time."""
        added = self._commit.durable - self._newest
        if added <= 0:
            return False
        if closing:
            return added > self._options.checkpoint_at_close_records
        if self._clock.monotonic() - self._last_try >= self._options.checkpoint_after_s:
            return True
        grown = self._counters.bytes_written_total - self._bytes_before
        return grown > self._options.checkpoint_after_bytes and not self._counters.checkpoint_failures_in_row

    # --- how ----------------------------------------------------------------------------------------------------------

    def start(self, copy: Callable[[], Copy], *, wait: bool) -> Checkpoint:
        """Take the copy here, then write in the background, or with `wait` here too. A running one is given instead."""
        with self._mutex:
            if self._running is not None and not self._running.done():
                checkpoint, begin = self._running, False
            else:
                checkpoint = self._running = Checkpoint()
                begin = True
        if begin:
            try:
                taken = copy()
                checkpoint.seq = taken.applied_seq
                self._refuse_future(checkpoint.seq)
            except BaseException as error:
                checkpoint.end(error)
                raise
            if wait:
                self._run(checkpoint, taken)
            else:
                self._start_thread(checkpoint, taken)
        if wait:
            checkpoint.wait()
        return checkpoint

    def _start_thread(self, checkpoint: Checkpoint, taken: Copy) -> None:
        thread = Thread(target=self._run, args=(checkpoint, taken), name="holdfast-checkpoint", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            # The system gives no thread. Ended, or everybody after it would wait for a checkpoint that nobody makes.
            self._last_try = self._clock.monotonic()
            self._end_badly(checkpoint, error)
        else:
            self._thread = thread

    def finish(self) -> None:
        """Wait for a running checkpoint, however it ends."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _refuse_future(self, seq: int) -> None:
        if seq > self._commit.appended:
            raise InvalidValue(
                f"The copy says applied_seq={seq}, but only {self._commit.appended} records were appended. "
                "No checkpoint was made."
            )

    def _run(self, checkpoint: Checkpoint, copy: Copy) -> None:
        began = self._last_try = self._clock.monotonic()
        try:
            if checkpoint.seq > self._newest:
                self._make(checkpoint.seq, copy.tables)
        except BaseException as failure:  # noqa: BLE001 - top of a thread: whatever it was, it arrives at the handle
            self._end_badly(checkpoint, failure)
        else:
            self._counters.checkpoint_failures_in_row = 0
            self._counters.checkpoint_seconds = self._clock.monotonic() - began
            checkpoint.end()

    def _end_badly(self, checkpoint: Checkpoint, failure: BaseException) -> None:
        error = told(self._root, "a checkpoint", failure) if isinstance(failure, OSError) else failure
        self._counters.checkpoint_failures_total += 1
        self._counters.checkpoint_failures_in_row += 1
        log.warning("journal.checkpoint_failed", extra={"seq": checkpoint.seq, "error": repr(error)})
        checkpoint.end(error)

    def _make(self, seq: int, tables: Mapping[str, Iterable[object]]) -> None:
        self._commit.wait(seq)
        self._commit.exclusively(Tail.roll)
        now = self._clock.now()
        header = Header(
            v=self._options.schema_version,
            seq=seq,
            created_at=stamp(now).decode(),
            journal=self._identity.id,
            sum=f"{self._chain_at(seq):08x}",
        )
        reach("journal.checkpoint.copied")
        grown = self._counters.bytes_written_total
        written = self._write(header, tables)
        previous, self._newest = self._newest, seq
        self._verified.add(seq)
        self._bytes_before = grown
        self._counters.snapshot_bytes = written.size
        self._counters.last_checkpoint_seq, self._counters.last_checkpoint_timestamp = seq, now
        reach("journal.checkpoint.durable")
        if previous:
            self._forget_before(previous)
            self.truncate_before(previous + 1)

    def _chain_at(self, seq: int) -> int:
        segment = self._segments.holding(seq + 1)
        assert segment is not None, "what was appended since opening is never dropped before its snapshot exists"
        try:
            return place_of(self._fs, segment, seq + 1).chain
        except BadRecord as bad:
            raise damaged_at(self._root, bad) from bad

    def _write(self, header: Header, tables: Mapping[str, Iterable[object]]) -> Written:
        """Do steps 3 to 7."""
        path = snapshots.path_of(header.seq)
        draft = f"{path}.tmp"
        with suppress(FileNotFoundError):
            self._fs.unlink(draft)
        try:
            written = snapshots.write(self._fs, draft, header, tables)
            reach("journal.checkpoint.written")
            _read_back(self._fs, draft, header, written)
            self._fs.rename(draft, path)
        except BaseException:
            with suppress(OSError):  # the first failure is the one to tell; opening removes what stays
                self._fs.unlink(draft)
            raise
        try:
            self._fs.sync_dir(snapshots.FOLDER)
        except OSError:
            with suppress(OSError):  # a name that shows now and may vanish: nobody must take it for a snapshot
                self._fs.unlink(path)
            raise
        return written

    def _forget_before(self, seq: int) -> None:
        """Step 8: two snapshots stay."""
        with self._shortening:
            old = [one for one in snapshots.find(self._fs) if one < seq]
            for one in sorted(old):
                self._verified.discard(one)
                self._fs.unlink(snapshots.path_of(one))
            if old:
                self._fs.sync_dir(snapshots.FOLDER)

    # --- shortening the log -------------------------------------------------------------------------------------------

    @contextmanager
    def keeping_all(self) -> Iterator[None]:
        """Remove no file inside the block, for whoever lists them and then reads them; a checkpoint waits for it."""
        with self._shortening:
            yield

    def truncate_before(self, seq: int) -> int:
        """Drop records below `seq`; gives the bytes freed. Refuses to drop what two verified snapshots do not cover."""
        with self._shortening:
            covered = self._covered()
            if seq - 1 > covered:
                raise WouldLoseData(
                    f"{self._root}: records up to {seq - 1} were to be dropped, but two verified snapshots cover only "
                    f"{covered}. Nothing was dropped.",
                    hint="Make another checkpoint first.",
                    covered=covered,
                )
            try:
                return drop_before(self._fs, self._segments, seq)
            except BadRecord as bad:
                raise damaged_at(self._root, bad) from bad

    def _covered(self) -> int:
        """Give the last record that both of the two newest snapshots include; each is read, unless it was before."""
        newest = snapshots.find(self._fs)[:2]
        for seq in newest:
            if seq not in self._verified:
                try:
                    verify_snapshot(self._fs, seq, self._identity)
                except BadSnapshot as error:
                    raise SnapshotDamaged(
                        f"{self._root}/{snapshots.path_of(seq)}: {error}. Nothing was dropped.",
                        file=snapshots.path_of(seq),
                    ) from error
                self._verified.add(seq)
        return newest[1] if len(newest) == 2 else 0


def _read_back(fs: FS, draft: str, header: Header, written: Written) -> None:
    """Step 5: see that what lies on the disk is what was meant."""
    length = crc = records = 0

    def measured() -> Iterable[bytes]:
        nonlocal length, crc
        for piece in snapshots.unpack(fs, draft):
            length, crc = length + len(piece), crc32(piece, crc)
            yield piece

    try:
        found, slices = snapshots.parse(measured(), header.seq)
        for _, rows in slices:
            records += len(rows)
    except BadSnapshot as error:
        raise SnapshotDamaged(f"{draft} reads back wrong: {error}. It was removed.", file=draft) from error
    if (found, length, crc, records) != (header, written.length, written.crc, written.records):
        raise SnapshotDamaged(f"{draft} reads back other than it was written. It was removed.", file=draft)
