"""A file system seen from one of its directories, so that what lies in `data/` need not know where `data/` lies."""

from __future__ import annotations

from holdfast.journal.filesystem import FS, Handle, Lock, Mode, Stat


class Below:
    """The files below one directory of another file system."""

    def __init__(self, fs: FS, folder: str) -> None:
        self._fs = fs
        self._folder = folder
        self.write, self.truncate = fs.write, fs.truncate

    def _at(self, path: str) -> str:
        return f"{self._folder}/{path}" if path else self._folder

    def open(self, path: str, mode: Mode) -> Handle:
        """Open a regular file."""
        return self._fs.open(self._at(path), mode)

    def read(self, h: Handle, size: int, offset: int) -> bytes:
        """Read at an offset."""
        return self._fs.read(h, size, offset)

    def close(self, h: Handle) -> None:
        """Close the file."""
        self._fs.close(h)

    def sync(self, h: Handle, *, metadata: bool) -> None:
        """Make the file durable."""
        self._fs.sync(h, metadata=metadata)

    def rename(self, src: str, dst: str) -> None:
        """Move a name over another."""
        self._fs.rename(self._at(src), self._at(dst))

    def unlink(self, path: str) -> None:
        """Remove a file's name."""
        self._fs.unlink(self._at(path))

    def sync_dir(self, path: str) -> None:
        """Make a directory's names durable."""
        self._fs.sync_dir(self._at(path))

    def listdir(self, path: str) -> list[str]:
        """Names in a directory."""
        return self._fs.listdir(self._at(path))

    def stat(self, path: str) -> Stat | None:
        """Describe what is at a path."""
        return self._fs.stat(self._at(path))

    def mkdir(self, path: str) -> None:
        """Make a directory."""
        self._fs.mkdir(self._at(path))

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        self._fs.rmdir(self._at(path))

    def lock(self, path: str, holder: bytes) -> Lock:
        """Take the lock."""
        return self._fs.lock(self._at(path), holder)
