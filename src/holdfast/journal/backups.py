"""Backups of what a repair removes: at most three of each kind, the newest without a number.

The broken bytes are safe before anything is cut; a failure here stops the repair. Done again after a crash, the same
bytes are not kept twice, so that a repair tried often does not push older backups out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Literal

from holdfast.journal.filesystem import FS, parent, write_all
from holdfast.journal.scan import CHUNK, reading

log = logging.getLogger(__name__)

Kind = Literal["log", "snapshot"]
#: A file and the byte from which on it is kept.
Source = tuple[str, int]


def keep_bytes(fs: FS, kind: Kind, sources: Iterable[Source]) -> str:
    """Copy the ends of files, one after the other, into the newest backup."""
    path, draft = f"{kind}.bak", f"{kind}.bak.tmp"
    with suppress(FileNotFoundError):
        fs.unlink(draft)
    handle = fs.open(draft, "create")
    try:
        for chunk in _chunks(fs, sources):
            write_all(fs, handle, chunk)
        fs.sync(handle, metadata=True)
    finally:
        fs.close(handle)
    if fs.stat(path) is None or not _is_same(fs, path, draft):
        _shift(fs, kind)
    fs.rename(draft, path)
    fs.sync_dir("")
    return path


def keep_file(fs: FS, kind: Kind, source: str) -> str:
    """Move a file into the newest backup."""
    _shift(fs, kind)
    fs.rename(source, f"{kind}.bak")
    # The destination first: synced the other way round, a cut in between could leave the file in neither.
    fs.sync_dir("")
    fs.sync_dir(parent(source))
    return f"{kind}.bak"


def _shift(fs: FS, kind: Kind) -> None:
    """Free the newest name. Where a shift was cut short it goes on: only names that are taken move."""
    if fs.stat(f"{kind}.bak") is None:
        return
    if fs.stat(f"{kind}.bak.2") is not None:
        fs.rename(f"{kind}.bak.2", f"{kind}.bak.3")
    fs.rename(f"{kind}.bak", f"{kind}.bak.2")


def _chunks(fs: FS, sources: Iterable[Source]) -> Iterator[bytes]:
    for path, offset in sources:
        with reading(fs, path) as handle:
            at = offset
            while chunk := fs.read(handle, CHUNK, at):
                at += len(chunk)
                yield chunk


def _is_same(fs: FS, a: str, b: str) -> bool:
    sizes = {found.size for found in (fs.stat(a), fs.stat(b)) if found is not None}
    return len(sizes) == 1 and all(
        left == right for left, right in zip(_chunks(fs, [(a, 0)]), _chunks(fs, [(b, 0)]), strict=True)
    )
