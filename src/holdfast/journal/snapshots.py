"""Snapshots: the whole state at one record, as one compressed JSON document that can be read line by line.

Knows the layout, not what the tables mean. The plain text is

    {"v":1,"seq":41200,"created_at":"…","journal":"<id>","sum":"<chain value at seq>","state":{"applied_seq":41200,
    "jobs":[
    {…},
    {…}
    ],
    "schedules":[
    ]
    },"records":2}

A text is believed only if its checksum holds, every line parses, its `seq` is the one in its name and in its state,
it ends with its own count, and nothing follows. Reading is bounded: a frame that unpacks without end is refused.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import msgspec

from holdfast.journal.filesystem import FS, Handle, write_all
from holdfast.journal.scan import reading, size_of
from holdfast.journal.zstd import ZstdError, compressor, decompressor

FOLDER = "snapshots"
_NAME = re.compile(r"([0-9]{20})\.json\.zst")

#: Records encoded in one go; between two slices other threads get the interpreter.
SLICE = 500
#: Bytes read and unpacked at a time.
STEP = 64 * 1024
#: Bytes of the longest line.
MAX_LINE = 64 * 1024 * 1024
#: No snapshot of ours unpacks to more than this many times its size, beyond a first allowance.
_MAX_RATIO = 4096
_ALLOWANCE = 64 * 1024 * 1024

_encoder = msgspec.json.Encoder()


class BadSnapshot(Exception):
    """A snapshot cannot be believed; the message says why."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot says about itself."""

    #: Schema version of the state.
    v: int = 1
    #: The last record that the state includes.
    seq: int
    created_at: str
    #: Id of the journal it belongs to.
    journal: str
    #: Chain value at `seq`, 8 hex digits.
    sum: str


class _Count(msgspec.Struct):
    records: int


class _Row(msgspec.Struct, gc=False):
    """Any JSON object: its fields are walked over, which shows that they are JSON, and forgotten."""


_header = msgspec.json.Decoder(Header)
_count = msgspec.json.Decoder(_Count)
_rows = msgspec.json.Decoder(list[_Row])


@dataclass(frozen=True, slots=True)
class Written:
    """What went into a snapshot, to be compared with what can be read back."""

    path: str
    #: Bytes of the plain text, its CRC, and bytes on disk.
    length: int
    crc: int
    size: int
    records: int


def path_of(seq: int) -> str:
    """Give the place of the snapshot at record `seq`."""
    return f"{FOLDER}/{seq:020d}.json.zst"


def find(fs: FS) -> list[int]:
    """List the snapshots by their number, newest first. Names of other forms are left alone."""
    if fs.stat(FOLDER) is None:
        return []
    found = (_NAME.fullmatch(name) for name in fs.listdir(FOLDER))
    return sorted((int(name[1]) for name in found if name), reverse=True)


# --- writing ----------------------------------------------------------------------------------------------------------


def write(fs: FS, path: str, header: Header, tables: Mapping[str, Iterable[object]]) -> Written:
    """Stream a snapshot into a new file and sync it. The name is not durable yet, nor verified."""
    handle = fs.open(path, "create")
    try:
        packer = compressor()
        length = crc = size = records = 0
        for text, count in _text(header, tables):
            length, crc, records = length + len(text), crc32(text, crc), records + count
            size += _put(fs, handle, packer.compress(text))
        end = b'},"records":%d}\n' % records
        length, crc = length + len(end), crc32(end, crc)
        size += _put(fs, handle, packer.compress(end) + packer.flush())
        fs.sync(handle, metadata=True)
    finally:
        fs.close(handle)
    return Written(path, length, crc, size, records)


def _put(fs: FS, handle: Handle, data: bytes) -> int:
    if data:
        write_all(fs, handle, data)
    return len(data)


def _text(header: Header, tables: Mapping[str, Iterable[object]]) -> Iterator[tuple[bytes, int]]:
    """Lay out the document up to the end of its tables, in pieces with the number of records in each."""
    opening = _encoder.encode(header)[:-1] + b',"state":{"applied_seq":%d' % header.seq
    yield opening, 0
    for name, rows in tables.items():
        yield b",\n%b:[" % _encoder.encode(name), 0
        separator = b"\n"
        remaining = iter(rows)
        while part := list(itertools.islice(remaining, SLICE)):
            yield separator + _lines(part), len(part)
            separator = b",\n"
        yield b"\n]", 0
    yield b"\n", 0


def _lines(rows: list[object]) -> bytes:
    """Encode records, one a line. Bytes are taken as the JSON they are."""
    if isinstance(rows[0], bytes):
        return b",\n".join(row if isinstance(row, bytes) else _encoder.encode(row) for row in rows)
    # No JSON that is encoded here has a newline inside, so one call and one replacement do for all.
    return _encoder.encode_lines(rows)[:-1].replace(b"\n", b",\n")


# --- reading ----------------------------------------------------------------------------------------------------------


def unpack(fs: FS, path: str) -> Iterator[bytes]:
    """Yield the plain text in bounded pieces. Raises BadSnapshot for anything but one whole frame."""
    unpacker = decompressor()
    limit = _ALLOWANCE + _MAX_RATIO * size_of(fs, path)
    offset = total = 0
    with reading(fs, path) as handle:
        try:
            while not unpacker.eof:
                packed = b""
                if unpacker.needs_input:
                    packed = fs.read(handle, STEP, offset)
                    if not packed:
                        raise BadSnapshot(f"it is cut off at byte {offset}")
                    offset += len(packed)
                text = unpacker.decompress(packed, max_length=4 * STEP)
                total += len(text)
                if total > limit:
                    raise BadSnapshot(f"it unpacks to more than {limit:,} bytes")
                if text:
                    yield text
        except ZstdError as error:
            raise BadSnapshot(f"{error}") from error
        if unpacker.unused_data or fs.read(handle, 1, offset):
            raise BadSnapshot("something follows its end")


def _line_lists(pieces: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Cut a text into lines, without newlines; a list of those that ended in each piece."""
    begun: list[bytes] = []  # of the line that is under way; joined once, for a long line comes in many pieces
    size = 0
    for piece in pieces:
        lines = piece.split(b"\n")
        rest = lines.pop()
        if lines:
            lines[0] = b"".join((*begun, lines[0]))
            begun, size = [], 0
            yield lines
        if rest:
            begun.append(rest)
            size += len(rest)
            if size > MAX_LINE:
                raise BadSnapshot(f"a line is longer than {MAX_LINE:,} bytes")
    if begun:
        raise BadSnapshot("its last line has no end")


def read(fs: FS, seq: int) -> tuple[Header, Iterator[tuple[str, list[bytes]]]]:
    """Read a snapshot's header, and give its records in slices with the name of their table.

    The slices raise BadSnapshot where the text stops making sense, at the latest at its end: it is verified only once
    they are exhausted.
    """
    return parse(unpack(fs, path_of(seq)), seq)


def load_document(fs: FS, seq: int) -> dict[str, Any]:
    """Read a verified snapshot as plain JSON, all at once; only migrations need that."""
    return msgspec.json.decode(b"".join(unpack(fs, path_of(seq))), type=dict[str, Any])


def parse(pieces: Iterable[bytes], seq: int) -> tuple[Header, Iterator[tuple[str, list[bytes]]]]:
    """Take a document apart, line by line."""
    lists = _line_lists(pieces)
    lines = next(lists, None)
    if lines is None:
        raise BadSnapshot("it is empty")
    begin, found, state = lines[0].rpartition(b',"state":{"applied_seq":')
    try:
        header = _header.decode(begin + b"}")
        applied = int(state.removesuffix(b","))
    except (ValueError, RecursionError) as error:
        raise BadSnapshot(f"its first line is not a header ({error})") from error
    if not found or header.seq != seq or applied != seq:
        raise BadSnapshot(f"it says seq {header.seq} and applied_seq {applied}; its name says {seq}")
    body = _tables(itertools.chain([lines[1:]], lists), has_tables=state.endswith(b","))
    return header, body


def _tables(lists: Iterator[list[bytes]], *, has_tables: bool) -> Iterator[tuple[str, list[bytes]]]:
    """Walk the lines after the header. What may come next follows from how the line before ended."""
    table: str | None = None
    #: Another table is announced; this table has rows; its last row announced another.
    announced, begun, comma = has_tables, False, False
    records, ended = 0, False
    for lines in lists:
        at = 0
        while at < len(lines):
            if ended:
                raise BadSnapshot("something follows its count")
            if table is not None:
                end = _end_of_rows(lines, at)
                if end > at:
                    if begun and not comma:
                        raise BadSnapshot(f"table {table} goes on after its last record")
                    begun, comma = True, lines[end - 1].endswith(b",")
                    rows = _checked(lines[at:end], comma=comma)
                    records += len(rows)
                    yield table, rows
                if end < len(lines):
                    if comma:
                        raise BadSnapshot(f"table {table} ends where another record is announced")
                    table, announced = None, lines[end] == b"],"
                at = end + 1
            elif announced:
                table, begun, comma = _table_name(lines[at]), False, False
                at += 1
            elif _records(lines[at]) != records:
                raise BadSnapshot(f"it does not end with the count of its {records} records")
            else:
                ended = True
                at += 1
    if not ended:
        raise BadSnapshot("it ends before its count")


def _end_of_rows(lines: list[bytes], at: int) -> int:
    """Find the line that closes a table, from `at` on; the number of lines if it is not among them."""
    ends = [len(lines)]
    for bracket in (b"]", b"],"):
        with suppress(ValueError):
            ends.append(lines.index(bracket, at, ends[-1]))
    return ends[-1]


def _table_name(line: bytes) -> str:
    try:
        return msgspec.json.decode(line.removesuffix(b":["), type=str)
    except ValueError as error:
        raise BadSnapshot(f"a table was expected, not {line[:40]!r}") from error


def _records(line: bytes) -> int:
    """Read the count from the last line; -1 if it is no such line."""
    try:
        return _count.decode(b"{" + line.removeprefix(b"},")).records if line.startswith(b"},") else -1
    except ValueError:
        return -1


def _checked(rows: list[bytes], *, comma: bool) -> list[bytes]:
    """Check that rows are JSON objects with a comma between each; gives them without the commas."""
    if comma:
        rows[-1] = rows[-1][:-1]
    text = b"[%b]" % b"".join(rows)
    try:
        parsed = _rows.decode(text)
        if not text.isascii():
            text.decode()  # what is walked over is not decoded, so its alphabet has to be seen apart
    except (ValueError, RecursionError) as error:
        raise BadSnapshot(f"a record is not JSON ({error})") from error
    bare = [row[:-1] for row in rows]
    bare[-1] = rows[-1]
    if len(parsed) != len(rows):
        raise BadSnapshot("a line holds something else than one record")
    return bare
