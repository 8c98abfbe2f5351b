"""Filling the tables with workflow instances from their files. Damage stays with the instance it struck.

An instance of which a file cannot be read is set aside whole, with all its executions; only who works on it is not
worth that: the lock's file goes alone, and the messages in hand wait again. A history is not read here; what follows
the bytes of it that count is torn: cut, and kept beside. Of a store that is only looked at nothing is changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from holdfast.journal.filesystem import FS
from holdfast.model.workflows.instances import Execution, Instance, KeyValue, Turn
from holdfast.stores.dir.format import directories
from holdfast.stores.dir.format.atomic_write import path_of, put
from holdfast.stores.dir.format.file_names import DRAFT, is_canonical
from holdfast.stores.dir.format.histories import FILE, Kept
from holdfast.stores.dir.format.record_files import INSTANCES
from holdfast.stores.dir.format.record_text import Unreadable, whole
from holdfast.stores.dir.format.workflow_files import EXECUTIONS, LOCK, META, InstanceFiles, is_folder
from holdfast.stores.dir.integrity.quarantine import Quarantine
from holdfast.stores.dir.load.recovery import Report
from holdfast.stores.dir.reader import Irregular
from holdfast.stores.dir.tables import DirTables

log = logging.getLogger("holdfast.stores.dir")


class Shelf(NamedTuple):
    """What loading needs of a store: its files, its tables, and where to say what was found."""

    fs: FS
    root: str
    tables: DirTables
    quarantine: Quarantine
    report: Report
    readonly: bool
    #: Is told of a file that cannot be read, with the reason.
    unreadable: Callable[[str, str], None]


def load_instances(shelf: Shelf, applied: int) -> None:
    """Read all instances that were written up to an event."""
    instances: list[Instance] = []
    executions: list[Execution] = []
    keys: list[KeyValue] = []
    turns: list[Turn] = []
    for name in _names(shelf):
        folder = f"{INSTANCES}/{name}"
        with suppress(FileNotFoundError):  # gone meanwhile, by the process whose store we only read
            files = InstanceFiles(shelf.fs, folder, name, applied, at_work=shelf.readonly)
            _sweep(shelf, folder, files)
            try:
                instance, found, values = files.instance(), files.executions(), files.keys()
            except (Unreadable, Irregular) as problem:
                _set_aside(shelf, folder, _reason(problem))
                continue
            if instance is None and (found or values):
                _set_aside(shelf, folder, f"{META}.json: is not there")
                continue
            turn = _turn(shelf, folder, files)
            if turn is None and instance is None:
                _remove_hollow(shelf, folder)
                continue
            if instance is not None:
                instances.append(instance)
            if turn is not None:
                turns.append(turn)
            for execution, kept in found:
                executions.append(execution)
                shelf.tables.histories.kept[execution.history_id] = kept
                _cut(shelf, kept)
            keys += values
    for kind, records in ((Instance, instances), (Execution, executions), (KeyValue, keys), (Turn, turns)):
        shelf.tables.load(kind, records)


def _names(shelf: Shelf) -> Iterator[str]:
    """Walk the names of instances; what is none of ours is left alone."""
    for name in shelf.fs.listdir(INSTANCES) if shelf.fs.stat(INSTANCES) is not None else ():
        if is_canonical(name) and is_folder(shelf.fs, f"{INSTANCES}/{name}"):
            yield name
        elif not name.startswith(DRAFT):
            shelf.report.irregular += 1
            log.warning("record.irregular", extra={"file": f"{INSTANCES}/{name}", "store": shelf.root})


def _reason(problem: Exception) -> str:
    return f"{problem}: is no regular file" if isinstance(problem, Irregular) else str(problem)


def _turn(shelf: Shelf, folder: str, files: InstanceFiles) -> Turn | None:
    try:
        return files.turn()
    except (Unreadable, Irregular) as problem:
        if shelf.readonly:
            shelf.unreadable(path_of(folder, LOCK), _reason(problem))
        else:
            shelf.quarantine.take(folder, LOCK, _reason(problem))
    return None


def _set_aside(shelf: Shelf, folder: str, reason: str) -> None:
    if shelf.readonly:
        log.warning("record.unreadable", extra={"file": folder, "reason": reason})
        shelf.unreadable(folder, reason)
    else:
        shelf.quarantine.take_folder(folder, reason)


def _sweep(shelf: Shelf, folder: str, files: InstanceFiles) -> None:
    """Remove drafts: they are never state."""
    if shelf.readonly:
        return
    executions = [f"{folder}/{EXECUTIONS}/{number}" for number in files.numbers]
    for place, names in ((folder, files.names), *((place, shelf.fs.listdir(place)) for place in executions)):
        for name in names:
            if name.startswith(DRAFT):
                with suppress(IsADirectoryError, PermissionError, FileNotFoundError):
                    shelf.fs.unlink(f"{place}/{name}")
                    shelf.report.drafts += 1


def _remove_hollow(shelf: Shelf, folder: str) -> None:
    """Remove a directory in which nothing is left of what was locked or begun there."""
    if not shelf.readonly and not any(not is_folder(shelf.fs, f"{folder}/{name}") for name in shelf.fs.listdir(folder)):
        directories.remove(shelf.fs, folder)


def _cut(shelf: Shelf, kept: Kept) -> None:
    """Cut what follows the bytes of a history that count, keeping it beside."""
    path = f"{kept.folder}/{FILE}"
    found = shelf.fs.stat(path)
    if shelf.readonly or found is None or found.kind != "file" or found.size <= kept.size:
        return
    put(shelf.fs, kept.folder, f"history-{kept.size:016}.torn", whole(shelf.fs, path)[kept.size :])
    handle = shelf.fs.open(path, "append")
    try:
        shelf.fs.truncate(handle, kept.size)
        shelf.fs.sync(handle, metadata=True)
    finally:
        shelf.fs.close(handle)
    shelf.report.torn += 1
    log.warning("history.cut", extra={"file": f"{shelf.root}/data/{path}", "bytes": found.size - kept.size})
