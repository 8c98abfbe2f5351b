"""Reading records: from any number to the durable end, verified, while others append, roll and compact.

Knows segments and versions; takes no lock. What it was going to read may be gone when it gets there, because compaction
dropped it: that is told, never skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from holdfast.errors import LogMissing
from holdfast.journal.filesystem import FS
from holdfast.journal.fs_errors import telling
from holdfast.journal.inspection import damaged_at
from holdfast.journal.migrations import check_event_version, migrate_event
from holdfast.journal.options import JournalOptions
from holdfast.journal.records import Record, decode
from holdfast.journal.scan import BadRecord, Run, runs
from holdfast.journal.segments import Mark, Segment, Segments


class Reader:
    """Reads one journal's log."""

    def __init__(
        self,
        root: str,
        fs: FS,
        log: Segments,
        *,
        end: Callable[[], Mark],
        unended: bool,
        options: JournalOptions,
    ) -> None:
        """`end` tells the durable end as it is now; `unended`: the last line lacks its newline, and nobody writes."""
        self._root = root
        self._fs = fs
        self._log = log
        self._end = end
        self._unended = unended
        self._options = options

    def records(self, seq: int, stop: int) -> Iterator[Record]:
        """Yield the records from `seq` to `stop`, both durable."""
        with telling(self._root, "reading"):
            missed: Segment | None = None
            while seq <= stop:
                segment, end = self._reach(seq)
                try:
                    # Only where nobody may write does a newline stay missing: recovery would have put it back.
                    last = end is not None and self._unended
                    for run in runs(self._fs, segment, segment.mark_before(seq), end, last=last):
                        yield from self._decoded(segment, run, seq, stop)
                        seq = max(seq, run.end.seq)
                        if seq > stop:
                            break
                except FileNotFoundError:
                    # Compaction replaced the segment after we looked it up; if it still stands in the list, it is gone.
                    if missed is segment:
                        raise
                    missed = segment
                except BadRecord as bad:
                    raise damaged_at(self._root, bad) from bad

    def _reach(self, seq: int) -> tuple[Segment, int | None]:
        """Find the segment that holds a durable record, and the byte up to which it may be read."""
        while True:
            segment = self._log.holding(seq)
            if segment is None:
                first = self._log.all[0].first
                raise LogMissing(
                    f"{self._root}: records {seq} to {first - 1} were compacted away; nothing was read.",
                    hint="Begin with the snapshot, or with the first record still there.",
                    first=first,
                )
            end = self._end()
            if segment is not self._log.last:
                if segment in self._log.all:
                    return segment, None
            # The end is read before the list is asked again: a roll changes the list first, the end after it.
            elif end.seq > segment.first:
                return segment, end.offset - self._unended

    def _decoded(self, segment: Segment, run: Run, seq: int, stop: int) -> list[Record]:
        first, version = run.start.seq, self._options.event_version
        lines = run.lines
        assert first <= seq, "a mark lies at or before the record it is looked up for"
        if first < seq or run.end.seq > stop + 1:
            lines = lines[max(seq - first, 0) : stop + 1 - first]
        try:
            records = [decode(line) for line in lines]
        except (msgspec.DecodeError, RecursionError) as error:
            # The sums are right, so this is not rot: some writer that is not ours made it.
            raise BadRecord(segment, run.mark(_first_bad(run.lines)), f"not a record ({error})") from error
        if [record.v for record in records].count(version) != len(records):
            return [record if record.v == version else self._migrated(segment, record) for record in records]
        return records

    def _migrated(self, segment: Segment, record: Record) -> Record:
        what = f"record {record.seq} in {self._root}/{segment.path}"
        check_event_version(what, record.v, self._options)
        event = migrate_event(what, record.raw, record.v, self._options)
        return msgspec.structs.replace(record, raw=msgspec.Raw(event), v=self._options.event_version)


def _first_bad(lines: list[bytes]) -> int:
    for index, line in enumerate(lines):
        try:
            decode(line)
        except (msgspec.DecodeError, RecursionError):
            return index
    return len(lines)
