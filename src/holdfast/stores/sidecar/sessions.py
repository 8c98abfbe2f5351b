"""Sessions by the kernel's record locks: which openings of a store still live on this machine.

One file beside the store holds slots of 64 bytes, each with the hash of one session. While that opening lives, its
process holds an exclusive lock on the first byte of the slot. The kernel lets go of it when the process dies, at once,
whatever killed it; no number of a process is used twice, and it works across containers that share the file. A session
that has no slot was never held here, and nothing is said of it.

The locks belong to the open file (Linux's "open file description" locks), so that nobody else in the process can drop
them, who reads the file or knows nothing of us. Elsewhere record locks must do, which belong to the process: closing
*any* descriptor of the file drops all of them. For their sake there is one descriptor a process and file, kept here
while a session is held; and a slot of our own is never tried, since the lock would be granted, and giving it back would
drop the one that is held. A forked child holds nothing: it closes what it inherits.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
import weakref
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from hashlib import sha256

from holdfast.journal.filesystem import after_fork_in_child
from holdfast.model.ids import Token
from holdfast.stores.sidecar.protocol import Marks, NoMarks
from holdfast.stores.sidecar.waiting_marks import MarkedRegion, unbegun

#: Bytes of a slot: 62 of the hash, one that says whether it was closed in order, a newline.
SLOT = 64
#: Slots of a file; when all are taken, those of sessions that are gone are used again.
SLOTS = 1024
_HELD, _CLOSED = b"h", b"c"
#: Whatever lies at the path, opening it neither follows nor waits.
_WARILY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
#: How the kernel is asked for a lock of the open file; None where it has none.
_SET_LOCK: int | None = getattr(fcntl, "F_OFD_SETLK", None)
#: What `struct flock` says → what `lockf` takes.
_FLAGS = {
    fcntl.F_WRLCK: fcntl.LOCK_EX | fcntl.LOCK_NB,
    fcntl.F_RDLCK: fcntl.LOCK_SH | fcntl.LOCK_NB,
    fcntl.F_UNLCK: fcntl.LOCK_UN,
}


class _File:
    """The one descriptor this process has of a file, and the slots it holds in it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        #: Mark of a session → its slot.
        self.held: dict[bytes, int] = {}

    def slots(self) -> list[bytes]:
        """Give the mark of each slot, with the byte that says whether it was closed."""
        text = os.pread(self.fd, SLOT * SLOTS, 0)
        return [text[at : at + SLOT - 1] for at in range(0, len(text), SLOT)]

    def take(self, mark: bytes) -> None:
        """Lock a slot and write the session into it."""
        slots = self.slots()
        spent = sorted(range(len(slots)), key=lambda slot: slots[slot][-1:] != _CLOSED)
        # Behind the last one while there is room: what is gone can then still be told.
        for slot in (*range(len(slots), SLOTS), *spent):
            if slot in self.held.values() or not self._try(fcntl.F_WRLCK, slot):
                continue
            if slot >= len(slots) and os.pread(self.fd, 1, slot * SLOT):
                self._let_go(slot)  # another process has been here meanwhile
                continue
            os.pwrite(self.fd, mark + _HELD + b"\n", slot * SLOT)
            self.held[mark] = slot
            # Before any lease names the session: after a power cut the slot is what tells that it is gone.
            with suppress(OSError):
                os.fsync(self.fd)
            return

    def leave(self, mark: bytes) -> None:
        """Say that the session ended in order, and let go of its slot."""
        slot = self.held.pop(mark, None)
        if slot is not None:
            with suppress(OSError):
                os.pwrite(self.fd, _CLOSED, slot * SLOT + SLOT - 2)
            self._let_go(slot)

    def is_gone(self, slot: int) -> bool:
        """Tell whether nobody holds a slot, which must not be our own."""
        if not self._try(fcntl.F_RDLCK, slot):
            return False
        self._let_go(slot)
        return True

    def _try(self, kind: int, slot: int) -> bool:
        try:
            _set_lock(self.fd, kind, slot)
        except OSError:  # held by another; or there are no locks here, and then nothing is proven either
            return False
        return True

    def _let_go(self, slot: int) -> None:
        with suppress(OSError):
            _set_lock(self.fd, fcntl.F_UNLCK, slot)


def _set_lock(fd: int, kind: int, slot: int) -> None:
    """Lock the first byte of a slot, or let go of it, without waiting. Raises OSError if another holds it."""
    if _SET_LOCK is not None:
        try:
            fcntl.fcntl(fd, _SET_LOCK, struct.pack("hhqqi0q", kind, os.SEEK_SET, slot * SLOT, 1, 0))
        except OSError as error:
            if error.errno != errno.EINVAL:  # a system that lacks them, whatever Python was built for
                raise
        else:
            return
    fcntl.lockf(fd, _FLAGS[kind], 1, slot * SLOT)


#: Which file → what this process has of it. Guarded by `_guard`, held through every use.
_files: dict[tuple[int, int], _File] = {}
_guard = threading.Lock()
#: Sessions of stores that were never closed and are no more.
_abandoned: list[dict[bytes, tuple[int, int]]] = []


class LockedSessions:
    """The sessions of one store, in the file at `path`. With `readonly`, none is held, and nothing is made.

    What they have not begun is marked in the file at `marks`, if there is to be one.
    """

    def __init__(self, path: str, marks: str | None = None, *, readonly: bool = False) -> None:
        self._path = path
        self._marks_path = marks
        #: Session → where it marks what it has not begun.
        self._regions: dict[str, MarkedRegion] = {}
        self._readonly = readonly
        #: Which file each of our sessions is held in.
        self._mine: dict[bytes, tuple[int, int]] = {}
        # Whoever is forgotten without being closed may be collected anywhere, also while the guard is held.
        self._forgotten = weakref.finalize(self, _abandoned.append, self._mine)

    def hold(self, session_id: str) -> None:
        """Take a slot. Where that cannot be done, others simply learn nothing of this session."""
        if self._readonly:
            return
        mark = _mark(session_id)

        def take(which: tuple[int, int], file: _File) -> None:
            is_new = not os.fstat(file.fd).st_size
            file.take(mark)
            if mark in file.held:
                self._mine[mark] = which
            if is_new:
                _sync_directory(self._path)

        self._with_file(os.O_RDWR | os.O_CREAT, take)

    def gone(self, session_ids: Collection[str]) -> set[str]:
        """Give those whose slot nobody holds any more."""
        asked = {_mark(session_id): session_id for session_id in session_ids}
        found: set[str] = set()

        def look(_: tuple[int, int], file: _File) -> None:
            for slot, text in enumerate(file.slots()):
                session = asked.get(text[:-1])
                if session is not None and text[:-1] not in file.held and file.is_gone(slot):
                    found.add(session)

        if asked:
            self._with_file(os.O_RDONLY, look)
        return found

    def marks(self, session_id: str | None) -> Marks:
        """Give the region of a session that is held here."""
        if session_id is None or self._marks_path is None:
            return NoMarks()
        if session_id not in self._regions:
            mark = _mark(session_id)
            with _guard:
                file = _known(self._mine.get(mark, (-1, -1)))
                slot = None if file is None else file.held.get(mark)
            if slot is None:  # others learn nothing of this session anyway
                return NoMarks()
            self._regions[session_id] = MarkedRegion(self._marks_path, slot, mark)
        return self._regions[session_id]

    def unbegun(self, session_id: str, leases: Iterable[tuple[str | None, Token]]) -> set[Token]:
        """Give what the region of the session says, if it has one."""
        mark = _mark(session_id)
        slots: list[int] = []

        def look(_: tuple[int, int], file: _File) -> None:
            slots.extend(slot for slot, text in enumerate(file.slots()) if text[:-1] == mark)

        if self._marks_path is not None:
            self._with_file(os.O_RDONLY, look)
        return unbegun(self._marks_path, slots[0], mark, leases) if self._marks_path and slots else set()

    def close(self) -> None:
        """Let go of every session held here."""
        for region in self._regions.values():
            region.close()
        with _guard:
            _leave(self._mine)

    def _with_file(self, flags: int, use: Callable[[tuple[int, int], _File], None]) -> None:
        """Use the file by the one descriptor there may be of it."""
        with _guard, suppress(OSError):
            while _abandoned:
                _leave(_abandoned.pop())
            # By number first: had we opened a file we hold locks in, closing it again would drop them.
            which = self._which()
            if _known(which) is None:
                fd = os.open(self._path, flags | _WARILY, 0o600)
                try:
                    opened = os.fstat(fd)
                except BaseException:
                    os.close(fd)
                    raise
                which = (opened.st_dev, opened.st_ino)
                # It was moved here meanwhile, and is one we know: then the new descriptor stays open, unused.
                _files.setdefault(which, _File(fd))
            try:
                use(which, _files[which])
            finally:
                _close_unused(which)

    def _which(self) -> tuple[int, int]:
        try:
            found = os.stat(self._path, follow_symlinks=False)  # noqa: PTH116 - the path may be bytes that are no text
        except FileNotFoundError:
            return (-1, -1)
        return (found.st_dev, found.st_ino)


def _sync_directory(path: str) -> None:
    """Make the name of a new file durable, as far as it goes."""
    with suppress(OSError):
        fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # noqa: PTH120 - the path may be bytes that are no text
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _mark(session_id: str) -> bytes:
    """Give what stands for a session in its slot: whatever the id is, 62 hex digits."""
    return sha256(session_id.encode("utf-8", "backslashreplace")).hexdigest()[:62].encode()


def _leave(mine: dict[bytes, tuple[int, int]]) -> None:
    """Let go of sessions; the guard is held."""
    while mine:
        mark, which = mine.popitem()
        file = _known(which)
        if file is not None:
            file.leave(mark)
            _close_unused(which)


def _known(which: tuple[int, int]) -> _File | None:
    """Give what we have of a file, unless its descriptor was closed beneath us: the number may be another's by now."""
    file = _files.get(which)
    if file is not None:
        with suppress(OSError):
            found = os.fstat(file.fd)
            if (found.st_dev, found.st_ino) == which:
                return file
        del _files[which]
    return None


def _close_unused(which: tuple[int, int]) -> None:
    if not _files[which].held:
        os.close(_files.pop(which).fd)


def _hold_nothing() -> None:
    """In a forked child: the locks are the parent's, and so are the files."""
    global _guard  # noqa: PLW0603 - a thread of the parent may have held it at the fork
    _guard = threading.Lock()
    for file in _files.values():
        with suppress(OSError):
            os.close(file.fd)
    _files.clear()


after_fork_in_child(_hold_nothing)
