"""Open directories by path: what is renamed or replaced above one later cannot redirect us.

So many are kept open at a time; beyond that the one unused for longest is closed. One that is in use is never closed
under its user, and one that was moved or removed is known by its old path no more. No link is followed.
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from itertools import islice
from threading import Lock as Mutex
from typing import Final

DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
#: Directories kept open. A process may often have no more than 1,024 files open in all.
KEPT: Final = 128


class ClosedDirs(OSError):
    """The directories were closed; nothing is reached through them any more."""


class OpenDir:
    """A directory while somebody uses it: a context that gives its descriptor."""

    __slots__ = ("_dirs", "fd", "gone", "users")

    def __init__(self, dirs: OpenDirs, fd: int) -> None:
        self._dirs = dirs
        self.fd = fd
        self.users = 0
        #: Whether it is known by its path no more, and to be closed when nobody uses it.
        self.gone = False

    def __enter__(self) -> int:
        """Use it; whoever gave it out has counted that."""
        return self.fd

    def __exit__(self, *_: object) -> None:
        """Let it go."""
        self._dirs.let_go(self)


class OpenDirs:
    """The directories below one root. Safe to share between threads."""

    def __init__(self, root: int, kept: int = KEPT) -> None:
        """Begin with the descriptor of the root, which is always kept."""
        self._mutex = Mutex()
        self._kept = kept
        self._root = OpenDir(self, root)
        self._open: OrderedDict[str, OpenDir] = OrderedDict()
        self._closed = False

    def __len__(self) -> int:
        """Count what is open, the root included."""
        return len(self._open) + 1

    def at(self, path: str) -> OpenDir:
        """Give a directory to be used in a `with`. Raises OSError, ClosedDirs once they were closed."""
        with self._mutex:
            self._demand_open(path)
            known = self._open.get(path) if path else self._root
            if known is not None:
                known.users += 1
                if path:
                    self._open.move_to_end(path)
                return known
        folder, name = split(path)
        with self.at(folder) as above:
            fd = os.open(name, DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
        with self._mutex:
            if self._closed:
                os.close(fd)
            self._demand_open(path)
            known = self._open.get(path)
            if known is None:
                known = self._open[path] = OpenDir(self, fd)
            else:
                os.close(fd)  # another thread was faster
            known.users += 1
            self._close_oldest()
            return known

    def _close_oldest(self) -> None:
        """Close what nobody uses, and nobody used for longest, until so many are left as are kept."""
        spare = len(self._open) - self._kept
        if spare > 0:
            idle = (path for path, known in self._open.items() if not known.users)
            for path in list(islice(idle, spare)):
                os.close(self._open.pop(path).fd)

    def let_go(self, used: OpenDir) -> None:
        """Hear that somebody uses it no more."""
        with self._mutex:
            used.users -= 1
            if used.gone and not used.users:
                os.close(used.fd)

    def forget(self, path: str) -> None:
        """Know a directory that was moved or removed by this path no more, nor what is below it."""
        with self._mutex:
            below = f"{path}/"
            for known in [known for known in self._open if known == path or known.startswith(below)]:
                found = self._open.pop(known)
                found.gone = True
                if not found.users:
                    os.close(found.fd)

    def close(self) -> None:
        """Close them all; one that is in use is closed by its last user. A second call does nothing."""
        with self._mutex:
            self.close_unused()

    def close_unused(self) -> None:
        """Close them all when nobody else can use them any more.

        No lock is taken: in a forked child a thread that does not exist there may hold it.
        """
        if self._closed:
            return
        self._closed = True
        for known in (*self._open.values(), self._root):
            known.gone = True
            if not known.users:
                os.close(known.fd)
        self._open.clear()

    def _demand_open(self, path: str) -> None:
        if self._closed:
            raise ClosedDirs(errno.EBADF, "the files were closed", path)


def split(path: str) -> tuple[str, str]:
    """Take a path apart: its directory, and the name in it. Raises OSError for what is no path below a root."""
    folder, _, name = path.rpartition("/")
    if name in {"", ".", ".."} or "\0" in name:
        raise OSError(errno.EINVAL, "not a path below the root", path)
    return folder, name
