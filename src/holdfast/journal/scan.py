"""Reading the log: the one generator that turns bytes into verified lines, and the one judge of those that are not.

Opening, reading, compaction, checking and repair all read through `runs`. It yields good lines, ends, or raises
`BadRecord`; it never skips, stalls or returns less in silence. What a bad record means is decided here too, by
`is_torn`: a write that a power cut stopped, or acknowledged data gone bad. Nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple
from zlib import crc32

from holdfast.journal.filesystem import FS, Handle
from holdfast.journal.records import MAX_LINE, SUM_SIZE, decode_batch, explain, is_good, sum_of, whole_records
from holdfast.journal.segments import Mark, Segment

#: Bytes read at a time.
CHUNK = 256 * 1024
#: What a disk writes whole or not at all; multiples of it in the file are where a torn write can tear.
SECTOR = 512


class BadRecord(Exception):
    """The first line of a segment that does not verify."""

    def __init__(self, segment: Segment, place: Mark, reason: str) -> None:
        """Name the place: the number the record should have had, where its line begins, the sum before it."""
        super().__init__(reason)
        self.segment = segment
        self.place = place
        self.reason = reason

    @property
    def line(self) -> int:
        """Number of the line in its file, from 1."""
        return self.place.seq - self.segment.first + 1


class Run(NamedTuple):
    """Some verified lines in a row, without their newlines."""

    start: Mark
    lines: list[bytes]
    #: Where the next record begins, or would if the last line had its newline.
    end: Mark
    #: The last line lacks its newline.
    unended: bool = False

    def mark(self, index: int) -> Mark:
        """Give the place of line `index`, which may be one past the last."""
        if index == 0:
            return self.start
        size = sum(map(len, self.lines[:index])) + index
        return Mark(self.start.seq + index, self.start.offset + size, sum_of(self.lines[index - 1]))


@contextmanager
def reading(fs: FS, path: str) -> Iterator[Handle]:
    """Open a file to read, and close it whatever happens."""
    handle = fs.open(path, "read")
    try:
        yield handle
    finally:
        with suppress(OSError):  # it was only read: all that closing could tell was told by the reads
            fs.close(handle)


def size_of(fs: FS, path: str) -> int:
    """Give a file's length; a file that is gone raises as opening it would."""
    found = fs.stat(path)
    if found is None:
        raise FileNotFoundError(2, "no such file", path)
    return found.size


def runs(fs: FS, segment: Segment, start: Mark, end: int | None = None, *, last: bool = False) -> Iterator[Run]:
    """Read a segment from a known place to byte `end` (None: its end), verifying each line.

    With `last`, a whole record at the end of the file is good even if its newline, and nothing but NULs, is missing.
    """
    with reading(fs, segment.path) as handle:
        limit = size_of(fs, segment.path) if end is None else end
        place, rest, offset = start, b"", start.offset
        while offset < limit:
            chunk = fs.read(handle, min(CHUNK, limit - offset), offset)
            if not chunk:
                raise BadRecord(segment, place, f"the file ends at byte {offset}, before byte {limit}")
            offset += len(chunk)
            text = rest + chunk if rest else chunk
            lines = text.split(b"\n")
            rest = lines.pop()
            if lines:
                run = _verified(place, lines)
                if not text.isascii():
                    _refuse_other_alphabets(segment, run)
                yield run
                place = run.end
                segment.note(place)
                if len(run.lines) < len(lines):
                    raise _bad(segment, place, lines[len(run.lines)])
            if len(rest) >= MAX_LINE:
                raise BadRecord(segment, place, f"a line over {MAX_LINE:,} bytes")
        if rest:
            whole = rest.rstrip(b"\0")
            if not last or not is_good(whole, place.seq, place.chain):
                raise _bad(segment, place, rest)
            yield Run(place, [whole], Mark(place.seq + 1, place.offset + len(whole) + 1, sum_of(whole)), unended=True)


def _verified(start: Mark, lines: list[bytes]) -> Run:
    """Keep the good lines up to the first bad one."""
    sums = _sums(start, lines)
    good = lines
    if sums is None:
        chain = start.chain
        for index, line in enumerate(lines):
            if not is_good(line, start.seq + index, chain) or len(line) >= MAX_LINE:
                good = lines[:index]
                break
            chain = sum_of(line)
    else:
        chain = sums[-1]
    return Run(start, good, Mark(start.seq + len(good), start.offset + sum(map(len, good)) + len(good), chain))


def _sums(start: Mark, lines: list[bytes]) -> list[int] | None:
    """Give the sums of lines that are all good, else None. This is what replay costs; most of it is done in bulk."""
    chain = start.chain
    sums: list[int] = []
    add = sums.append
    for line in lines:
        chain = crc32(line[:-SUM_SIZE], chain)
        add(chain)
    count = len(lines)
    if b"".join([line[-SUM_SIZE:] for line in lines]) != b',"sum":"%08x"}' * count % tuple(sums):
        return None
    # Numbers of equal length make heads of equal length; where a digit is added, lines are looked at one by one.
    head = len(b'{"seq":%d,"event":{"type":"' % start.seq)
    numbers = range(start.seq, start.seq + count)
    heads = b'{"seq":%d,"event":{"type":"' * count % tuple(numbers)
    if len(heads) != head * count or b"".join([line[:head] for line in lines]) != heads:
        return None
    # Only the first line can hold more than was read at once.
    return sums if len(lines[0]) < MAX_LINE else None


def _refuse_other_alphabets(segment: Segment, run: Run) -> None:
    """Refuse lines that are not UTF-8 though their sums are right: no writer of ours makes them."""
    text = b"\n".join(run.lines)
    try:
        text.decode()
    except UnicodeDecodeError as error:
        index = text.count(b"\n", 0, error.start)
        raise _bad(segment, run.mark(index), run.lines[index]) from None


def _bad(segment: Segment, place: Mark, line: bytes) -> BadRecord:
    return BadRecord(segment, place, explain(line, place.seq, place.chain))


# --- torn or damaged --------------------------------------------------------------------------------------------------


def is_torn(fs: FS, bad: BadRecord) -> bool:
    """Tell, for a bad record in the last segment, whether a power cut explains it.

    It does only if no later record proves that it had been synced, and its line either never got its newline or has a
    sector of NULs. A whole record followed by a byte that is no newline is rot: a newline that flipped.
    """
    with reading(fs, bad.segment.path) as handle:
        size = size_of(fs, bad.segment.path)
        after, nul_sector = _walk_line(fs, handle, bad.place.offset, size)
        head = _read_all(fs, handle, bad.place.offset, min(after or size, bad.place.offset + MAX_LINE))
        for length in whole_records(head, bad.place.seq, bad.place.chain):
            follower = bad.place.offset + length
            if head[length : length + 1] not in {b"\0", b""} or follower % SECTOR:
                return False
        if after is not None and not nul_sector:
            return False
        return after is None or not _is_proven_synced(fs, handle, after, size, bad.place.seq)


def _walk_line(fs: FS, handle: Handle, start: int, size: int) -> tuple[int | None, bool]:
    """Find where the line after a bad one begins (None: there is no newline), and whether a sector of it is all NUL."""
    offset, nul_sector = start, False
    while offset < size:
        # Each step ends at a multiple of the sector, so that no piece is cut elsewhere.
        step = min(CHUNK - offset % CHUNK, size - offset)
        chunk = _read_all(fs, handle, offset, offset + step)
        newline = chunk.find(b"\n")
        line = chunk if newline < 0 else chunk[:newline]
        edge = -offset % SECTOR or SECTOR
        pieces = [line[:edge], *(line[at : at + SECTOR] for at in range(edge, len(line), SECTOR))]
        nul_sector = nul_sector or any(piece and not piece.strip(b"\0") for piece in pieces)
        if newline >= 0:
            return offset + newline + 1, nul_sector
        offset += step
    return None, nul_sector


def _is_proven_synced(fs: FS, handle: Handle, start: int, size: int, seq: int) -> bool:
    """Tell whether any line from `start` on, readable by itself, was written in a batch after record `seq`."""
    rest, offset, skipping = b"", start, False
    while offset < size:
        chunk = _read_all(fs, handle, offset, min(offset + CHUNK, size))
        if not chunk:  # the file became shorter while it was read
            return False
        offset += len(chunk)
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        if skipping and lines:
            del lines[0]
            skipping = False
        if len(rest) >= MAX_LINE:  # no record is that long; its remainder is passed over
            rest, skipping = b"", True
        if any(_began_after(line, seq) for line in lines):
            return True
    return bool(rest) and not skipping and _began_after(rest, seq)


def _began_after(line: bytes, seq: int) -> bool:
    try:
        return decode_batch(line).b > seq
    except (ValueError, RecursionError):
        return False


def _read_all(fs: FS, handle: Handle, start: int, end: int) -> bytes:
    """Read [start, end); short reads are continued."""
    data = fs.read(handle, end - start, start)
    while len(data) < end - start:
        more = fs.read(handle, end - start - len(data), start + len(data))
        if not more:
            break
        data += more
    return data
