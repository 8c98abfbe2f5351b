"""Admission of commands about instances: items and events are read once, before any store sees them.

What the rules must know of them is worked out here and nowhere else, so that a sender cannot say one thing and mean
another. Kept is the text as this version writes it; large ones lie beside their records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, get_type_hints

import msgspec

from holdfast.errors import InvalidValue, PayloadTooLarge
from holdfast.model.events import Asked, Closed
from holdfast.model.jobs import Backoff, RetryMode
from holdfast.model.payloads import MAX_BYTES, MAX_INLINE, NULL, admit_object, blob_ref, names_in, ref_in
from holdfast.model.times import at_milliseconds
from holdfast.model.workers import WorkerInfo
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.commands import (
    AckActivity,
    AckTurn,
    Again,
    AnswerDecision,
    AppendHistory,
    Delta,
    FailInstance,
    FlowCommand,
    ForkInstance,
    ImportInstance,
    KeyWish,
    Metadata,
    NewActivity,
    NewEvent,
    NewMessage,
    ResetInstance,
    SendMessage,
    SignalMismatch,
    StartActivity,
    StartInstance,
    TellInstance,
)
from holdfast.model.workflows.decisions import Answer, decision_id
from holdfast.model.workflows.history import Event
from holdfast.model.workflows.instances import MAX_KEY, MAX_STATUS, MAX_VALUE, owner_of
from holdfast.model.workflows.work_items import (
    ActivityCompleted,
    ActivityExecute,
    ActivityFailed,
    ContinueAsNew,
    QueueMessage,
    StartOrchestration,
    TimerFired,
    WorkItem,
    goes_to,
    start_digest,
)
from holdfast.rules.field_checks import shown
from holdfast.rules.workflows.signal_types import find_signal_mismatches
from holdfast.stores.sidecar.protocol import Blobs

replace = msgspec.structs.replace

#: Reads the roster: only signals need it.
Workers = Callable[[], Sequence[WorkerInfo]]

_encode = msgspec.json.Encoder().encode
_items: msgspec.json.Decoder[WorkItem] = msgspec.json.Decoder(WorkItem)
_events = msgspec.json.Decoder(Event)
_texts = msgspec.json.Decoder(str)
_answers = msgspec.json.Decoder(Answer)


def admitted_flow(command: FlowCommand, blobs: Blobs, workers: Workers | None = None) -> FlowCommand:
    """Give the command with everything worked out; signals also from what `workers` publish of their types.

    Raises UsageError for what cannot be kept.
    """
    match command:
        case SendMessage(message=message):
            return replace(command, message=_message(message, blobs, "item"))
        case TellInstance(message=message):
            return replace(
                command,
                message=_message(message, blobs, "item"),
                signal_mismatches=_signal_mismatches((message,), "item", workers),
            )
        case AnswerDecision():
            return _answer(command, blobs)
        case StartInstance():
            return replace(
                command,
                message=_message(command.message, blobs, "item"),
                signals=tuple(_message(signal, blobs, "signals") for signal in command.signals),
                signal_mismatches=_signal_mismatches(command.signals, "signals", workers),
            )
        case AckTurn():
            return admitted_ack(command, blobs)
        case ResetInstance():
            return replace(
                command,
                begins=_copied(command.begins, blobs),
                ending=_delta(command.ending, blobs),
                output=_output(command.output, blobs),
                messages=_again(command.messages, blobs),
                keys=_base(command.keys),
            )
        case ForkInstance():
            begins, messages = _copied(command.begins, blobs), _again(command.messages, blobs)
            return replace(command, begins=begins, messages=messages, keys=_base(command.keys))
        case FailInstance():
            return replace(
                command,
                ending=_delta(command.ending, blobs),
                output=_output(command.output, blobs),
                messages=tuple(_message(new, blobs, "messages") for new in command.messages),
            )
        case ImportInstance():
            executions = tuple(
                replace(ended, delta=_quiet(_delta(ended.delta, blobs)), output=_output(ended.output, blobs))
                for ended in command.executions
            )
            return replace(command, executions=executions, keys=_base(command.keys))
        case AppendHistory():
            return replace(command, delta=_delta(command.delta, blobs))
        case StartActivity():
            return replace(command, activity=_activity(command.activity, blobs, "item"))
        case AckActivity(completion=NewMessage() as completion):
            return _completion(command, completion, blobs)
        case _:
            return command


def admitted_ack(command: AckTurn, blobs: Blobs) -> AckTurn:
    """Give the commit of a turn with everything worked out. Raises UsageError for what cannot be kept."""
    if not (command.delta.events or command.activities or command.messages or command.metadata.output != NULL):
        return command  # as most commits of steps
    return replace(
        command,
        delta=_delta(command.delta, blobs),
        activities=tuple([_activity(new, blobs, "worker_items") for new in command.activities]),
        messages=tuple([_message(new, blobs, "orchestrator_items") for new in command.messages]),
        metadata=_metadata(command.metadata, blobs),
    )


# --- reading ----------------------------------------------------------------------------------------------------------


def _read(decoder: msgspec.json.Decoder[Any], text: bytes | msgspec.Raw, field: str) -> Any:
    if memoryview(text).nbytes > MAX_BYTES:
        size = memoryview(text).nbytes
        raise PayloadTooLarge(f"invalid {field}: {size:,} bytes are more than the {MAX_BYTES:,} that are kept")
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise InvalidValue(f"invalid {field}: {problem}", field=field) from None


def _in_range(struct: msgspec.Struct) -> None:
    """Refuse numbers that a column could not hold."""
    for name in _numbers(type(struct)):
        number = getattr(struct, name)
        if number is not None and not 0 <= number < 1 << 63:
            complaint = f"invalid {name}: must be between 0 and 2**63 - 1, is {shown(number)}"
            raise InvalidValue(complaint, field=name)


@lru_cache
def _numbers(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Name the fields of a struct that hold whole numbers, or none."""
    hints = get_type_hints(kind)
    return tuple(name for name in kind.__struct_fields__ if hints[name] in (int, int | None))


def kept(text: bytes, blobs: Blobs) -> msgspec.Raw:
    """Give what a record keeps of a text: itself, or a reference to the blob it became."""
    return msgspec.Raw(text) if len(text) <= MAX_INLINE else blob_ref(blobs.put(text), len(text))


def _item(text: msgspec.Raw, field: str) -> WorkItem:
    item: WorkItem = _read(_items, text, field)
    _in_range(item)
    return item


# --- items ------------------------------------------------------------------------------------------------------------


def _message(new: NewMessage, blobs: Blobs, field: str) -> NewMessage:
    return _described(_item(new.item, field), blobs)


def _signal_mismatches(
    messages: Sequence[NewMessage], field: str, workers: Workers | None
) -> tuple[SignalMismatch, ...]:
    """Say which workflows refuse one of these signals, by the types that live workers publish."""
    items = [_item(message.item, field) for message in messages] if workers is not None else []
    signals = [item for item in items if isinstance(item, QueueMessage)]
    if workers is None or not signals:
        return ()
    live = workers()
    return tuple(mismatch for signal in signals for mismatch in find_signal_mismatches(live, signal.name, signal.data))


def _answer(command: AnswerDecision, blobs: Blobs) -> AnswerDecision:
    """Say of an answer what the workflow will read: nothing else is judged, and nothing else kept."""
    item = _item(command.message.item, "message")
    if not isinstance(item, QueueMessage):
        raise InvalidValue("an answer is a signal to the instance that asked. Nothing was changed.", field="message")
    said = _read(_answers, msgspec.Raw(item.data.encode()), "message")
    return replace(command, message=_described(item, blobs), chosen=said.chosen, by=said.by or "")


def _described(item: WorkItem, blobs: Blobs) -> NewMessage:
    """Say what the rules must know of an item."""
    instance_id = goes_to(item)
    kind = type(item).__name__
    if instance_id is None:
        raise InvalidValue(f"{kind} does not belong in the orchestrator queue", field="item")
    text = kept(_encode(item), blobs)
    match item:
        case StartOrchestration() | ContinueAsNew():
            return NewMessage(
                item=text,
                instance_id=instance_id,
                kind=kind,
                orchestration=item.orchestration,
                version=item.version,
                parent_instance_id=item.parent_instance,
                digest=start_digest(item.orchestration, item.input) if isinstance(item, StartOrchestration) else None,
            )
        case TimerFired():
            return NewMessage(
                item=text,
                instance_id=instance_id,
                kind=kind,
                execution_id=item.execution_id,
                event_id=item.id,
                fire_at=at_milliseconds(item.fire_at_ms),
            )
        case QueueMessage():
            return NewMessage(item=text, instance_id=instance_id, kind=kind, name=item.name)
        case _:
            return NewMessage(item=text, instance_id=instance_id, kind=kind)


def _activity(new: NewActivity, blobs: Blobs, field: str) -> NewActivity:
    item = _item(new.item, field)
    if not isinstance(item, ActivityExecute):
        raise InvalidValue(f"{type(item).__name__} does not belong in the worker queue", field=field)
    if item.tag == "default":
        raise InvalidValue("invalid tag: 'default' is the queue of activities without a tag; leave it out", field="tag")
    judged = item.options is not None
    made = NewActivity(
        job_id=new.job_id,
        item=NULL,
        owner=owner_of(item.instance, item.execution_id, item.id),
        name=item.name,
        params=kept(as_params(item.input), blobs),
        queue=item.tag or "default",
        affinity=item.session_id,
        judged=judged,
    )
    if item.options is None:
        return made
    options = item.options
    return replace(
        made,
        priority=options.priority,
        max_attempts=options.max_attempts,
        max_expiries=options.max_expiries,
        timeout_s=options.timeout_s,
        lease_s=options.lease_s,
        retry_mode=RetryMode(options.retry_mode),
        backoff=options.backoff or Backoff(),
        not_before=None if options.not_before_ms is None else at_milliseconds(options.not_before_ms),
        limit_key=options.limit_key,
        key_limit=options.key_limit,
    )


def as_params(text: str) -> bytes:
    """Give an activity's input as the parameters of a job: an object as it is, any other text wrapped."""
    raw = text.encode()
    try:
        own = raw[:1] == b"{" and {"$input", "$blob"}.isdisjoint(names_in(msgspec.Raw(raw)))
        same = own and bytes(admit_object(raw)) == raw
    except (InvalidValue, msgspec.MsgspecError):
        same = False
    return raw if same else _encode({"$input": text})


def _completion(command: AckActivity, completion: NewMessage, blobs: Blobs) -> AckActivity:
    item = _item(completion.item, "completion")
    match item:
        case ActivityCompleted():
            return replace(
                command,
                completion=_described(item, blobs),
                failed=False,
                result=kept(_as_payload(item.result), blobs),
            )
        case ActivityFailed():
            return replace(
                command,
                completion=_described(item, blobs),
                failed=True,
                error=item.details.message,
                details=kept(_encode(item.details), blobs),
                retryable=item.details.retryable,
            )
        case _:
            raise InvalidValue("completion must be ActivityCompleted or ActivityFailed", field="completion")


def _as_payload(text: str) -> bytes:
    """Give a result as the payload of a job: JSON as it is, any other text in quotation marks.

    So is a text that reads like a reference: no blob is meant by it.
    """
    raw = text.encode()
    try:
        own = ref_in(msgspec.Raw(raw)) is None and _encode(msgspec.json.decode(raw)) == raw
        return raw if own else _encode(text)
    except (msgspec.MsgspecError, RecursionError):
        return _encode(text)


# --- what a turn says -------------------------------------------------------------------------------------------------


def _metadata(metadata: Metadata, blobs: Blobs) -> Metadata:
    return metadata if metadata.output == NULL else replace(metadata, output=_output(metadata.output, blobs))


def _output(output: msgspec.Raw, blobs: Blobs) -> msgspec.Raw:
    return output if output == NULL else kept(_encode(_read(_texts, output, "output")), blobs)


def _again(messages: Sequence[Again], blobs: Blobs) -> tuple[Again, ...]:
    return tuple(replace(again, message=_message(again.message, blobs, "messages")) for again in messages)


def _base(keys: Sequence[KeyWish]) -> tuple[KeyWish, ...]:
    """Check the keys that an execution begins with as if events had set them."""
    wishes = []
    for wish in keys:
        value = _read(_texts, wish.value, "keys")
        made = _key_wish(event_kinds.KeyValueSet(key=wish.key or "", value=value, last_updated_at_ms=wish.at_ms))
        assert made is not None
        wishes.append(made)
    return tuple(wishes)


def _copied(delta: Delta, blobs: Blobs) -> Delta:
    """Give what the first events of a copy make of it: it says what it said then, and asks only what is still open."""
    made = _delta(delta, blobs)
    first: Event | None = _read(_events, delta.events[0].event, "begins") if delta.events else None
    if first is not None and not made.said and isinstance(first.kind, event_kinds.OrchestrationStarted):
        made = replace(made, custom_status=_custom_status(first.kind.initial_custom_status, blobs))
    done = {closed.decision_id for closed in made.closed}
    asked = tuple(one for one in made.asked if one.decision_id not in done)
    return replace(made, said=True, asked=asked, closed=())


def _quiet(delta: Delta) -> Delta:
    """Ask nobody what was asked elsewhere."""
    return replace(delta, asked=(), closed=())


def _delta(delta: Delta, blobs: Blobs) -> Delta:
    if not delta.events:
        return Delta()
    events: list[Event] = [_read(_events, new.event, "history_delta") for new in delta.events]
    return _told(events, [_encode(event) for event in events], blobs)


def own_delta(events: Sequence[Event], blobs: Blobs) -> Delta:
    """Give what events that the runtime made add to a history. Raises UsageError for what cannot be kept."""
    return _told(events, [_written(event) for event in events], blobs)


def _written(event: Event) -> bytes:
    """Write down an event, and see that it can be read again."""
    try:
        text = _encode(event)
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise InvalidValue(f"invalid history_delta: {problem}", field="history_delta") from None
    _read(_events, text, "history_delta")
    return text


def _told(events: Sequence[Event], texts: Sequence[bytes], blobs: Blobs) -> Delta:
    """Say what the rules must know of events, whose texts these are."""
    for event in events:
        _in_range(event)
    # Ids that are no ids are refused by the rules, before anything is put beside the records.
    rows = tuple(
        [NewEvent(event_id=event.event_id, event=kept(text, blobs)) for event, text in zip(events, texts, strict=True)]
    )
    events = [event for event in events if type(event.kind) in _TELLING]
    if not events:
        return Delta(events=rows)
    started = next((event.kind for event in events if isinstance(event.kind, event_kinds.OrchestrationStarted)), None)
    said = [event.kind for event in events if isinstance(event.kind, event_kinds.CustomStatusUpdated)]
    return Delta(
        events=rows,
        orchestration_name=None if started is None else started.name,
        orchestration_version=None if started is None else started.version,
        parent_instance_id=None if started is None else started.parent_instance,
        digest=None if started is None else start_digest(started.name, started.input),
        said=bool(said),
        custom_status=_custom_status(said[-1].status, blobs) if said else NULL,
        keys=tuple(wish for event in events if (wish := _key_wish(event.kind)) is not None),
        asked=tuple(_asked(events)),
        closed=tuple(_closed(events)),
    )


#: Kinds of events that tell more than that they happened; all others are only kept.
_TELLING = frozenset(
    {
        event_kinds.OrchestrationStarted,
        event_kinds.CustomStatusUpdated,
        event_kinds.KeyValueSet,
        event_kinds.KeyValueCleared,
        event_kinds.KeyValuesCleared,
        event_kinds.DecisionRequested,
        event_kinds.DecisionResolved,
    }
)


def _custom_status(text: str | None, blobs: Blobs) -> msgspec.Raw:
    if text is None:
        return NULL
    size = len(text.encode())
    if size > MAX_STATUS:
        raise PayloadTooLarge(f"invalid status: {size:,} bytes are more than the {MAX_STATUS:,} that are kept")
    return kept(_encode(text), blobs)


def _key_wish(kind: event_kinds.AnyKind) -> KeyWish | None:
    match kind:
        case event_kinds.KeyValueSet():
            _demand_key(kind.key)
            size = len(kind.value.encode())
            if size > MAX_VALUE:
                raise PayloadTooLarge(f"invalid value: {size:,} bytes are more than the {MAX_VALUE:,} of a key's value")
            return KeyWish(key=kind.key, value=msgspec.Raw(_encode(kind.value)), at_ms=kind.last_updated_at_ms)
        case event_kinds.KeyValueCleared():
            _demand_key(kind.key)
            return KeyWish(key=kind.key)
        case event_kinds.KeyValuesCleared():
            return KeyWish()
        case _:
            return None


def _demand_key(key: str) -> None:
    if not 1 <= len(key.encode()) <= MAX_KEY:
        raise InvalidValue(f"invalid key: must have 1-{MAX_KEY} bytes, has {len(key.encode())}", field="key")


def _asked(events: Sequence[Event]) -> list[Asked]:
    asked = []
    for event in events:
        if isinstance(event.kind, event_kinds.DecisionRequested):
            question = _encode(event.kind)
            if len(question) > MAX_INLINE:
                question = _encode(replace(event.kind, detail=None))
            name = decision_id(event.instance, event.execution_id, event.event_id)
            asked.append(Asked(name, event.event_id, msgspec.Raw(question), event.kind.options))
    return asked


def _closed(events: Sequence[Event]) -> list[Closed]:
    closed = []
    for event in events:
        if isinstance(event.kind, event_kinds.DecisionResolved):
            name = decision_id(event.instance, event.execution_id, event.source_event_id or 0)
            closed.append(Closed(name, msgspec.Raw(_encode(event.kind))))
    return closed
