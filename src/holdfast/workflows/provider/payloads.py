"""Items and events out of a store: texts that lie beside their records put back, then read. Bad ones say so."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.errors import HistoryCorrupt, HoldfastError
from holdfast.model.jobs import Backoff, Job
from holdfast.model.payloads import NULL, ref_in
from holdfast.model.workflows.history import Event, decode_event
from holdfast.model.workflows.instances import HistoryRow, owned_by
from holdfast.model.workflows.work_items import ActivityExecute, ActivityOptions, WorkItem, decode_item
from holdfast.stores.sidecar.protocol import Blobs

_encode = msgspec.json.Encoder().encode
_fields: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_text = msgspec.json.Decoder(str).decode


def content_of(blobs: Blobs, raw: msgspec.Raw) -> bytes:
    """Give a payload, from beside the record if that is where it lies; what is in it is not looked at."""
    ref = ref_in(raw)
    return bytes(raw) if ref is None else blobs.get(ref.digest)


def whole(blobs: Blobs, raw: msgspec.Raw) -> bytes:
    """Give an encoded item or event with everything in it that the record only names."""
    ref = ref_in(raw)
    if ref is not None:
        return blobs.get(ref.digest)
    text = bytes(raw)
    if b'"$blob"' not in text:
        return text
    fields = _fields.decode(text)
    for name, value in fields.items():
        inner = ref_in(value)
        if inner is not None:
            content = blobs.get(inner.digest)
            # Payloads are texts; what failed is told by a record.
            fields[name] = msgspec.Raw(content if name == "details" else _encode(content.decode()))
    return _encode(fields)


def item_of(blobs: Blobs, raw: msgspec.Raw) -> WorkItem:
    """Read an item. Raises HistoryCorrupt for what is none."""
    try:
        item: WorkItem = decode_item(whole(blobs, raw))
    except (msgspec.MsgspecError, ValueError, HoldfastError) as problem:
        raise HistoryCorrupt(f"a message cannot be read: {problem}") from problem
    return item


def events_of(blobs: Blobs, rows: Iterable[HistoryRow], execution_id: int, instance: str | None = None) -> list[Event]:
    """Read a history. Raises HistoryCorrupt, naming execution and event, never gives a shorter one.

    Who does not say whose it is adds that to the message.
    """
    events = []
    for row in rows:
        try:
            events.append(decode_event(whole(blobs, row.event)))
        except (msgspec.MsgspecError, ValueError, HoldfastError) as problem:
            message = f"execution {execution_id}, event {row.event_id}: cannot be read: {problem}"
            if instance is None:
                raise HistoryCorrupt(message, execution_id=execution_id, event_id=row.event_id) from problem
            raise HistoryCorrupt(
                f"instance {instance!r}, {message}. Nothing was changed.",
                hint=f"End it with `holdfast workflows fail {instance}`, or restore the store from a copy.",
                instance=instance,
                execution_id=execution_id,
                event_id=row.event_id,
            ) from problem
    return events


def text_of(blobs: Blobs, raw: msgspec.Raw) -> str | None:
    """Read a text that a record keeps; NULL is none. Raises HistoryCorrupt for what is no text."""
    try:
        return None if raw == NULL else _text(content_of(blobs, raw))
    except (msgspec.MsgspecError, ValueError) as problem:
        raise HistoryCorrupt(f"a stored text cannot be read: {problem}. Nothing was changed.") from problem


def activity_of(blobs: Blobs, job: Job) -> ActivityExecute:
    """Give the item that a job was made from. Raises HistoryCorrupt if its input cannot be read."""
    owner = owned_by(job.owner)
    assert owner is not None
    instance, execution_id, event_id = owner
    try:
        given = _input_of(content_of(blobs, job.params))
    except (msgspec.MsgspecError, ValueError) as problem:
        raise HistoryCorrupt(f"the input of activity {job.job_id} cannot be read: {problem}") from problem
    judged = job.max_expiries is not None
    return ActivityExecute(
        instance=instance,
        execution_id=execution_id,
        id=event_id,
        name=job.job_type,
        input=given,
        session_id=job.affinity,
        tag=None if job.queue == "default" else job.queue,
        options=_options(job) if judged else None,
    )


def _input_of(params: bytes) -> str:
    fields = _fields.decode(params)
    return _text(fields["$input"]) if len(fields) == 1 and "$input" in fields else params.decode()


def _options(job: Job) -> ActivityOptions:
    return ActivityOptions(
        priority=job.priority,
        max_attempts=job.max_attempts,
        max_expiries=5 if job.max_expiries is None else job.max_expiries,
        timeout_s=job.timeout_s,
        lease_s=job.lease_s,
        retry_mode=job.retry_mode.value,
        backoff=None if job.backoff == Backoff() else job.backoff,
        limit_key=job.limit_key,
        key_limit=job.key_limit,
    )
