"""Directories that come and go: made with their names durable, removed with all in them. Knows no record."""

from __future__ import annotations

from contextlib import suppress

from holdfast.journal.filesystem import FS, parent


def make(fs: FS, folder: str) -> None:
    """Make a directory, and those above it, so that their names stay; they may be there already."""
    try:
        fs.mkdir(folder)
    except FileExistsError:
        pass
    except FileNotFoundError:
        make(fs, parent(folder))
        with suppress(FileExistsError):
            fs.mkdir(folder)
    fs.sync_dir(parent(folder))


def remove(fs: FS, folder: str) -> None:
    """Remove a directory with all in it, as far as it goes; what is in use, or no longer there, is passed over."""
    with suppress(OSError):
        for name in fs.listdir(folder):
            path = f"{folder}/{name}"
            found = fs.stat(path)
            if found is not None and found.kind == "dir":
                remove(fs, path)
            else:
                fs.unlink(path)
        fs.rmdir(folder)
