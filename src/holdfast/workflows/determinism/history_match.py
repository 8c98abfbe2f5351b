"""Does the code still do what its history says? Finds the first difference and words both sides.

A script is a recorded history with a finger on the next event. Commands must come in the order they are recorded; what
is only published (status, keys, patches) may be missing. Knows neither loop nor user code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from itertools import islice

from holdfast.errors import HistoryCorrupt, NondeterminismError
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.event_kinds import AnyKind
from holdfast.model.workflows.history import REPAIR_EVENT_ID, Event
from holdfast.workflows.determinism.call_site import Place

#: The code may no longer give these.
TOLERATED = (
    event_kinds.PatchRecorded,
    event_kinds.CustomStatusUpdated,
    event_kinds.KeyValueSet,
    event_kinds.KeyValueCleared,
    event_kinds.KeyValuesCleared,
)
#: What the code asks for, as against what happened to it.
COMMANDS = (
    event_kinds.ActivityScheduled,
    event_kinds.ActivityCancelRequested,
    event_kinds.TimerCreated,
    event_kinds.SubOrchestrationScheduled,
    event_kinds.SubOrchestrationCancelRequested,
    event_kinds.OrchestrationChained,
    event_kinds.SignalSent,
    event_kinds.SignalRejected,
    event_kinds.DecisionRequested,
    *TOLERATED,
)
#: Other runtimes write them; ours reads over them.
UNREAD = (
    event_kinds.ExternalSubscribed,
    event_kinds.QueueSubscribed,
    event_kinds.ExternalSubscribedCancelled,
    event_kinds.QueueSubscriptionCancelled,
    event_kinds.RunbookEvent,
)
_PASSED = (*TOLERATED, *UNREAD)
#: `by` of a decision that is no longer waited for: the code closed it.
UNAWAITED = "cancelled"
#: In ids of children that were given none; no other id may contain it.
CHILD_MARK = "::sub::"
#: Ids of detached starts that were given none: UUIDs of chance, or derived from it.
_MADE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[45][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
#: Characters of a payload that a message shows.
SHOWN = 200


class Difference(Exception):
    """The first event that differs; `found` words the code's side."""

    def __init__(self, event: Event, found: str) -> None:
        super().__init__(found)
        self.event = event
        self.found = found


class Script:
    """A recorded history, read once from its first event to its last."""

    def __init__(
        self, events: Sequence[Event], on_passed: Callable[[Event], None], *, compare_inputs: bool = True
    ) -> None:
        """Demand that it is one, and tell `on_passed` of events the code no longer asks for. Raises HistoryCorrupt."""
        self._events = events
        self._on_passed = on_passed
        self._at = 0
        self._compare_inputs = compare_inputs
        #: What `check` tells beside differences.
        self.notes: list[str] = []
        demand_whole(events)

    def next_delivery(self, found: Callable[[], str]) -> Event | None:
        """Give the next thing that happened; None at the end. Raises Difference if a command was to come first.

        `found` words what the code does instead of giving it.
        """
        at = self._at
        while at < len(self._events):
            event = self._events[at]
            if not isinstance(event.kind, _PASSED):
                if is_command(event):
                    raise Difference(event, found())
                self._pass_to(at)
                self._at = at + 1
                return event
            at += 1
        self._pass_to(at)
        return None

    def expect(self, given: AnyKind, source: int | None, now_ms: int) -> Event | None:
        """Give the recorded event of a command that the code gives; None past the end. Raises Difference."""
        at = self._at
        while at < len(self._events):
            event = self._events[at]
            if self._agrees(event, given, source):
                self._pass_to(at)
                self._at = at + 1
                self._note_timer(event, given)
                return event
            if not isinstance(event.kind, _PASSED) or _is_other_value(event.kind, given):
                break
            at += 1
        if at >= len(self._events):
            self._pass_to(at)
            return None
        if isinstance(given, event_kinds.CustomStatusUpdated):
            return self._passed_over(given, now_ms)
        raise Difference(self._events[at], describe(given, source, now_ms))

    @property
    def is_before_end(self) -> bool:
        """The next event that must be followed is the end of the execution."""
        return isinstance(self._next_followed(), event_kinds.TERMINAL)

    @property
    def is_over(self) -> bool:
        """No event is left that must be followed."""
        return self._next_followed() is None

    def _next_followed(self) -> AnyKind | None:
        rest = (event.kind for event in islice(self._events, self._at, None) if not isinstance(event.kind, _PASSED))
        return next(rest, None)

    def pass_patches(self, asked: Container[str]) -> bool:
        """Pass by patches that the code has `asked` for, which it may do in any order; tell whether nothing is left."""
        at = self._at
        while at < len(self._events):
            kind = self._events[at].kind
            if not isinstance(kind, event_kinds.PatchRecorded) or kind.id not in asked:
                break
            at += 1
        self._pass_to(at)
        return at >= len(self._events)

    def next_made_id(self) -> str | None:
        """Give the id of the detached start that comes next, if it is one of our making."""
        at = self._at
        while at < len(self._events) and isinstance(self._events[at].kind, _PASSED):
            at += 1
        kind = self._events[at].kind if at < len(self._events) else None
        if not isinstance(kind, event_kinds.OrchestrationChained) or _MADE.fullmatch(kind.instance) is None:
            return None
        return kind.instance

    def _pass_to(self, at: int) -> None:
        """Leave out what the code no longer gives, and may."""
        if at == self._at:
            return
        for event in self._events[self._at : at]:
            self._on_passed(event)
        self._at = at

    def _passed_over(self, given: event_kinds.CustomStatusUpdated, now_ms: int) -> Event:
        """Let the code say something of itself that it did not say then; it is not recorded."""
        before = self._events[self._at - 1]  # the first event is delivered before any code runs
        return Event(
            event_id=before.event_id,
            instance=before.instance,
            execution_id=before.execution_id,
            timestamp_ms=now_ms,
            kind=given,
        )

    def _agrees(self, event: Event, given: AnyKind, source: int | None) -> bool:
        recorded = event.kind
        if type(recorded) is not type(given) or not is_command(event):
            return False
        match recorded, given:
            case event_kinds.ActivityScheduled(), event_kinds.ActivityScheduled():
                return (recorded.name, recorded.tag, recorded.session_id) == (
                    given.name,
                    given.tag,
                    given.session_id,
                ) and (not self._compare_inputs or recorded.input == given.input)
            case event_kinds.SubOrchestrationScheduled(), event_kinds.SubOrchestrationScheduled():
                # An id of our making tells nothing about the code.
                made = CHILD_MARK in recorded.instance and CHILD_MARK in given.instance
                return (
                    recorded.name == given.name
                    and (made or recorded.instance == given.instance)
                    and (not self._compare_inputs or recorded.input == given.input)
                )
            case event_kinds.DecisionRequested(), event_kinds.DecisionRequested():
                return recorded.options == given.options
            case event_kinds.SignalRejected(), event_kinds.SignalRejected():
                return recorded.number == given.number
            case event_kinds.KeyValueSet(), event_kinds.KeyValueSet():
                return (recorded.key, recorded.value) == (given.key, given.value)
            case (
                event_kinds.ActivityCancelRequested()
                | event_kinds.SubOrchestrationCancelRequested()
                | event_kinds.DecisionResolved(),
                _,
            ):
                return event.source_event_id == source
            case event_kinds.TimerCreated() | event_kinds.CustomStatusUpdated(), _:
                return True
            case _:
                return recorded == given

    def _note_timer(self, event: Event, given: AnyKind) -> None:
        if isinstance(event.kind, event_kinds.TimerCreated) and event.kind != given:
            assert isinstance(given, event_kinds.TimerCreated)
            change = (given.fire_at_ms - event.kind.fire_at_ms) / 1000
            self.notes.append(f"event {event.event_id}: the timer is now {change:+g} s; the recorded time holds")

    def has_scheduled(self, event_id: int | None) -> bool:
        """Tell whether an event of that id asks for something that can be completed."""
        if event_id is None or not 1 <= event_id <= len(self._events):
            return False
        return is_command(self._events[event_id - 1])


def _is_other_value(recorded: AnyKind, given: AnyKind) -> bool:
    """Tell whether the code gives the recorded key another value."""
    return (
        isinstance(recorded, event_kinds.KeyValueSet)
        and isinstance(given, event_kinds.KeyValueSet)
        and recorded.key == given.key
    )


def is_command(event: Event) -> bool:
    """Tell whether the code asked for it. A workflow's own timeout is none: changing it must not break anybody."""
    if isinstance(event.kind, event_kinds.DecisionResolved):
        return event.kind.by == UNAWAITED
    return isinstance(event.kind, COMMANDS) and not is_own_timeout(event)


def is_own_timeout(event: Event) -> bool:
    """Tell whether it is the timer of the workflow's own timeout."""
    return isinstance(event.kind, event_kinds.TimerCreated) and event.source_event_id == 1


def demand_whole(events: Sequence[Event]) -> None:
    """Refuse what is no history from its first event on. Raises HistoryCorrupt."""
    if events and not isinstance(events[0].kind, event_kinds.OrchestrationStarted):
        raise _corrupt(events[0], "is no OrchestrationStarted, though it is the first")
    expected = 1
    for event in events:
        if event.event_id not in (expected, REPAIR_EVENT_ID):
            raise _corrupt(event, f"stands where event {expected} should")
        expected += 1


def _corrupt(event: Event, what: str) -> HistoryCorrupt:
    return HistoryCorrupt(
        f"instance {event.instance!r}, execution {event.execution_id}: event {event.event_id} {what}. "
        "Nothing was changed.",
        hint="Run `holdfast store check`; `holdfast workflows fail ID` ends the instance.",
        instance=event.instance,
        execution_id=event.execution_id,
        event_id=event.event_id,
    )


def nondeterminism(
    name: str, version: str, execution_id: int, difference: Difference, place: Place | None
) -> NondeterminismError:
    """Word the first difference, on both sides."""
    event = difference.event
    where = "" if place is None else str(place)
    recorded = describe_event(event)
    before = f"events 1-{event.event_id - 1} match" if event.event_id > 2 else "event 1 matches"
    return NondeterminismError(
        f"workflow {name!r} {version}, instance {event.instance!r}, execution {execution_id}: "
        f"event {event.event_id} differs ({before})\n"
        f"  recorded: {recorded}\n"
        f"  code now: {difference.found}{'            ' if where else ''}{where}",
        instance=event.instance,
        execution_id=execution_id,
        event_id=event.event_id,
        recorded=recorded,
        found=difference.found,
        location=where,
    )


_WORDED = re.compile(
    r"workflow .*, execution (?P<execution_id>\d+): event (?P<event_id>\d+) differs \(.*\)\n"
    r"  recorded: (?P<recorded>.*)\n  code now: (?P<found>.*?)(?: {12}(?P<location>.*))?",
)


def nondeterminism_of(text: str, instance: str) -> NondeterminismError:
    """Give the error again whose text was kept, with the facts as far as the text still has them."""
    message = text.removesuffix(f"\n  {NondeterminismError.default_hint}")
    found = _WORDED.fullmatch(message)
    facts = {} if found is None else {name: fact or "" for name, fact in found.groupdict().items()}
    return NondeterminismError(message, hint=None, instance=instance, **facts)


# --- wording ----------------------------------------------------------------------------------------------------------


def describe_event(event: Event) -> str:
    """Word a recorded event."""
    return describe(event.kind, event.source_event_id, event.timestamp_ms)


def describe(kind: AnyKind, source: int | None, now_ms: int) -> str:
    """Word a command or event, with what is compared about it."""
    match kind:
        case event_kinds.ActivityScheduled():
            session = "" if kind.session_id is None else f" session {kind.session_id!r}"
            return f"activity {kind.name!r} queue {kind.tag or 'default'!r}{session} input {_cut(kind.input)}"
        case event_kinds.TimerCreated():
            return f"timer {max(0, kind.fire_at_ms - now_ms) / 1000:.12g} s"
        case event_kinds.SubOrchestrationScheduled():
            return f"child workflow {kind.name!r} id {kind.instance!r} input {_cut(kind.input)}"
        case event_kinds.OrchestrationChained():
            return f"detached start of {kind.name!r} id {kind.instance!r} input {_cut(kind.input)}"
        case event_kinds.SignalSent():
            return f"signal {kind.name!r} to {kind.instance!r} data {_cut(kind.data)}"
        case event_kinds.SignalRejected():
            return f"signal {kind.number} {kind.name!r} set aside: {_cut(kind.reason)}"
        case event_kinds.StepCompleted():
            return describe_step(kind.step_no, kind.name)
        case event_kinds.StepFailed():
            return f"{describe_step(kind.step_no, kind.name)} (failed)"
        case event_kinds.DecisionRequested():
            return f"decision {kind.prompt!r} options {list(kind.options or ())}"
        case event_kinds.KeyValueSet():
            return f"key {kind.key!r} set to {_cut(kind.value)}"
        case event_kinds.KeyValueCleared():
            return f"key {kind.key!r} deleted"
        case event_kinds.KeyValuesCleared():
            return "all keys cleared"
        case event_kinds.CustomStatusUpdated():
            return f"status {_cut(kind.status or 'null')}"
        case event_kinds.PatchRecorded():
            return f"patch {kind.id!r}"
        case event_kinds.OrchestrationCompleted():
            return f"returned {_cut(kind.output)}"
        case event_kinds.OrchestrationFailed():
            return f"failed: {kind.details.type_name or kind.details.kind}: {_cut(kind.details.message)}"
        case event_kinds.OrchestrationContinuedAsNew():
            return f"continued as new with input {_cut(kind.input)}"
        case _:
            return f"{_WORDS.get(type(kind), type(kind).__name__)}{'' if source is None else f' of event {source}'}"


_WORDS: dict[type, str] = {
    event_kinds.ActivityCancelRequested: "cancellation",
    event_kinds.SubOrchestrationCancelRequested: "cancellation",
    event_kinds.ActivityCompleted: "completion",
    event_kinds.ActivityFailed: "failure",
    event_kinds.SubOrchestrationCompleted: "completion",
    event_kinds.SubOrchestrationFailed: "failure",
    event_kinds.TimerFired: "firing",
    event_kinds.DecisionResolved: "end of the decision",
}


def describe_step(step_no: int, name: str) -> str:
    """Word a step."""
    return f"step {step_no} {name!r}"


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text):,} characters)"
