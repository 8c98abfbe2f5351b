"""The text of a record's file: UTF-8 JSON for people, read strictly. Knows no record.

Written with two blanks a level and a newline at the end. Read: also with a byte-order mark; refused are duplicate
names, NaN and infinities, texts over 4 MiB, and nesting deeper than a payload may be within its file.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.errors import UsageError
from holdfast.journal.filesystem import FS, Stat
from holdfast.journal.scan import reading
from holdfast.model.payloads import admit

#: Bytes of a file.
MAX_FILE: Final = 4 << 20
#: Levels of a file around the deepest payload in it: the record, its list of runs, a run, and one to spare.
AROUND: Final = 4
#: Bytes read at a time; nearly every file is one piece.
PIECE: Final = 256 << 10
_BOM = b"\xef\xbb\xbf"


class Unreadable(Exception):
    """A file that is no good record; its text says why."""


def pretty(compact: bytes | msgspec.Raw) -> bytes:
    """Give a record's text as its file has it."""
    return msgspec.json.format(bytes(compact), indent=2) + b"\n"


def compacted(text: bytes) -> bytes:
    """Check the text of a file and give it without its blanks. Raises Unreadable."""
    if len(text) > MAX_FILE:
        raise Unreadable(f"it is larger than the {MAX_FILE:,} bytes of a file")
    try:
        # Without its blanks nearly every text is what encoding it again gives, which proves it good at little cost.
        return bytes(admit(msgspec.json.format(text.removeprefix(_BOM), indent=-1), "file", MAX_FILE, AROUND))
    except UsageError as problem:
        raise Unreadable(problem.message) from None
    except (ValueError, RecursionError) as problem:
        raise Unreadable(f"not JSON: {problem}") from None


def read_bytes(fs: FS, path: str) -> bytes:
    """Read a whole file, or so much that it is seen to be too large for a record. Raises OSError."""
    with reading(fs, path) as handle:
        text = fs.read(handle, PIECE, 0)
        while len(text) <= MAX_FILE and (more := fs.read(handle, PIECE, len(text))):
            text += more
    return text


def whole(fs: FS, path: str) -> bytes:
    """Read a file of whatever size. Raises OSError."""
    found = fs.stat(path)
    if found is None:
        raise FileNotFoundError(2, "no such file", path)
    with reading(fs, path) as handle:
        text = b""
        while len(text) < found.size and (piece := fs.read(handle, found.size - len(text), len(text))):
            text += piece
    return text


def unblanked(text: bytes) -> bytes:
    """Give a text that only we write without its blanks, however large or deep it is. Raises Unreadable."""
    try:
        return msgspec.json.format(text, indent=-1)
    except (ValueError, RecursionError) as problem:
        raise Unreadable(f"not JSON: {problem}") from None


#: What tells one state of a file from another: inode, bytes, time of change.
Signature = tuple[int, int, int]


def signature(found: Stat | None) -> Signature | None:
    """Give what tells this state of a file from another; None if there is no file."""
    return None if found is None or found.kind != "file" else (found.inode, found.size, found.mtime_ns)
