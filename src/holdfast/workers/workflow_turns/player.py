"""What a thread does with one turn: it reads what it begins with, runs its code, and reports what it wants done.

Runs the users' code and reads the store; sends nothing. Whether a commit may be made, the machine says (`may_commit`).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import msgspec
from msgspec.structs import replace

from holdfast.engine.admission import admit_own
from holdfast.engine.engine import Engine
from holdfast.errors import HistoryCorrupt, StoreBusy, StoreError, UsageError
from holdfast.model.outcomes import Delivered, LockedTurn
from holdfast.model.workflows.block_reasons import blocked_reason
from holdfast.model.workflows.commands import AckTurn
from holdfast.model.workflows.event_kinds import OrchestrationStarted
from holdfast.model.workflows.history import UNKNOWN_VERSION, Event, HandledMessage, OrchestrationItem, TurnCommit
from holdfast.model.workflows.instances import HistoryRow, history_key
from holdfast.workers.workflow_turns.machine import (
    BROKEN_S,
    LOCK_S,
    ActiveTurn,
    Came,
    Idled,
    Input,
    Opened,
    Played,
    StepEnded,
    abandon,
)
from holdfast.workers.workflow_turns.steps import StepRun
from holdfast.workers.workflow_turns.threads import Code
from holdfast.workflows.api.definitions import Definition, Definitions
from holdfast.workflows.api.error_conversion import tell, text_of
from holdfast.workflows.api.steps import StepCall
from holdfast.workflows.provider.payloads import events_of
from holdfast.workflows.provider.translation import ack_command, orchestration_item, readable
from holdfast.workflows.runtime.completion import keeping, poison
from holdfast.workflows.runtime.execution import Execution
from holdfast.workflows.runtime.execution_cache import Residents
from holdfast.workflows.runtime.start import beginning, has_ended
from holdfast.workflows.runtime.turn import Turn

log = logging.getLogger("holdfast.worker")

_LOCK_MS = round(LOCK_S * 1000)
#: Shortest and longest time between two tries of what no worker has code for, seconds.
_PATIENCE_S = (1.0, 60.0)
_OPERATION = "turn"
_NOTHING = Played()


class Work(msgspec.Struct, eq=False):
    """The code of one turn, and what belongs to it: the thread's that plays the turn."""

    turn: Turn | None = None
    code: Code = msgspec.field(default_factory=Code)
    definition: Definition | None = None
    wants_commit: bool = False
    #: Messages to be set aside with the next command.
    unreadable: tuple[int, ...] = ()
    #: Steps under way, by number; guarded by the scheduler's lock.
    steps: dict[int, StepRun] = msgspec.field(default_factory=dict)
    #: Steps to be started after the report, and an execution to be kept once the last commit is sent.
    calls: Sequence[StepCall] = ()
    resident: Execution | None = None
    #: The code is to be closed; somebody closes it, or has. Guarded by the scheduler's lock.
    is_dropped: bool = False
    is_closed: bool = False

    @property
    def execution(self) -> Execution | None:
        """The execution, once there is one."""
        return None if self.turn is None else self.turn.execution

    def close(self, instance: str) -> None:
        """Close the code."""
        try:
            if self.execution is not None:
                self.execution.close(clean_up=False)
        except Exception as problem:  # noqa: BLE001 - the user's code, which is let go whatever it does
            tell(log, "turn.not_closed", problem, {"instance": instance})


class Beginning(msgspec.Struct, frozen=True, gc=False):
    """What a turn begins with."""

    item: OrchestrationItem
    #: The messages' numbers in the queue.
    numbers: tuple[int, ...]
    resident: Execution | None
    #: Messages that cannot be read.
    unreadable: tuple[int, ...]


class Player:
    """Advances turns. Called by many threads, for each turn by one at a time."""

    def __init__(
        self, engine: Engine, definitions: Definitions, residents: Residents, may_commit: Callable[[ActiveTurn], bool]
    ) -> None:
        """Ask `may_commit` before anything is taken out of a turn to be committed."""
        self._engine = engine
        self._definitions = definitions
        self._residents = residents
        self._may_commit = may_commit
        #: The worker ends: turns are handed over.
        self.is_draining = False

    def play(self, active: ActiveTurn, inputs: Sequence[Input], now: float) -> Played:
        """Advance a turn with these inputs, in order, and report what it wants done. Raises nothing."""
        work: Work = active.work
        try:
            refused = self._deliver(active, work, inputs, now)
            wanted = refused or self._wanted(active, work, now)
        except StoreBusy as problem:
            # What it begins with could not be read: no fault of the turn, which did not begin.
            log.warning("turn.unread", extra={"instance": active.instance, "problem": problem.message})
            wanted = _given_back(active, None, counted=False, delay_s=BROKEN_S)
        except UsageError as problem:
            log.error("turn.refused", extra={"instance": active.instance, "problem": problem.message})  # noqa: TRY400
            wanted = _given_back(active, problem.message, counted=True, delay_s=BROKEN_S)
        except BaseException as problem:  # noqa: BLE001 - no reason to lose the instance:
            # a fault of ours, of the store, or of code that breaks what runs it.
            tell(log, "turn.broken", problem, {"instance": active.instance})
            wanted = _given_back(active, f"the turn broke: {text_of(problem)}", counted=True, delay_s=BROKEN_S)
        if work.unreadable:
            wanted, work.unreadable = replace(wanted, unreadable=work.unreadable), ()
        return wanted

    # --- delivering ---------------------------------------------------------------------------------------------------

    def _deliver(self, active: ActiveTurn, work: Work, inputs: Sequence[Input], now: float) -> Played | None:
        """Run the code with the inputs; return a report if the turn is over without it."""
        if not inputs:
            return None
        begin: Beginning | None = None
        if isinstance(inputs[0], Opened):
            # Not within the code, in which an exception may strike at any instruction: the store is spoken to.
            begin = self._open(active.locked)
            refused = self._refused(active, work, begin)
            if refused is not None:
                return refused
        if not work.code.run(partial(self._run, work, begin, inputs), now):
            return Played()  # it was broken off, and given back
        return None

    def _run(self, work: Work, begin: Beginning | None, inputs: Sequence[Input]) -> None:
        for one in inputs:
            match one:
                case Opened():
                    assert begin is not None
                    # Not for secrets, and a system call would cost more than the turn.
                    seed = random.getrandbits(63)
                    work.turn = Turn(self._definitions, begin.item, seed=seed, numbers=begin.numbers)
                    work.turn.begin(self._now_ms(), begin.resident)
                case Came():
                    self._deliver_more(work, one.messages)
                case StepEnded():
                    assert work.turn is not None
                    work.turn.finish_step(one.step_no, one.outcome, self._now_ms())
                case Idled():
                    work.wants_commit = True

    def _deliver_more(self, work: Work, messages: Sequence[Delivered]) -> None:
        assert work.turn is not None
        items, unreadable = readable(self._engine.store.blobs, messages)
        work.unreadable += unreadable
        numbers = [message.seq for message in messages if message.seq not in unreadable]
        work.turn.deliver(items, self._now_ms(), numbers)

    def _refused(self, active: ActiveTurn, work: Work, begin: Beginning) -> Played | None:
        """Report how a turn ends that is not begun: nothing of it can be read, or it was tried too often."""
        item, work.unreadable = begin.item, begin.unreadable
        if not item.messages:
            return _given_back(active, "its messages cannot be read", counted=False)
        work.definition = self._definition(item) if begin.resident is None else begin.resident.definition
        attempts = active.locked.attempts
        if work.definition is None or attempts <= work.definition.max_turn_attempts or has_ended(item):
            return None
        log.error("workflow.poison", extra={"instance": active.instance, "attempts": attempts})
        ended = poison(item, attempts, self._now_ms())
        last = ended.history_delta[-1].event_id
        handled = tuple(HandledMessage(message=number, event_id=last) for number in begin.numbers)
        ended = replace(ended, metadata=keeping(ended.metadata, work.definition), handled=handled)
        return Played(ack=self._ack(active, ended), is_last=True)

    def _definition(self, item: OrchestrationItem) -> Definition | None:
        begin = beginning(item)
        if begin is not None:
            return self._definitions.get(begin.orchestration, begin.version)
        return self._definitions.get(item.orchestration_name, None if item.version == UNKNOWN_VERSION else item.version)

    def _now_ms(self) -> int:
        return int(self._engine.time.clock.now().timestamp() * 1000)

    # --- what the turn wants ------------------------------------------------------------------------------------------

    def _wanted(self, active: ActiveTurn, work: Work, now: float) -> Played:
        """See where the turn stands at `now` (monotonic), and report what it wants done."""
        turn = work.turn
        if turn is None:
            return Played()
        stopped = tuple(turn.take_stopped_steps())
        if turn.blocked is not None and not turn.must_commit:
            if active.is_sending:
                return Played(stopped=stopped)  # it was blocked in its midst, and a commit is under way
            log.warning("workflow.blocked", extra={"instance": active.instance, "kind": turn.blocked.kind})
            reason = blocked_reason(turn.blocked.kind, turn.blocked.text)
            return replace(_given_back(active, reason, counted=False, delay_s=_rarer(active)), stopped=stopped)
        if turn.abandoned is not None:
            delay_s = _rarer(active) if turn.abandoned.is_unregistered else turn.abandoned.delay_s
            return _given_back(active, turn.abandoned.reason, counted=False, delay_s=delay_s)
        is_idle = turn.is_idle
        must_commit = is_idle or turn.must_commit or (work.wants_commit and turn.has_news)
        if active.is_sending or (must_commit and not self._may_commit(active)):
            return Played(stopped=stopped) if stopped else _NOTHING
        work.wants_commit = False
        if is_idle:
            work.resident = turn.execution if turn.stage == "running" else None
            return Played(ack=self._ack(active, turn.commit()), is_last=True, stopped=stopped)
        if must_commit:
            commit = turn.commit(hold_until_ms=self._now_ms() + _LOCK_MS)
            # Most steps are short, and the lock is as good as new: its end is moved when it is time to renew it.
            is_old = active.renew_at <= now
            ack = self._ack(active, commit, LOCK_S if is_old else None, keep=True)
            return Played(ack=ack, extends=is_old, stopped=stopped)
        if self.is_draining:
            # What runs may end, and what has ended is delivered; then the turn is handed over.
            if active.steps.difference(stopped) or not self._may_commit(active):
                return Played(stopped=stopped, has_news=turn.has_news)
            return replace(_given_back(active, None, counted=False), stopped=stopped)
        work.calls = turn.take_steps()
        has_news = bool(work.calls or active.steps) and turn.has_news
        return Played(steps=[call.step_no for call in work.calls], stopped=stopped, has_news=has_news)

    def _ack(
        self, active: ActiveTurn, commit: TurnCommit, hold_s: float | None = None, *, keep: bool = False
    ) -> AckTurn:
        """Admit a commit here, in the thread that ran the turn; where another process decides, that one does."""
        engine = self._engine
        asked = partial(ack_command, _OPERATION, active.token, commit, engine.new_id, hold_s, keep=keep)
        if engine.is_authority:
            try:
                return admit_own(asked(eventless=True), commit.history_delta, engine.store.blobs)
            except StoreError:
                pass  # the pump meets the same trouble, and knows what to do
        return asked()

    # --- histories, in the store and in memory ------------------------------------------------------------------------

    def _open(self, locked: LockedTurn) -> Beginning:
        """Read what a turn begins with: nothing of its history, if the execution is in memory here."""
        blobs = self._engine.store.blobs
        items, unreadable = readable(blobs, locked.messages)
        numbers = tuple([message.seq for message in locked.messages if message.seq not in unreadable])
        resident = self._residents.take(locked.instance_id)
        rows: Sequence[HistoryRow] = ()
        # What was delivered in vain before is begun from its history: it may have to be ended by that.
        if resident is not None and (locked.attempts > 1 or not self._is_same(resident, locked)):
            resident.close()
            resident = None
        if resident is None and locked.history_id is not None:
            with self._engine.read() as view:
                rows = view.history(locked.history_id)
        return Beginning(orchestration_item(blobs, locked, items, rows), numbers, resident, unreadable)

    def keep(self, resident: Execution, locked: LockedTurn) -> None:
        """Keep an execution in memory until its next turn; nobody can fetch it before its lock is let go."""
        resident.history_id = locked.history_id
        self._residents.keep(resident)

    def _is_same(self, resident: Execution, locked: LockedTurn) -> bool:
        """Return whether an execution in memory stands where the store's history of it ends.

        Another one may have had the same id and come as far: the seed of the first event tells them apart.
        """
        same = resident.execution_id == locked.execution_id and resident.last_event_id == locked.last_event_id
        if not same or locked.history_id is None:
            return False
        if resident.history_id is None:
            with self._engine.read() as view:
                row = view.get(HistoryRow, history_key(locked.history_id, 1))
            first: list[Event] = []
            with suppress(HistoryCorrupt):  # whoever replays it says so
                first = events_of(self._engine.store.blobs, [row] if row is not None else [], locked.execution_id)
            mine = resident.started.kind
            assert isinstance(mine, OrchestrationStarted)
            if not any(isinstance(one.kind, OrchestrationStarted) and one.kind.seed == mine.seed for one in first):
                return False
            resident.history_id = locked.history_id
        return resident.history_id == locked.history_id


def _given_back(active: ActiveTurn, reason: str | None, *, counted: bool, delay_s: float | None = None) -> Played:
    return Played(abandon=abandon(active, reason, counted=counted, delay_s=delay_s), is_last=True)


def _rarer(active: ActiveTurn) -> float:
    """Return the seconds until it is tried again: the longer it waits, the rarer."""
    shortest, longest = _PATIENCE_S
    return min(longest, max(shortest, active.age_s / 2))
