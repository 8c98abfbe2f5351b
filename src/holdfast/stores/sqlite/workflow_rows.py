"""Rows of workflow instances. Saved whole, as other plain records; beside the fields stands the blob they name."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.model.records import Key, Record
from holdfast.model.workflows.decisions import Decision
from holdfast.model.workflows.instances import (
    Affinity,
    Execution,
    HistoryRow,
    Instance,
    KeyValue,
    Message,
    Turn,
    execution_key,
    history_key,
    message_key,
)
from holdfast.stores.sidecar.blob_refs import named_by
from holdfast.stores.sqlite.plain_rows import plain_table
from holdfast.stores.sqlite.rows import Row, Table
from holdfast.stores.sqlite.statements import SQL


def _naming(
    kind: type[Record],
    table: str,
    noun: str,
    plural: str,
    row_key: Callable[[Row], Key],
    *,
    paired: bool = False,
    update: str | None = None,
) -> Table:
    """Give a table whose rows tell which blob they name."""
    return plain_table(kind, table, noun, plural, _blob_of, update=update)._replace(paired=paired, row_key=row_key)


def _blob_of(record: Record) -> str | None:
    return next(iter(named_by(record)), None)


INSTANCES = _naming(
    Instance, "instances", "instance", "instances", lambda row: str(row[0]), update=SQL["go_on_instance"]
)
EXECUTIONS = _naming(
    Execution,
    "executions",
    "execution",
    "executions",
    lambda row: execution_key(row[0], row[1]),
    paired=True,
    update=SQL["lengthen_execution"],
)
HISTORY = _naming(
    HistoryRow, "history", "event_row", "event_rows", lambda row: history_key(row[0], row[1]), paired=True
)
MESSAGES = _naming(Message, "orchestrator_queue", "message", "messages", lambda row: message_key(row[0]))
TURNS = plain_table(Turn, "turns", "turn", "turns", update=SQL["hold_turn"])
KEY_VALUES = plain_table(KeyValue, "instance_kv", "key_value", "key_values")._replace(paired=True)
AFFINITIES = plain_table(Affinity, "sessions", "affinity", "affinities")
DECISIONS = plain_table(Decision, "decisions", "decision", "decisions")

#: An execution refers to its instance, a history to its execution.
FLOW_TABLES = (INSTANCES, EXECUTIONS, HISTORY, MESSAGES, TURNS, KEY_VALUES, AFFINITIES, DECISIONS)
