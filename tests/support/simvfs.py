"""Faults below SQLite: each call on its files is listed, and may fail, fall short, or be the last of the process.

Claims one folder while it is entered; every connection opened meanwhile on a database there passes through it, with no
change to the code that opens it. What a power cut would leave is worked out from the list of calls (`vfsdisk`), so a
sync is only noted: a real one would cost time and prove nothing.

The order of use: arm a fault (`fail`, `shorten`, `crash`), run, `die()`, close what was abandoned (descriptors and
locks go, bytes stay), then open the folder again plainly, or `revive()` and go on under the same list.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Literal, NamedTuple, Self

from support.sqliteshim import OpenedFile, failures, real_folder, shim, unavailable

Kind = Literal["open", "create", "read", "write", "truncate", "sync", "size", "close", "delete", "access"]
When = Literal["before", "after"]

#: Calls after which a power cut, or a death, may leave something else than before.
CHANGES = frozenset({"create", "write", "truncate", "sync", "delete"})

#: What a failing call answers unless told otherwise.
CODES: dict[str, int] = {
    "open": sqlite3.SQLITE_CANTOPEN,
    "create": sqlite3.SQLITE_CANTOPEN,
    "read": sqlite3.SQLITE_IOERR_READ,
    "write": sqlite3.SQLITE_IOERR_WRITE,
    "truncate": sqlite3.SQLITE_IOERR_TRUNCATE,
    "sync": sqlite3.SQLITE_IOERR_FSYNC,
    "size": sqlite3.SQLITE_IOERR_FSTAT,
    "delete": sqlite3.SQLITE_IOERR_DELETE,
    "access": sqlite3.SQLITE_IOERR_ACCESS,
}


class Call(NamedTuple):
    """One call, as it came to pass."""

    kind: Kind
    #: Name in the folder.
    file: str
    #: Bytes that were written; at the first opening, what was there before.
    data: bytes = b""
    #: Offset of a read or write, length a truncate left.
    at: int = 0
    #: It was answered with an error. Of a write, `data` is what was taken nevertheless.
    failed: bool = False
    #: The directory was synced with it.
    syncs_folder: bool = False


def available() -> tuple[bool, str]:
    """Tell whether faults can be injected here, and if not, why."""
    reason = unavailable()
    return reason is None, reason or ""


class SimVfs:
    """A folder whose databases fail on request. Safe to share between threads; every call is one step."""

    def __init__(self, folder: str | Path) -> None:
        """Prepare faults for databases directly in `folder`."""
        self.folder = Path(real_folder(folder))
        #: Every call so far, in order. After a death there are no more.
        self.calls: list[Call] = []
        #: How many faults came true.
        self.injected = 0
        self._mutex = RLock()
        self._faults: list[_Fault] = []
        self._dead = False
        self._known: set[str] = set()
        #: Files whose first sync, still to come, syncs the directory.
        self._unnamed: set[str] = set()

    def __enter__(self) -> Self:
        """Claim the folder."""
        failures.clear()
        shim().claim(str(self.folder), self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of the folder; connections that are still open stay under these faults."""
        shim().leave(str(self.folder))
        if failures and error is None:
            raise failures[0]

    # --- faults -----------------------------------------------------------------------------------------------------

    def fail(self, kind: str, nth: int = 1, code: int | None = None, *, times: int | None = 1, file: str = "") -> None:
        """Let the `nth` call of a kind from now on fail, and the `times - 1` after it; None is for ever.

        `kind` is one of `Kind`, `change` for any that changes the disk, or `any`. `file` is the end of a file's name.
        """
        self._faults.append(_Fault(kind, nth, times, file, code=code))

    def shorten(
        self, nth: int = 1, code: int = sqlite3.SQLITE_FULL, *, keep: int | None = None, file: str = ""
    ) -> None:
        """Let the `nth` write take only `keep` bytes, by default half of them, and fail."""
        self._faults.append(_Fault("write", nth, 1, file, code=code, short=True, keep=keep))

    def crash(self, nth: int = 1, kind: str = "change", when: When = "before", *, file: str = "") -> None:
        """Let the process die at the `nth` call of a kind: it, or all that follow, change nothing any more."""
        self._faults.append(_Fault(kind, nth, 1, file, when=when))

    def heal(self) -> None:
        """Forget all faults."""
        with self._mutex:
            self._faults.clear()

    def die(self) -> None:
        """End the process now: no call does anything any more."""
        with self._mutex:
            self._dead = True

    def revive(self) -> None:
        """Let the next process begin. What the dead one had open must have been closed."""
        with self._mutex:
            self._faults.clear()
            self._dead = False
            self._unnamed.clear()

    # --- the layer --------------------------------------------------------------------------------------------------

    def open(self, file: OpenedFile, real: Callable[[], int], content: Callable[[], bytes]) -> int:
        """Open; the first time, what is there is noted and taken for durable."""

        def opened(call: Call) -> tuple[int, Call]:
            code = real()
            if code != sqlite3.SQLITE_OK:
                return _made(call, code)
            if file.syncs_folder:
                self._unnamed.add(file.name)
            if file.name not in self._known:
                self._known.add(file.name)
                call = call._replace(data=content())
            return code, call

        return self._step(Call("create" if file.is_new else "open", file.name), opened)

    def read(self, name: str, size: int, at: int, real: Callable[[], int]) -> int:
        """Read."""
        return self._step(Call("read", name, at=at), lambda call: (real(), call))

    def write(self, name: str, data: bytes, at: int, real: Callable[[int], int]) -> int:
        """Write."""
        return self._step(Call("write", name, data, at), lambda call: _made(call, real(len(call.data))))

    def truncate(self, name: str, size: int, real: Callable[[], int]) -> int:
        """Cut."""
        return self._step(Call("truncate", name, at=size), lambda call: _made(call, real()))

    def sync(self, name: str, real: Callable[[], int]) -> int:
        """Note what has become durable."""
        del real

        def synced(call: Call) -> tuple[int, Call]:
            first = name in self._unnamed
            self._unnamed.discard(name)
            return sqlite3.SQLITE_OK, call._replace(syncs_folder=first)

        return self._step(Call("sync", name), synced)

    def size(self, name: str, real: Callable[[], int]) -> int:
        """Measure."""
        return self._step(Call("size", name), lambda call: (real(), call))

    def close(self, name: str, real: Callable[[], int]) -> None:
        """Close, dead or alive."""
        with self._mutex:
            if not self._dead:
                self.calls.append(Call("close", name))
            self._unnamed.discard(name)
            real()

    def delete(self, name: str, real: Callable[[], int], *, syncs_folder: bool) -> int:
        """Remove."""
        return self._step(Call("delete", name, syncs_folder=syncs_folder), lambda call: _made(call, real()))

    def access(self, name: str, real: Callable[[], int]) -> int:
        """Ask."""
        return self._step(Call("access", name), lambda call: (real(), call))

    # --- inside -----------------------------------------------------------------------------------------------------

    def _step(self, call: Call, real: Callable[[Call], tuple[int, Call]]) -> int:
        """Let the faults have their say, make the call, list it."""
        error = CODES[call.kind]
        with self._mutex:
            if self._dead:
                return error
            dies = False
            for fault in self._faults:
                if not fault.strikes(call):
                    continue
                self.injected += 1
                if fault.when == "before":
                    self._dead = True
                    return error
                if fault.when == "after":
                    dies = True
                    continue
                code = error if fault.code is None else fault.code
                taken = call.data[: fault.kept(len(call.data))]
                if taken:
                    real(call._replace(data=taken))
                self.calls.append(call._replace(data=taken, failed=True))
                return code
            code, made = real(call)
            self.calls.append(made)
            if dies:
                self._dead = True
                return error
            return code


def _made(call: Call, code: int) -> tuple[int, Call]:
    return code, call._replace(failed=code != sqlite3.SQLITE_OK)


class _Fault:
    """Something that will go wrong at the n-th call of a kind."""

    __slots__ = ("_file", "_keep", "_kind", "_left", "_short", "_times", "code", "when")

    def __init__(
        self,
        kind: str,
        nth: int,
        times: int | None,
        file: str,
        *,
        code: int | None = None,
        when: When | None = None,
        short: bool = False,
        keep: int | None = None,
    ) -> None:
        self._kind = kind
        self._left = nth
        self._times = times
        self._file = file
        self._short = short
        self._keep = keep
        self.code = code
        self.when = when

    def strikes(self, call: Call) -> bool:
        """Count this call; true from the n-th on, as often as `times` says."""
        matches = self._kind in {call.kind, "any"} or (self._kind == "change" and call.kind in CHANGES)
        if not matches or not call.file.endswith(self._file):
            return False
        self._left -= 1
        return self._left < 1 and (self._times is None or self._left > -self._times)

    def kept(self, size: int) -> int:
        """Give how many bytes a failing write takes nevertheless."""
        if not self._short:
            return 0
        return size // 2 if self._keep is None else min(size, self._keep)
