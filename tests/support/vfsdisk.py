"""The disk under `SimVfs`: replays its list of calls, and tells what a death or a power cut at any place would leave.

What a file holds when it is first opened is durable. Its bytes become so by its syncs; names by the syncs of the
directory, which SQLite makes with the first sync of a new journal or log, and with removals when it is told to.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from holdfast.testing.simdisk import Change, Dir, File, Loss, Names, PowerCut, walk
from support.simvfs import Call


class VfsDisk:
    """What the disk knows after some calls."""

    def __init__(self, calls: Iterable[Call] = ()) -> None:
        """Start with an empty folder and replay `calls`."""
        self._root = Dir(0)
        self._serial = 0
        for call in calls:
            self.apply(call)

    def apply(self, call: Call) -> None:
        """Go one call further."""
        match call.kind:
            case "open" | "create" if not call.failed:
                self._open(call)
            case "write":
                # A failed one too: its bytes are those that were taken.
                _write(self._file(call.file), call.data, call.at)
            case "truncate" if not call.failed:
                self._file(call.file).truncate(call.at)
            case "sync":
                self._sync(call)
            case "delete" if not call.failed:
                self._root.do(Change(dropped=call.file))
                if call.syncs_folder:
                    self._root.sync()
            case _:
                pass

    def seen(self) -> dict[str, bytes]:
        """Give every file as the next process finds it when only this one dies."""
        return dict(walk(self._root, ""))

    def cut(self, mode: Loss, seed: int = 0, names: Names = "mixed") -> dict[str, bytes]:
        """Give every file as it is found when the power goes now."""
        return dict(walk(PowerCut(mode, seed, names).cut(self._root), ""))

    def _open(self, call: Call) -> None:
        if call.file in self._root.names:
            return
        self._serial += 1
        file = File(self._serial)
        if call.kind == "create":
            self._root.put(call.file, file)
            return
        file.data, file.durable, file.floor = bytearray(call.data), bytearray(call.data), len(call.data)
        self._root.names[call.file] = self._root.durable[call.file] = file

    def _sync(self, call: Call) -> None:
        file = self._file(call.file)
        if call.failed:
            file.wash()
            return
        file.sync()
        if call.syncs_folder:
            self._root.sync()

    def _file(self, name: str) -> File:
        found = self._root.names[name]
        assert isinstance(found, File)
        return found


def write_image(files: dict[str, bytes], folder: Path) -> Path:
    """Put files into a new folder."""
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def _write(file: File, data: bytes, at: int) -> None:
    if not data:
        return
    # A gap before it is NULs, and new to the disk as well.
    start, end = min(at, len(file.data)), at + len(data)
    if at > len(file.data):
        file.data += bytes(at - len(file.data))
    file.data[at:end] = data
    file.dirty.append((start, end))
    file.changes += 1
