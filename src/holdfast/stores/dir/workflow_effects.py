"""What a batch makes of the files of workflow instances. It decides nothing and writes nothing.

Of a history only the new events are told, with the place they go to: what a turn costs does not grow with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from holdfast.model.records import Key, Record
from holdfast.model.workflows.instances import Execution, HistoryRow, Instance, KeyValue, Message, Turn
from holdfast.stores.dir.format import record_files
from holdfast.stores.dir.format.atomic_write import image_of
from holdfast.stores.dir.format.histories import Kept, line_of, size_of
from holdfast.stores.dir.format.workflow_files import (
    KEYS,
    LOCK,
    META,
    STATE,
    execution_folder,
    folder_of,
    written_keys,
    written_state,
)
from holdfast.stores.dir.intent import Append, Drop, Effect, Trash
from holdfast.stores.dir.tables import DirTables

Changed = dict[tuple[type[Record], Key], Record | None]


@dataclass
class BatchPlan:
    """What a batch does to the files of instances, and what is to be known when it is done."""

    effects: list[Effect] = field(default_factory=list)
    #: History → where it lies then; None for one that is gone.
    kept: dict[int, Kept | None] = field(default_factory=dict)
    #: Directories of instances in which nothing is left.
    hollow: list[str] = field(default_factory=list)


def flow_plan(tables: DirTables, changed: Changed) -> BatchPlan:
    """Work out what has to be written of instances for the open batch."""
    return _Planning(tables, changed).plan


class _Planning:
    """One batch, change by change."""

    def __init__(self, tables: DirTables, changed: Changed) -> None:
        self._tables = tables
        self.plan = BatchPlan()
        self._put = self.plan.effects.append
        #: The events that were added, by history, in their order.
        self._added: dict[int, list[HistoryRow]] = {}
        for row in tables.records[HistoryRow].values():
            self._added.setdefault(row.history_id, []).append(row)
        #: Instances whose directories go with all in them; the same id may be taken anew.
        self._gone: set[str] = set()
        for (kind, key), was in changed.items():
            if kind is Instance:
                self._instance(key, was, tables.records[Instance].get(key))
        keyed: dict[str, None] = {}
        for (kind, key), was in changed.items():
            before: Any = was
            after: Any = tables.records[kind].get(key)
            if before is None and after is None:
                continue
            if kind is Execution:
                self._execution(before, after)
            elif kind is Turn:
                self._turn(key, before, after)
            elif kind is Message:
                self._message(before, after)
            elif kind is KeyValue:
                keyed[(after or before).instance_id] = None
        for instance_id in keyed:
            self._keys(instance_id)

    def _instance(self, instance_id: str, before: Any, after: Instance | None) -> None:
        if before is not None and (after is None or after.seq != before.seq):
            self._gone.add(instance_id)
            self._put(Trash(folder_of(instance_id), f"{before.seq:016}"))
        if after is not None:
            seq = self._tables.seq
            self._put(image_of(folder_of(instance_id), META, seq, record_files.write(after, seq)))

    def _execution(self, before: Execution | None, after: Execution | None) -> None:
        old, new = before and before.history_id, after and after.history_id
        if before is not None and old != new:
            self.plan.kept[before.history_id] = None
            if before.instance_id not in self._gone:
                self._put(Trash(execution_folder(before), f"{before.history_id:016}-{before.execution_id}"))
        if after is None:
            return
        folder, seq = execution_folder(after), self._tables.seq
        kept = self._tables.histories.kept.get(after.history_id, Kept(folder))
        rows = self._added.get(after.history_id, [])
        if rows:
            lines = [line_of(row) for row in rows]
            self._put(Append(folder, seq, kept.size, lines))
            ids = [0 if before is None or old != new else before.last_event_id, *(row.event_id for row in rows)]
            rises = all(one < other for one, other in pairwise(ids))
            kept = Kept(folder, kept.size + size_of(lines), kept.ordered and rises)
        self.plan.kept[after.history_id] = kept
        self._put(image_of(folder, STATE, seq, written_state(after, kept, seq)))

    def _turn(self, instance_id: str, before: Turn | None, after: Turn | None) -> None:
        folder, seq = folder_of(instance_id), self._tables.seq
        if after is not None:
            self._put(image_of(folder, LOCK, seq, record_files.write(after, seq)))
        elif before is not None and instance_id not in self._gone:
            self._put(Drop(folder, LOCK))
            if instance_id not in self._tables.records[Instance]:
                self.plan.hollow.append(folder)

    def _message(self, before: Message | None, after: Message | None) -> None:
        if after is not None:
            self._put(
                image_of(*record_files.place_of(after), self._tables.seq, record_files.write(after, self._tables.seq))
            )
        if before is not None and (after is None or record_files.place_of(after) != record_files.place_of(before)):
            self._put(Drop(*record_files.place_of(before)))

    def _keys(self, instance_id: str) -> None:
        folder, seq = folder_of(instance_id), self._tables.seq
        keys = self._tables.keys(instance_id)
        if keys:
            self._put(image_of(folder, KEYS, seq, written_keys(instance_id, keys, seq)))
        elif instance_id not in self._gone and instance_id in self._tables.records[Instance]:
            self._put(Drop(folder, KEYS))
