"""The writable end of the log: one batch in, one write and one sync, or the file as it was.

Knows files, not threads: whoever calls must be alone. The order: roll if the segment is full, write, sync, see that
the file is still the one on disk, and only then move the end. A failed sync is final and told apart from a failed
write, which leaves nothing behind once `cut_back` has run.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.failpoints import reach
from holdfast.journal.filesystem import FS, Handle, Stat, write_all
from holdfast.journal.records import seal
from holdfast.journal.segments import FOLDER, Mark, Segment, Segments
from holdfast.journal.stats import Counters


class SyncFailed(Exception):
    """A sync failed, or the file it went to is no longer the log: the page cache is not to be trusted."""


class Tail:
    """Where the next batch goes."""

    def __init__(
        self, fs: FS, segments: Segments, end: Mark, *, segment_bytes: int, monotonic: Callable[[], float]
    ) -> None:
        """Open the last segment; `end` is the place after its last record."""
        self._fs = fs
        self._segments = segments
        self._segment_bytes = segment_bytes
        self._monotonic = monotonic
        self.end = end
        self.counters = Counters()
        # Before the file is opened: whoever fails here has nothing to close.
        self._root = fs.stat("")
        self._handle = fs.open(segments.last.path, "append")
        #: Bytes were cut off and the cut is not synced: a power cut may bring them back.
        self._ragged = False

    def commit(self, batch: list[bytes]) -> None:
        """Put a batch of lines on disk, adding their sums.

        Raises OSError if it was not written, SyncFailed if its fate is unknown.
        """
        if self.end.offset >= self._segment_bytes:
            self.roll()
        seq, offset, chain = self.end
        assert batch[0].startswith(b'{"seq":%d,' % seq), "a batch begins where the log ends"
        data, chain = seal(batch, chain)
        write_all(self._fs, self._handle, data)
        reach("journal.written")
        began = self._monotonic()
        self._sync()
        self.counters.batch(len(batch), len(data), self._monotonic() - began)
        self._see_that_it_is_ours()
        reach("journal.synced")
        self.end = Mark(seq + len(batch), offset + len(data), chain)
        self._segments.last.note(self.end)

    def cut_back(self) -> None:
        """Remove what a failed or interrupted batch left behind the end."""
        found = self._fs.stat(self._handle.path)
        if found is None or found.size > self.end.offset:
            self._ragged = True
            self._fs.truncate(self._handle, self.end.offset)

    def roll(self) -> None:
        """Begin a new segment, unless the last is still empty."""
        if self.end.offset == 0:
            return
        if self._ragged:
            # What comes back behind the end of the last segment is a torn tail; behind any other it would be damage.
            self._sync()
        segment = Segment(self.end.seq, self.end.chain)
        try:
            handle = self._fs.open(segment.path, "create")
        except FileExistsError:
            # An interrupted roll made it; nothing but this journal, alone under its lock, could have.
            handle = self._fs.open(segment.path, "append")
            try:
                self._fs.truncate(handle, 0)
            except OSError:
                self._fs.close(handle)
                raise
        try:
            # The name first: a batch synced into a file that has no durable name is lost with it.
            self._fs.sync_dir(FOLDER)
        except OSError as error:
            self._fs.close(handle)
            raise SyncFailed(f"syncing {FOLDER} failed: {error}") from error
        old, self._handle = self._handle, handle
        self._segments.add(segment)
        self.end = Mark(self.end.seq, 0, self.end.chain)
        self._fs.close(old)

    def close(self) -> None:
        """Close the file; syncs nothing."""
        self._fs.close(self._handle)

    def _sync(self) -> None:
        try:
            self._fs.sync(self._handle, metadata=False)
        except OSError as error:
            raise SyncFailed(f"syncing {self._handle.path} failed: {error}") from error
        self._ragged = False

    def _see_that_it_is_ours(self) -> None:
        """Notice a directory or log that was replaced beneath us: bytes synced into an unlinked file are not kept."""
        named, root = self._fs.stat(self._handle.path), self._fs.stat("")
        if named is None or not _is_same(named, self._handle):
            raise SyncFailed(f"{self._handle.path} was removed or replaced while it was open")
        if root is None or (self._root is not None and not _is_same(root, self._root)):
            raise SyncFailed("the journal's directory was removed or replaced while it was open")


def _is_same(a: Stat, b: Stat | Handle) -> bool:
    return a.inode == b.inode and a.device == b.device
