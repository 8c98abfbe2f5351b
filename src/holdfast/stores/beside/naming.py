"""Which blobs a record names. The one place that knows in which fields a reference may stand."""

from __future__ import annotations

from holdfast.model.artifacts import copies_in
from holdfast.model.jobs import Job, Run
from holdfast.model.payloads import NULL, ref_in
from holdfast.model.records import Record


def named_by(record: Record | None) -> set[str]:
    """Give the digests of the blobs that a record names."""
    match record:
        case Job():
            payloads = (record.params, record.result)
            listed = set[str]()
        case Run():
            payloads = (record.params_snapshot, record.details)
            listed = copies_in(record.artifacts) if record.artifacts != NULL else set()
        case _:
            return set()
    return listed | {ref.digest for payload in payloads if (ref := ref_in(payload)) is not None}
