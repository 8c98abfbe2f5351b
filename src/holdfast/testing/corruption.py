"""Damage on request: what a store keeps of a history or a message, overwritten, to see who notices.

Goes through the tables of a store, not through its files: readable by the store, senseless to whoever decodes it.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from holdfast.journal.filesystem import write_all
from holdfast.model.records import Record, key_of
from holdfast.model.workflows.instances import Execution, HistoryRow, Instance, Message, execution_key
from holdfast.stores.dir import DirStore
from holdfast.stores.dir.format.histories import FILE, Histories, line_of, parsed
from holdfast.stores.dir.format.record_text import whole
from holdfast.stores.protocol import Store
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.record_tables import BY_KIND
from holdfast.stores.wal import WalStore

#: JSON that is neither an item nor an event.
NONSENSE = msgspec.Raw(b'{"damaged":true}')


def corrupt_history(store: Store, instance: str) -> None:
    """Overwrite every stored event of the current execution of an instance."""
    with store.read() as view:
        found = view.get(Instance, instance)
        assert found is not None, f"there is no instance {instance!r}"
        execution = view.get(Execution, execution_key(instance, found.current_execution_id))
        assert execution is not None
        rows = list(view.history(execution.history_id))
    for row in rows:
        _overwrite(store, HistoryRow(row.history_id, row.event_id, NONSENSE))


def corrupt_message(store: Store, instance: str) -> None:
    """Overwrite the first message that waits for an instance."""
    with store.read() as view:
        message = view.mail(instance)[0]
    _overwrite(store, msgspec.structs.replace(message, item=NONSENSE))


def _overwrite(store: Store, record: HistoryRow | Message) -> None:
    if isinstance(store, SqliteStore):
        _overwrite_row(store, record)
        return
    if isinstance(store, DirStore) and isinstance(record, HistoryRow):
        with store.read() as view:
            _overwrite_line(view.histories, record)  # type: ignore[attr-defined]  # the view is this store's own tables
        return
    kind: type[Record] = type(record)
    with store.write() as batch:
        tables: Any = batch
        tables.put(kind, key_of(record), record)
    if isinstance(store, WalStore):
        store.snapshot()  # no event tells of it: else the next opening would fold what was there before


def _overwrite_line(histories: Histories, row: HistoryRow) -> None:
    """Write another event into the line of one; here, too, the sum is right."""
    kept, fs = histories.kept[row.history_id], histories.fs
    path = f"{kept.folder}/{FILE}"
    lines = whole(fs, path).split(b"\n")
    for at, text in enumerate(lines):
        line = parsed(text)
        if line is not None and line.id == row.event_id:
            lines[at] = bytes(line_of(row)).ljust(len(text))
    handle = fs.open(path, "append")
    try:
        fs.truncate(handle, 0)
        write_all(fs, handle, b"\n".join(lines))
    finally:
        fs.close(handle)


def _overwrite_row(store: SqliteStore, record: HistoryRow | Message) -> None:
    """Write past the store, as another program would; the sum is right, so that only the content is wrong."""
    insert = BY_KIND[type(record)].inserts[-1]
    db = sqlite3.connect(store.path)
    try:
        db.execute(insert.sql, insert.bind(BY_KIND[type(record)].write(record)))
        db.commit()
    finally:
        db.close()
