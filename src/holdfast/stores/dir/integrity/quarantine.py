"""Quarantine: files that cannot be used are set aside, each with a text that says why. Nothing is ever deleted here."""

from __future__ import annotations

import logging
from typing import NamedTuple

from holdfast.clock import Clock
from holdfast.journal.filesystem import FS, atomic_write
from holdfast.model.times import stamp
from holdfast.stores.dir.format.atomic_write import path_of
from holdfast.stores.dir.format.file_names import ENDING, encoded
from holdfast.stores.dir.format.record_files import INSTANCES, QUARANTINE
from holdfast.stores.dir.format.record_text import read_bytes

log = logging.getLogger("holdfast.stores.dir")

REASON = ".reason.txt"
#: Characters of the file's own name that are kept.
_KEPT = 100


class SetAside(NamedTuple):
    """One file in quarantine, or one instance with all its files."""

    #: Of a file without its ending.
    name: str
    reason: str
    is_folder: bool = False

    @property
    def place(self) -> str:
        """Where it lies now."""
        return f"{QUARANTINE}/{self.name}" if self.is_folder else path_of(QUARANTINE, self.name)

    @property
    def folder(self) -> str:
        """The directory it came from."""
        return self.name.split("-")[1].replace("+", "/")


class Quarantine:
    """The quarantine of one store."""

    def __init__(self, fs: FS, root: str, clock: Clock) -> None:
        self._fs = fs
        self._root = root
        self._clock = clock
        #: Files set aside by this opening.
        self.count = 0

    def take(self, folder: str, name: str, reason: str) -> None:
        """Move a file here, durable on return; it may be gone already."""
        aside = self._name(folder, name)
        self._say(aside, path_of(folder, name), reason)
        try:
            self._fs.rename(path_of(folder, name), path_of(QUARANTINE, aside))
        except FileNotFoundError:
            return
        # The place it goes to first: it may be seen twice, but never not at all.
        self._fs.sync_dir(QUARANTINE)
        self._fs.sync_dir(folder)

    def take_folder(self, folder: str, reason: str) -> None:
        """Move a directory here with all in it, durable on return."""
        above, _, name = folder.rpartition("/")
        aside = self._name(above, name)
        self._say(aside, folder, reason)
        self._fs.rename(folder, f"{QUARANTINE}/{aside}")
        self._fs.sync_dir(QUARANTINE)
        self._fs.sync_dir(above)

    def keep(self, folder: str, name: str, text: bytes, reason: str) -> None:
        """Keep a copy of a file that is about to be replaced, durable on return."""
        aside = self._name(folder, name)
        self._say(aside, path_of(folder, name), reason)
        atomic_write(self._fs, path_of(QUARANTINE, aside), text, f".tmp-{aside}{ENDING}")

    def _say(self, aside: str, place: str, reason: str) -> None:
        self.count += 1
        log.error("record.quarantined", extra={"file": place, "reason": reason, "store": self._root})
        text = f"{place}: {reason}\n".encode("utf-8", "backslashreplace")
        atomic_write(self._fs, f"{QUARANTINE}/{aside}{REASON}", text, f".tmp-{aside}{REASON}")

    def _name(self, folder: str, name: str) -> str:
        """Give a name that is not taken: time, directory, name. The id of an instance is part of the name."""
        if folder.startswith(f"{INSTANCES}/"):
            folder, name = INSTANCES, f"{folder.removeprefix(f'{INSTANCES}/')}-{name}"
        when = stamp(self._clock.now()).replace(":", "").replace("-", "")
        stem = f"{when}-{folder.replace('/', '+')}-{encoded(name)[:_KEPT]}"
        taken, number = set(self._fs.listdir(QUARANTINE)), 1
        free = stem
        while taken & {free, f"{free}{ENDING}", f"{free}{REASON}"}:
            number += 1
            free = f"{stem}-{number}"
        return free

    def all(self) -> list[SetAside]:
        """List what is here."""
        if self._fs.stat(QUARANTINE) is None:
            return []
        names = self._fs.listdir(QUARANTINE)
        found = [name[: -len(ENDING)] for name in names if name.endswith(ENDING) and not name.startswith(".")]
        # Of a directory the reason has the name, and nothing else.
        said = {name[: -len(REASON)] for name in names if name.endswith(REASON)} - set(found)
        whole = [name for name in names if name in said]
        return [
            *(SetAside(name, self._reason(name)) for name in found),
            *(SetAside(name, self._reason(name), is_folder=True) for name in whole),
        ]

    def _reason(self, name: str) -> str:
        try:
            return read_bytes(self._fs, f"{QUARANTINE}/{name}{REASON}").decode(errors="replace").strip()
        except OSError:
            return "nobody said why"
