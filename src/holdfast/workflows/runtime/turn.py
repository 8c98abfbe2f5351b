"""A turn: one locked instance and its batch of messages in, one commit out (more, where steps run in between).

1. A start or continuation is taken first, wherever it stands. 2. An execution that is not resident is replayed.
3. Each message, in order: filtered, recorded as one event, delivered, the loop run until nothing is ready. 4. Steps
that are ready are handed out, their outcomes taken back. 5. Nothing ready and no step running: one last commit.

Pure: time and seed come in as values, and nothing leaves but the commit. Fetching, acking, running steps and abandoning
are the worker's.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Literal

import msgspec

from holdfast.errors import HistoryCorrupt, HoldfastError, NondeterminismError, WorkflowCodeError
from holdfast.model.error_details import CODE_ERROR, CORRUPT, INPUT, NONDETERMINISM, Category, ErrorDetails
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.block_reasons import unregistered_reason
from holdfast.model.workflows.history import (
    UNKNOWN_VERSION,
    Event,
    ExecutionMetadata,
    HandledMessage,
    OrchestrationItem,
    Status,
    TurnCommit,
)
from holdfast.model.workflows.work_items import (
    CancelInstance,
    ResumeInstance,
    StartOrchestration,
    TimerFired,
    WorkItem,
)
from holdfast.workflows.api.definitions import Definition, Definitions
from holdfast.workflows.api.steps import StepCall
from holdfast.workflows.determinism.history_match import is_own_timeout
from holdfast.workflows.runtime.completion import (
    answer_again,
    begun_by,
    conclude,
    end_from_history,
    goes_on,
    keeping,
    next_execution,
    open_of,
    parent_of,
    undelivered,
)
from holdfast.workflows.runtime.execution import ENGINE_VERSION, Execution
from holdfast.workflows.runtime.message_events import event_for
from holdfast.workflows.runtime.pending_operations import dispatch_again
from holdfast.workflows.runtime.result import cancelled_details
from holdfast.workflows.runtime.start import Begin, began_as, beginning, first_kind
from holdfast.workflows.runtime.wait_description import waiting_on

#: The id of a timer that no event asked for: it only wakes an instance whose worker died between two commits.
WAKER = 0


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """The instance waits for other code. Nothing more is written; the delivery does not count."""

    kind: str
    text: str
    error: HoldfastError


class Abandoned(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing can be done now. Nothing is written; the delivery does not count."""

    reason: str
    #: No worker here has this workflow, or this version: the longer it waits, the rarer it is tried.
    is_unregistered: bool = False
    #: Seconds until it is tried again, where that is known.
    delay_s: float = 0.5


#: A message, and its number in the queue, if that is known.
_Numbered = tuple[int | None, WorkItem]


def _numbered(messages: Sequence[WorkItem], numbers: Sequence[int] | None) -> list[_Numbered]:
    known = repeat(None) if numbers is None else numbers
    return list(zip(known, messages, strict=numbers is not None))


Stage = Literal["running", "blocked", "abandoned", "over"]


class Turn:
    """One turn of one instance."""

    def __init__(
        self, definitions: Definitions, item: OrchestrationItem, *, seed: int = 0, numbers: Sequence[int] | None = None
    ) -> None:
        """Prepare a turn. `seed` is random, and used only if an execution begins here.

        `numbers` are those of the item's messages in the queue, in order. With them each commit says how it has handled
        which messages, and only these leave the queue; without them all go that the lock holds.
        """
        self._definitions = definitions
        self._item = item
        self._is_accounting = numbers is not None
        self._messages = _numbered(item.messages, numbers)
        #: How messages were handled since the last commit; and those that the execution's last event will record.
        self._handled: list[HandledMessage] = []
        self._ending: list[int | None] = []
        self._seed = seed
        self._is_new = False
        #: Messages that changed nothing, and why.
        self.dropped: list[tuple[WorkItem, str]] = []
        #: What `end_from_history` decided.
        self._ended: TurnCommit | None = None
        self._answers: list[WorkItem] = []
        self.execution: Execution | None = None
        self.blocked: Blocked | None = None
        self.abandoned: Abandoned | None = None
        self._late: list[WorkItem] = []
        self._is_kept_awake = False
        self._is_step_uncommitted = False
        self._is_cancel_uncommitted = False
        #: Nothing was committed since the turn began, and the item has the whole history.
        self._is_history_known = True
        #: Messages that the code did not see before it was blocked.
        self._undelivered: list[WorkItem] = []
        self._terminal_recorded = False

    # --- opening ------------------------------------------------------------------------------------------------------

    def begin(self, now_ms: int, resident: Execution | None = None) -> None:
        """Bring the execution to where its history ends and deliver the batch."""
        self._open(resident, now_ms)
        if resident is not None and resident is not self.execution:
            resident.close(clean_up=False)

    def _open(self, resident: Execution | None, now_ms: int) -> None:
        item = self._item
        begin = beginning(item)
        last = item.history[-1].kind if item.history else None
        if item.history_error is not None and not isinstance(last, event_kinds.TERMINAL):
            self._block(CORRUPT, HistoryCorrupt(item.history_error, instance=item.instance), now_ms)
        elif last is None and resident is not None and is_current(resident, item):
            self._resume(resident, now_ms)
        elif begin is not None:
            self._begin(begin, now_ms)
        elif last is None:
            self.abandoned = Abandoned(reason="there is no start for this instance yet")
        elif isinstance(last, event_kinds.OrchestrationContinuedAsNew):
            self.abandoned = Abandoned(reason="the next execution has not arrived yet")
        elif isinstance(last, event_kinds.TERMINAL):
            self._settle_late()
        else:
            self._resume(resident, now_ms)

    def _begin(self, begin: Begin, now_ms: int) -> None:
        definition = self._definitions.get(begin.orchestration, begin.version)
        if definition is None:
            self._abandon_unregistered(begin.orchestration, begin.version)
            self._force_if_asked(now_ms)
            return
        execution = self._new_execution(definition, began_as(self._item))
        self._is_new = True
        started = msgspec.structs.replace(
            first_kind(begin, definition.version), seed=self._seed, code_hash=definition.code_hash or None
        )
        first = execution.record(started, at_ms=now_ms)
        execution.deliver(first)
        if execution.blocked is not None:
            self._block(_kind_of(execution.blocked), execution.blocked, now_ms)
            return
        if definition.timeout_s is not None and execution.terminal is None:
            self._set_own_timeout(execution, definition.timeout_s, now_ms)
        rest: list[_Numbered] = []
        for number, message in self._messages:
            if message is begin:
                self._account(number, first.event_id)
            else:
                rest.append((number, message))
        self._deliver(rest, now_ms)

    def _set_own_timeout(self, execution: Execution, timeout_s: float, now_ms: int) -> None:
        fire_at = max(execution.now_ms, now_ms) + round(timeout_s * 1000)
        timer = execution.record(event_kinds.TimerCreated(fire_at_ms=fire_at), 1)
        execution.outbox.wake(timer.event_id, fire_at)
        execution.deliver(timer)

    def _resume(self, resident: Execution | None, now_ms: int) -> None:
        item = self._item
        resumed = ResumeInstance(instance=item.instance, execution_id=item.execution_id)
        if resident is not None and is_current(resident, item):
            self.execution = resident
            self._is_history_known = False
        else:
            started = item.history[0].kind
            if not isinstance(started, event_kinds.OrchestrationStarted):
                self._block(CORRUPT, HistoryCorrupt(_headless(item), instance=item.instance), now_ms)
                return
            # One that was ended before its first turn, and reset: the record has the version that took it up.
            wanted = item.version if started.version == UNKNOWN_VERSION else started.version
            definition = self._definitions.get(started.name, None if wanted == UNKNOWN_VERSION else wanted)
            if definition is None:
                self._abandon_unregistered(started.name, started.version)
                self._force_if_asked(now_ms)
                return
            execution = self._new_execution(definition, item.execution_id)
            execution.replay(item.history, is_copy=resumed in item.messages)
            if execution.blocked is not None:
                self._block(_kind_of(execution.blocked), execution.blocked, now_ms)
                return
        if resumed not in item.messages:
            self._deliver(self._messages, now_ms)
            return
        self._deliver([(number, message) for number, message in self._messages if message != resumed], now_ms)
        if self.blocked is not None:
            self._undelivered.insert(0, resumed)
        elif self._ended is None:
            for number, message in self._messages:
                if message == resumed:
                    self._account(number, reason="resumed")
            if item.history:
                self._send_off(item.history, now_ms)

    def _send_off(self, copied: Sequence[Event], now_ms: int) -> None:
        """Send off what a copied history has open; what the messages of this very turn have closed is not."""
        execution = self._live()
        if execution.terminal is not None:
            return
        dispatch_again(execution, copied[-1].event_id)
        timeout_s = execution.definition.timeout_s
        if timeout_s is not None and not any(map(is_own_timeout, copied)):
            self._set_own_timeout(execution, timeout_s, now_ms)

    def _new_execution(self, definition: Definition, execution_id: int) -> Execution:
        item = self._item
        self.execution = Execution(definition, self._definitions, item.instance, execution_id, item.kv_snapshot)
        return self.execution

    def _abandon_unregistered(self, name: str, version: str | None) -> None:
        self.abandoned = Abandoned(reason=unregistered_reason(name, version), is_unregistered=True)

    def _block(self, kind: str, error: HoldfastError, now_ms: int) -> None:
        self.blocked = Blocked(kind=kind, text=str(error), error=error)
        execution = self.execution
        if execution is not None:
            execution.close(clean_up=False)
            if kind == NONDETERMINISM and execution.definition.on_nondeterminism == "fail":
                kept = undelivered(self._item.messages)
                details = ErrorDetails(category=Category.CONFIGURATION, kind=kind, message=str(error), data=kept)
                self._end_from_history(details, now_ms)
                return
        self._force_if_asked(now_ms)

    def _force_if_asked(self, now_ms: int) -> None:
        """End what cannot be run, if a message says that nobody is to ask its code: see `_forced_by`."""
        reasons = (self._forced_by(message, now_ms) for message in self._item.messages)
        reason = next((found for found in reasons if found is not None), None)
        if reason is not None:
            self._end_from_history(cancelled_details(reason), now_ms)

    def _forced_by(self, message: WorkItem, now_ms: int) -> str | None:
        """Say why a message ends what cannot be run; None: it does not.

        A forced cancel, or one without grace, does; the deadline of an earlier cancel; and the workflow's own timeout,
        once the grace that its code would have had is over.
        """
        grace_s = None if self.execution is None else self.execution.definition.cancel_grace_s
        if isinstance(message, CancelInstance):
            return message.reason if message.force or grace_s == 0 else None
        if not isinstance(message, TimerFired) or message.execution_id != self._item.execution_id:
            return None
        asked = next((event for event in self._item.history if event.event_id == message.id), None)
        if asked is None:
            return None
        if isinstance(asked.kind, event_kinds.OrchestrationCancelRequested):
            return "not done by the deadline of its cancellation"
        is_late = grace_s is not None and now_ms >= message.fire_at_ms + round(grace_s * 1000)
        return "timeout" if is_own_timeout(asked) and is_late else None

    def _end_from_history(self, details: ErrorDetails, now_ms: int) -> None:
        self._ended = end_from_history(self._item, details, now_ms)
        self._handled = []  # none of it counts: another end is committed
        for number, _ in self._messages:
            self._account(number, self._ended.history_delta[-1].event_id)
        self.blocked = self.abandoned = None

    def _settle_late(self) -> None:
        """Take messages of an instance that has ended; a parent that asked for its id must not wait for ever."""
        for number, message in self._messages:
            self._drop(number, message, "the instance has ended", "ended")
        self._ended = TurnCommit(
            execution_id=self._item.execution_id, orchestrator_items=tuple(self._answers), metadata=ExecutionMetadata()
        )

    # --- delivering ---------------------------------------------------------------------------------------------------

    def deliver(self, messages: Sequence[WorkItem], now_ms: int, numbers: Sequence[int] | None = None) -> None:
        """Let the code see messages, one by one; what comes after the one that decides is kept for the end.

        What comes after an error in the code is not delivered: it stays in the queue.
        """
        self._deliver(_numbered(messages, numbers), now_ms)

    def _deliver(self, messages: Sequence[_Numbered], now_ms: int) -> None:
        execution = self._live()
        for at, (number, message) in enumerate(messages):
            if execution.blocked is not None:
                self._undelivered += [late for _, late in messages[at:]]
                break
            if execution.terminal is not None:
                self._keep_late(execution.terminal, messages[at:])
                break
            self._deliver_one(execution, number, message, now_ms)
        self._finish_if_ended(execution)
        if execution.blocked is not None:
            self._block_if_wrong(execution, execution.blocked, now_ms)

    def _block_if_wrong(self, execution: Execution, error: HoldfastError, now_ms: int) -> None:
        """Block a turn whose code turned out to have an error."""
        if self.blocked is not None or self._ended is not None:
            return
        self.blocked = Blocked(kind=_kind_of(error), text=str(error), error=error)
        execution.steps.stop()
        execution.close(clean_up=False)
        if self._is_history_known:
            self._force_if_asked(now_ms)  # else the next try does, which reads the history

    def _keep_late(self, terminal: event_kinds.AnyKind, messages: Sequence[_Numbered]) -> None:
        """Take what comes after the end: some of it goes on to the next execution, if there is one."""
        for number, message in messages:
            if isinstance(terminal, event_kinds.OrchestrationContinuedAsNew) and goes_on(message):
                self._late.append(message)
                self._account(number, reason="continued")
            else:
                self._drop(number, message, "the execution has ended", "ended")

    def _deliver_one(self, execution: Execution, number: int | None, message: WorkItem, now_ms: int) -> None:
        match message:
            case TimerFired() if message.id == WAKER:
                self._is_kept_awake = False
                self._account(number, reason="woke")
            case CancelInstance() if message.force or execution.definition.cancel_grace_s == 0:
                self._ending.append(number)
                execution.force_end(cancelled_details(message.reason))
            case TimerFired() if _is_cancel_deadline(execution, message):
                self._ending.append(number)
                execution.force_end(cancelled_details(_reason_of(execution)))
            case _:
                found = event_for(execution, message, now_ms)
                if isinstance(found, str):
                    self._drop(number, message, found, found)
                    return
                kind, source, at_ms = found
                before = execution.outbox.mark() if self._must_keep else None
                event = execution.record(kind, source, at_ms)
                self._account(number, event.event_id)
                if isinstance(kind, event_kinds.OrchestrationCancelRequested):
                    # Kept even if the code has an error: the deadline must come.
                    self._is_cancel_uncommitted = True
                    if kind.deadline_ms is not None:
                        execution.outbox.wake(event.event_id, kind.deadline_ms)
                    before = execution.outbox.mark()
                own = execution.own_timeout
                is_late = isinstance(kind, event_kinds.TimerFired) and own is not None and source == own.event_id
                execution.deliver(event)
                if execution.blocked is not None and before is not None:
                    execution.outbox.return_to(before)
                if execution.blocked is not None and not isinstance(kind, event_kinds.OrchestrationCancelRequested):
                    self._undelivered.append(message)
                if is_late:
                    cancel = CancelInstance(instance=execution.instance, reason="timeout")
                    self._deliver_one(execution, None, cancel, now_ms)

    def _account(self, number: int | None, event_id: int | None = None, reason: str | None = None) -> None:
        """Note how a message was handled; one without a number is not in the queue."""
        if number is not None:
            self._handled.append(HandledMessage(message=number, event_id=event_id, reason=reason))

    @property
    def _must_keep(self) -> bool:
        """Something is not committed that must be, even if the code turns out to have an error.

        A step that has run is not run again, and the deadline of a cancellation holds.
        """
        return self._is_step_uncommitted or self._is_cancel_uncommitted

    def _drop(self, number: int | None, message: WorkItem, reason: str, word: str) -> None:
        self.dropped.append((message, reason))
        self._account(number, reason=word)
        if not isinstance(message, StartOrchestration):
            return
        execution = self.execution
        begun = begun_by(self._item.history[0] if execution is None else execution.started)
        terminal = self._item.history[-1].kind if execution is None else execution.terminal
        if execution is not None and begun is not None and parent_of(message) == parent_of(begun):
            return  # it hears of the end when that is committed
        answer = answer_again(message, begun, terminal, self._item.digest)
        if answer is not None:
            self._answers.append(answer)

    # --- steps --------------------------------------------------------------------------------------------------------

    def take_steps(self) -> list[StepCall]:
        """Give the steps to run now; none while an earlier one's outcome is not committed (`must_commit`)."""
        if self._is_step_uncommitted or self.stage != "running":
            return []
        return self._live().steps.take_unstarted()

    @property
    def must_commit(self) -> bool:
        """Steps wait for the outcome of others to be durable, or a blocked turn has some: commit with `hold` now."""
        if self.blocked is not None:
            return self._must_keep
        return self._is_step_uncommitted and bool(self._live().steps.unstarted())

    def finish_step(self, step_no: int, outcome: str | ErrorDetails, now_ms: int) -> None:
        """Take a step's outcome back: JSON text, or why it failed. One that nobody waits for is ignored."""
        execution = self._live()
        call = execution.steps.get(step_no)
        if call is None or execution.terminal is not None or execution.blocked is not None:
            return
        kind: event_kinds.StepCompleted | event_kinds.StepFailed
        if isinstance(outcome, str):
            kind = event_kinds.StepCompleted(step_no=step_no, name=call.name, result=outcome)
        else:
            kind = event_kinds.StepFailed(step_no=step_no, name=call.name, details=outcome)
        event = execution.record(kind, at_ms=now_ms)
        ran = execution.outbox.mark()
        execution.deliver(event)
        self._is_step_uncommitted = True
        if execution.blocked is not None:
            execution.outbox.return_to(ran)
        self._finish_if_ended(execution)
        if execution.blocked is not None:
            self._block_if_wrong(execution, execution.blocked, now_ms)

    def take_stopped_steps(self) -> list[int]:
        """Give the numbers of running steps that nobody waits for any more."""
        execution = self.execution
        return [] if execution is None or not execution.steps.stopped else execution.steps.take_stopped()

    @property
    def has_news(self) -> bool:
        """Something was decided since the last commit."""
        return bool(self._answers) or (self.execution is not None and not self.execution.outbox.is_empty)

    @property
    def is_idle(self) -> bool:
        """No step runs or waits: the turn can end."""
        if self.blocked is not None:
            return not self.must_commit
        return self.execution is None or not self.execution.steps or self.stage != "running"

    # --- committing ---------------------------------------------------------------------------------------------------

    @property
    def stage(self) -> Stage:
        """Say where the turn stands."""
        if self.blocked is not None:
            return "blocked"
        if self.abandoned is not None:
            return "abandoned"
        if self._ended is not None:
            return "over"
        assert self.execution is not None
        return "running" if self.execution.terminal is None else "over"

    def commit(self, *, hold_until_ms: int | None = None) -> TurnCommit:
        """Return all that was decided since the last commit; of a blocked turn only what it must keep.

        Not for an abandoned turn.

        With `hold_until_ms` the turn goes on under its lock, whose end that is; see `_keep_awake`.
        """
        assert self.blocked is None or self.must_commit
        assert self.abandoned is None
        if self._ended is not None:
            known = self._definitions.get(self._item.orchestration_name, self._item.version)
            metadata = keeping(self._ended.metadata, known)
            return msgspec.structs.replace(self._ended, metadata=metadata, handled=self._take_handled())
        execution = self._live()
        for answer in self._answers:
            execution.outbox.send(answer)
        if not self._is_accounting:
            for message in self._undelivered:
                execution.outbox.send(message)  # to its own queue: all that the lock holds goes with this commit
        self._answers, self._undelivered = [], []
        self._keep_awake(execution, hold_until_ms)
        self._is_step_uncommitted = self._is_cancel_uncommitted = self._is_history_known = False
        if execution.terminal is None:
            metadata = ExecutionMetadata(
                waiting_on=() if self.blocked is not None else waiting_on(execution),
                orchestration_version=self._taken_up(execution),
            )
        else:
            metadata = keeping(self._conclude(execution, execution.terminal), execution.definition)
        if self._is_new:
            metadata = _introduced(metadata, execution)
            self._is_new = False
        return execution.outbox.take(metadata, self._take_handled())

    def _take_handled(self) -> tuple[HandledMessage, ...] | None:
        handled, self._handled = self._handled, []
        if self.blocked is not None:
            # Events after an error in the code were taken back, and their messages stay in the queue.
            recorded = {event.event_id for event in self._live().outbox.events}
            handled = [one for one in handled if one.event_id is None or one.event_id in recorded]
        return tuple(handled) if self._is_accounting else None

    def _taken_up(self, execution: Execution) -> str | None:
        """Give the version that an execution goes on with of which none was recorded."""
        begun = execution.started.kind
        is_unknown = isinstance(begun, event_kinds.OrchestrationStarted) and begun.version == UNKNOWN_VERSION
        return execution.definition.version if is_unknown else None

    def _keep_awake(self, execution: Execution, hold_until_ms: int | None) -> None:
        """See that a turn whose messages are gone, and whose worker dies, is taken up again when its lock ends."""
        if self.blocked is not None:
            # Due already: it waits as every message does that is given back, and comes at once with other code.
            execution.outbox.wake(WAKER, execution.now_ms)
        elif hold_until_ms is not None and not self._is_kept_awake:
            execution.outbox.wake(WAKER, hold_until_ms)
        elif hold_until_ms is None and self._is_kept_awake:
            execution.outbox.let_sleep(WAKER)
        self._is_kept_awake = hold_until_ms is not None

    def _conclude(self, execution: Execution, terminal: event_kinds.AnyKind) -> ExecutionMetadata:
        metadata = conclude(execution.outbox, execution.started, terminal, open_of(execution))
        late, self._late = self._late, []
        if execution.continuation is not None and isinstance(terminal, event_kinds.OrchestrationContinuedAsNew):
            for message in next_execution(execution, execution.continuation, late):
                execution.outbox.send(message)
        return metadata

    def _finish_if_ended(self, execution: Execution) -> None:
        if execution.terminal is None or self._terminal_recorded:
            return
        self._terminal_recorded = True
        last = execution.record(execution.terminal)
        for number in self._ending:
            self._account(number, last.event_id)
        execution.steps.stop()

    def discard(self) -> None:
        """Throw away what was not committed: the lock is lost, or the turn cannot be written."""
        if self.execution is not None:
            self.execution.close(clean_up=False)

    def _live(self) -> Execution:
        assert self.execution is not None
        return self.execution


def run_turn(
    definitions: Definitions,
    item: OrchestrationItem,
    *,
    now_ms: int,
    seed: int = 0,
    resident: Execution | None = None,
) -> Turn:
    """Run a turn as far as it comes without steps being run."""
    turn = Turn(definitions, item, seed=seed)
    turn.begin(now_ms, resident)
    return turn


def is_current(resident: Execution, item: OrchestrationItem) -> bool:
    """Tell whether a resident execution stands exactly where the history ends.

    An empty history says that there is nothing newer than what is resident.
    """
    return (
        resident.execution_id == item.execution_id
        and (not item.history or resident.last_event_id == item.history[-1].event_id)
        and resident.blocked is None
        and resident.terminal is None
    )


def _introduced(metadata: ExecutionMetadata, execution: Execution) -> ExecutionMetadata:
    begun = execution.started.kind
    assert isinstance(begun, event_kinds.OrchestrationStarted)
    return msgspec.structs.replace(
        metadata,
        status=metadata.status or Status.RUNNING,
        orchestration_name=begun.name,
        orchestration_version=begun.version,
        parent_instance_id=begun.parent_instance,
        pinned_engine_version=ENGINE_VERSION,
        # One that is kept for ever is kept whole.
        keep_executions=None if execution.definition.retention_s is None else execution.definitions.executions_max,
    )


def _is_cancel_deadline(execution: Execution, message: TimerFired) -> bool:
    cancel = execution.cancel_event
    return cancel is not None and message.id == cancel.event_id and message.execution_id == execution.execution_id


def _reason_of(execution: Execution) -> str:
    assert execution.cancel_event is not None
    assert isinstance(execution.cancel_event.kind, event_kinds.OrchestrationCancelRequested)
    return execution.cancel_event.kind.reason


def _kind_of(error: HoldfastError) -> str:
    kinds = {NondeterminismError: NONDETERMINISM, HistoryCorrupt: CORRUPT, WorkflowCodeError: CODE_ERROR}
    return kinds.get(type(error), INPUT)


def _headless(item: OrchestrationItem) -> str:
    return (
        f"instance {item.instance!r}, execution {item.execution_id}: its first event is no OrchestrationStarted. "
        "Nothing was changed."
    )
