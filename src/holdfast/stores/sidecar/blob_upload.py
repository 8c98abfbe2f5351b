"""A blob in the making: written piece by piece into a file beside its place, which it takes when it is whole.

Verified as it comes: what does not have the hash it was announced with is never found under it. The order is that of
every put: write, sync, rename, sync the directory.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256

from holdfast.errors import InvalidValue
from holdfast.journal.filesystem import FS, Handle, parent, write_all
from holdfast.journal.fs_errors import telling


class FileDraft:
    """One blob on its way. Ended by `keep` or `drop`; for one thread at a time."""

    def __init__(self, fs: FS, root: str, path: str, draft: str, ended: Callable[[bool], None]) -> None:
        """Begin the file `draft` for the blob at `path`; `ended` is told whether it is durably there."""
        self._fs = fs
        self._root = root
        self._path = path
        self._draft = draft
        self._ended = ended
        self._hash = sha256()
        self._is_over = False
        with telling(root, "keeping a blob"):
            self._handle: Handle | None = fs.open(draft, "create")

    def write(self, piece: bytes) -> None:
        """Add a piece."""
        assert self._handle is not None
        self._hash.update(piece)
        with telling(self._root, "keeping a blob"):
            write_all(self._fs, self._handle, piece)

    def keep(self) -> None:
        """Make it a blob, durably. Raises InvalidValue, and leaves nothing, if it is other content."""
        digest = self._path.rpartition("/")[2]
        assert self._handle is not None
        if self._hash.hexdigest() != digest:
            self.drop()
            raise InvalidValue(f"the content is not that of {digest}. Nothing was kept.", field="sha256")
        with telling(self._root, "keeping a blob"):
            self._fs.sync(self._handle, metadata=True)
            self._close()
            self._fs.rename(self._draft, self._path)
            self._fs.sync_dir(parent(self._path))
        self._end(kept=True)

    def drop(self) -> None:
        """Forget it; does nothing to one that was kept."""
        if self._is_over:
            return
        with suppress(OSError):  # a leftover is removed by the next sweep
            self._close()
        with suppress(OSError):
            self._fs.unlink(self._draft)
        self._end(kept=False)

    def _close(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            self._fs.close(handle)

    def _end(self, *, kept: bool) -> None:
        self._is_over = True
        self._ended(kept)
