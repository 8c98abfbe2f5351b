"""Checking the files of workflow instances against what is known of them. Changes nothing.

Events are not looked at here: the invariants read every history, and name what cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.journal.filesystem import FS
from holdfast.model.workflows.instances import Instance, Turn
from holdfast.stores.dir.format.file_names import DRAFT
from holdfast.stores.dir.format.histories import FILE
from holdfast.stores.dir.format.record_files import INSTANCES
from holdfast.stores.dir.format.record_text import Unreadable
from holdfast.stores.dir.format.workflow_files import EXECUTIONS, InstanceFiles, execution_numbers, folder_of, is_folder
from holdfast.stores.dir.reader import Irregular
from holdfast.stores.dir.tables import DirTables
from holdfast.stores.protocol import Finding


def instance_files(fs: FS, tables: DirTables) -> Iterator[Finding]:
    """Compare the directory of each instance with its records, and name those that belong to none."""
    known = {folder_of(key): key for kind in (Instance, Turn) for key in tables.records[kind]}
    there = {f"{INSTANCES}/{name}" for name in fs.listdir(INSTANCES)}
    for folder in sorted(known.keys() | there):
        instance_id = known.get(folder)
        if instance_id is None or not is_folder(fs, folder):
            what = "is no instance of this store" if instance_id is None else f"instance {instance_id!r} has no files"
            code = "file_unknown" if instance_id is None else "file_missing"
            yield Finding(code=code, message=what, file=f"data/{folder}", id=instance_id)
        else:
            yield from _compare(fs, tables, folder, instance_id)


def _compare(fs: FS, tables: DirTables, folder: str, instance_id: str) -> Iterator[Finding]:
    files = InstanceFiles(fs, folder, folder.removeprefix(f"{INSTANCES}/"), tables.seq)
    executions = tables.executions(instance_id)
    known = (
        tables.records[Instance].get(instance_id),
        list(tables.keys(instance_id)),
        [(one, tables.histories.kept.get(one.history_id)) for one in executions],
        tables.records[Turn].get(instance_id),
    )
    try:
        found = (
            files.instance(),
            sorted(files.keys(), key=lambda one: one.key),
            sorted(files.executions(), key=lambda one: one[0].execution_id),
            files.turn(),
        )
    except (Unreadable, Irregular) as problem:
        yield Finding(code="file_damaged", message=str(problem), file=f"data/{folder}", id=instance_id)
        return
    if found != known:
        message = "the files do not say what the store knows"
        yield Finding(code="file_differs", message=message, file=f"data/{folder}", id=instance_id)
    for place in (folder, *(f"{folder}/{EXECUTIONS}/{number}" for number in execution_numbers(fs, folder))):
        for name in fs.listdir(place):
            if name.startswith(DRAFT):
                yield Finding(code="file_unknown", message="a draft was left", file=f"data/{place}/{name}")
    for _, kept in found[2]:
        size = fs.stat(f"{kept.folder}/{FILE}")
        if size is not None and size.size > kept.size:
            message = "something follows its last event"
            yield Finding(code="history_torn", message=message, file=f"data/{kept.folder}/{FILE}", id=instance_id)
