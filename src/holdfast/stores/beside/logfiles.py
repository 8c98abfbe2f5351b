"""Run logs as files, one JSON line a line, `logs/<run id>.jsonl`, for stores that are directories.

Soft: nothing is synced, and what cannot be written is lost. A line that a crash cut short is skipped by readers and
closed off before the next one is written.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import sha256

import msgspec

from holdfast.journal.failures import telling
from holdfast.journal.fs import FS, write_all
from holdfast.journal.scan import reading, size_of
from holdfast.model.ids import RunId
from holdfast.model.logs import LogLine, NumberedLine, storable
from holdfast.model.times import Timestamp

log = logging.getLogger(__name__)

FOLDER = "logs"
#: Ids that are file names as they are; others are hashed.
_PLAIN = re.compile(r"[0-9a-f-]{36}")
#: Bytes at the end of a file that surely hold its last line.
TAIL = 128 * 1024
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
            if self._fs.stat(path) is None:
                return []
            text = self._bytes(path, 0)
        numbered = (NumberedLine(number, line) for number, line in enumerate(_lines(text), start=1))
        return [line for line in numbered if after < line.line_no <= after + limit]

    def path(self, run_id: RunId) -> str | None:
        """Give the run's file, whether it has been written or not."""
        return f"{self._root}/{_path(run_id)}"

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
    for line in text.splitlines():
        with suppress(msgspec.MsgspecError):
            yield _decode(line)


def _path(run_id: RunId) -> str:
    name = run_id if _PLAIN.fullmatch(run_id) else f"h-{sha256(run_id.encode()).hexdigest()[:40]}"
    return f"{FOLDER}/{name}.jsonl"
