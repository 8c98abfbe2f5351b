"""Records whose rows need no special care: converted by the types of their fields, saved whole.

For tables that change seldom: one statement inserts or replaces all columns. Enums become their text, booleans 0 and
1, payloads and lists JSON text; what is read back is what was bound.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, get_args, get_type_hints

import msgspec

from holdfast.model.groups import Group
from holdfast.model.records import Record
from holdfast.model.reservations import Reservation
from holdfast.model.webhooks import Delivery, Webhook
from holdfast.stores.sqlite.rows import Insert, Row, Table, Update, sum_of
from holdfast.stores.sqlite.statements import COLUMNS, SQL

_json = msgspec.json.Encoder().encode


def _as_is(value: Any) -> Any:
    return value


def _text(value: Any) -> str:
    return str(value, "utf-8")


def _json_text(value: Any) -> str:
    return _json(value).decode()


def _number_to_bool(value: int) -> bool:
    return value != 0


def _converters(hint: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Give how a value of that type is written, and how it is read."""
    kinds = [kind for kind in get_args(hint) or (hint,) if kind is not type(None)]
    kind = kinds[0] if len(kinds) == 1 else hint
    if kind is bool:
        return int, _number_to_bool
    if kind is msgspec.Raw:
        return _text, msgspec.Raw
    if isinstance(kind, type) and issubclass(kind, Enum):
        return (lambda member: member.value), kind
    if isinstance(kind, type) and issubclass(kind, str | int):
        return _as_is, _as_is
    if hasattr(kind, "__supertype__"):
        return _as_is, _as_is
    return _json_text, msgspec.json.Decoder(hint).decode


def plain_table(
    kind: type[Record],
    table: str,
    noun: str,
    plural: str,
    blob_of: Callable[[Record], str | None] | None = None,
    *,
    update: str | None = None,
) -> Table:
    """Give the table of a kind; its statements are named by the noun. By `blob_of` a row tells which blob it names.

    What changes often may have an UPDATE for that alone.
    """
    hints = get_type_hints(kind)
    converters = [_converters(hints[name]) for name in kind.__struct_fields__]
    # Most columns hold what the record holds: only the others are gone through, as every turn writes several rows.
    writers = [(at, write) for at, (write, _) in enumerate(converters) if write is not _as_is]
    readers = [read for _, read in converters]
    make: Callable[..., Record] = kind

    def write(record: Record) -> Row:
        row = list(msgspec.structs.astuple(record))
        for at, to in writers:
            value = row[at]
            if value is not None:
                row[at] = to(value)
        if blob_of is not None:
            row.append(blob_of(record))
        row.append(sum_of(row))
        return tuple(row)

    def read(row: Row) -> Record:
        return make(*(None if value is None else to(value) for value, to in zip(row, readers, strict=True)))

    beside = ("sum",) if blob_of is None else ("blob", "sum")
    return Table(
        kind,
        read,
        write,
        SQL[noun],
        SQL[f"all_{plural}"],
        (Insert(table, SQL[f"save_{noun}"], beside),),
        () if update is None else (Update(table, update, beside, COLUMNS[table]),),
        SQL[f"delete_{noun}"],
    )


RESERVATIONS = plain_table(Reservation, "direct_reservations", "reservation", "reservations")
GROUPS = plain_table(Group, "job_groups", "group", "groups")
WEBHOOKS = plain_table(Webhook, "webhooks", "webhook", "webhooks")
DELIVERIES = plain_table(Delivery, "webhook_deliveries", "delivery", "deliveries")
