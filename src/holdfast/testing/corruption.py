"""Damage on request: what a store keeps of a history or a message, overwritten, to see who notices.

Goes through the tables of a store, not through its files: readable by the store, senseless to whoever decodes it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.model.instances import Execution, HistoryRow, Instance, Message, execution_key
from holdfast.model.records import Record, key_of
from holdfast.stores.protocol import Store

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
    anything: Any = store
    if hasattr(anything, "overwrite"):
        anything.overwrite(record)
        return
    kind: type[Record] = type(record)
    with store.write() as batch:
        tables: Any = batch
        tables.put(kind, key_of(record), record)
