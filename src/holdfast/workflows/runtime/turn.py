"""A turn: one locked instance and its batch of messages in, one commit out (more, where steps run in between).

1. A start or continuation is taken first, wherever it stands. 2. An execution that is not resident is replayed.
3. Each message, in order: filtered, recorded as one event, delivered, the loop run until nothing is ready. 4. Steps
that are ready are handed out, their outcomes taken back. 5. Nothing ready and no step running: one last commit.

Pure: time and seed come in as values, and nothing leaves but the commit. Fetching, acking, running steps and abandoning
are the worker's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from holdfast.errors import HistoryCorrupt, HoldfastError, NondeterminismError
from holdfast.model.error_details import CORRUPT, INPUT, NONDETERMINISM, Category, ErrorDetails
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.block_reasons import unregistered_reason
from holdfast.model.workflows.history import (
    UNKNOWN_VERSION,
    Event,
    ExecutionMetadata,
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
    """The instance waits for other code. Nothing is written; the delivery does not count."""

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


Stage = Literal["running", "blocked", "abandoned", "over"]


class Turn:
    """One turn of one instance."""

    def __init__(self, definitions: Definitions, item: OrchestrationItem, *, seed: int = 0) -> None:
        """Prepare a turn. `seed` is random, and used only if an execution begins here."""
        self._definitions = definitions
        self._item = item
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
            self._settle_late(item.messages)
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
        execution.deliver(execution.record(started, at_ms=now_ms))
        if execution.blocked is not None:
            self._block(INPUT, execution.blocked, now_ms)
            return
        if definition.timeout_s is not None and execution.terminal is None:
            self._set_own_timeout(execution, definition.timeout_s, now_ms)
        rest = list(self._item.messages)
        rest.remove(begin)
        self.deliver(rest, now_ms)

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
                kind = {NondeterminismError: NONDETERMINISM, HistoryCorrupt: CORRUPT}.get(
                    type(execution.blocked), INPUT
                )
                self._block(kind, execution.blocked, now_ms)
                return
        self.deliver([message for message in item.messages if message != resumed], now_ms)
        if resumed in item.messages and item.history:
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
        """End what cannot be run, if a forced cancel or the deadline of an earlier one is among the messages."""
        asked = {
            event.event_id
            for event in self._item.history
            if isinstance(event.kind, event_kinds.OrchestrationCancelRequested)
        }
        for message in self._item.messages:
            if isinstance(message, CancelInstance) and message.force:
                self._end_from_history(cancelled_details(message.reason), now_ms)
                return
            if (
                isinstance(message, TimerFired)
                and message.id in asked
                and message.execution_id == self._item.execution_id
            ):
                self._end_from_history(cancelled_details("not done by the deadline of its cancellation"), now_ms)
                return

    def _end_from_history(self, details: ErrorDetails, now_ms: int) -> None:
        self._ended = end_from_history(self._item, details, now_ms)
        self.blocked = self.abandoned = None

    def _settle_late(self, messages: Sequence[WorkItem]) -> None:
        """Take messages of an instance that has ended; a parent that asked for its id must not wait for ever."""
        for message in messages:
            self._drop(message, "the instance has ended")
        self._ended = TurnCommit(
            execution_id=self._item.execution_id, orchestrator_items=tuple(self._answers), metadata=ExecutionMetadata()
        )

    # --- delivering ---------------------------------------------------------------------------------------------------

    def deliver(self, messages: Sequence[WorkItem], now_ms: int) -> None:
        """Let the code see messages, one by one; what comes after the one that decides is kept for the end."""
        execution = self._live()
        for at, message in enumerate(messages):
            if execution.terminal is not None:
                self._keep_late(execution.terminal, messages[at:])
                break
            self._deliver_one(execution, message, now_ms)
        self._finish_if_ended()

    def _keep_late(self, terminal: event_kinds.AnyKind, messages: Sequence[WorkItem]) -> None:
        """Take what comes after the end: some of it goes on to the next execution, if there is one."""
        for message in messages:
            if isinstance(terminal, event_kinds.OrchestrationContinuedAsNew) and goes_on(message):
                self._late.append(message)
            else:
                self._drop(message, "the execution has ended")

    def _deliver_one(self, execution: Execution, message: WorkItem, now_ms: int) -> None:
        match message:
            case TimerFired() if message.id == WAKER:
                self._is_kept_awake = False
            case CancelInstance() if message.force or execution.definition.cancel_grace_s == 0:
                execution.force_end(cancelled_details(message.reason))
            case TimerFired() if _is_cancel_deadline(execution, message):
                execution.force_end(cancelled_details(_reason_of(execution)))
            case _:
                found = event_for(execution, message, now_ms)
                if isinstance(found, str):
                    self._drop(message, found)
                    return
                kind, source, at_ms = found
                event = execution.record(kind, source, at_ms)
                if isinstance(kind, event_kinds.OrchestrationCancelRequested) and kind.deadline_ms is not None:
                    execution.outbox.wake(event.event_id, kind.deadline_ms)
                own = execution.own_timeout
                is_late = isinstance(kind, event_kinds.TimerFired) and own is not None and source == own.event_id
                execution.deliver(event)
                if is_late:
                    self._deliver_one(execution, CancelInstance(instance=execution.instance, reason="timeout"), now_ms)

    def _drop(self, message: WorkItem, reason: str) -> None:
        self.dropped.append((message, reason))
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
        """Steps wait for the outcome of others to be durable: commit with `hold` now."""
        return self._is_step_uncommitted and bool(self._live().steps.unstarted())

    def finish_step(self, step_no: int, outcome: str | ErrorDetails, now_ms: int) -> None:
        """Take a step's outcome back: JSON text, or why it failed. One that nobody waits for is ignored."""
        execution = self._live()
        call = execution.steps.get(step_no)
        if call is None or execution.terminal is not None:
            return
        kind: event_kinds.StepCompleted | event_kinds.StepFailed
        if isinstance(outcome, str):
            kind = event_kinds.StepCompleted(step_no=step_no, name=call.name, result=outcome)
        else:
            kind = event_kinds.StepFailed(step_no=step_no, name=call.name, details=outcome)
        execution.deliver(execution.record(kind, at_ms=now_ms))
        self._is_step_uncommitted = True
        self._finish_if_ended()

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
        return self.execution is None or not self.execution.steps or self.stage != "running"

    # --- committing ---------------------------------------------------------------------------------------------------

    @property
    def stage(self) -> Stage:
        """Say where the turn stands."""
        if self.blocked is not None:
            return "blocked"
        if self.abandoned is not None:
            return "abandoned"
        return "over" if self._ended is not None or self._live().terminal is not None else "running"

    def commit(self, *, hold_until_ms: int | None = None) -> TurnCommit:
        """Give all that was decided since the last commit. Not for a turn that is blocked or abandoned.

        With `hold_until_ms` the turn goes on under its lock, whose end that is; see `_keep_awake`.
        """
        assert self.blocked is None
        assert self.abandoned is None
        if self._ended is not None:
            known = self._definitions.get(self._item.orchestration_name, self._item.version)
            return msgspec.structs.replace(self._ended, metadata=keeping(self._ended.metadata, known))
        execution = self._live()
        for answer in self._answers:
            execution.outbox.send(answer)
        self._answers = []
        self._keep_awake(execution, hold_until_ms)
        self._is_step_uncommitted = False
        if execution.terminal is None:
            metadata = ExecutionMetadata(
                waiting_on=waiting_on(execution), orchestration_version=self._taken_up(execution)
            )
        else:
            metadata = keeping(self._conclude(execution, execution.terminal), execution.definition)
        if self._is_new:
            metadata = _introduced(metadata, execution)
            self._is_new = False
        return execution.outbox.take(metadata)

    def _taken_up(self, execution: Execution) -> str | None:
        """Give the version that an execution goes on with of which none was recorded."""
        begun = execution.started.kind
        is_unknown = isinstance(begun, event_kinds.OrchestrationStarted) and begun.version == UNKNOWN_VERSION
        return execution.definition.version if is_unknown else None

    def _keep_awake(self, execution: Execution, hold_until_ms: int | None) -> None:
        """See that a turn whose messages are gone, and whose worker dies, is taken up again when its lock ends."""
        if hold_until_ms is not None and not self._is_kept_awake:
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

    def _finish_if_ended(self) -> None:
        execution = self._live()
        if execution.terminal is None or self._terminal_recorded:
            return
        self._terminal_recorded = True
        execution.record(execution.terminal)
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


def _headless(item: OrchestrationItem) -> str:
    return (
        f"instance {item.instance!r}, execution {item.execution_id}: its first event is no OrchestrationStarted. "
        "Nothing was changed."
    )
