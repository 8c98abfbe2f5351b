"""The write-ahead log as a file: in which cycle it is, and how far that has come.

Once all of the log is copied into the database, SQLite writes it again from its beginning: a new cycle, with new salts
in the header and in every frame. What is behind the last frame of the cycle is left over from earlier ones. Bytes that
are written over are synced two or three times faster than bytes that make a file grow, so the file is not cut.

Reading only, and only the log, which no process ever locks. What is read here decides when to copy, never what is true.
"""

from __future__ import annotations

import os
from typing import NamedTuple

_HEADER = 32
_FRAME_HEADER = 24


class Cycle(NamedTuple):
    """What the header of the log says."""

    salts: bytes
    #: Bytes of one frame.
    frame: int


def cycle_reaching(path: str, size: int) -> Cycle | None:
    """Give the present cycle if it has written at least `size` bytes of the log, else None.

    Raises OSError if the log cannot be read.
    """
    fd = os.open(f"{path}-wal", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        header = os.pread(fd, _HEADER, 0)
        found = Cycle(header[16:24], _FRAME_HEADER + int.from_bytes(header[8:12], "big"))
        # The frame in which byte `size` lies, or the one before it if it lies on the edge.
        last = max(0, size - _HEADER - 1) // found.frame
        salts = os.pread(fd, len(found.salts), _HEADER + last * found.frame + 8)
        return found if salts and salts == found.salts else None
    finally:
        os.close(fd)
