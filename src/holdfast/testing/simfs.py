"""A file system in memory that fails, crashes and loses power on request.

It knows no journal. It keeps two truths apart: what a process sees, and what the disk would hold after a power cut.
Bytes move from the first to the second by `sync`, names by `sync_dir`, and nothing else moves them. It is kinder to
nobody than a real file system: what POSIX does not promise may be lost, each piece on its own.

The order of use: arm a fault (`fail`, `shorten`, `crash`, `room`), run, then go on with what `reboot()` or
`power_loss()` returns. The old object stays dead for ever, so a thread that outlived the crash can change nothing.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Literal, NamedTuple

from holdfast.journal.filesystem import Handle, LockHeld, Mode, Stat
from holdfast.testing.simdisk import Change, Copier, Dir, File, Loss, Names, PowerCut, walk

When = Literal["before", "during", "after"]

#: Calls that can change what a power cut leaves; crashing between them and any other call is the same.
CHANGES = frozenset({"create", "write", "sync", "truncate", "rename", "unlink", "sync_dir", "mkdir", "rmdir", "lock"})


class SimCrash(BaseException):
    """The process died here. No `except Exception` may stop it, as none stops a real death."""


class Call(NamedTuple):
    """One call, as the list of calls keeps it."""

    #: The method; opening to create is `create`.
    kind: str
    path: str
    #: Where a rename went.
    dst: str = ""
    #: What a write was given.
    data: bytes = b""
    #: The length a truncate left, or the offset of a read.
    at: int = 0


class SimFS:
    """An `FS` in memory. Safe to share between threads; every call is one step."""

    def __init__(self, root: Dir | None = None, *, serial: int = 1) -> None:
        """Start empty, or with what an earlier one left."""
        self._mutex = RLock()
        self._root = Dir(0) if root is None else root
        self._serial = serial
        self._locks: dict[int, SimLock] = {}
        self._faults: list[_Fault] = []
        self._dead = False
        #: Every call so far, in order.
        self.calls: list[Call] = []
        #: How many faults came true.
        self.injected = 0
        #: Bytes the disk still takes; None is without end. Cutting and removing files gives room back.
        self.room: int | None = None
        #: Called before each call, outside the lock, so that it may wait, take an `image()` or raise.
        self.before: Callable[[Call], None] | None = None

    # --- faults -------------------------------------------------------------------------------------------------------

    def fail(self, kind: str, nth: int = 1, error: int = errno.EIO, *, times: int | None = 1) -> None:
        """Let the `nth` call of a kind from now on fail, and the `times - 1` after it; None is for ever.

        `kind` is a method's name, `create`, `change` for any that changes the disk, or `any`.
        """
        self._faults.append(_Fault(kind, nth, times, error=error))

    def shorten(self, kind: Literal["read", "write"], nth: int = 1, keep: int | None = None, *, times: int = 1) -> None:
        """Let the `nth` read or write take only `keep` bytes, by default half of them, but at least one."""
        self._faults.append(_Fault(kind, nth, times, short=True, keep=keep))

    def crash(self, nth: int = 1, kind: str = "change", when: When = "before") -> None:
        """Let the process die at the `nth` call of a kind. `during` a write half of the bytes are taken."""
        self._faults.append(_Fault(kind, nth, 1, when=when))

    def heal(self) -> None:
        """Forget all faults that have not come true yet, and the limit of room."""
        with self._mutex:
            self._faults.clear()
            self.room = None

    def die(self) -> None:
        """End the process now: every later call is refused."""
        self._dead = True

    # --- what a crash leaves ------------------------------------------------------------------------------------------

    def image(self) -> SimFS:
        """Copy the whole file system as it stands: what is synced stays so, what is not is still at risk."""
        with self._mutex:
            return SimFS(Copier().copy(self._root), serial=self._serial)

    def reboot(self) -> SimFS:
        """Give what the next process finds when this one dies but the machine goes on; this object is dead from now."""
        with self._mutex:
            self.die()
            return self.image()

    def power_loss(self, mode: Loss, seed: int = 0, names: Names = "mixed") -> SimFS:
        """Give what is on the disk when the power goes now; this object is dead from now."""
        with self._mutex:
            self.die()
            return SimFS(PowerCut(mode, seed, names).cut(self._root), serial=self._serial)

    def tree(self) -> dict[str, bytes]:
        """Give every file with its bytes, as a process sees them; no call is counted."""
        with self._mutex:
            return dict(walk(self._root, ""))

    def put(self, path: str, data: bytes) -> None:
        """Make a file hold `data`, durably and uncounted: how a test plants damage."""
        with self._mutex:
            folder, name = self._entry(path)
            found = folder.names.get(name)
            file = found if isinstance(found, File) else File(self._next())
            file.data, file.durable, file.dirty = bytearray(data), bytearray(data), []
            file.floor, file.ghost = len(data), None
            folder.names[name] = folder.durable[name] = file
            folder.pending = [op for op in folder.pending if name not in {op.name, op.dropped}]

    # --- the protocol -------------------------------------------------------------------------------------------------

    def open(self, path: str, mode: Mode) -> Handle:
        """Open a file."""
        with self._call("create" if mode == "create" else "open", path):
            folder, name = self._entry(path)
            found = folder.names.get(name)
            if isinstance(found, Dir):
                raise _error(errno.EISDIR, path)
            if mode == "create":
                if found is not None:
                    raise _error(errno.EEXIST, path)
                self._take(0, path)
                found = File(self._next())
                folder.put(name, found)
            elif found is None:
                raise _error(errno.ENOENT, path)
            return SimHandle(path, found, writable=mode != "read")

    def read(self, h: Handle, size: int, offset: int) -> bytes:
        """Read at an offset."""
        with self._call("read", h.path, at=offset) as step:
            file = _file(h)
            return bytes(file.data[offset : offset + step.shortened(size)])

    def write(self, h: Handle, data: bytes | memoryview) -> int:
        """Write at the end."""
        with self._call("write", h.path, data=bytes(data)) as step:
            file = _file(h, writing=True)
            size = self._take(step.shortened(len(data)), h.path)
            file.append(data[:size])
            return size

    def sync(self, h: Handle, *, metadata: bool) -> None:  # noqa: ARG002 - times and modes are not simulated
        """Make the file's bytes durable; when it fails, they are as clean to the system as if it had not."""
        with self._call("sync", h.path, failed=lambda: _file(h).wash()):
            _file(h).sync()

    def truncate(self, h: Handle, size: int) -> None:
        """Cut the file."""
        with self._call("truncate", h.path, at=size):
            self._give(_file(h, writing=True).truncate(size))

    def close(self, h: Handle) -> None:
        """Close the file. After a crash nothing is done or raised: finalizers run late, and a death has closed it."""
        if self._dead:
            return
        with self._call("close", h.path):
            h.fd = -1

    def rename(self, src: str, dst: str) -> None:
        """Move a name over another."""
        with self._call("rename", src, dst=dst):
            (old, old_name), (new, new_name) = self._entry(src), self._entry(dst)
            moved, there = old.names.get(old_name), new.names.get(new_name)
            if moved is None:
                raise _error(errno.ENOENT, src)
            if there is moved:
                return
            if isinstance(there, Dir) and there.names:
                raise _error(errno.ENOTEMPTY, dst)
            if there is not None and isinstance(there, Dir) != isinstance(moved, Dir):
                raise _error(errno.EISDIR if isinstance(there, Dir) else errno.ENOTDIR, dst)
            if old is new:
                new.do(Change(new_name, moved, dropped=old_name))
            else:
                new.do(arrival := Change(new_name, moved))
                old.do(Change(dropped=old_name, needs=arrival))
            if isinstance(there, File):
                self._give(len(there.data))

    def unlink(self, path: str) -> None:
        """Remove a file's name."""
        with self._call("unlink", path):
            folder, name = self._entry(path)
            found = folder.names.get(name)
            if found is None:
                raise _error(errno.ENOENT, path)
            if isinstance(found, Dir):
                raise _error(errno.EISDIR, path)
            folder.do(Change(dropped=name))
            self._give(len(found.data))

    def sync_dir(self, path: str) -> None:
        """Make a directory's names durable; when it fails, they stay at risk until another one succeeds.

        Unlike a file's bytes they are not washed clean: file systems keep names in a journal of their own, and when
        that fails they stop altogether.
        """
        with self._call("sync_dir", path):
            self._folder(path).sync()

    def listdir(self, path: str) -> list[str]:
        """Names in a directory."""
        with self._call("listdir", path):
            return sorted(self._folder(path).names)

    def stat(self, path: str) -> Stat | None:
        """Describe what is at a path."""
        with self._call("stat", path):
            try:
                found = self._find(path)
            except FileNotFoundError:
                return None
            if isinstance(found, Dir):
                return Stat("dir", 0, 0, found.inode)
            return None if found is None else Stat("file", len(found.data), found.changes, found.inode)

    def mkdir(self, path: str) -> None:
        """Make a directory."""
        with self._call("mkdir", path):
            folder, name = self._entry(path)
            if name in folder.names:
                raise _error(errno.EEXIST, path)
            self._take(0, path)
            folder.put(name, Dir(self._next()))

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        with self._call("rmdir", path):
            folder, name = self._entry(path)
            if self._folder(path).names:
                raise _error(errno.ENOTEMPTY, path)
            folder.do(Change(dropped=name))

    def lock(self, path: str, holder: bytes) -> SimLock:
        """Take the lock; a crash gives it up, as the end of a process does."""
        with self._call("lock", path):
            folder, name = self._entry(path)
            file = folder.names.get(name)
            if isinstance(file, Dir):
                raise _error(errno.EISDIR, path)
            if file is None:
                file = File(self._next())
                folder.put(name, file)
            if file.inode in self._locks:
                raise LockHeld(path, bytes(file.data))
            lock = self._locks[file.inode] = SimLock(self._locks, file)
            lock.rewrite(holder)
            return lock

    # --- inside -------------------------------------------------------------------------------------------------------

    @contextmanager
    def _call(
        self,
        kind: str,
        path: str,
        *,
        dst: str = "",
        data: bytes = b"",
        at: int = 0,
        failed: Callable[[], None] | None = None,
    ) -> Iterator[_Step]:
        """Count a call and let the faults have their say; `failed` is what a failure does to the disk."""
        call = Call(kind, path, dst, data, at)
        if self.before is not None:
            self.before(call)
        with self._mutex:
            if self._dead:
                raise SimCrash(f"{kind} {path} after the crash")
            self.calls.append(call)
            step = _Step()
            for fault in self._faults:
                if fault.strikes(kind):
                    self.injected += 1
                    if fault.error:
                        if failed is not None:
                            failed()
                        raise _error(fault.error, path)
                    if fault.when == "before":
                        self.die()
                        raise SimCrash(f"before {kind} {path}")
                    step.meet(fault)
            try:
                yield step
            finally:
                if step.last:
                    self.die()
                    raise SimCrash(f"after {kind} {path}")

    def _find(self, path: str) -> Dir | File | None:
        """Walk to what a path names; None if the last name is missing, ENOENT if one before it is."""
        found: Dir | File | None = self._root
        for name in path.split("/") if path else ():
            if found is None:
                raise _error(errno.ENOENT, path)
            if isinstance(found, File):
                raise _error(errno.ENOTDIR, path)
            if name in {"", ".", ".."}:
                raise _error(errno.EINVAL, path)
            found = found.names.get(name)
        return found

    def _folder(self, path: str) -> Dir:
        found = self._find(path)
        if isinstance(found, Dir):
            return found
        raise _error(errno.ENOENT if found is None else errno.ENOTDIR, path)

    def _entry(self, path: str) -> tuple[Dir, str]:
        folder, _, name = path.rpartition("/")
        if name in {"", ".", ".."}:
            raise _error(errno.EINVAL, path)
        return self._folder(folder), name

    def _next(self) -> int:
        self._serial += 1
        return self._serial

    def _take(self, size: int, path: str) -> int:
        """Use up room: as much as there is, ENOSPC when there is none."""
        if self.room is None:
            return size
        if self.room <= 0:
            self.injected += 1
            raise _error(errno.ENOSPC, path)
        size = min(size, self.room)
        self.room -= size
        return size

    def _give(self, size: int) -> None:
        if self.room is not None:
            self.room += size


class SimHandle(Handle):
    """An open file of a `SimFS`."""

    __slots__ = ("file", "writable")

    def __init__(self, path: str, file: File, *, writable: bool) -> None:
        super().__init__(path, 0, file.inode)
        self.file = file
        self.writable = writable


class SimLock:
    """A lock of a `SimFS`."""

    def __init__(self, locks: dict[int, SimLock], file: File) -> None:
        """Hold the lock on `file`."""
        self._locks = locks
        self._file = file

    def rewrite(self, holder: bytes) -> None:
        """Replace the holder's bytes."""
        self._file.truncate(0)
        self._file.append(holder)

    def release(self) -> None:
        """Give the lock up."""
        if self._locks.get(self._file.inode) is self:
            del self._locks[self._file.inode]


class _Fault:
    """Something that will go wrong at the n-th call of a kind."""

    __slots__ = ("error", "keep", "kind", "left", "short", "times", "when")

    def __init__(
        self,
        kind: str,
        nth: int,
        times: int | None,
        *,
        error: int = 0,
        when: When | None = None,
        short: bool = False,
        keep: int | None = None,
    ) -> None:
        self.kind = kind
        self.left = nth
        self.times = times
        self.error = error
        self.when = when
        self.short = short
        self.keep = keep

    def strikes(self, kind: str) -> bool:
        """Count this call; true from the n-th on, as often as `times` says."""
        if self.kind != kind and not (self.kind == "any" or (self.kind == "change" and kind in CHANGES)):
            return False
        self.left -= 1
        return self.left < 1 and (self.times is None or self.left > -self.times)


class _Step:
    """One call under way: perhaps cut short, perhaps the last."""

    __slots__ = ("_short", "last")

    def __init__(self) -> None:
        self._short: _Fault | None = None
        self.last = False

    def meet(self, fault: _Fault) -> None:
        self.last = self.last or fault.when is not None
        if fault.short or fault.when == "during":
            self._short = fault

    def shortened(self, size: int) -> int:
        """Give how much of `size` this call may take."""
        if self._short is None or size == 0:
            return size
        return max(size // 2, 1) if self._short.keep is None else min(size, self._short.keep)


def _file(h: Handle, *, writing: bool = False) -> File:
    if not isinstance(h, SimHandle) or h.fd < 0 or (writing and not h.writable):
        raise _error(errno.EBADF, h.path)
    return h.file


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
