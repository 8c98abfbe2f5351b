"""The desk of turns: between the pump, which alone talks to the store, and the threads that run turns.

The pump asks for errands, sends them all in one commit with everything else, and brings the answers. Threads advance
stints, and what a stint wants done becomes an errand or a step. The order that matters: a message that is fetched while
a commit is being made would be deleted by it unread; so neither begins while the other is under way.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

from holdfast.engine.admission import admit_own
from holdfast.engine.engine import Engine
from holdfast.errors import HistoryCorrupt, LeaseLost, StoreBusy, StoreError, UnknownLease, UsageError
from holdfast.flows.definitions import Definitions
from holdfast.flows.execution import Execution
from holdfast.flows.failures import tell, text_of
from holdfast.flows.provider.contents import events_of
from holdfast.flows.provider.translating import ack_command, orchestration_item, readable
from holdfast.flows.residents import Residents
from holdfast.flows.steps import StepCall
from holdfast.model.flowcommands import AckTurn, AnnounceHandlers, FetchMore, FetchTurn, ParkMessages, RenewTurn
from holdfast.model.history import Event, TurnCommit
from holdfast.model.instances import HistoryRow, history_key
from holdfast.model.kinds import OrchestrationStarted
from holdfast.model.outcomes import Brought, Fetched, LockedTurn, Refusal
from holdfast.model.outcomes import Outcome as Reply
from holdfast.model.times import Timestamp, seconds_between
from holdfast.points import reach
from holdfast.rules.state import Lane
from holdfast.stores.protocol import View
from holdfast.workers.turns import NEVER, Errand
from holdfast.workers.turns.crew import Crew
from holdfast.workers.turns.stepping import StepOutcome, StepRun
from holdfast.workers.turns.stint import (
    BROKEN_S,
    IDLE_S,
    LOCK_S,
    RENEW_S,
    Came,
    Committed,
    Idled,
    Input,
    Opened,
    Outcome,
    Playing,
    Ready,
    StepEnded,
    Stint,
    abandon,
)

log = logging.getLogger("holdfast.worker")

#: Turns run at once, by default.
TURNS = 8
#: Turns under way for each of them: most wait for a commit, or for a thread for a moment.
AHEAD = 8
#: A turn that waits for a thread longer is given back, for others to run. Seconds.
PATIENCE_S = 0.5
#: Seconds until the store is looked at again where it cannot be told when something comes.
LOOK_AGAIN_S = 0.1
#: Commands of one cycle.
MOST = 100
#: Seconds that what is to be sent waits for turns that are about to have something, so that one commit serves them all.
LINGER_S = 0.01
_OPERATION = "turn"
_GONE = {LeaseLost.code, UnknownLease.code}


class TurnDesk:
    """The turns of one worker. The pump's methods are called by its thread alone, all others by any."""

    def __init__(
        self,
        engine: Engine,
        definitions: Definitions,
        poke: Callable[[], None],
        spawn: Callable[[Coroutine[Any, Any, None]], Future[None]],
        *,
        turns: int = TURNS,
        residents: int = 1000,
    ) -> None:
        """Run turns of what is defined; `poke` wakes the pump, `spawn` runs a coroutine on the worker's loop."""
        self._engine = engine
        self._definitions = definitions
        self._poke = poke
        self.spawn = spawn
        self._size = turns
        self._crew = Crew(turns)
        self._residents = Residents(residents)
        self._playing = Playing(
            definitions,
            engine.store.blobs,
            self._now_ms,
            may_send=self._may_send,
            command_of=self._command_of,
        )
        self._lock = threading.Lock()
        self._stints: dict[int, Stint] = {}
        self._outbox: deque[Errand] = deque()
        #: What time asks for: when, a number to tell equal ones apart, what.
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        #: The pump wakes by then of itself.
        self._awake_by = 0.0
        #: Turns that threads advance or soon will: each may have something to send in a moment.
        self._coming = 0
        #: What is to be sent was held back for them; once.
        self._lingers = False
        #: A fetch is worth a try; and as of which event one was in vain although something seemed to be there.
        self._hope = True
        self._fruitless = self._seq = -1
        self._mail_at = NEVER
        self._is_draining = False
        handlers = [name for one in definitions.all() for name in (one.name, f"{one.name} {one.version}")]
        self._outbox.append(Errand("announce", AnnounceHandlers(handlers=tuple(dict.fromkeys(handlers)))))
        #: Seconds that a thread is busy with a turn at a time, on average; long ones are not fetched ahead.
        self._mean_s = 0.0
        #: Turns whose last commit is durable; those that were lost; those given back.
        self.committed = self.lost = self.abandoned = 0

    # --- for the pump: sending ----------------------------------------------------------------------------------------

    def errands(self, now: float) -> Sequence[Errand]:
        """Give what is to be sent now; asked again, what is not answered is given again."""
        with self._lock:
            self._lingers = bool(self._outbox) and not self._lingers and self._coming > 0
            errands = [] if self._lingers else list(itertools.islice(self._outbox, MOST))
            for stint in self._stints.values():
                if stint.is_fetching:
                    self._fetched_nothing(stint)  # the store was busy, and nothing was sent
                if stint.is_coming and stint.code.is_slow(now - IDLE_S):
                    self._expect(stint, coming=False)  # a long replay, say: others are not to wait for it
                if stint.is_gone or stint.is_sending:
                    continue
                if stint.renew_at <= now and not stint.code.is_late:
                    errands.append(Errand("renew", RenewTurn(token=stint.token, lock_s=LOCK_S), stint))
                if stint.wants_more and stint.is_begun:
                    stint.wants_more, stint.is_fetching = False, True
                    errands.append(Errand("more", FetchMore(token=stint.token), stint))
            # Those that end with this commit make room for others in the same.
            ending = sum(errand.is_last for errand in errands)
            room = self._room(ending) if self._hope and not self._lingers else 0
        if room:
            fetch = FetchTurn(lock_s=LOCK_S, n=room, session_id=self._engine.session_id)
            errands.append(Errand("fetch", fetch))
        return errands

    def answered(self, errands: Sequence[Errand], replies: Sequence[Reply], now: float) -> None:
        """Take the answers to errands, in their order."""
        with self._lock:
            for _ in itertools.takewhile(lambda errand: errand.kind not in _UNQUEUED, errands):
                self._outbox.popleft()
        for errand, reply in zip(errands, replies, strict=True):
            if errand.kind == "fetch":
                self._fetched(errand, reply, now)
            elif errand.stint is not None:
                self._answered(errand, errand.stint, reply, now)
        reach("turns.answered")

    def _answered(self, errand: Errand, stint: Stint, reply: Reply, now: float) -> None:
        if isinstance(reply, Refusal):
            self._refused(errand, stint, reply)
            return
        match errand.kind:
            case "ack" | "abandon" if errand.is_last:
                self.committed += errand.kind == "ack"
                self.abandoned += errand.kind == "abandon"
                with self._lock:
                    self._end(stint)
            case "ack":
                with self._lock:
                    stint.is_sending = False
                    stint.tagged.clear()
                    if errand.extends:
                        stint.renew_at, stint.lost_at = now + RENEW_S, now + LOCK_S
                    self._put(stint, Committed())
            case "renew":
                stint.renew_at, stint.lost_at = now + RENEW_S, now + LOCK_S
            case "more":
                assert isinstance(reply, Brought)
                with self._lock:
                    stint.is_fetching = False
                    stint.tagged.update(message.seq for message in reply.messages)
                    self._put(stint, Came(reply.messages))
            case _:
                pass

    def _refused(self, errand: Errand, stint: Stint, reply: Refusal) -> None:
        if errand.kind in {"abandon", "park"}:
            with self._lock:
                self._end(stint) if errand.is_last else None
        elif reply.code in _GONE:
            self._lose(stint, reply.message)
        else:
            self._cannot_keep(stint, reply.message)

    def _cannot_keep(self, stint: Stint, problem: str) -> None:
        """Give back what wants something that cannot be kept. It counts: so it ends, and its end says why."""
        log.error("turn.refused", extra={"instance": stint.instance, "problem": problem})
        self._give_back(stint, problem, counted=True, delay_s=BROKEN_S)

    def _fetched(self, errand: Errand, reply: Reply, now: float) -> None:
        if isinstance(reply, Refusal):
            raise reply.error()
        assert isinstance(reply, Fetched)
        assert isinstance(errand.command, FetchTurn)
        found = () if reply.turn is None else (reply.turn, *reply.others)
        self._hope = len(found) == errand.command.n
        if not found:
            self._fruitless = self._seq
        at = self._engine.look().now
        with self._lock:
            for locked in found:
                stint = Stint(
                    locked,
                    age_s=0.0 if locked.since is None else seconds_between(locked.since, at),
                    renew_at=now + RENEW_S,
                    lost_at=now + LOCK_S,
                    fetched_at=now,
                    tagged={message.seq for message in locked.messages},
                )
                self._stints[locked.token] = stint
                self._put(stint, Opened(lambda locked=locked: self._open(locked)))  # type: ignore[misc]  # a bound value

    # --- for the pump: looking and resting ----------------------------------------------------------------------------

    def look(self, view: View, at: Timestamp, now: float) -> None:
        """See whether something came in for instances, here or anywhere."""
        self._seq = view.seq
        first = view.next_due(Lane.MAIL)
        left_s = NEVER if first is None else seconds_between(at, first)
        # What is due already is somebody's, or about to be; something later may hide behind it.
        self._mail_at = now + (left_s if left_s > 0 else LOOK_AGAIN_S)
        with self._lock:
            mine = [stint for stint in self._stints.values() if stint.steps and not stint.is_gone]
            room = self._room()
        for stint in mine:
            if any(message.seq not in stint.tagged for message in view.visible(stint.instance, at)):
                stint.wants_more = True
        if room and not self._hope and self._seq != self._fruitless:
            self._hope = left_s <= 0 or any(True for _ in view.candidates(at))

    def enforce(self, now: float) -> None:
        """Do what time asks for."""
        if self._mail_at <= now:
            # Something is due, here or elsewhere; whether one may have it only the store can tell.
            self._mail_at, self._hope = NEVER, True
            with self._lock:
                for stint in self._stints.values():
                    stint.wants_more = stint.wants_more or bool(stint.steps)
        late: list[Stint] = []
        with self._lock:
            due = []
            while self._timers and self._timers[0][0] <= now:
                due.append(heapq.heappop(self._timers)[2])
            for stint in list(self._stints.values()):
                if stint.idle_at <= now:
                    stint.idle_at = NEVER
                    self._put(stint, Idled())
                elif not stint.is_begun and not stint.is_gone and now - stint.fetched_at >= PATIENCE_S:
                    self._mean_s = 1.0
                    self._send_back(stint, None, counted=False)
                if self._is_late(stint, now):
                    late.append(stint)
        for work in due:
            work()
        for stint in late:
            self._break_off(stint)
        for stint in list(self._stints.values()):
            if stint.lost_at <= now and not stint.is_sending and not stint.is_gone:
                self._lose(stint, "its lock could not be renewed in time")

    def _is_late(self, stint: Stint, now: float) -> bool:
        limit = 0.0 if stint.definition is None else stint.definition.turn_timeout_s
        since = stint.code.since
        return bool(limit) and since is not None and now - since >= limit and not stint.is_gone

    def _break_off(self, stint: Stint) -> None:
        """Take a turn that does not give its thread back for dead: it counts."""
        execution = stint.execution
        ident, stack = stint.code.break_off(None if execution is None else execution.thread_id)
        log.error("turn.overran", extra={"instance": stint.instance, "stack": stack})
        self._crew.write_off(ident)
        seconds = 0.0 if stint.definition is None else stint.definition.turn_timeout_s
        self._give_back(
            stint, f"a turn took longer than {seconds:g} s without a running step", counted=True, delay_s=BROKEN_S
        )

    def due_at(self) -> float:
        """Give when `enforce` or `errands` has something to do. Whoever makes that earlier pokes the pump."""
        with self._lock:
            times = [self._mail_at if self._room() or self._stints else NEVER]
            if self._outbox or self._coming:
                times.append(self.now() + LINGER_S)
            if self._timers:
                times.append(self._timers[0][0])
            for stint in self._stints.values():
                if stint.is_gone:
                    continue
                times += (stint.idle_at, stint.renew_at)
                if not stint.is_begun:
                    times.append(stint.fetched_at + PATIENCE_S)
                since = stint.code.since
                if since is not None and stint.definition is not None and stint.definition.turn_timeout_s:
                    times.append(since + stint.definition.turn_timeout_s)
            self._awake_by = min(times)
            return self._awake_by

    @property
    def wants_look(self) -> bool:
        """Tell whether more turns could be run than there are."""
        return not self._is_draining and self._room() > 0

    @property
    def has_hope(self) -> bool:
        """Tell whether a fetch is worth a try, and there is room."""
        return self._hope and self._room() > 0

    @property
    def is_quiet(self) -> bool:
        """Tell whether no turn is under way, and nothing is to be sent."""
        return not self._stints and not self._outbox

    def _room(self, ending: int = 0) -> int:
        if self._is_draining:
            return 0
        limit = self._size * (AHEAD if self._mean_s < IDLE_S else 1)
        return max(0, min(MOST, limit - len(self._stints) + ending))

    # --- for the pump: the end ----------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Fetch no more; give back what has not begun."""
        self._is_draining = self._playing.is_draining = True
        with self._lock:
            for stint in list(self._stints.values()):
                if not stint.is_begun and not stint.is_gone:
                    self._send_back(stint, None, counted=False)

    def stop(self) -> None:
        """Give everything back, uncounted, without waiting for any step."""
        for stint in list(self._stints.values()):
            if not stint.is_gone and not stint.is_sending:
                self._give_back(stint, None, counted=False)

    def close(self) -> None:
        """Let go of all threads and residents."""
        for stint in list(self._stints.values()):
            self._drop(stint)
        with suppress(RuntimeError):  # no thread at all: then what is resident ends with the process
            self._crew.put(self._residents.clear)
        self._crew.close()

    # --- stints -------------------------------------------------------------------------------------------------------

    def _put(self, stint: Stint, one: Input) -> None:
        """Let a thread go on with a stint. The lock is held."""
        stint.inbox.append(one)
        if not stint.is_taken and not stint.is_gone and stint.inline != threading.get_ident():
            self._take(stint)

    def _take(self, stint: Stint) -> None:
        """Have a thread take what is in the inbox. The lock is held."""
        try:
            self._crew.put(lambda: self._advance(stint))
            stint.is_taken = True
            self._expect(stint, coming=True)
        except RuntimeError as problem:  # the system has no thread left; it may have one when it is tried again
            self._send_back(stint, f"the turn could not be started: {problem}", counted=False, delay_s=BROKEN_S)

    def _expect(self, stint: Stint, *, coming: bool) -> None:
        """Note whether a stint may have something to send in a moment; after the last one what waits for it is sent.

        The lock is held.
        """
        if stint.is_coming is not coming:
            stint.is_coming = coming
            self._coming += 1 if coming else -1
            if self._outbox and not self._coming:
                self._poke()

    def _fetched_nothing(self, stint: Stint) -> None:
        stint.is_fetching, stint.wants_more = False, True
        self._put(stint, Came(()))

    def _may_send(self, stint: Stint) -> bool:
        """Tell whether a commit may be made now; if so, nothing is fetched until it is answered."""
        with self._lock:
            if stint.is_fetching:
                return False
            stint.is_sending = True
            return True

    def _command_of(self, stint: Stint, commit: TurnCommit, hold_s: float | None, *, keep: bool) -> AckTurn:
        """Admit a commit here, in the thread that ran the turn; where another process decides, that one does."""
        engine = self._engine
        asked = partial(ack_command, _OPERATION, stint.token, commit, engine.new_id, hold_s, keep=keep)
        if engine.is_authority:
            with suppress(StoreError):  # the pump meets the same trouble, and knows what to do
                return admit_own(asked(eventless=True), commit.history_delta, engine.store.blobs)
        return asked()

    def _end(self, stint: Stint) -> None:
        stint.is_gone = True
        self._expect(stint, coming=False)
        self._stints.pop(stint.token, None)

    def _send_back(self, stint: Stint, reason: str | None, *, counted: bool, delay_s: float | None = None) -> None:
        """Have an instance given back; what its turn still does is ignored. The lock is held."""
        stint.is_gone = stint.is_sending = True
        self._post(Errand("abandon", abandon(stint, reason, counted=counted, delay_s=delay_s), stint, is_last=True))

    def _post(self, errand: Errand) -> None:
        """Have it sent soon, with what others have by then: whoever comes last may take longer. The lock is held."""
        self._outbox.append(errand)
        if len(self._outbox) == 1:
            self._alarm(self.now() + LINGER_S)

    def _give_back(self, stint: Stint, reason: str | None, *, counted: bool, delay_s: float | None = None) -> None:
        with self._lock:
            if stint.token not in self._stints:
                return
            self._send_back(stint, reason, counted=counted, delay_s=delay_s)
        self._drop(stint)

    def _lose(self, stint: Stint, problem: str) -> None:
        """Take it from the authority that the turn is another's: throw it away."""
        self.lost += 1
        log.warning("turn.lost", extra={"instance": stint.instance, "problem": problem})
        with self._lock:
            self._end(stint)
        self._drop(stint)

    def _drop(self, stint: Stint) -> None:
        """Stop its steps, and let its code go, in the thread that is inside, or in another: it may be kept there."""
        resident = self._residents.take(stint.instance)
        with self._lock:
            stint.is_gone = stint.is_dropped = True
            steps = list(stint.steps.values())
            stint.steps.clear()
            if not stint.is_taken:
                self._crew.put(lambda: _let_go(stint))
        for step in steps:
            step.stop()
        if resident is not None and (stint.turn is None or resident is not stint.turn.execution):
            self._crew.put(resident.close)

    # --- in a thread of the crew --------------------------------------------------------------------------------------

    def _advance(self, stint: Stint) -> None:
        """Go on with a stint until it waits: for a commit, for a step elsewhere, for messages."""
        is_dropped = False
        began = self.now()
        while True:
            with self._lock:
                inputs = list(stint.inbox)
                stint.inbox.clear()
                if stint.is_gone or not inputs:
                    stint.is_taken = False
                    self._expect(stint, coming=False)
                    is_dropped = stint.is_dropped
                    break
                self._expect(stint, coming=True)
                stint.is_begun = True
                stint.idle_at = NEVER
            step = self._play(stint, inputs)
            if step is not None and not self._run_inline(stint, step):
                break
        if is_dropped:
            _let_go(stint)
        self._mean_s += (self.now() - began - self._mean_s) / 8

    def _run_inline(self, stint: Stint, step: StepRun) -> bool:
        """Run a step in this thread; tell whether this thread goes on with the stint, and nobody else does."""
        with self._lock:
            stint.is_taken, stint.inline = False, threading.get_ident()
            self._expect(stint, coming=False)
            if stint.inbox:
                self._take(stint)
        step.run_here()
        with self._lock:
            stint.inline = 0
            goes_on = bool(stint.inbox) and not stint.is_taken
            stint.is_taken = stint.is_taken or goes_on
            return goes_on

    def _play(self, stint: Stint, inputs: Sequence[Input]) -> StepRun | None:
        """Advance the turn; have done what it wants, but for a step that this thread can run itself."""
        playing = self._playing
        try:
            first = inputs[0]
            if isinstance(first, Opened):
                # Not within the code, in which an exception may strike at any instruction: the store is spoken to.
                ready = first.open()
                refused = playing.refused(stint, ready)
                if refused is not None:
                    return self._carry_out(stint, refused)
                inputs = [ready, *inputs[1:]]
            news = len(inputs) > 1 or not isinstance(first, Committed)
            now = self.now()
            if news and not stint.code.run(lambda: playing.deliver(stint, inputs), now):
                return None
            wanted = playing.wanted(stint, now)
        except StoreBusy as problem:
            # What it begins with could not be read: no fault of the turn, which did not begin.
            log.warning("turn.unread", extra={"instance": stint.instance, "problem": problem.message})
            self._give_back(stint, None, counted=False, delay_s=BROKEN_S)
            return None
        except UsageError as problem:
            self._cannot_keep(stint, problem.message)
            return None
        except BaseException as problem:  # noqa: BLE001 - no reason to lose the instance:
            # a fault of ours, of the store, or of code that breaks what runs it.
            tell(log, "turn.broken", problem, {"instance": stint.instance})
            self._give_back(stint, f"the turn broke: {text_of(problem)}", counted=True, delay_s=BROKEN_S)
            return None
        return self._carry_out(stint, wanted)

    def _carry_out(self, stint: Stint, wanted: Outcome) -> StepRun | None:
        if wanted.stopped:
            with self._lock:
                stopped = [stint.steps.pop(number, None) for number in wanted.stopped]
            for step in stopped:
                if step is not None:
                    step.stop()
        if wanted.resident is not None:
            wanted.resident.history_id = stint.locked.history_id
            self._residents.keep(wanted.resident)  # nobody can fetch it before the lock is let go
        with self._lock:
            if stint.is_gone:
                return None
            if stint.unreadable:
                self._post(Errand("park", ParkMessages(token=stint.token, messages=stint.unreadable), stint))
                stint.unreadable = ()
            if wanted.ack is not None:
                self._post(Errand("ack", wanted.ack, stint, wanted.is_last, wanted.extends))
            elif wanted.abandon is not None:
                stint.is_sending = True
                self._post(Errand("abandon", wanted.abandon, stint, wanted.is_last))
            is_sending = wanted.ack is not None or wanted.abandon is not None
            if is_sending:
                self._expect(stint, coming=False)
        if is_sending:
            if wanted.is_last and wanted.resident is None:
                _let_go(stint)
            return None
        return self._begin_steps(stint, wanted.steps)

    def _begin_steps(self, stint: Stint, calls: Sequence[StepCall]) -> StepRun | None:
        def ended(number: int, outcome: StepOutcome) -> None:
            with self._lock:
                stint.steps.pop(number, None)
                self._put(stint, StepEnded(number, outcome))

        runs = [StepRun(call, self, ended) for call in calls]
        mine: StepRun | None = None
        with self._lock:
            if stint.is_gone:
                return None
            stint.steps.update((run.call.step_no, run) for run in runs)
        if stint.steps and stint.turn is not None and stint.turn.has_news and not stint.is_sending:
            stint.idle_at = self.now() + IDLE_S
            self._alarm(stint.idle_at)
        for run in runs:
            if run.is_async:
                run.start_async()
            elif mine is None:
                mine = run
            else:
                self._crew.put(run.run_here)
        return mine

    def _open(self, locked: LockedTurn) -> Ready:
        """Read what a turn begins with: nothing of its history, if it is in memory here."""
        blobs = self._engine.store.blobs
        items, unreadable = readable(blobs, locked.messages)
        resident = self._residents.take(locked.instance_id)
        rows: Sequence[HistoryRow] = ()
        # What was delivered in vain before is begun from its history: it may have to be ended by that.
        if resident is not None and (locked.attempts > 1 or not self._is_same(resident, locked)):
            resident.close()
            resident = None
        if resident is None and locked.history_id is not None:
            with self._engine.read() as view:
                rows = view.history(locked.history_id)
        return Ready(orchestration_item(blobs, locked, items, rows), resident, unreadable)

    def _is_same(self, resident: Execution, locked: LockedTurn) -> bool:
        """Tell whether an execution in memory stands where the store's history of it ends.

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

    # --- the stage of steps -------------------------------------------------------------------------------------------

    def now(self) -> float:
        """Give the monotonic time."""
        return self._engine.time.clock.monotonic()

    def later(self, at: float, work: Callable[[], None]) -> None:
        """Call `work` at a time, from the pump's thread."""
        with self._lock:
            heapq.heappush(self._timers, (at, next(self._numbers), work))
        self._alarm(at)

    def hand_in(self, work: Callable[[], None]) -> None:
        """Have work done by a thread."""
        self._crew.put(work)

    def write_off(self, ident: int) -> None:
        """Count a thread no longer."""
        self._crew.write_off(ident)

    def _alarm(self, at: float) -> None:
        if at < self._awake_by:
            self._poke()

    def _now_ms(self) -> int:
        return int(self._engine.time.clock.now().timestamp() * 1000)


#: Kinds of errands that are made when they are asked for, and do not wait in the outbox.
_UNQUEUED = {"renew", "more", "fetch"}


def _let_go(stint: Stint) -> None:
    """Close the code of a turn."""
    try:
        if stint.execution is not None:
            stint.execution.close(clean_up=False)
    except Exception as problem:  # noqa: BLE001 - the user's code, which is let go whatever it does
        tell(log, "turn.not_closed", problem, {"instance": stint.instance})
