"""The trash: instances and executions that are deleted. Moved here whole by the commit, swept after it.

One rename removes a history of any length from the state; its bytes go when nobody waits. What a crash leaves here is
swept by the next opening.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.journal.filesystem import FS, parent
from holdfast.stores.dir.format import directories
from holdfast.stores.dir.format.record_files import TRASH
from holdfast.stores.dir.intent import Trash


def path_of(name: str) -> str:
    """Give where a directory lies that was moved to the trash under this name."""
    return f"{TRASH}/{name}"


def discard(fs: FS, effects: Sequence[Trash]) -> None:
    """Move directories to the trash, durable on return. What is there already was moved before."""
    for effect in effects:
        here, there = fs.stat(effect.folder), fs.stat(path_of(effect.name))
        if here is None:
            continue
        if there is None:
            fs.rename(effect.folder, path_of(effect.name))
        elif (here.inode, here.device) == (there.inode, there.device):
            # A power cut kept the new name and brought the old one back.
            directories.remove(fs, effect.folder)
        # Else it was made anew under the old name, by the same commit, which is being finished.
    if effects:
        # The place it goes to first: it may be seen twice, but never not at all. Also where nothing was left to move:
        # a process that died may have moved it in the cache only.
        fs.sync_dir(TRASH)
        for folder in dict.fromkeys(parent(effect.folder) for effect in effects):
            if fs.stat(folder) is not None:  # it may have gone to the trash itself
                fs.sync_dir(folder)


def sweep(fs: FS) -> int:
    """Remove what lies in the trash; give how many there were. What stays is swept another time."""
    names = fs.listdir(TRASH) if fs.stat(TRASH) is not None else []
    for name in names:
        directories.remove(fs, f"{TRASH}/{name}")
    return len(names)
