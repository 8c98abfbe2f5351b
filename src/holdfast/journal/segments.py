"""Segments: the files the log is made of, their names and where their records lie.

A name is the number of the first record and the chain value before it. Concatenated in name order the segments are
the log; only the last is open for writing. Here nothing is verified: names are believed until a scan has read the
lines.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from operator import attrgetter
from threading import Lock
from typing import NamedTuple

from holdfast.journal.filesystem import FS

FOLDER = "log"
_NAME = re.compile(r"([0-9]{20})-([0-9a-f]{8})\.jsonl")
#: Bytes between two marks of a segment: how far a reader has to look for its first record.
MARK_EVERY = 64 * 1024


class Mark(NamedTuple):
    """A place in a segment: the number of the record that begins there, and the sum of the one before it."""

    seq: int
    offset: int
    chain: int


class Segment:
    """One file of the log."""

    __slots__ = ("_noting", "chain", "first", "marks", "path")

    def __init__(self, first: int, chain: int) -> None:
        self.first = first
        self.chain = chain
        self.path = f"{FOLDER}/{first:020d}-{chain:08x}.jsonl"
        #: Verified places, rising, thinly spread; the start of the file is always one.
        self.marks = [Mark(first, 0, chain)]
        self._noting = Lock()

    def note(self, mark: Mark) -> None:
        """Remember a verified place, if the last one is far enough behind."""
        if mark.offset - self.marks[-1].offset >= MARK_EVERY:
            with self._noting:  # readers and the writer meet here; marks must keep rising
                if mark.offset - self.marks[-1].offset >= MARK_EVERY:
                    self.marks.append(mark)

    def mark_before(self, seq: int) -> Mark:
        """Give the nearest known place at or before record `seq`."""
        return self.marks[bisect_right(self.marks, seq, key=attrgetter("seq")) - 1]

    def __repr__(self) -> str:
        """Show the name."""
        return f"Segment({self.path})"


class Segments:
    """The log's segments in order. Readers take `all` as it stands; writers replace it."""

    def __init__(self, segments: list[Segment]) -> None:
        self._mutex = Lock()
        self.all = tuple(segments)

    @property
    def last(self) -> Segment:
        """The one open for writing."""
        return self.all[-1]

    def holding(self, seq: int) -> Segment | None:
        """Find the segment in which record `seq` lies, or will lie; None if the log begins after it."""
        at = bisect_right(self.all, seq, key=attrgetter("first"))
        return self.all[at - 1] if at else None

    def add(self, segment: Segment) -> None:
        """Append a new last segment."""
        with self._mutex:
            self.all = (*self.all, segment)

    def replace(self, old: Segment, new: Segment | None = None) -> None:
        """Put `new` in the place of `old`, or nothing."""
        with self._mutex:
            self.all = tuple(
                kept for kept in (new if segment is old else segment for segment in self.all) if kept is not None
            )

    def put_back(self, segment: Segment, instead: Segment | None) -> None:
        """Make `segment` the oldest again, in the place of `instead` if that is given."""
        with self._mutex:
            self.all = (segment, *(kept for kept in self.all if kept is not instead))


def find(fs: FS) -> list[Segment]:
    """List the segments by name, in order. Names of other forms are left alone."""
    if fs.stat(FOLDER) is None:
        return []
    found = (_NAME.fullmatch(name) for name in fs.listdir(FOLDER))
    return [Segment(int(name[1]), int(name[2], 16)) for name in found if name]
