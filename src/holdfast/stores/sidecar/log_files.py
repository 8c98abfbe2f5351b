"""Run logs as files, one JSON line a line, `logs/<run id>.jsonl`, for stores that are directories.

Soft: nothing is synced, and what cannot be written is lost. A line that a crash cut short is skipped by readers and
closed off before the next one is written. A file is read piece by piece, and whoever asks for the next page goes on
where the last one ended: a long log costs the memory of a piece, and is read once.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import sha256

import msgspec

from holdfast.journal.filesystem import FS, Handle, write_all
from holdfast.journal.fs_errors import telling
from holdfast.journal.scan import reading, size_of
from holdfast.model.ids import RunId
from holdfast.model.logs import LogLine, NumberedLine, storable
from holdfast.model.times import Timestamp

log = logging.getLogger(__name__)

FOLDER = "logs"
#: Ids that are file names as they are; others are hashed.
_PLAIN = re.compile(r"[0-9a-f-]{36}")
#: Bytes at the end of a file that surely hold its last line; what is longer is no line of ours.
TAIL = 128 * 1024
#: Bytes read at a time.
PIECE = 64 * 1024
#: Runs of which it is remembered where pages ended, and pages of each: several may read one at a time.
READ, PLACES = 256, 8
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(LogLine).decode


class FileLogs:
    """Lines of runs below the root of `fs`."""

    def __init__(self, fs: FS, root: str, *, readonly: bool = False) -> None:
        self._fs = fs
        self._root = root
        self._readonly = readonly
        self._lock = threading.Lock()
        self._made = False
        #: Run → number of a line that ended a page → where the next one begins. Those used last are last.
        self._places: OrderedDict[RunId, OrderedDict[int, int]] = OrderedDict()

    def add(self, lines: Sequence[tuple[RunId, LogLine]]) -> None:
        """Append lines, file by file."""
        if self._readonly:
            return
        texts: dict[RunId, list[bytes]] = {}
        for run_id, line in lines:
            texts.setdefault(run_id, []).append(_encode(storable(line)) + b"\n")
        with self._lock:
            try:
                self._make()
                for run_id, encoded in texts.items():
                    self._append(_path(run_id), b"".join(encoded))
            except OSError as error:
                log.warning("logs.lost", extra={"file": self._root, "lines": len(lines), "error": str(error)})

    def _make(self) -> None:
        if not self._made:
            with suppress(FileExistsError):
                self._fs.mkdir(FOLDER)
            self._made = True

    def _append(self, path: str, text: bytes) -> None:
        found = self._fs.stat(path)
        handle = self._fs.open(path, "create" if found is None else "append")
        try:
            if found is not None and found.size and self._fs.read(handle, 1, found.size - 1) != b"\n":
                text = b"\n" + text
            write_all(self._fs, handle, text)
        finally:
            self._fs.close(handle)

    def read(self, run_id: RunId, after: int = 0, limit: int = 1000) -> Sequence[NumberedLine]:
        """Give lines; what is no line is not counted."""
        path = _path(run_id)
        with telling(self._root, "reading a run's log"):
            found = self._fs.stat(path)
            if found is None or limit <= 0:
                return []
            with reading(self._fs, path) as handle:
                return self._page(handle, run_id, found.size, after, limit)

    def _page(self, handle: Handle, run_id: RunId, size: int, after: int, limit: int) -> list[NumberedLine]:
        number, start = after, self._place(run_id, after, size)
        if start and self._fs.read(handle, 1, start - 1) != b"\n":
            start = 0  # it is another file than it was
        if not start:
            number = 0
        page: list[NumberedLine] = []
        behind = 0
        for text, end in self._texts(handle, start):
            line = _line(text)
            if line is None:
                continue
            number, behind = number + 1, end
            if number > after:
                page.append(NumberedLine(number, line))
            if len(page) == limit:
                break
        if behind and number >= after:  # also where nothing came behind it: it is asked for again
            self._remember(run_id, number, behind)
        return page

    def _texts(self, handle: Handle, start: int) -> Iterator[tuple[bytes, int]]:
        """Walk the texts between line ends from a place on, each with the place behind it; 0 if it has no end yet.

        What is longer than TAIL is passed over.
        """
        rest, at, is_beyond = b"", start, False
        while piece := self._fs.read(handle, PIECE, at + len(rest)):
            *whole, last = (rest + piece).split(b"\n")
            for text in whole:
                at += len(text) + 1
                if not is_beyond:
                    yield text, at
                is_beyond = False
            rest = last
            if len(rest) > TAIL:  # no line of ours: its bytes are passed over up to its end
                at, rest, is_beyond = at + len(rest), b"", True
        if rest and not is_beyond:
            yield rest, 0

    def _place(self, run_id: RunId, after: int, size: int) -> int:
        """Give where the lines behind a number begin, if that is known; else 0."""
        with self._lock:
            places = self._places.get(run_id)
            place = 0 if places is None else places.get(after, 0)
        return place if place <= size else 0

    def _remember(self, run_id: RunId, number: int, place: int) -> None:
        with self._lock:
            places = self._places.setdefault(run_id, OrderedDict())
            places[number] = place
            self._places.move_to_end(run_id)
            if len(places) > PLACES:
                places.popitem(last=False)
            if len(self._places) > READ:
                self._places.popitem(last=False)

    def path(self, run_id: RunId) -> str | None:
        """Return the run's file, or None while nothing was written, or when it could not be seen."""
        with suppress(OSError):
            if self._fs.stat(_path(run_id)) is not None:
                return f"{self._root}/{_path(run_id)}"
        return None

    def sweep(self, before: Timestamp, limit: int) -> int:
        """Remove files whose last line is old, the oldest runs first."""
        with telling(self._root, "removing old logs"):
            if self._fs.stat(FOLDER) is None:
                return 0
            gone = young = 0
            # Ids begin with their time, so the old ones come first; a few long runs may stand between them.
            for name in self._fs.listdir(FOLDER):
                if limit in (gone, young):
                    break
                if self._is_old(f"{FOLDER}/{name}", before):
                    self._fs.unlink(f"{FOLDER}/{name}")
                    gone += 1
                    with self._lock:
                        self._places.clear()  # a run may yet say something, in a new file
                else:
                    young += 1
            return gone

    def _is_old(self, path: str, before: Timestamp) -> bool:
        found = self._fs.stat(path)
        if found is None or found.kind != "file":
            return False
        lines = list(_lines(self._bytes(path, max(0, found.size - TAIL))))
        return not lines or lines[-1].at < before

    def _bytes(self, path: str, start: int) -> bytes:
        with reading(self._fs, path) as handle:
            return self._fs.read(handle, size_of(self._fs, path) - start, start)


def _lines(text: bytes) -> Iterator[LogLine]:
    for part in text.split(b"\n"):
        line = _line(part)
        if line is not None:
            yield line


def _line(text: bytes) -> LogLine | None:
    """Read a line; None for what is none."""
    try:
        return _decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _path(run_id: RunId) -> str:
    name = run_id if _PLAIN.fullmatch(run_id) else f"h-{sha256(run_id.encode()).hexdigest()[:40]}"
    return f"{FOLDER}/{name}.jsonl"
