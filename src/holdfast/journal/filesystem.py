"""The file-system layer: every byte the journal keeps goes through the protocol `FS`; no other module touches files.

It knows no record and judges no failure: an `OSError` leaves it unchanged, and whoever called decides what it means.
Paths are relative to the root the file system was made for, joined by `/`; `""` is the root itself. Nothing below the
root is reached through a symbolic link.

The order that matters, told once in `atomic_write`: write, sync the file, rename, sync the directory. Syncing a file
does not sync its name, and a rename whose directory was not synced can vanish.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat as modes
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, Self

from holdfast.journal.open_dirs import DIRECTORY, OpenDirs, split

Mode = Literal["read", "append", "create"]
Kind = Literal["file", "dir", "link", "other"]

#: Below the root every open has these: no link is followed, no child inherits it, no pipe blocks it.
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_FLAGS: dict[Mode, int] = {
    "read": os.O_RDONLY,
    "append": os.O_RDWR | os.O_APPEND,
    "create": os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL,
}
_FILE_MODE = 0o600
_DIR_MODE = 0o700


class Stat(NamedTuple):
    """What lies at a path; a link is described, never followed."""

    kind: Kind
    #: Bytes.
    size: int
    mtime_ns: int
    #: With `device`, tells whether this is still the file or directory that was opened.
    inode: int
    device: int = 0
    #: When bytes, name or mode last changed. Nobody can set it, unlike `mtime_ns`; 0 where it is not known.
    ctime_ns: int = 0


class Handle:
    """An open file. Only the file system that made it can use it."""

    __slots__ = ("device", "fd", "inode", "path")

    def __init__(self, path: str, fd: int, inode: int, device: int = 0) -> None:
        self.path = path
        #: -1 once closed; every later use then fails with EBADF.
        self.fd = fd
        self.inode = inode
        self.device = device


class Lock(Protocol):
    """The right to write below the root, until released or until the process ends."""

    def rewrite(self, holder: bytes) -> None:
        """Replace the bytes that others read when they are refused."""
        ...

    def release(self) -> None:
        """Give the lock up; the file stays, and a second call does nothing."""
        ...


class LockHeld(BlockingIOError):
    """Someone else has the lock; `holder` is what they wrote about themselves."""

    def __init__(self, path: str, holder: bytes) -> None:
        super().__init__(errno.EWOULDBLOCK, "the lock is held", path)
        self.holder = holder


class FS(Protocol):
    """All I/O of the journal. Each method is one call a test can count, fail, cut short or crash at."""

    def open(self, path: str, mode: Mode) -> Handle:
        """Open a regular file: to read, to append to (it exists), or to create (it must not exist).

        - `append` and `create` handles can be read as well; writes always land at the end.
        - A created file is 0600 whatever the umask; its name is durable only after `sync_dir` of its directory.
        - Anything but a regular file is refused: a link with ELOOP, a directory with EISDIR, others with EINVAL.
        """
        ...

    def read(self, h: Handle, size: int, offset: int) -> bytes:
        """Read up to `size` bytes; fewer may come, none only at the end of the file."""
        ...

    def write(self, h: Handle, data: bytes | memoryview) -> int:
        """Write at the end; returns how many bytes were taken, which may be fewer than given."""
        ...

    def sync(self, h: Handle, *, metadata: bool) -> None:
        """Make the file's bytes and length durable, with `metadata` its times and mode too. Never its name.

        After a failure the file must not be trusted, nor the sync repeated: the second one may lie.
        """
        ...

    def truncate(self, h: Handle, size: int) -> None:
        """Cut the file to `size` bytes; durable after the next `sync`."""
        ...

    def close(self, h: Handle) -> None:
        """Close; a second call does nothing. Closing syncs nothing."""
        ...

    def rename(self, src: str, dst: str) -> None:
        """Replace `dst` by `src` in one step; durable after `sync_dir` of both directories, destination first."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a name; durable after `sync_dir`."""
        ...

    def sync_dir(self, path: str) -> None:
        """Make the creations, renames and removals in this directory durable."""
        ...

    def listdir(self, path: str) -> list[str]:
        """Names in the directory, sorted."""
        ...

    def stat(self, path: str) -> Stat | None:
        """Describe what is there now, None if nothing is. The root is looked up by name, so its replacement shows."""
        ...

    def mkdir(self, path: str) -> None:
        """Make a directory, 0700 whatever the umask; its name is durable after `sync_dir` of the parent."""
        ...

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def lock(self, path: str, holder: bytes) -> Lock:
        """Take the lock or raise `LockHeld` at once; the loser changes nothing."""
        ...


def parent(path: str) -> str:
    """Give the directory of a path; `""`, the root, for a name without one."""
    return path.rpartition("/")[0]


def write_all(fs: FS, h: Handle, data: bytes) -> None:
    """Write every byte. A short write is continued; one that takes nothing counts as EIO."""
    taken = fs.write(h, data)
    while taken < len(data):
        step = fs.write(h, memoryview(data)[taken:]) if taken else 0
        if not step:
            raise OSError(errno.EIO, "a write took no bytes", h.path)
        taken += step


def atomic_write(fs: FS, path: str, data: bytes, tmp: str | None = None) -> None:
    """Put a whole file in place: after any crash the old content is there or the new, never a part.

    `tmp` is a name in the same directory, by default the file's own with `.tmp`; a leftover of that name is removed
    first. On a failure the tmp is removed as far as the disk allows, and the error is raised as it came.
    """
    folder, _, name = path.rpartition("/")
    beside = f"{folder}/" if folder else ""
    draft = beside + (f"{name}.tmp" if tmp is None else tmp)
    try:
        h = fs.open(draft, "create")
    except FileExistsError:
        fs.unlink(draft)
        h = fs.open(draft, "create")
    try:
        try:
            write_all(fs, h, data)
            fs.sync(h, metadata=True)
        finally:
            fs.close(h)
        fs.rename(draft, path)
    except BaseException:
        with suppress(OSError):  # the first failure is the one to tell; a leftover tmp is removed at the next open
            fs.unlink(draft)
        raise
    # The rename alone can vanish: only the directory's sync makes the new name durable.
    fs.sync_dir(folder)


def after_fork_in_child(action: Callable[[], None]) -> None:
    """Run `action` in every forked child first of all. It cannot be taken back: keep only weak references in it."""
    os.register_at_fork(after_in_child=action)


def process_id() -> int:
    """Give the number of this process, for the bytes a holder writes into its lock."""
    return os.getpid()


# --- the real one -----------------------------------------------------------------------------------------------------


class OsFS:
    """The operating system's files below `root`, which may itself be a link and is resolved once.

    With `create`, a missing root is made, and each directory made is synced into its parent at once, so that nothing
    acknowledged later can hang from a name that vanishes.
    """

    def __init__(self, root: str | os.PathLike[str], *, create: bool = False) -> None:
        """Open the root. Raises FileNotFoundError if it is missing, NotADirectoryError if it is no directory."""
        self.root = Path(os.path.realpath(root))
        if create:
            _make_root(self.root)
        self._dirs = OpenDirs(os.open(self.root, DIRECTORY))
        weakref.finalize(self, self._dirs.close_unused).atexit = False

    def __enter__(self) -> Self:
        """Give itself, to be closed when the block is left."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close all directories."""
        self.close_dirs()

    def close_dirs(self) -> None:
        """Close all directories. Every later call fails with ClosedDirs, but those that only need an open file."""
        self._dirs.close()

    def open(self, path: str, mode: Mode) -> Handle:
        """Open a regular file."""
        folder, name = split(path)
        with self._dirs.at(folder) as above:
            fd = os.open(name, _FLAGS[mode] | _SAFE, _FILE_MODE, dir_fd=above)
        try:
            found = os.fstat(fd)
            _refuse_irregular(found.st_mode, path)
            if mode == "create":
                os.fchmod(fd, _FILE_MODE)  # the umask may have taken bits away
        except BaseException:
            os.close(fd)
            raise
        return Handle(path, fd, found.st_ino, found.st_dev)

    def read(self, h: Handle, size: int, offset: int) -> bytes:
        """Read at an offset."""
        return os.pread(h.fd, size, offset)

    def write(self, h: Handle, data: bytes | memoryview) -> int:
        """Write at the end."""
        return os.write(h.fd, data)

    def sync(self, h: Handle, *, metadata: bool) -> None:
        """Make the file durable."""
        if h.fd < 0:  # Python would raise ValueError for it, unlike all its other calls
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), h.path)
        _sync(h.fd, metadata=metadata)

    def truncate(self, h: Handle, size: int) -> None:
        """Cut the file."""
        os.ftruncate(h.fd, size)

    def close(self, h: Handle) -> None:
        """Close the file."""
        fd, h.fd = h.fd, -1
        if fd >= 0:
            with suppress(
                InterruptedError
            ):  # interrupted or not, the descriptor is gone; closing again could hit another's
                os.close(fd)

    def rename(self, src: str, dst: str) -> None:
        """Move a name over another."""
        (src_dir, src_name), (dst_dir, dst_name) = split(src), split(dst)
        with self._dirs.at(src_dir) as here, self._dirs.at(dst_dir) as there:
            while True:
                try:
                    os.rename(src_name, dst_name, src_dir_fd=here, dst_dir_fd=there)
                except InterruptedError:  # Python repeats most interrupted calls, but not this one
                    continue
                break
        self._dirs.forget(src)
        self._dirs.forget(dst)

    def unlink(self, path: str) -> None:
        """Remove a file's name."""
        folder, name = split(path)
        with self._dirs.at(folder) as above:
            os.unlink(name, dir_fd=above)

    def sync_dir(self, path: str) -> None:
        """Make a directory's names durable."""
        with self._dirs.at(path) as fd:
            _sync(fd, metadata=True)

    def listdir(self, path: str) -> list[str]:
        """Names in a directory."""
        # A descriptor of its own: two threads listing through one would share its position.
        with self._dirs.at(path) as known:
            fd = os.open(".", DIRECTORY, dir_fd=known)
        try:
            return sorted(os.listdir(fd))  # noqa: PTH208 - pathlib cannot list a descriptor
        finally:
            os.close(fd)

    def stat(self, path: str) -> Stat | None:
        """Describe what is at a path."""
        try:
            if path:
                folder, name = split(path)
                with self._dirs.at(folder) as above:
                    found = os.stat(name, dir_fd=above, follow_symlinks=False)
            else:
                found = os.lstat(self.root)
        except FileNotFoundError:
            return None
        return Stat(
            _kind(found.st_mode), found.st_size, found.st_mtime_ns, found.st_ino, found.st_dev, found.st_ctime_ns
        )

    def mkdir(self, path: str) -> None:
        """Make a directory."""
        folder, name = split(path)
        with self._dirs.at(folder) as above:
            os.mkdir(name, _DIR_MODE, dir_fd=above)
            if modes.S_IMODE(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode) != _DIR_MODE:
                os.chmod(name, _DIR_MODE, dir_fd=above)  # the umask took bits away

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        folder, name = split(path)
        with self._dirs.at(folder) as above:
            os.rmdir(name, dir_fd=above)
        self._dirs.forget(path)

    def lock(self, path: str, holder: bytes) -> OsLock:
        """Take the lock."""
        folder, name = split(path)
        while True:
            # Not truncated: until the lock is ours, its bytes are the holder's.
            with self._dirs.at(folder) as above:
                fd = os.open(name, os.O_RDWR | os.O_CREAT | _SAFE, _FILE_MODE, dir_fd=above)
            lock = OsLock(fd)  # from here on it alone closes the descriptor
            try:
                lock.take(path)
                now = self.stat(path)
                if now is not None and now.inode == os.fstat(fd).st_ino:
                    os.fchmod(fd, _FILE_MODE)
                    lock.rewrite(holder)
                    return lock
            except BaseException:
                lock.release()
                raise
            lock.release()  # the file was replaced while we waited for it: a lock on the old one excludes nobody


class OsLock:
    """A `flock`, which belongs to the open file: it ends when the last descriptor of it is closed, crash included."""

    def __init__(self, fd: int) -> None:
        """Own a descriptor: nothing else may close it."""
        self._fd = fd
        _locks.add(self)

    def take(self, path: str) -> None:
        """Lock the file without waiting. Raises LockHeld."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockHeld(path, os.pread(self._fd, 65536, 0)) from None

    def rewrite(self, holder: bytes) -> None:
        """Replace the holder's bytes in place; a reader may see the old, the new or, for an instant, a mixture."""
        os.pwrite(self._fd, holder, 0)
        os.ftruncate(self._fd, len(holder))

    def release(self) -> None:
        """Close the descriptor. Never LOCK_UN: in a forked child that would unlock the parent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(InterruptedError):
                os.close(fd)

    def __del__(self) -> None:
        """Let a forgotten lock go with its holder."""
        self.release()


#: A forked child gives up its copies, or the lock would outlive the parent that owns it.
_locks: weakref.WeakSet[OsLock] = weakref.WeakSet()


def _release_in_child() -> None:
    for lock in list(_locks):
        lock.release()


after_fork_in_child(_release_in_child)


def _make_root(root: Path) -> None:
    """Make the root and its missing ancestors, outermost first, each synced into its parent."""
    missing: list[Path] = []
    while not root.exists():
        missing.append(root)
        root = root.parent
    for path in reversed(missing):
        with suppress(FileExistsError):  # another process made it meanwhile
            path.mkdir(_DIR_MODE)
            path.chmod(_DIR_MODE)  # whatever the umask
        fd = os.open(path.parent, DIRECTORY)
        try:
            _sync(fd, metadata=True)
        finally:
            os.close(fd)


def _sync(fd: int, *, metadata: bool) -> None:
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # its fsync stops at the drive's cache
    elif metadata or not hasattr(os, "fdatasync"):
        os.fsync(fd)
    else:
        os.fdatasync(fd)


def _refuse_irregular(mode: int, path: str) -> None:
    if not modes.S_ISREG(mode):
        raise OSError(errno.EISDIR if modes.S_ISDIR(mode) else errno.EINVAL, "not a regular file", path)


def _kind(mode: int) -> Kind:
    if modes.S_ISREG(mode):
        return "file"
    if modes.S_ISDIR(mode):
        return "dir"
    return "link" if modes.S_ISLNK(mode) else "other"


# --- what lies under the root -----------------------------------------------------------------------------------------

#: Kinds on which flock, rename or fsync mean less than the journal needs, because other hosts have a say.
NETWORK_KINDS = frozenset(
    {"9p", "acfs", "afpfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gcsfuse", "glusterfs", "gpfs"}
    | {"juicefs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "rclone", "s3fs"}
    | {"seaweedfs", "smb2", "smb3", "smbfs", "sshfs", "vboxsf", "webdav"}
)


def is_network(kind: str) -> bool:
    """Tell whether a kind of file system is shared over a network."""
    return kind.removeprefix("fuse.") in NETWORK_KINDS


def filesystem_kind(path: str | os.PathLike[str], mounts: str | None = None) -> str:
    """Name the file system a path lies on (`ext4`, `nfs4`, …), or would lie on once made; `unknown` where nobody tells.

    `mounts` is the text of Linux's mountinfo, read from the kernel if not given. Other systems do not offer it:
    there the answer is `unknown`, and a network file system is not noticed.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return "unknown"
    asked = f"{os.path.realpath(path)}/"
    kind, depth = "unknown", 0
    for point, found in _mounted(mounts):
        # Of those above it the longest is the nearest; of equal ones the later, which was mounted over the earlier.
        if len(point) >= depth and asked.startswith(point):
            kind, depth = found, len(point)
    return kind


@lru_cache(maxsize=1)  # the text seldom changes, and every opening of a store asks
def _mounted(mounts: str) -> list[tuple[str, str]]:
    """Give the mount points of a mountinfo, each with a slash at its end, and the kinds of what is mounted there."""
    mounted: list[tuple[str, str]] = []
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        # The fifth field is the mount point, with blanks and backslashes as octal; after the dash comes the kind.
        fields = before.split(" ")
        if len(fields) >= 5 and after:
            mounted.append((f"{_unescape(fields[4]).rstrip('/')}/", after.split(" ")[0]))
    return mounted


def _unescape(text: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text
