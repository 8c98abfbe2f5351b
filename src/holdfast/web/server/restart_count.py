"""How often a store was served before: a number in a file beside it, one more with each start.

Soft: it is of no use but to be looked at, so a number that cannot be read begins anew, and one that cannot be kept is
not told. Whoever copies or moves a store leaves it behind. A store of this process alone was never served before.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from holdfast.stores.protocol import OnDisk, Store

#: Whatever lies at the path, opening it neither follows nor waits.
_WARILY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
#: Digits that are believed.
_MOST = 15


def restarts_of(store: Store) -> int | None:
    """Count this start of serving a store; give how many there were before it, or None if nobody can tell."""
    if not isinstance(store, OnDisk):
        return 0
    place = Path(store.path)
    file = place / "STARTS" if place.is_dir() else place.with_name(f"{place.name}-starts")
    before = _read(file)
    try:
        _write(file, before + 1)
    except OSError:
        return None
    return before


def _read(file: Path) -> int:
    text = b""
    with suppress(OSError):
        fd = os.open(file, os.O_RDONLY | _WARILY)
        with os.fdopen(fd, "rb", buffering=0) as opened:
            text = (opened.read(_MOST + 2) or b"").strip()  # of a pipe there may be nothing to read yet
    return int(text) if text.isdigit() and len(text) <= _MOST else 0


def _write(file: Path, starts: int) -> None:
    """Put the new number in the place of the old one; after a crash one of the two is there."""
    draft = file.with_name(f"{file.name}.new")
    with suppress(FileNotFoundError):
        draft.unlink()
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _WARILY, 0o600)
    with os.fdopen(fd, "wb") as opened:
        opened.write(b"%d\n" % starts)
        opened.flush()
        os.fsync(fd)
    draft.replace(file)
