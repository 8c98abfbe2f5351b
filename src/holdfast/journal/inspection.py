"""The survey: read everything that opening needs and judge it. Nothing is changed here.

Opening, reading without a lock, checking and repairing all begin with it. The order: who is this, newest usable
snapshot, segments, every line from the snapshot's record on. The result says where the log ends, and what recovery
has to do; what no recovery may decide is raised, with file, line, offset and the command that repairs.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import JournalDamaged, LogMissing, SnapshotDamaged
from holdfast.journal import segments, snapshots
from holdfast.journal.filesystem import FS
from holdfast.journal.layout import Identity
from holdfast.journal.migrations import check_event_version, migrate_event, migrate_snapshot
from holdfast.journal.options import JournalOptions
from holdfast.journal.records import (
    MAX_LINE,
    decode,
    decode_batch,
    first_chain,
    has_more,
    is_closing,
    sum_of,
    version_of,
)
from holdfast.journal.scan import BadRecord, Run, is_torn, reading, runs, size_of
from holdfast.journal.segments import Mark, Segment
from holdfast.journal.snapshots import BadSnapshot, Header

_START = Mark(1, 0, 0)


@dataclass(slots=True)
class Cut:
    """A tail that no power-on will bring back: the file is to end before it."""

    segment: Segment
    #: Where the first record of the torn group begins.
    place: Mark
    #: Bytes from there to the end of the file.
    size: int
    reason: str


@dataclass(slots=True)
class Survey:
    """What was found."""

    identity: Identity
    #: The newest usable snapshot; None is the empty state before record 1.
    snapshot: Header | None = None
    #: The snapshot's document, if it had to be migrated.
    migrated: dict[str, Any] | None = None
    #: Snapshots that cannot be believed: number and reason, newest first.
    damaged: list[tuple[int, str]] = field(default_factory=list)
    #: The log, oldest first.
    segments: list[Segment] = field(default_factory=list)
    #: Segments that an unfinished compaction left beside longer ones.
    leftovers: list[Segment] = field(default_factory=list)
    #: The place after the last record that counts.
    end: Mark = _START
    #: The last line that counts, if any could be found.
    last_line: bytes = b""
    #: The last line lacks its newline.
    unended: bool = False
    cut: Cut | None = None
    #: Records and bytes read on the way.
    scanned: int = 0
    scanned_bytes: int = 0

    @property
    def closed(self) -> bool:
        """The journal was closed in order, by a record synced alone, and nothing followed, not even a segment."""
        if self.end.offset == 0 or not is_closing(self.last_line):
            return False
        return decode_batch(self.last_line).b == self.end.seq - 1

    @property
    def last_ts(self) -> bytes:
        """Time of the last record, in the form of the log."""
        if not self.last_line:
            return b""
        at = self.last_line.rfind(b',"ts":"') + 7
        return self.last_line[at : at + 27]


def survey(fs: FS, identity: Identity, options: JournalOptions, root: str) -> Survey:
    """Read and judge. Raises what refuses the start."""
    found = Survey(identity)
    _choose_snapshot(fs, options, root, found)
    _walk_log(fs, options, root, found)
    return found


# --- snapshots --------------------------------------------------------------------------------------------------------


def _choose_snapshot(fs: FS, options: JournalOptions, root: str, found: Survey) -> None:
    for seq in snapshots.find(fs):
        try:
            header = verify_snapshot(fs, seq, found.identity)
        except BadSnapshot as error:
            found.damaged.append((seq, str(error)))
            continue
        if header.v != options.schema_version:
            what = f"snapshot {root}/{snapshots.path_of(seq)}"
            document = snapshots.load_document(fs, seq)
            migrate_snapshot(what, document, options)
            found.migrated = document
        found.snapshot = header
        return


def verify_snapshot(fs: FS, seq: int, identity: Identity) -> Header:
    """Read a snapshot to its end. Raises BadSnapshot unless it is whole, and this journal's."""
    header, slices = snapshots.read(fs, seq)
    for _ in slices:
        pass
    if header.journal != identity.id:
        raise BadSnapshot(f"it belongs to journal {header.journal}")
    return header


# --- the log ----------------------------------------------------------------------------------------------------------


def _walk_log(fs: FS, options: JournalOptions, root: str, found: Survey) -> None:
    listed = segments.find(fs)
    base = found.snapshot.seq if found.snapshot else 0
    _refuse_missing_start(root, found, listed, base)
    begin = max(index for index, segment in enumerate(listed) if segment.first <= base + 1)
    end: Mark | None = None
    for index, segment in enumerate(listed):
        if end is not None and (segment.first, segment.chain) != (end.seq, end.chain):
            if segment.first < end.seq and index < len(listed) - 1 and last_place(fs, segment) == end[::2]:
                found.leftovers.append(segment)
                continue
            if index > begin or not _is_covered_twice(fs, found.identity, base, segment.first - 1):
                raise _gap(root, segment, end)
            # A removal that a power cut undid: what lies before the gap had been dropped for good reason.
            found.leftovers += found.segments
            found.segments = []
        found.segments.append(segment)
        if index < begin:
            end = _end_by_tail(fs, root, segment)
        else:
            end = _scan(fs, options, root, found, segment, last=index == len(listed) - 1)
    found.end = end or _START
    if found.end.seq - 1 < base:
        raise log_missing(root, f"the log ends at record {found.end.seq - 1}", base)
    if listed[-1].first <= base:
        # A checkpoint rolls before it names its snapshot, so a later segment was there, and perhaps records in it.
        raise log_missing(root, f"the segment that began after record {base} is gone", base)
    if not found.last_line and len(found.segments) > 1:
        found.last_line = last_line(fs, found.segments[-2])


def _is_covered_twice(fs: FS, identity: Identity, base: int, seq: int) -> bool:
    """Tell whether, beside the snapshot in use, another one includes all records up to `seq`."""
    if seq > base:
        return False
    for other in snapshots.find(fs):
        if seq <= other < base:
            with suppress(BadSnapshot):
                verify_snapshot(fs, other, identity)
                return True
    return False


def _refuse_missing_start(root: str, found: Survey, listed: list[Segment], base: int) -> None:
    if not listed:
        raise log_missing(root, "the log is gone", base)
    first = listed[0]
    if first.first == 1 and first.chain != first_chain(found.identity.id):
        raise damaged(root, first.path, "it belongs to another journal")
    if first.first <= base + 1:
        return
    if found.damaged:
        names = ", ".join(f"{root}/{snapshots.path_of(seq)} ({reason})" for seq, reason in found.damaged)
        raise SnapshotDamaged(
            f"{names}: damaged, and the log begins only at record {first.first}, so nothing older leads to the state. "
            "Nothing was changed.",
            hint="Restore a snapshot from a copy of the store.",
            files=[snapshots.path_of(seq) for seq, _ in found.damaged],
            first=first.first,
        )
    raise damaged(root, first.path, f"records {base + 1} to {first.first - 1} are missing", seq=base + 1)


def _scan(fs: FS, options: JournalOptions, root: str, found: Survey, segment: Segment, *, last: bool) -> Mark:
    """Verify one segment; gives the place after its last whole group."""
    whole = read = segment.marks[0]
    reason = ""
    _see_that_it_meets(root, found.snapshot, segment, Run(read, [], read))
    try:
        for run in runs(fs, segment, read, last=last):
            _see_that_it_meets(root, found.snapshot, segment, run)
            _check_versions(options, root, segment, run)
            ends = next((n for n in range(len(run.lines), 0, -1) if not has_more(run.lines[n - 1])), 0)
            if ends:
                whole, found.last_line = run.mark(ends), run.lines[ends - 1]
            found.scanned += len(run.lines)
            found.scanned_bytes += run.end.offset - run.start.offset
            found.unended, read = run.unended, run.end
    except BadRecord as bad:
        if not last or not is_torn(fs, bad):
            raise damaged_at(root, bad) from bad
        reason = bad.reason
    if not reason and whole != read:
        reason = f"the group that begins with record {whole.seq} is not complete"
        if not last:
            raise damaged(root, segment.path, reason, seq=whole.seq, line=whole.seq - segment.first + 1)
    if reason:
        found.unended = False
        found.cut = Cut(segment, whole, size_of(fs, segment.path) - whole.offset, reason)
    return whole


def _see_that_it_meets(root: str, base: Header | None, segment: Segment, run: Run) -> None:
    """Compare the chain with the snapshot's sum where the two meet."""
    if base is None or not run.start.seq <= base.seq + 1 <= run.end.seq:
        return
    if run.mark(base.seq + 1 - run.start.seq).chain != int(base.sum, 16):
        raise damaged(
            root, segment.path, f"its records do not meet the snapshot at record {base.seq}", seq=base.seq + 1
        )


def _check_versions(options: JournalOptions, root: str, segment: Segment, run: Run) -> None:
    """See that every event can be read by this version, before anything is served or changed."""
    if options.event_version == 1 and not any(b',"v":' in line for line in run.lines):
        return
    for seq, line in enumerate(run.lines, run.start.seq):
        what = f"record {seq} in {root}/{segment.path}"
        version = version_of(line)
        if check_event_version(what, version, options):
            migrate_event(what, decode(line).raw, version, options)


def last_line(fs: FS, segment: Segment) -> bytes:
    """Read the last line of a segment that is not scanned; empty if there is none."""
    size, length = size_of(fs, segment.path), 4096
    with reading(fs, segment.path) as handle:
        while True:
            length = min(length, size)
            lines = fs.read(handle, length, size - length).split(b"\n")
            if len(lines) > 2 or length in {size, MAX_LINE}:
                return lines[-2] if len(lines) > 1 and not lines[-1] else b""
            length = min(length * 8, MAX_LINE)


def last_place(fs: FS, segment: Segment) -> tuple[int, int] | None:
    """Say which number and chain value would follow a segment, judging by its last line alone."""
    line = last_line(fs, segment)
    try:
        return decode(line).seq + 1, sum_of(line)
    except (ValueError, RecursionError):
        return None


def _end_by_tail(fs: FS, root: str, segment: Segment) -> Mark:
    """Give the end of a segment whose records the snapshot covers: only how it joins the next matters."""
    place = last_place(fs, segment)
    if place is None:
        raise damaged(root, segment.path, "its last line cannot be read")
    return Mark(place[0], size_of(fs, segment.path), place[1])


# --- refusals ---------------------------------------------------------------------------------------------------------


def damaged(root: str, path: str, reason: str, **facts: object) -> JournalDamaged:
    """Refuse a log, naming what can be named."""
    return JournalDamaged(
        f"{root}/{path}: {reason}. Nothing was changed.",
        hint=f"Run `holdfast store repair wal:{root}` (the original stays as .bak).",
        file=path,
        reason=reason,
        **facts,
    )


def damaged_at(root: str, bad: BadRecord) -> JournalDamaged:
    """Refuse a log at its first bad line."""
    seq, offset, _ = bad.place
    return JournalDamaged(
        f"{root}/{bad.segment.path}, line {bad.line}, offset {offset}: {bad.reason}. Nothing was changed.",
        hint=f"Run `holdfast store repair wal:{root}` (the original stays as .bak).",
        file=bad.segment.path,
        line=bad.line,
        offset=offset,
        seq=seq,
        reason=bad.reason,
    )


def _gap(root: str, segment: Segment, end: Mark) -> JournalDamaged:
    if segment.first > end.seq:
        reason = f"records {end.seq} to {segment.first - 1} are missing before it"
    elif segment.first < end.seq:
        reason = f"it repeats records from {segment.first} on, which the segment before it holds up to {end.seq - 1}"
    else:
        reason = "it does not continue the segment before it; perhaps it belongs to another journal"
    return damaged(root, segment.path, reason, line=1, offset=0, seq=end.seq)


def log_missing(root: str, what: str, base: int) -> LogMissing:
    """Refuse a log that does not reach its snapshot."""
    beside = f"beside a snapshot at record {base}" if base else "of a journal that had one"
    return LogMissing(
        f"{root}/{segments.FOLDER}: {what}, {beside}. Nothing was changed.",
        hint=f"Restore the log, or run `holdfast store repair --accept-snapshot wal:{root}` to go on from the snapshot."
        if base
        else "Restore the log from a copy of the store.",
        file=segments.FOLDER,
        snapshot=base,
    )
