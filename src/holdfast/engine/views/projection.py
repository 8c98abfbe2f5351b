"""Structs made of others: a record without some fields and with some beside, so that no list of fields is kept twice.

All fields are always there; what is not known is null.
"""

from __future__ import annotations

from typing import Any

import msgspec

#: Characters of a payload that a list shows.
PREVIEW = 120


def shown(name: str, kind: type[msgspec.Struct], *, without: tuple[str, ...] = (), **beside: Any) -> type[Any]:
    """Make the struct of what is shown of `kind`: its fields but some, then those beside them with their types."""
    fields = [(field.name, field.type) for field in msgspec.structs.fields(kind) if field.name not in without]
    return msgspec.defstruct(
        name,
        [*fields, *beside.items()],
        namespace={"__doc__": kind.__doc__},
        module=__name__,
        frozen=True,
        kw_only=True,
    )


def fill(struct: type[Any], record: msgspec.Struct, **beside: Any) -> Any:
    """Show a record: what stands beside it comes first, all else is its own."""
    given = {name: getattr(record, name) for name in struct.__struct_fields__ if name not in beside}
    return struct(**given, **beside)


def preview(payload: msgspec.Raw | str | None) -> str:
    """Give how a payload begins."""
    if payload is None:
        return ""
    text = payload if isinstance(payload, str) else bytes(payload)[: 4 * PREVIEW].decode(errors="ignore")
    return text[:PREVIEW]
