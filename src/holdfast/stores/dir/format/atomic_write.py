"""Writing files so that a power cut leaves the old or the new: the one place that knows the order of the calls.

`put`: create a draft beside → write → sync it → rename it → sync the directory. `drop`: unlink → sync the directory.
Several at once: all drafts are written before the first is synced, so that one flush of the disk serves many; all
targets are durable before the first source goes. No file is changed in place but histories, which only grow: what is
appended is durable before the execution's own file counts it. What goes to the trash goes first: its name may be taken
anew by the same commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import msgspec

from holdfast.journal.filesystem import FS, Handle, atomic_write, write_all
from holdfast.stores.dir.format import trash
from holdfast.stores.dir.format.directories import make
from holdfast.stores.dir.format.file_names import ENDING, OWN_DRAFT
from holdfast.stores.dir.format.histories import append
from holdfast.stores.dir.format.record_text import Signature, pretty, signature
from holdfast.stores.dir.intent import Append, Drop, Effect, Image, Trash

#: Drafts open at a time.
SLICE = 64

#: Is told of each file that was put, with what tells this state of it from another.
Noted = Callable[[Image, Signature | None], None]


def path_of(folder: str, name: str) -> str:
    """Give the path of a record's file."""
    return f"{folder}/{name}{ENDING}" if folder else f"{name}{ENDING}"


def draft_of(folder: str, name: str) -> str:
    """Give the path of a file that is being written."""
    return f"{folder}/{OWN_DRAFT}{name}{ENDING}" if folder else f"{OWN_DRAFT}{name}{ENDING}"


def put(fs: FS, folder: str, name: str, text: bytes) -> None:
    """Put one file in place, durable on return."""
    atomic_write(fs, path_of(folder, name), text, f"{OWN_DRAFT}{name}{ENDING}")


def drop(fs: FS, folder: str, name: str) -> None:
    """Remove one file, durable on return; it may be gone already."""
    with suppress(FileNotFoundError):
        fs.unlink(path_of(folder, name))
    fs.sync_dir(folder)


def apply(fs: FS, effects: Sequence[Effect], noted: Noted) -> None:
    """Do what a commit does to the files; durable on return."""
    trash.discard(fs, [effect for effect in effects if isinstance(effect, Trash)])
    for effect in effects:
        if isinstance(effect, Append):
            append(fs, effect)
    images = [effect for effect in effects if isinstance(effect, Image)]
    for at in range(0, len(images), SLICE):
        _put_many(fs, images[at : at + SLICE], noted)
    _sync_dirs(fs, (image.folder for image in images))
    # From here on all targets are durable, and the sources may go.
    drops = [effect for effect in effects if isinstance(effect, Drop)]
    for gone in drops:
        with suppress(FileNotFoundError):
            fs.unlink(path_of(gone.folder, gone.name))
    for folder in dict.fromkeys(gone.folder for gone in drops):
        with suppress(FileNotFoundError):  # gone with all in it
            fs.sync_dir(folder)


def _sync_dirs(fs: FS, folders: Iterable[str]) -> None:
    for folder in dict.fromkeys(folders):
        fs.sync_dir(folder)


def _put_many(fs: FS, images: Sequence[Image], noted: Noted) -> None:
    drafts: list[tuple[Image, Handle]] = []
    try:
        for image in images:
            handle = _draft(fs, image)
            drafts.append((image, handle))
            write_all(fs, handle, pretty(image.record))
        for _, handle in drafts:
            fs.sync(handle, metadata=True)
    finally:
        for _, handle in drafts:
            fs.close(handle)
    for image in images:
        draft = draft_of(image.folder, image.name)
        seen = signature(fs.stat(draft))
        fs.rename(draft, path_of(image.folder, image.name))
        noted(image, seen)


def _draft(fs: FS, image: Image) -> Handle:
    draft = draft_of(image.folder, image.name)
    try:
        return fs.open(draft, "create")
    except FileExistsError:
        fs.unlink(draft)
    except FileNotFoundError:
        make(fs, image.folder)
    return fs.open(draft, "create")


def image_of(folder: str, name: str, seq: int, text: bytes) -> Image:
    """Make the image of a file, given its text without blanks."""
    return Image(folder, name, seq, msgspec.Raw(text))
