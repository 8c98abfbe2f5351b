"""A store whose process died in the middle of a commit, seen as the next opening will make it. Changes nothing.

The intent of such a commit is durable: the commit was made, and some of its files may lie there already. Whoever only
looks must not take the rest for damage. `as_finished` shows the files that the intent names as it says they are, and
the feed with its events.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from holdfast.journal.filesystem import FS, Handle, Mode, Stat
from holdfast.stores.dir import feed, intent
from holdfast.stores.dir.format import histories, trash
from holdfast.stores.dir.format.atomic_write import path_of
from holdfast.stores.dir.format.file_names import stem_of
from holdfast.stores.dir.format.record_files import INTENT
from holdfast.stores.dir.format.record_text import pretty, whole
from holdfast.stores.dir.format.subdirectory_fs import Below
from holdfast.stores.dir.format.workflow_files import STATE
from holdfast.stores.dir.intent import Append, Drop, Image, Intent, Trash
from holdfast.stores.dir.load.recovery import Recovery, Report, has_number

log = logging.getLogger("holdfast.stores.dir")


def as_finished(fs: FS, root: str) -> FS:
    """Give the files of the store at `root` as they are once its last commit is finished. Raises StoreDamaged."""
    data = Below(fs, "data")
    if data.stat(INTENT) is None or not any(_is_intent(name) for name in data.listdir(INTENT)):
        return data
    recovery = Recovery(data, root, Report(), readonly=True, fresh=False)
    unfinished = recovery.unfinished()
    if unfinished is None:
        return data
    log.info("intent.unfinished", extra={"file": f"{root}/data/{path_of(INTENT, unfinished.name)}"})
    return Finished(fs, unfinished, recovery.feed)


def _is_intent(name: str) -> bool:
    stem = stem_of(name)
    return stem is not None and intent.is_intent(stem)


class _Opened(Handle):
    """A file that is only in memory."""

    __slots__ = ("text",)

    def __init__(self, path: str, text: bytes) -> None:
        super().__init__(path, -1, 0)
        self.text = text


class Finished(Below):
    """The files below `data/` with what one intent says of them."""

    def __init__(self, fs: FS, unfinished: Intent, told: feed.Feed) -> None:
        super().__init__(fs, "data")
        #: Path → what it says.
        self._texts: dict[str, bytes] = {}
        self._gone: set[str] = {path_of(INTENT, unfinished.name)}
        #: Directories that are in the trash, with all in them.
        self._trashed: list[str] = []
        for effect in unfinished.body.effects:
            match effect:
                case Trash(folder=folder, name=name):
                    if super().stat(trash.path_of(name)) is None:
                        self._trashed.append(f"{folder}/")
                case Drop(folder=folder, name=name):
                    self._gone.add(path_of(folder, name))
                case Image(folder=folder, name=name, seq=seq, record=record):
                    if not has_number(self, folder, name, seq):
                        self._texts[path_of(folder, name)] = pretty(record)
                case Append():
                    self._append(effect)
        # What is put is put before anything is removed: one place is never both.
        self._gone -= self._texts.keys()
        lacking = [one for one in unfinished.body.events if one.seq > told.seq]
        path = feed.path_of(told.firsts[-1])
        self._texts[path] = whole(self, path)[: told.size] + feed.lines_of(lacking)

    def _append(self, effect: Append) -> None:
        path = f"{effect.folder}/{histories.FILE}"
        if not has_number(self, effect.folder, STATE, effect.seq):
            had = whole(self, path) if self.stat(path) is not None else b""
            self._texts[path] = had[: effect.offset] + b"".join(bytes(line) + b"\n" for line in effect.lines)

    def open(self, path: str, mode: Mode) -> Handle:
        """Open a regular file."""
        text = self._texts.get(path)
        if text is not None:
            return _Opened(path, text)
        if self._is_gone(path):
            raise FileNotFoundError(2, "no such file", path)
        return super().open(path, mode)

    def read(self, h: Handle, size: int, offset: int) -> bytes:
        """Read at an offset."""
        return h.text[offset : offset + size] if isinstance(h, _Opened) else super().read(h, size, offset)

    def close(self, h: Handle) -> None:
        """Close the file."""
        if not isinstance(h, _Opened):
            super().close(h)

    def listdir(self, path: str) -> list[str]:
        """Names in a directory."""
        names = set(super().listdir(path)) if super().stat(path) is not None else set()
        there = {name for name in names if not self._is_gone(f"{path}/{name}" if path else name)}
        return sorted(there | set(self._below(path)))

    def stat(self, path: str) -> Stat | None:
        """Describe what is at a path."""
        text = self._texts.get(path)
        if text is not None:
            return Stat("file", len(text), 0, 0)
        found = None if self._is_gone(path) else super().stat(path)
        return Stat("dir", 0, 0, 0) if found is None and any(self._below(path)) else found

    def _below(self, path: str) -> Iterator[str]:
        """Walk the names in a directory that lead to a file in memory."""
        prefix = f"{path}/" if path else ""
        return (text[len(prefix) :].split("/")[0] for text in self._texts if text.startswith(prefix))

    def _is_gone(self, path: str) -> bool:
        return path in self._gone or any(f"{path}/".startswith(folder) for folder in self._trashed)
