"""The index of the log (`-shm`) on btrfs: made by us, so that a full disk cannot kill the process.

SQLite maps this file and writes to the mapping inside COMMIT. Btrfs copies a block on every write, so on a full disk
there is no block to copy to, and the kernel answers with SIGBUS where SQLite expects an error. A file marked "no copy
on write" is written in place. The mark must be set while the file is empty, hence before SQLite makes it.

The file is made under another name and linked into place: a descriptor of the index itself must never be closed here,
since that would drop the locks that SQLite holds in this process.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import struct
from contextlib import suppress
from pathlib import Path

#: Linux's FS_IOC_GETFLAGS, FS_IOC_SETFLAGS and FS_NOCOW_FL.
_GET_FLAGS, _SET_FLAGS, _NO_COPY = 0x8008_6601, 0x4008_6602, 0x0080_0000


def make_index(path: str) -> None:
    """Make the index of the database at `path`, written in place, unless there is one. Whatever fails is left out."""
    index = Path(f"{path}-shm")
    if index.exists():
        return
    draft = index.with_name(f".{index.name}.new-{secrets.token_hex(8)}")
    with suppress(OSError):
        fd = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.fchmod(fd, 0o600)
            (flags,) = struct.unpack("l", fcntl.ioctl(fd, _GET_FLAGS, struct.pack("l", 0)))
            fcntl.ioctl(fd, _SET_FLAGS, struct.pack("l", flags | _NO_COPY))
        finally:
            os.close(fd)
        os.link(draft, index)  # not over one that another process has made meanwhile
    with suppress(OSError):
        draft.unlink()
