"""Compaction: the log gets shorter at its old end. Whether it may is decided by `checkpoints`.

The order: the boundary segment is rewritten first, so that a bad line in it is met before anything is gone; then
whole segments go, oldest first, each removal synced before the next. So whatever a crash leaves is the end of the log
without a gap, at worst with a boundary segment beside its shorter copy, of which opening keeps the longer.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

from holdfast.journal.filesystem import FS, write_all
from holdfast.journal.scan import runs, size_of
from holdfast.journal.segments import FOLDER, Mark, Segment, Segments


def drop_before(fs: FS, log: Segments, seq: int) -> int:
    """Remove records below `seq`, as far as it pays; gives the bytes freed. Raises BadRecord, then nothing is gone."""
    freed = 0
    shorter: Segment | None = None
    doomed = [segment for segment, following in pairwise(log.all) if following.first <= seq]
    boundary = log.all[len(doomed)]
    if boundary is not log.last and boundary.first < seq:
        size, place = size_of(fs, boundary.path), place_of(fs, boundary, seq)
        if place.offset * 2 > size:
            shorter = _copy_from(fs, boundary, place)
            log.replace(boundary, shorter)
            doomed.append(boundary)
            freed -= size - place.offset
    for segment in doomed:
        freed += _remove(fs, log, segment, shorter if segment is boundary else None)
    return freed


def _remove(fs: FS, log: Segments, segment: Segment, instead: Segment | None) -> int:
    """Remove a segment, whose place `instead` has taken, if anything has; gives its size."""
    log.replace(segment)
    try:
        found = fs.stat(segment.path)
        if found is not None:
            fs.unlink(segment.path)
    except BaseException:
        # It is still there, so it is still the oldest: to drop later ones before it would leave a hole.
        log.put_back(segment, instead)
        raise
    # One by one: of several unsynced removals a power cut may undo any, and leave a hole.
    fs.sync_dir(FOLDER)
    return 0 if found is None else found.size


def place_of(fs: FS, segment: Segment, seq: int) -> Mark:
    """Find where record `seq` begins in a segment that holds it, or ends right before it."""
    start = segment.mark_before(seq)
    if start.seq == seq:
        return start
    for run in runs(fs, segment, start):
        if run.end.seq >= seq:
            return run.mark(seq - run.start.seq)
    raise LookupError(f"record {seq} is not in {segment.path}")


def _copy_from(fs: FS, segment: Segment, place: Mark) -> Segment:
    """Write the verified lines from `place` on, byte for byte, as a segment of their own."""
    shorter = Segment(place.seq, place.chain)
    draft = f"{shorter.path}.tmp"
    with suppress(FileNotFoundError):
        fs.unlink(draft)
    handle = fs.open(draft, "create")
    try:
        try:
            for run in runs(fs, segment, place):
                write_all(fs, handle, b"\n".join(run.lines) + b"\n")
            fs.sync(handle, metadata=True)
        finally:
            fs.close(handle)
        fs.rename(draft, shorter.path)
    except BaseException:
        with suppress(OSError):  # the first failure is the one to tell; opening removes what stays
            fs.unlink(draft)
        raise
    fs.sync_dir(FOLDER)
    return shorter
