"""Quarantine: files that cannot be used are set aside, each with a text that says why. Nothing is ever deleted here."""

from __future__ import annotations

import logging
from typing import NamedTuple

from holdfast.clock import Clock
from holdfast.journal.fs import FS, atomic_write
from holdfast.model.times import stamp
from holdfast.stores.dir.kinds import QUARANTINE
from holdfast.stores.dir.names import ENDING, encoded
from holdfast.stores.dir.text import read_bytes
from holdfast.stores.dir.writing import path_of

log = logging.getLogger("holdfast.stores.dir")

REASON = ".reason.txt"
#: Characters of the file's own name that are kept.
_KEPT = 100


class SetAside(NamedTuple):
    """One file in quarantine."""

    #: Without its ending.
    name: str
    reason: str

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
        self._say(aside, folder, name, reason)
        try:
            self._fs.rename(path_of(folder, name), path_of(QUARANTINE, aside))
        except FileNotFoundError:
            return
        # The place it goes to first: it may be seen twice, but never not at all.
        self._fs.sync_dir(QUARANTINE)
        self._fs.sync_dir(folder)

    def keep(self, folder: str, name: str, text: bytes, reason: str) -> None:
        """Keep a copy of a file that is about to be replaced, durable on return."""
        aside = self._name(folder, name)
        self._say(aside, folder, name, reason)
        atomic_write(self._fs, path_of(QUARANTINE, aside), text, f".tmp-{aside}{ENDING}")

    def _say(self, aside: str, folder: str, name: str, reason: str) -> None:
        self.count += 1
        log.error("record.quarantined", extra={"file": path_of(folder, name), "reason": reason, "store": self._root})
        text = f"{path_of(folder, name)}: {reason}\n".encode("utf-8", "backslashreplace")
        atomic_write(self._fs, f"{QUARANTINE}/{aside}{REASON}", text, f".tmp-{aside}{REASON}")

    def _name(self, folder: str, name: str) -> str:
        """Give a name that is not taken: time, directory, name."""
        when = stamp(self._clock.now()).replace(":", "").replace("-", "")
        stem = f"{when}-{folder.replace('/', '+')}-{encoded(name)[:_KEPT]}"
        taken, number = set(self._fs.listdir(QUARANTINE)), 1
        free = stem
        while f"{free}{ENDING}" in taken or f"{free}{REASON}" in taken:
            number += 1
            free = f"{stem}-{number}"
        return free

    def all(self) -> list[SetAside]:
        """List what is here."""
        if self._fs.stat(QUARANTINE) is None:
            return []
        names = self._fs.listdir(QUARANTINE)
        found = [name[: -len(ENDING)] for name in names if name.endswith(ENDING) and not name.startswith(".")]
        return [SetAside(name, self._reason(name)) for name in found]

    def _reason(self, name: str) -> str:
        try:
            return read_bytes(self._fs, f"{QUARANTINE}/{name}{REASON}").decode(errors="replace").strip()
        except OSError:
            return "nobody said why"
