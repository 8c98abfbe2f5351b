"""A workflow's histories as one file, for other stores, for `replay` and for `check`. `docs/formats/history.md`.

Knows no store: whoever reads histories hands them over. A redacted file keeps the shape of every payload and no word or
number of it, so that code can be replayed along it where it does not decide by what was inside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.errors import HistoryCorrupt, TooNew
from holdfast.model.error_details import ErrorDetails
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.history import Event, KvEntry
from holdfast.workflows.replay.kv_carryover import left_by_earlier

#: What the first field of such a file says, and the format that is written.
KIND, FORMAT = "holdfast history", 1
#: Fields of events that are JSON texts of users.
_PAYLOADS = ("input", "output", "result", "data", "status", "value")
#: What stands for a word.
HIDDEN = "…"


class ExportedExecution(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One history, from its first event on."""

    execution_id: int
    events: tuple[Event, ...]
    #: The keys it began with, as far as they are known.
    kv: dict[str, KvEntry] = {}


class HistoryFile(msgspec.Struct, frozen=True, kw_only=True):
    """All that is kept of an instance."""

    kind: str
    format: int
    instance: str
    workflow: str
    #: Of the newest execution.
    version: str
    status: str
    redacted: bool
    executions: tuple[ExportedExecution, ...]


class _Opening(msgspec.Struct):
    kind: str
    format: int


def file_of(
    instance: str, status: str, histories: Mapping[int, Sequence[Event]], *, redact: bool = False
) -> HistoryFile:
    """Put histories, by execution, oldest first, into a file. Raises HistoryCorrupt if one begins with no start."""
    executions = []
    name = version = ""
    for number, events in histories.items():
        begun = events[0].kind if events else None
        if not isinstance(begun, event_kinds.OrchestrationStarted):
            raise HistoryCorrupt(f"instance {instance!r}: a history does not begin with a start. Nothing was written.")
        name, version = begun.name, begun.version
        kept = tuple(map(redacted, events) if redact else events)
        keys = left_by_earlier(histories, number) or {}
        if redact:
            keys = {key: KvEntry(_hidden(entry.value), entry.last_updated_at_ms) for key, entry in keys.items()}
        executions.append(ExportedExecution(execution_id=number, events=kept, kv=keys))
        redact = redact or begun.redacted
    if not executions:
        raise HistoryCorrupt(f"instance {instance!r} has no history yet. Nothing was written.")
    return HistoryFile(
        kind=KIND,
        format=FORMAT,
        instance=instance,
        workflow=name,
        version=version,
        status=status,
        redacted=redact,
        executions=tuple(executions),
    )


def write_file(file: HistoryFile) -> bytes:
    """Give the bytes of a file: JSON, one event a line, so that two can be compared by eye."""
    head = msgspec.json.encode(msgspec.structs.replace(file, executions=())).removesuffix(b"[]}")
    executions = []
    for one in file.executions:
        rest = msgspec.json.encode({"execution_id": one.execution_id, "kv": one.kv}).removesuffix(b"}")
        events = b",\n".join(map(msgspec.json.encode, one.events))
        executions.append(rest + b',"events":[\n' + events + b"\n]}")
    return head + b"[\n" + b",\n".join(executions) + b"\n]}\n"


def read_file(content: bytes, name: str) -> HistoryFile:
    """Read a file, called `name` in messages. Raises HistoryCorrupt for what is none, TooNew for a later format."""
    try:
        opening = msgspec.json.decode(content, type=_Opening)
        if opening.kind == KIND and opening.format > FORMAT:
            raise TooNew(
                f"{name}: is of format {opening.format}; this version reads {FORMAT}. Nothing was done.",
                hint="Use a newer Holdfast.",
            )
        file = msgspec.json.decode(content, type=HistoryFile)
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise HistoryCorrupt(f"{name}: is no exported history: {problem}. Nothing was done.") from None
    if file.kind != KIND or not file.executions or not all(one.events for one in file.executions):
        raise HistoryCorrupt(f"{name}: is no exported history. Nothing was done.")
    return file


def redacted(event: Event) -> Event:
    """Give an event without a word of its payloads."""
    fields: dict[str, Any] = {
        name: _hidden(getattr(event.kind, name))
        for name in _PAYLOADS
        if isinstance(getattr(event.kind, name, None), str)
    }
    details = getattr(event.kind, "details", None)
    if details is not None:
        fields["details"] = _hidden_details(details)
    if isinstance(event.kind, event_kinds.SignalRejected):
        fields["reason"] = HIDDEN  # it may quote the data
    if isinstance(event.kind, event_kinds.OrchestrationStarted):
        fields["redacted"] = True
        fields["carry_forward_events"] = tuple((name, _hidden(data)) for name, data in event.kind.carry_forward_events)
    return msgspec.structs.replace(event, kind=msgspec.structs.replace(event.kind, **fields))


def _hidden_details(details: ErrorDetails) -> ErrorDetails:
    """Give a failure without what was said of it: only its class and those of its causes are left."""
    return msgspec.structs.replace(
        details,
        message=HIDDEN,
        args=None if details.args is None else _hidden(details.args),
        repr=None,
        traceback=None,
        data=None,
        cause=None if details.cause is None else _hidden_details(details.cause),
    )


def _hidden(text: str) -> str:
    try:
        return msgspec.json.encode(_shape(msgspec.json.decode(text))).decode()
    except msgspec.MsgspecError:
        return f'"{HIDDEN}"'


def _shape(value: Any) -> Any:
    match value:
        case dict():
            return {key: _shape(one) for key, one in value.items()}
        case list():
            return [_shape(one) for one in value]
        case str():
            return HIDDEN
        case bool() | None:
            return value
        case _:
            return 0
