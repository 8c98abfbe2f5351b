"""Which blobs a record names. The one place that knows in which fields a reference may stand."""

from __future__ import annotations

from holdfast.model.artifacts import copies_in
from holdfast.model.jobs import Job, Run
from holdfast.model.payloads import NULL, ref_in, refs_within
from holdfast.model.records import Record
from holdfast.model.workflows.instances import Execution, HistoryRow, Instance, Message

#: Kinds of records that may name a blob.
NAMING: tuple[type[Record], ...] = (Job, Run, Instance, Execution, HistoryRow, Message)


def named_by(record: Record | None) -> set[str]:
    """Give the digests of the blobs that a record names."""
    match record:
        case Job():
            payloads = (record.params, record.result)
            listed = set[str]()
        case Run():
            payloads = (record.params_snapshot, record.details)
            listed = copies_in(record.artifacts) if record.artifacts != NULL else set()
        case HistoryRow():
            return refs_within(record.event)
        case Message():
            return refs_within(record.item)
        case Execution():
            return refs_within(record.output)
        case Instance():
            return refs_within(record.custom_status)
        case _:
            return set()
    return listed | {ref.digest for payload in payloads if (ref := ref_in(payload)) is not None}
