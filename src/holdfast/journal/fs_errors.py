"""What the file system's errors mean to whoever opens, reads or makes a checkpoint: never an empty result."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import StoreClosed, StoreError, StoreFailed, StoreFull, StoreReadOnly
from holdfast.journal.open_dirs import ClosedDirs

_KINDS: dict[int, type[StoreError]] = {
    errno.EROFS: StoreReadOnly,
    errno.ENOSPC: StoreFull,
    errno.EDQUOT: StoreFull,
    errno.EFBIG: StoreFull,
}
_HINTS: dict[type[StoreError], str] = {
    StoreReadOnly: "Open it for reading only, or make the file system writable.",
    StoreFull: "Free some space and try again.",
    StoreFailed: "Look at the disk and its permissions, then try again.",
}


_SIZE_LIMIT = "Raise the file size limit of this process (`ulimit -f`), or use a file system that takes larger files"


def kind_of(error: OSError) -> type[StoreError]:
    """Give the class of ours that an error of the file system belongs to."""
    return _KINDS.get(error.errno or 0, StoreFailed)


def lacking(error: OSError) -> tuple[str, str]:
    """Return what a write lacked that will be tried again, and what to do."""
    if error.errno == errno.EFBIG:
        return "A file has reached its size limit", f"{_SIZE_LIMIT}: writing goes on by itself."
    return "The disk is full", "Free some space: writing goes on by itself."


def told(root: str, doing: str, error: OSError) -> StoreError:
    """Name an error of the file system by one of ours."""
    if isinstance(error, ClosedDirs):
        return StoreClosed(f"{root}: the store was closed; {doing} was not done.", hint="Open it again.")
    kind = kind_of(error)
    hint = f"{_SIZE_LIMIT}, then try again." if error.errno == errno.EFBIG else _HINTS[kind]
    return kind(f"{root}: {doing} failed: {error}.", hint=hint, errno=error.errno)


@contextmanager
def telling(root: str, doing: str) -> Iterator[None]:
    """Turn every OSError inside the block into an error of ours."""
    try:
        yield
    except TimeoutError:  # an OSError by birth, but it says that somebody waited too long
        raise
    except OSError as error:
        raise told(root, doing, error) from error
