"""One execution of a workflow, alive between its turns: what is open, what came in, what was asked for.

It is its loop's timekeeper. Recorded and new events go the same way: `deliver` one, run the loop until nothing is
ready. Commands are matched against the script while there is one, and become events beyond it. Knows no store and no
queue; `turn` turns messages into events, and what piled up in the outbox into a commit.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.errors import HistoryCorrupt, HoldfastError, InvalidValue
from holdfast.model.error_details import ErrorDetails
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.event_kinds import AnyKind
from holdfast.model.workflows.history import Event, KvEntry
from holdfast.workflows.api.definitions import Definition, Definitions
from holdfast.workflows.api.error_conversion import tell, text_of
from holdfast.workflows.api.steps import StepCall
from holdfast.workflows.determinism.call_site import Place, caller
from holdfast.workflows.determinism.history_match import Difference, Script, describe_step, nondeterminism
from holdfast.workflows.determinism.random_streams import Chance
from holdfast.workflows.runtime.code_errors import code_error, code_error_in
from holdfast.workflows.runtime.command_gate import Gate, Halt
from holdfast.workflows.runtime.event_loop import Loop, Timer
from holdfast.workflows.runtime.history_size import delay_ms, weight
from holdfast.workflows.runtime.inline_steps import InlineSteps
from holdfast.workflows.runtime.outbox import Outbox
from holdfast.workflows.runtime.pending_operations import Dispatch, Open
from holdfast.workflows.runtime.published_state import Published
from holdfast.workflows.runtime.result import is_same_end, verdict
from holdfast.workflows.runtime.signals import Mailboxes
from holdfast.workflows.runtime.user_code import Program
from holdfast.workflows.runtime.wait_description import idle_words

#: The rules by which turns are run; written into the first event and pinned to the execution.
ENGINE_VERSION = "1.0.0"

log = logging.getLogger("holdfast.workflow")


class Continuation(msgspec.Struct, frozen=True):
    """What `continue_as_new` asked for."""

    input: str
    version: str | None


class Execution:
    """One execution, resident in this process."""

    def __init__(
        self,
        definition: Definition,
        definitions: Definitions,
        instance: str,
        execution_id: int,
        kv_snapshot: Mapping[str, KvEntry],
    ) -> None:
        self.definition = definition
        self.definitions = definitions
        self.instance = instance
        self.execution_id = execution_id
        #: Milliseconds since 1970, as of the event delivered last.
        self.now_ms = 0
        self.last_event_id = 0
        #: Where the store keeps its events; None: nobody has asked yet.
        self.history_id: int | None = None
        #: Recorded events are being delivered.
        self.is_replaying = False
        self.outbox = Outbox(instance, execution_id)
        self.published = Published(kv_snapshot)
        self.mailboxes = Mailboxes()
        self.open: dict[int, Open] = {}
        self.timers: dict[int, Timer] = {}
        self.steps = InlineSteps()
        #: The request and deadline of a cancellation that is under way.
        self.cancel_event: Event | None = None
        self.own_timeout: Event | None = None
        #: How it ended; nothing runs from then on.
        self.terminal: AnyKind | None = None
        #: Why it cannot go on with this code.
        self.blocked: HoldfastError | None = None
        self.continuation: Continuation | None = None
        self.started: Event
        self.chance: Chance
        self._gate = Gate(instance)
        self._loop: Loop
        self._main: asyncio.Task[Any]
        self._program: Program | None = None
        self._script: Script | None = None
        self._patches: dict[str, bool] = {}
        self._recorded_patches: frozenset[str] = frozenset()
        #: Numbers of the signals that the history shows as set aside.
        self._recorded_rejections: frozenset[int] = frozenset()
        self._is_copy = False
        #: The execution that wrote the event delivered last: another than this one in a copied part.
        self._written_by = execution_id
        #: What `check` tells beside differences.
        self.notes: list[str] = []
        #: Bytes of the history so far, nearly.
        self.size_bytes = 0

    # --- delivering ---------------------------------------------------------------------------------------------------

    def replay(self, events: Sequence[Event], *, is_copy: bool = False) -> None:
        """Bring it to where these events left it. A difference or damage is kept in `blocked`; nothing is recorded.

        Of a copy, by which a reset or fork begins, nothing has run yet: what comes behind its last event is new.
        """
        self._is_copy = is_copy
        try:
            self._script = Script(events, self._passed, compare_inputs=self.definition.compare_inputs)
            self._recorded_patches = frozenset(
                event.kind.id for event in events if isinstance(event.kind, event_kinds.PatchRecorded)
            )
            self._recorded_rejections = frozenset(
                event.kind.number for event in events if isinstance(event.kind, event_kinds.SignalRejected)
            )
            self.is_replaying = True
            while not self.blocked:
                event = self._script.next_delivery(lambda: idle_words(self))
                if event is None:
                    break
                if isinstance(event.kind, event_kinds.TERMINAL):
                    if not is_same_end(event.kind, self.terminal):
                        raise Difference(event, idle_words(self))  # noqa: TRY301 - one place words all differences
                    break
                if self.terminal is not None:
                    raise Difference(event, idle_words(self))  # noqa: TRY301 - one place words all differences
                self.deliver(event)
        except Difference as difference:
            self._block(difference, None)
        except HistoryCorrupt as damage:
            self.blocked = damage
        finally:
            self.is_replaying = False
            if self._script is not None:
                self.notes = self._script.notes
            if self.blocked is None:
                self._script = None

    def record(self, kind: AnyKind, source: int | None = None, at_ms: int | None = None) -> Event:
        """Append a new event."""
        event = Event(
            event_id=self.last_event_id + 1,
            instance=self.instance,
            execution_id=self.execution_id,
            timestamp_ms=self.now_ms if at_ms is None else max(at_ms, self.now_ms),
            kind=kind,
            source_event_id=source,
            engine_version=ENGINE_VERSION if isinstance(kind, event_kinds.OrchestrationStarted) else "",
        )
        self._count(event)
        self.outbox.events.append(event)
        return event

    def _count(self, event: Event) -> None:
        if event.event_id > self.last_event_id:
            self.last_event_id = event.event_id
            self.size_bytes += weight(event.kind)

    def deliver(self, event: Event) -> None:
        """Let the code see one event, and run it until nothing is ready."""
        self._count(event)
        self._written_by = event.execution_id
        self.now_ms = max(self.now_ms, event.timestamp_ms)
        if isinstance(event.kind, event_kinds.OrchestrationStarted):
            if not self._start(event, event.kind):
                return
        else:
            self._take_in(event)
        self._loop.run_until_idle()
        if self.blocked is None and self.terminal is None:
            self._settle()

    def _start(self, event: Event, kind: event_kinds.OrchestrationStarted) -> bool:
        self.started = event
        seed = kind.seed or 0
        self.chance = Chance(seed)
        base = (zlib.crc32(str(seed).encode()) & 0x3FFFFFFF) << 32
        self._loop = Loop(self, base, self.definitions.guard)  # type: ignore[abstract]  # the rest is refused, by a table
        self.published.status = kind.initial_custom_status
        for name, data in kind.carry_forward_events:
            self.mailboxes.put(name, data)
        try:
            args, kwargs = self.definition.codec.unpack(msgspec.Raw(kind.input.encode()))
        except Exception as problem:  # noqa: BLE001 - users' types are made here, and may raise anything
            self.blocked = InvalidValue(
                f"workflow {self.definition.name!r} {self.definition.version}, instance {self.instance!r}: its "
                f"recorded input no longer fits: {text_of(problem)} Nothing was changed.",
                hint="Accept the old form again, or register a new version for new starts.",
                kind="Input",
            )
            return False
        self._program = Program(self._loop, self.definition, args, kwargs)
        self._main = self._program.main
        self._main.add_done_callback(self._halt)
        return True

    def _halt(self, _task: asyncio.Task[Any]) -> None:
        if not self._gate.is_over:  # or the tasks that are left could not be cancelled
            self._loop.halted = True

    def _take_in(self, event: Event) -> None:
        kind, source = event.kind, event.source_event_id or 0
        match kind:
            case event_kinds.StepCompleted() | event_kinds.StepFailed():
                step = self.steps.get(kind.step_no)
                if step is None or step.name != kind.name:
                    raise Difference(
                        event, idle_words(self) if step is None else describe_step(step.step_no, step.name)
                    )
                del self.steps[kind.step_no]
                _resolve(step.future, kind)
            case event_kinds.TimerFired():
                if self.own_timeout is not None and source == self.own_timeout.event_id:
                    self.own_timeout = None
                    return
                timer = self.timers.pop(source, None)
                if timer is None:
                    raise self._unmatched(event)
                self._loop.push(timer)
            case event_kinds.TimerCreated():
                self.own_timeout = event
            case event_kinds.QueueEventDelivered() | event_kinds.ExternalEvent():
                self.mailboxes.put(kind.name, kind.data)
            case event_kinds.OrchestrationCancelRequested():
                self.cancel_event = event
                self._main.cancel(kind.reason)
            case _:
                opened = self.open.pop(source, None)
                if opened is None:
                    raise self._unmatched(event)
                if isinstance(opened.kind, event_kinds.DecisionRequested) and opened.kind.expires_at_ms is not None:
                    self.outbox_if_new().let_sleep(source)
                _resolve(opened.future, kind)

    def _unmatched(self, event: Event) -> Exception:
        if self._script is not None and self._script.has_scheduled(event.source_event_id):
            return Difference(event, f"event {event.source_event_id} is no longer waited for")
        return HistoryCorrupt(
            f"instance {self.instance!r}, execution {self.execution_id}: event {event.event_id} completes event "
            f"{event.source_event_id}, which asked for nothing of the kind. Nothing was changed.",
            instance=self.instance,
            event_id=event.event_id,
        )

    def outbox_if_new(self) -> Outbox:
        """Give the outbox; while recorded events are delivered, one that nobody empties."""
        return Outbox(self.instance, self.execution_id) if self.is_replaying else self.outbox

    # --- commands -----------------------------------------------------------------------------------------------------

    def give(
        self,
        kind: AnyKind,
        source: int | None = None,
        *,
        place: Place | None = None,
        dispatch: Dispatch | None = None,
    ) -> Event:
        """Take a command of the code: find it in the script, or record it and dispatch its work."""
        self._gate.demand_open(self._loop)
        script = self._script
        if script is not None:
            try:
                recorded = script.expect(kind, source, self.now_ms)
            except Difference as difference:
                self._block(difference, place or caller(2))
                raise Halt from None
            if recorded is not None:
                self._count(recorded)
                return recorded
        event = self.record(kind, source)
        if dispatch is not None:
            dispatch(event)
        return event

    def made_before(self) -> str | None:
        """Give the id that was made for the detached start that is recorded next; None: there is none, or the code's.

        What was copied from another instance has ids that only that one could make.
        """
        return None if self._script is None else self._script.next_made_id()

    def ask(
        self, kind: AnyKind, *, place: Place | None, dispatch: Dispatch, leave: bool = False
    ) -> tuple[int, asyncio.Future[AnyKind]]:
        """Give a command that ends by an event, and a future for that event's kind.

        Code that is left for good waits for ever instead: an exception might be caught, and the command tried again.
        """
        future: asyncio.Future[AnyKind] = self._loop.create_future()
        try:
            event = self.give(kind, place=place, dispatch=dispatch)
        except Halt:
            self._gate.demand_alive()
            return 0, future
        self.open[event.event_id] = Open(event=event, future=future, dispatch=dispatch, leave=leave)
        return event.event_id, future

    def withdraw(self, event_id: int, reason: str) -> None:
        """No longer wait for an activity, child or decision: it is cancelled in this commit, unless it ended."""
        opened = self.open.get(event_id)
        if opened is None or self._gate.is_over or self._loop.halted:
            return
        kind, dispatch = opened.withdrawal(reason, self.outbox)
        self.give(kind, event_id, dispatch=dispatch)
        del self.open[event_id]

    def publish(self, kind: AnyKind) -> None:
        """Change the published state."""
        self._gate.demand_open(self._loop)
        self.published.demand_valid(kind)
        self.give(kind)
        self.published.apply(kind)

    def reject_signal(self, name: str, number: int, reason: str, place: Place | None) -> bool:
        """Set aside a signal whose data do not fit; False if it was not, according to the history.

        Then the code got an exception: before signals were set aside, or because it waited for another type.
        """
        if self._script is not None and not self._script.is_over and not self.was_rejected(number):
            return False
        if not self.is_replaying:
            log.warning("workflow.signal_rejected", extra={"instance": self.instance, "signal": name})
        self.give(event_kinds.SignalRejected(name=name, number=number, reason=reason), place=place)
        self.mailboxes.reject(name, reason)
        return True

    def was_rejected(self, number: int) -> bool:
        """Tell whether the history shows a signal as set aside; then it is again, whatever fits now."""
        return number in self._recorded_rejections

    def patched(self, patch: str) -> bool:
        """Tell whether the execution follows the new branch; the first answer holds."""
        answer = self._patches.get(patch)
        if answer is None:
            self._gate.demand_open(self._loop)
            answer = is_recorded = patch in self._recorded_patches
            if not is_recorded and self._is_beyond():
                answer = True
                self.record(event_kinds.PatchRecorded(id=patch))
            self._patches[patch] = answer
            if self._script is not None:
                self._script.pass_patches(self._patches)  # so that events count here as they did when it was recorded
        return answer

    def _is_beyond(self) -> bool:
        """Tell whether the code comes here for the first time.

        Whoever delivered the last event of a history has run the code behind it, though that may have asked for
        nothing; behind the end of a copy nobody was.
        """
        if not self.is_replaying:
            return True
        return self._is_copy and self._script is not None and self._script.pass_patches(self._patches)

    def begin_step(self, call: StepCall) -> asyncio.Future[AnyKind]:
        """Give a step its number; it runs when replay is over, unless its outcome is found there."""
        call.future = self._loop.create_future()
        try:
            self._gate.demand_open(self._loop)
        except Halt:
            self._gate.demand_alive()
            return call.future
        # By the execution that first came here, so that a step that is run again after a reset has its old key.
        self.steps.begin(call, self.instance, self._written_by)
        return call.future

    def continue_as_new(self, asked: Continuation) -> None:
        """End this execution here and now, from whichever task."""
        self._gate.demand_open(self._loop)
        self.continuation = asked
        self.mailboxes.seal()
        self._loop.halted = True
        raise Halt

    @property
    def thread_id(self) -> int | None:
        """The thread that runs its code, if that is not the turn's: of a `def` workflow."""
        return None if self._program is None else self._program.thread_id

    def block_until(self, awaitable: Any) -> Any:
        """Wait in the thread of a `def` workflow."""
        assert self._program is not None
        return self._program.block_until(awaitable)

    @property
    def main_coroutine(self) -> Any:
        """What runs, for a debugger to look at."""
        return self._main.get_coro()

    # --- the loop's time ----------------------------------------------------------------------------------------------

    def time(self) -> float:
        """Seconds since 1970, as of the event delivered last."""
        return self.now_ms / 1000

    def start_timer(self, timer: Timer, when: float) -> None:
        """Record a timer."""
        fire_at = self.now_ms + delay_ms(when - self.time())
        try:
            event = self.give(
                event_kinds.TimerCreated(fire_at_ms=fire_at),
                dispatch=lambda event: self.outbox.wake(event.event_id, fire_at),
            )
        except Halt:
            self._gate.demand_alive()
            return  # it never fires, and nobody is left to miss it
        assert isinstance(event.kind, event_kinds.TimerCreated)
        timer.event_id, timer.fire_at_ms = event.event_id, event.kind.fire_at_ms
        self.timers[event.event_id] = timer

    def stop_timer(self, timer: Timer) -> None:
        """Forget a timer that has not fired; asyncio stops fired ones too, which changes nothing."""
        if self._gate.is_over:
            return  # what is open at the end is taken back by the end
        if self.timers.pop(timer.event_id, None) is not None:
            self.outbox_if_new().let_sleep(timer.event_id)

    def report(self, problem: dict[str, Any]) -> None:
        """Tell of an exception that nobody retrieved, once."""
        if not self.is_replaying and not self._gate.is_over:
            facts = {"instance": self.instance, "about": problem.get("message")}
            tell(log, "workflow.exception_lost", problem.get("exception"), facts)

    # --- the end ------------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """See whether it has come to its end."""
        if self.continuation is not None:
            self.terminal = event_kinds.OrchestrationContinuedAsNew(input=self.continuation.input)
        elif self._main.done():
            problem = None if self._main.cancelled() else self._main.exception()
            if problem is not None and self._blocks(problem):
                return
            self.terminal = verdict(self._main, self.definition.codec, self.cancel_event)
        else:
            return
        self.close()

    def _blocks(self, problem: BaseException) -> bool:
        """See whether what the code raised is an error in it, which blocks the run.

        A recorded end stays the end: it is compared, as every other.
        """
        found = code_error_in(problem) if self.definition.on_error == "block" else None
        if found is None or (self._script is not None and self._script.is_before_end):
            return False
        self.blocked = code_error(self.definition, self.instance, self.execution_id, found)
        self._loop.halted = True
        return True

    def force_end(self, details: ErrorDetails) -> None:
        """End it without asking its code."""
        self.terminal = event_kinds.OrchestrationFailed(details=details)
        self.close(clean_up=False)

    @property
    def is_leaving(self) -> bool:
        """Whether its code is only let go: what runs now are `finally` blocks of code that has not come to its end."""
        return self.blocked is not None or (hasattr(self, "_loop") and self._loop.is_closed())

    def close(self, *, clean_up: bool = True) -> None:
        """Let its code go. With `clean_up`, tasks that are left are cancelled as `asyncio.run` does it.

        Python runs the `finally` blocks of code that is let go, and nothing prevents that: so they are refused what a
        workflow is refused, every command, and `hf.log` is silent; and `hf.is_leaving` tells them.
        """
        self._gate.is_over = True
        if not hasattr(self, "_loop"):
            return
        if not self._loop.is_closed():
            if clean_up and self.terminal is not None and self._loop.has_leftovers:
                self._loop.halted = False
                self._loop.cancel_leftovers()
            self._loop.close()
        if self._program is not None:
            self._program.evict()

    # --- differences --------------------------------------------------------------------------------------------------

    def _passed(self, event: Event) -> None:
        """Keep what was published, though the code no longer says it: the store has it."""
        self._count(event)
        self.published.apply(event.kind)

    def _block(self, difference: Difference, place: Place | None) -> None:
        self.blocked = nondeterminism(
            self.definition.name, self.definition.version, self.execution_id, difference, place
        )
        self._loop.halted = True


def _resolve(future: asyncio.Future[AnyKind], kind: AnyKind) -> None:
    if not future.done():
        future.set_result(kind)
