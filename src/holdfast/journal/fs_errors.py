"""What the file system's errors mean to whoever opens, reads or makes a checkpoint: never an empty result."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import StoreError, StoreFailed, StoreFull, StoreReadOnly

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


def told(root: str, doing: str, error: OSError) -> StoreError:
    """Name an error of the file system by one of ours."""
    kind = _KINDS.get(error.errno or 0, StoreFailed)
    return kind(f"{root}: {doing} failed: {error}.", hint=_HINTS[kind], errno=error.errno)


@contextmanager
def telling(root: str, doing: str) -> Iterator[None]:
    """Turn every OSError inside the block into an error of ours."""
    try:
        yield
    except TimeoutError:  # an OSError by birth, but it says that somebody waited too long
        raise
    except OSError as error:
        raise told(root, doing, error) from error
