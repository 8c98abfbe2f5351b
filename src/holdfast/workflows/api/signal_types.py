"""Types that workflows declare for their signals: `@hf.workflow(signals={"paid": Payment})`.

Checked when they are declared; used to check data where the workflow is known; published by workers as JSON schemas,
for senders that have no code of the workflow.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from holdfast.errors import InvalidValue
from holdfast.json_decoders import reader_of, schema_of
from holdfast.model.workflows.commands import SignalMismatch
from holdfast.rules.workflows.signal_types import refused
from holdfast.workflows.api.definitions import Definition
from holdfast.workflows.api.error_conversion import text_of
from holdfast.workflows.api.operations import demand_signal_name

#: Bytes of schemas that a worker publishes; types beyond that are known to itself alone.
MAX_PUBLISHED = 64 << 10


def demand_types(workflow: str, signals: Mapping[str, Any]) -> None:
    """Refuse what declares no types of signals. Raises InvalidValue."""
    if not isinstance(signals, Mapping):
        raise InvalidValue(
            f"workflow {workflow!r}: signals: {signals!r:.100} is no dict of names and types.", field="signals"
        )
    for name, kind in signals.items():
        demand_signal_name(name)
        try:
            reader_of(kind)
            schema_of(kind)
        except TypeError as problem:
            raise InvalidValue(
                f"workflow {workflow!r}: signal {name!r}: {text_of(problem)}.",
                hint="Declare a type that msgspec reads from JSON, such as a dataclass, a TypedDict or dict[str, int].",
                field="signals",
            ) from None


def check_signal(
    definition: Definition, instance_id: str, name: str, data: str, undone: str = "Nothing was sent."
) -> None:
    """Refuse data that are not of the type which a workflow declares for a signal, if it does. Raises InvalidValue."""
    if name not in definition.signals:
        return
    try:
        reader_of(definition.signals[name]).decode(data)
    except (msgspec.DecodeError, TypeError, RecursionError) as problem:
        mismatch = SignalMismatch(workflow=definition.name, signal=name, problem=text_of(problem))
        raise refused(mismatch, instance_id, undone).error() from None


def published(definitions: Iterable[Definition]) -> dict[str, dict[str, msgspec.Raw]]:
    """Give the schemas of all declared signals, by `name version` and signal, as far as there is room for them."""
    found: dict[str, dict[str, msgspec.Raw]] = {}
    left = MAX_PUBLISHED
    for one in definitions:
        for name, kind in one.signals.items():
            schema = msgspec.json.encode(schema_of(kind))
            if len(schema) <= left and not _has_open_enum(kind):
                left -= len(schema)
                found.setdefault(f"{one.name} {one.version}", {})[name] = msgspec.Raw(schema)
    return found


def _has_open_enum(kind: Any) -> bool:
    """Tell whether a type has an enum inside that makes members of other values, which no schema tells."""
    waiting: list[Any] = [msgspec.inspect.type_info(kind)]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, msgspec.inspect.EnumType):
            if one.cls._missing_.__func__ is not enum.Enum._missing_.__func__:  # type: ignore[attr-defined]  # class methods
                return True
        elif isinstance(one, msgspec.Struct):
            waiting += [getattr(one, field) for field in one.__struct_fields__]
        elif isinstance(one, tuple):
            waiting += one
    return False
