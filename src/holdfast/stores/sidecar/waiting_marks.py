"""Waiting marks: which leases of an opening have not begun, readable after its process was killed.

One file beside the store has a region for each slot of the sessions' file. The process that holds the slot writes there
what it was granted and has not started. It writes without a sync: what a process has written stays when it is killed,
since the kernel has it. After a power cut the file may be old, so a region counts only within the boot of the machine
in which it was written. What is not marked counts as begun, so a mark that could not be written harms nobody.

A region: 64 bytes of a session's mark, 64 of the boot's id, then one record for each worker of the process (16 bytes:
which worker, and the highest token it has received: later ones cannot have begun), then tokens of 8 bytes.
"""

from __future__ import annotations

import os
import struct
import threading
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

from holdfast.model.ids import Token

#: Bytes of a region, of the text at its beginning, and of the records of workers behind it.
REGION = 8192
_HEAD, _WORKERS = 128, 256
_RECORD = struct.Struct("<8sQ")
_TOKEN = struct.Struct("<Q")
#: Tokens that a region has room for. Those beyond are not marked.
TOKENS = (REGION - _HEAD - _WORKERS) // _TOKEN.size


@cache
def boot_id() -> bytes | None:
    """Give what tells one boot of this machine from another; None where nothing does."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()[:62] or None
    return None


class MarkedRegion:
    """The region of one living session. Any thread may use it; nothing here raises."""

    def __init__(self, path: str, slot: int, mark: bytes) -> None:
        """Take the region of a slot that this process holds."""
        self._path = path
        self._start = slot * REGION
        self._lock = threading.Lock()
        #: What the region contains.
        self._content = bytearray(REGION)
        #: Which worker → where its record is; token → where it is; where there is room. Offsets in the region.
        self._workers: dict[bytes, int] = {}
        self._places: dict[Token, int] = {}
        self._free = list(range(REGION - _TOKEN.size, _HEAD + _WORKERS - 1, -_TOKEN.size))
        boot = boot_id()
        self._fd = -1 if boot is None else _open(path, os.O_RDWR | os.O_CREAT)
        self._closing = weakref.finalize(self, _close, self._fd)
        self._closing.atexit = False
        # Whole, and its name last: a region that is named has nothing of another session.
        self._write(0, REGION)
        self._content[:_HEAD] = mark.ljust(64, b"\0") + (boot or b"").ljust(64, b"\0")
        self._write(0, _HEAD)

    def join(self, worker: str) -> None:
        """Say that nothing granted to this worker has begun, until it says what it has received."""
        with self._lock:
            at = _HEAD + len(self._workers) * _RECORD.size
            if at < _HEAD + _WORKERS:
                self._workers[_short(worker)] = at
                self._record(_short(worker), 0)

    def receive(self, worker: str | None, received: Token, waiting: Sequence[Token]) -> None:
        """Say that a worker has received leases up to a token, of which these are not to begin at once."""
        with self._lock:
            places = [self._free.pop() for _ in waiting[: len(self._free)]]
            for token, at in zip(waiting, places, strict=False):
                self._places[token] = at
                _TOKEN.pack_into(self._content, at, token)
            if places:
                self._write(min(places), max(places) + _TOKEN.size)
            # Last: what waits is known to wait before the record of its worker stops saying so.
            if worker is not None and _short(worker) in self._workers:
                self._record(_short(worker), received)

    def clear(self, token: Token) -> None:
        """Say that this one begins now, or is not held any more."""
        if token not in self._places:
            return
        with self._lock:
            at = self._places.pop(token, None)
            if at is not None:
                _TOKEN.pack_into(self._content, at, 0)
                self._write(at, at + _TOKEN.size)
                self._free.append(at)

    def close(self) -> None:
        """Write no more. What was written stays."""
        with self._lock:
            self._fd = -1
            self._closing()

    def _record(self, worker: bytes, received: int) -> None:
        at = self._workers[worker]
        _RECORD.pack_into(self._content, at, worker, received)
        self._write(at, at + _RECORD.size)

    def _write(self, start: int, stop: int) -> None:
        if self._fd < 0:
            return
        try:
            if os.pwrite(self._fd, self._content[start:stop], self._start + start) == stop - start:
                return
        except OSError:
            pass
        self._give_up()

    def _give_up(self) -> None:
        """Have nothing read here any more: a mark that stays would excuse a job that has begun."""
        fd, self._fd = self._fd, -1
        with suppress(OSError):
            os.unlink(self._path)  # noqa: PTH108 - the path may be bytes that are no text
        with suppress(OSError):
            os.ftruncate(fd, self._start)
        self._closing()


def unbegun(path: str, slot: int, mark: bytes, leases: Iterable[tuple[str | None, Token]]) -> set[Token]:
    """Give those of a dead session's leases, each with its worker, that had certainly not begun."""
    region = _read(path, slot)
    if boot_id() is None or (region[:64].rstrip(b"\0"), region[64:_HEAD].rstrip(b"\0")) != (mark, boot_id()):
        return set()
    received = dict(_RECORD.iter_unpack(region[_HEAD : _HEAD + _WORKERS]))
    waiting = {token for (token,) in _TOKEN.iter_unpack(region[_HEAD + _WORKERS :])}
    return {
        token
        for worker, token in leases
        if token in waiting or (worker is not None and token > received.get(_short(worker), token))
    }


def _read(path: str, slot: int) -> bytes:
    fd = _open(path, os.O_RDONLY)
    try:
        region = b"" if fd < 0 else os.pread(fd, REGION, slot * REGION)
    except OSError:
        region = b""
    finally:
        _close(fd)
    return region if len(region) == REGION else b""


def _open(path: str, flags: int) -> int:
    """Give a descriptor, or -1. Whatever lies at the path, opening it neither follows nor waits."""
    try:
        return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError:
        return -1


def _short(worker: str) -> bytes:
    return sha256(worker.encode("utf-8", "backslashreplace")).digest()[:8]


def _close(fd: int) -> None:
    if fd >= 0:
        with suppress(OSError):
            os.close(fd)
