"""The feed: the store's events in order, one JSON line each, in files named by the number of their first.

Only the newest file grows. A commit appends its lines in one write and syncs: that marks its intent as applied. So the
number of the last whole line says which intents are done, and the newest file is never removed. A line carries the
CRC-32 of its event. What follows the last whole line of the newest file is torn if an intent still has it; else it was
acknowledged, and is damage. An older file that is not whole is damage always.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from holdfast.errors import StoreDamaged
from holdfast.journal.filesystem import FS, Handle, write_all
from holdfast.journal.fs_errors import telling
from holdfast.journal.scan import reading
from holdfast.model.times import Timestamp
from holdfast.stores.dir.format.record_files import FEED
from holdfast.stores.dir.intent import Told
from holdfast.stores.feed_errors import forgotten
from holdfast.stores.protocol import Entry

#: Bytes of a file after which the next one is begun.
ROTATE: Final = 16 << 20
_NAME = re.compile(r"([0-9]{16})\.jsonl")
PIECE: Final = 1 << 20


class Line(msgspec.Struct, frozen=True, gc=False):
    """One event as the feed has it."""

    seq: int
    ts: Timestamp
    #: Of the event as it stands in the line, eight hex digits.
    crc: str
    event: msgspec.Raw


class _Grant(msgspec.Struct, gc=False):
    """What of an event tells the counter of tokens."""

    type: str
    token: int = 0


_encode = msgspec.json.Encoder().encode
_line = msgspec.json.Decoder(Line)
_grant = msgspec.json.Decoder(_Grant)
#: How events begin that grant a lease, or the lock of an instance: all count with one counter.
_GRANTS = (b'{"type":"lease:granted",', b'{"type":"turn:locked",')
_LONGEST = max(map(len, _GRANTS))


class End(NamedTuple):
    """Where the good part of a file ends."""

    #: Number of its last whole line; one less than its name says if it has none.
    seq: int
    #: Time of that line.
    ts: Timestamp
    #: Bytes of the good part, and of all.
    good: int
    size: int
    #: Highest token that a lease or a lock in it was granted with.
    token: int

    @property
    def is_torn(self) -> bool:
        """Whether something follows the last whole line."""
        return self.good < self.size


def path_of(first: int) -> str:
    """Give the path of the file that begins with that number."""
    return f"{FEED}/{first:016}.jsonl"


def files(fs: FS) -> list[int]:
    """Give the first numbers of the feed's files, ascending."""
    return sorted(int(found[1]) for name in fs.listdir(FEED) if (found := _NAME.fullmatch(name)))


def parsed(text: bytes, seq: int) -> Line | None:
    """Read a line without its newline; None if it is not the whole line of that number."""
    try:
        line = _line.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return line if line.seq == seq and f"{crc32(line.event):08x}" == line.crc else None


def walk(fs: FS, first: int, size: int | None = None) -> Iterator[tuple[Line, int]]:
    """Walk the whole lines of a file with the offset after each; ends before the first that is not whole."""
    offset, rest, seq = 0, b"", first
    with reading(fs, path_of(first)) as handle:
        while size is None or offset < size:
            piece = fs.read(handle, PIECE if size is None else min(PIECE, size - offset), offset)
            if not piece:
                return
            at, offset = offset - len(rest), offset + len(piece)
            lines = (rest + piece).split(b"\n")
            rest = lines.pop()
            for text in lines:
                line = parsed(text, seq)
                if line is None:
                    return
                at, seq = at + len(text) + 1, seq + 1
                yield line, at


def end_of(fs: FS, first: int) -> End:
    """Read a file to its end."""
    seq, ts, good, token = first - 1, Timestamp(""), 0, 0
    for line, offset in walk(fs, first):
        seq, ts, good = line.seq, line.ts, offset
        token = max(token, token_of(line.event))
    found = fs.stat(path_of(first))
    return End(seq, ts, good, good if found is None else found.size, token)


def lines_of(events: Iterable[Told]) -> bytes:
    """Give events as the feed has them."""
    lines = (Line(told.seq, told.ts, f"{crc32(told.event):08x}", told.event) for told in events)
    return b"".join(_encode(line) + b"\n" for line in lines)


def token_of(event: msgspec.Raw) -> int:
    """Give the token an event grants; 0 if it grants none."""
    if not bytes(memoryview(event)[:_LONGEST]).startswith(_GRANTS):
        return 0
    return _grant.decode(event).token


class Feed:
    """The feed of one store, open for appending or only for reading."""

    def __init__(self, fs: FS, root: str, firsts: list[int], end: End | None) -> None:
        """Take over what opening found: files, and the end of the newest."""
        self._fs = fs
        self._root = root
        self.firsts = firsts
        #: Number and bytes of what is durable.
        self.seq = end.seq if end is not None else 0
        self.size = end.good if end is not None else 0
        self._handle: Handle | None = None

    @property
    def held(self) -> int:
        """How many events the newest file has."""
        return self.seq + 1 - self.firsts[-1] if self.firsts else 0

    def all_bytes(self) -> int:
        """Give the bytes of all files."""
        sizes = (self._fs.stat(path_of(first)) for first in self.firsts)
        return sum(found.size for found in sizes if found is not None)

    def begin(self, first: int) -> None:
        """Begin the next file; the counters must be durable elsewhere before. On failure the last one stays."""
        handle = self._fs.open(path_of(first), "create")
        try:
            # Its name must stay before anything in it is acknowledged.
            self._fs.sync(handle, metadata=True)
            self._fs.sync_dir(FEED)
        except BaseException:
            with suppress(OSError):
                self._fs.close(handle)
            with suppress(OSError):  # or the next try finds its name taken
                self._fs.unlink(path_of(first))
            raise
        old, self._handle = self._handle, handle
        if old is not None:
            with suppress(OSError):  # all in it was synced
                self._fs.close(old)
        self.firsts.append(first)
        self.seq, self.size = first - 1, 0

    def append(self, events: Sequence[Told]) -> None:
        """Add lines in one write, durable on return."""
        if self._handle is None:
            self._handle = self._fs.open(path_of(self.firsts[-1]), "append")
        text = lines_of(events)
        write_all(self._fs, self._handle, text)
        self._fs.sync(self._handle, metadata=False)
        self.seq, self.size = events[-1].seq, self.size + len(text)

    def entries(self, after: int, until: int) -> Iterator[Entry]:
        """Walk the events above `after` up to `until`. Raises InvalidValue if some are not there any more."""
        firsts = self.firsts[:]
        if after < until and (not firsts or firsts[0] > after + 1):
            raise forgotten(firsts[0] - 1 if firsts else until)
        return self._entries(firsts, after, until)

    def _entries(self, firsts: list[int], after: int, until: int) -> Iterator[Entry]:
        wanted = after + 1
        for at, first in enumerate(firsts):
            following = firsts[at + 1] if at + 1 < len(firsts) else until + 1
            if following <= wanted or first > until:
                continue
            try:
                with telling(self._root, "reading the feed"):
                    for line, _ in walk(self._fs, first):
                        if wanted <= line.seq <= until:
                            yield Entry(line.seq, line.ts, line.event)
                            wanted = line.seq + 1
            except Exception as error:
                if isinstance(error.__cause__, FileNotFoundError):  # trimmed while it was walked
                    raise forgotten(following - 1) from error
                raise
            if wanted < min(following, until + 1):
                raise self.damaged(first, wanted)

    def damaged(self, first: int, seq: int) -> StoreDamaged:
        """Say that a file does not go on where it should."""
        file, line = f"{self._root}/data/{path_of(first)}", seq - first + 1
        return StoreDamaged(
            f"{file}, line {line}: is not the whole event {seq}. Nothing was changed.",
            hint=f"Run `holdfast store repair dir:{self._root}`; the original stays beside it.",
            file=file,
            line=line,
            seq=seq,
            reason="a line of the feed is not whole",
        )

    def trim(self, before: Timestamp, upto: int) -> int:
        """Remove the oldest file if all in it is older than `before` or numbered up to `upto`; give how many it had."""
        if len(self.firsts) < 2:
            return 0
        first, following = self.firsts[:2]
        newest = next((line.ts for line, _ in walk(self._fs, following)), None)
        if following > upto + 1 and (newest is None or newest >= before):
            # The next file's first event is not older: then neither, perhaps, is the last of this one.
            last = end_of(self._fs, first)
            if last.ts >= before:
                return 0
        del self.firsts[0]
        with suppress(FileNotFoundError):
            self._fs.unlink(path_of(first))
        self._fs.sync_dir(FEED)
        return following - first

    def close(self) -> None:
        """Let go of the newest file."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._fs.close(handle)
