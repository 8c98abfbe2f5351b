"""Where the file of each job lies, and in which state we left it. An index in memory; it touches no file."""

from __future__ import annotations

from collections import Counter

from holdfast.stores.dir.format.file_names import share_of
from holdfast.stores.dir.format.record_files import PENDING
from holdfast.stores.dir.format.record_text import Signature

#: Files of a directory beyond which new ones go into one of its shares.
CROWDED = 10_000


class Places:
    """Name of a job's file → directory, and what tells our state of a pending file from another's."""

    def __init__(self) -> None:
        self.folders: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        #: Of files in `pending/` only: nobody else's changes are asked for elsewhere.
        self.seen: dict[str, Signature] = {}

    def arrive(self, name: str, folder: str, seen: Signature | None = None) -> None:
        """Note that the file of that name lies there now."""
        before = self.folders.get(name)
        if before != folder:
            if before is not None:
                self.counts[before] -= 1
            self.folders[name] = folder
            self.counts[folder] += 1
        if seen is not None and is_in(folder, PENDING):
            self.seen[name] = seen
        else:
            self.seen.pop(name, None)

    def leave(self, name: str) -> None:
        """Note that the file is gone."""
        before = self.folders.pop(name, None)
        if before is not None:
            self.counts[before] -= 1
        self.seen.pop(name, None)

    def target(self, name: str, job_id: str, state: str) -> str:
        """Give the directory into which the file of a job in that state is put."""
        now = self.folders.get(name)
        if now is not None and is_in(now, state):
            return now
        return f"{state}/{share_of(job_id)}" if self.counts[state] >= CROWDED else state


def is_in(folder: str, state: str) -> bool:
    """Tell whether a directory is that of a state, or one of its shares."""
    return folder == state or (folder.startswith(state) and folder[len(state) : len(state) + 1] == "/")


def state_of(folder: str) -> str:
    """Give the directory of the state a file is in, for one that may lie in a share."""
    return folder if folder.count("/") == 1 else folder.rpartition("/")[0]
