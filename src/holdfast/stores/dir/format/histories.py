"""Histories: one file an execution, one event a line, and it only grows. Read from the disk when somebody asks.

How many bytes of a file count is said by the execution's own file, which is put after an append is durable. What
follows them is torn; what is missing of them, or cannot be read, is damage to this history alone: it is given as an
event that nobody can decode, never left out, and the next event still fits behind it. In memory: only where each
history lies, and how far it goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from holdfast.journal.filesystem import FS, Handle, write_all
from holdfast.journal.fs_errors import telling
from holdfast.journal.scan import reading
from holdfast.model.workflows.instances import HistoryRow
from holdfast.stores.dir.format.directories import make
from holdfast.stores.dir.intent import Append

FILE: Final = "history.jsonl"
#: Bytes read at a time, and from the end of a file.
PIECE: Final = 256 << 10
LAST: Final = 16 << 10
#: Stands for an event that cannot be read. It is none.
DAMAGED: Final = msgspec.Raw(b"null")


class Line(msgspec.Struct, frozen=True, gc=False):
    """One event as its file has it."""

    id: int
    #: CRC-32 of the event as it stands in the line, eight hex digits.
    crc: str
    event: msgspec.Raw


class Kept(NamedTuple):
    """One history on the disk."""

    #: Of its execution.
    folder: str
    #: Bytes that count.
    size: int = 0
    #: Whether the ids of its lines only rise: nearly always.
    ordered: bool = True


_encode = msgspec.json.Encoder().encode
_line = msgspec.json.Decoder(Line)


def line_of(row: HistoryRow) -> msgspec.Raw:
    """Write an event as a line, without its newline."""
    return msgspec.Raw(_encode(Line(row.event_id, f"{crc32(row.event):08x}", row.event)))


def size_of(lines: Iterable[msgspec.Raw]) -> int:
    """Give how many bytes lines have in their file."""
    return sum(memoryview(line).nbytes + 1 for line in lines)


def append(fs: FS, effect: Append) -> None:
    """Bring a history to what a commit says, durable on return: cut behind the bytes that counted, then add.

    A file that lacks some of them keeps a blank line in their place, which is no event.
    """
    path = f"{effect.folder}/{FILE}"
    try:
        handle, new = fs.open(path, "append"), False
    except FileNotFoundError:
        make(fs, effect.folder)
        handle, new = fs.open(path, "create"), True
    try:
        found = fs.stat(path)
        missing = effect.offset - (0 if found is None else found.size)
        if missing < 0:
            fs.truncate(handle, effect.offset)
        text = b"".join(bytes(line) + b"\n" for line in effect.lines)
        write_all(fs, handle, b" " * (missing - 1) + b"\n" + text if missing > 0 else text)
        fs.sync(handle, metadata=True)
    finally:
        fs.close(handle)
    if new:
        # Before the execution's own file counts what is in it: one directory keeps some names and loses others.
        fs.sync_dir(effect.folder)


class Histories:
    """Where the histories of a store lie, and what is in them."""

    def __init__(self, fs: FS, root: str) -> None:
        self.fs = fs
        self._root = root
        #: By number of the history.
        self.kept: dict[int, Kept] = {}

    def rows(self, history_id: int, after: int = 0, limit: int | None = None) -> Sequence[HistoryRow]:
        """Give the events with ids above `after`, by id; all, or the first ones. Raises StoreError."""
        kept = self.kept.get(history_id)
        if kept is None or not kept.size:
            return []
        with telling(self._root, f"reading {kept.folder}/{FILE}"):
            found = self._walk(history_id, kept, after)
            wanted = (row for row in found if row.event_id > after or row.event is DAMAGED)
            if kept.ordered:
                return list(islice(wanted, limit))
            return sorted(wanted, key=lambda row: row.event_id)[:limit]

    def row(self, history_id: int, event_id: int) -> HistoryRow | None:
        """Give one event; None if it is not there or cannot be read. Raises StoreError."""
        kept = self.kept.get(history_id)
        if kept is None or not kept.size:
            return None
        with telling(self._root, f"reading {kept.folder}/{FILE}"):
            for row in self._walk(history_id, kept, event_id - 1):
                if row.event_id == event_id and row.event is not DAMAGED:
                    return row
        return None

    def _walk(self, history_id: int, kept: Kept, after: int) -> Iterator[HistoryRow]:
        """Walk the lines, as far as the ids rise from the last one that is not wanted."""
        try:
            with reading(self.fs, f"{kept.folder}/{FILE}") as handle:
                start = self._start(handle, kept, after) if after and kept.ordered else 0
                yield from self._lines(handle, history_id, kept.size, start)
        except FileNotFoundError:
            yield HistoryRow(history_id, 1, DAMAGED)

    def _start(self, handle: Handle, kept: Kept, after: int) -> int:
        """Find, from the end, a line at or before the first one with an id above `after`: what is new is short."""
        size = LAST
        while size < kept.size:
            at = kept.size - size
            text = self.fs.read(handle, size, at)
            begin = text.find(b"\n") + 1
            line = parsed(text[begin : text.find(b"\n", begin)]) if begin else None
            if line is not None and line.id <= after:
                return at + begin
            size *= 4
        return 0

    def _lines(self, handle: Handle, history_id: int, size: int, start: int) -> Iterator[HistoryRow]:
        offset, rest, last = start, b"", 0
        while offset < size and (piece := self.fs.read(handle, min(PIECE, size - offset), offset)):
            offset += len(piece)
            *texts, rest = (rest + piece).split(b"\n")
            for text in texts:
                line = parsed(text)
                last = last + 1 if line is None else line.id
                yield HistoryRow(history_id, last, DAMAGED if line is None else line.event)
        if rest or offset < size:
            yield HistoryRow(history_id, last + 1, DAMAGED)


def parsed(text: bytes) -> Line | None:
    """Read a line without its newline; None if it is not what was written."""
    try:
        line = _line.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return line if f"{crc32(line.event):08x}" == line.crc else None
