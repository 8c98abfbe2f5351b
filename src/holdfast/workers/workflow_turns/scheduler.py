"""The turns of one worker: carries inputs to the machine of turns, and its outputs to threads and to the main loop.

The main loop asks for commands, sends them with everything else in one commit, and brings the answers. Threads play
turns and run steps. All decisions are the machine's, under one lock; none is taken here.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, ParamSpec, TypeVar

from holdfast.engine.engine import Engine
from holdfast.failpoints import reach
from holdfast.model.outcomes import Fetched
from holdfast.model.outcomes import Outcome as Reply
from holdfast.model.times import Timestamp, seconds_between
from holdfast.rules.state import Lane
from holdfast.stores.protocol import View
from holdfast.workers.workflow_turns import NEVER, Errand
from holdfast.workers.workflow_turns.machine import BROKEN_S, ActiveTurn, Effect, Phase, TurnMachine
from holdfast.workers.workflow_turns.player import Player, Work
from holdfast.workers.workflow_turns.steps import StepOutcome, StepRun
from holdfast.workers.workflow_turns.threads import ThreadPool
from holdfast.workflows.api.definitions import Definitions
from holdfast.workflows.runtime.execution_cache import Residents

log = logging.getLogger("holdfast.worker")

#: Turns played at once, by default.
TURNS = 8
_PLAYING = Phase.PLAYING
P = ParamSpec("P")
R = TypeVar("R")


class TurnScheduler:
    """The turns of one worker. Called by the thread of the main loop, but for `drain` and what steps ask for."""

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
        """Run turns of what is defined; `poke` wakes the main loop, `spawn` runs a coroutine on the worker's loop."""
        self.spawn = spawn
        #: The monotonic time.
        self.now = engine.time.clock.monotonic
        self._engine = engine
        self._poke = poke
        self._lock = threading.Lock()
        names = [name for one in definitions.all() for name in (one.name, f"{one.name} {one.version}")]
        self._machine = TurnMachine(turns, tuple(dict.fromkeys(names)), engine.session_id)
        self._pool = ThreadPool(turns)
        self._residents = Residents(residents)
        self._marks = engine.store.sessions.marks(engine.session_id)
        self._player = Player(engine, definitions, self._residents, self._may_commit)
        #: What steps want done at a time: when, a number to tell equal ones apart, what.
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        #: The main loop wakes by then of itself.
        self._awake_by = 0.0
        #: In a thread: the turn whose step it runs, which it takes on by itself.
        self._here = threading.local()

    # --- the main loop ------------------------------------------------------------------------------------------------

    def errands(self, now: float, jobs: int = 0) -> Sequence[Errand]:
        """Return what is to be sent now; asked again, what is not answered is returned again."""
        with self._lock:
            return self._machine.commands(now, jobs)

    def answered(self, errands: Sequence[Errand], replies: Sequence[Reply], now: float) -> None:
        """Take the answers to commands, in their order."""
        at = self._engine.look().now
        self._mark(replies)
        self._tell(self._machine.answered, errands, replies, at, now)
        reach("turns.answered")

    def _mark(self, replies: Sequence[Reply]) -> None:
        """Mark several turns that were fetched at once as not begun: a death of this process is not charged to them."""
        reply = replies[-1] if replies else None  # a fetch is the last of the commands
        if isinstance(reply, Fetched) and reply.turn is not None and reply.others:
            tokens = [locked.token for locked in (reply.turn, *reply.others)]
            self._marks.receive(None, max(tokens), tokens)

    def makes_way(self, now: float) -> bool:
        """Whether nothing may be begun beside the turns: one must run alone, or waits for that."""
        with self._lock:
            return self._machine.makes_way(now)

    def look(self, view: View, at: Timestamp, now: float) -> None:
        """See whether something came in for instances, here or anywhere."""
        first = view.next_due(Lane.MAIL)
        with self._lock:
            machine = self._machine
            machine.policy.looked(view.seq, NEVER if first is None else seconds_between(at, first), now)
            watched = machine.watched()
        awaited = [turn for turn in watched if _has_mail(view, turn, at)]
        with self._lock:
            machine.mail(awaited)
        if machine.room():
            machine.policy.hope_again(lambda: any(True for _ in view.candidates(at)))

    def enforce(self, now: float) -> None:
        """Do what time asks for."""
        due: list[Callable[[], None]] = []
        with self._lock:
            while self._timers and self._timers[0][0] <= now:
                due.append(heapq.heappop(self._timers)[2])
            late = [
                turn for turn in self._machine.turns.values() if turn.phase is _PLAYING and _times_out_at(turn) <= now
            ]
        for work in due:
            work()
        for turn in late:
            self._break_off(turn, now)
        self._tell(self._machine.tick, now)

    def due_at(self) -> float:
        """Return when `enforce` or `errands` has something to do. The main loop is woken if that becomes earlier."""
        with self._lock:
            timer = self._timers[0][0] if self._timers else NEVER
            playing = (turn for turn in self._machine.turns.values() if turn.phase is _PLAYING)
            late = min(map(_times_out_at, playing), default=NEVER)
            self._awake_by = min(self._machine.due_at(self.now()), timer, late)
            return self._awake_by

    @property
    def wants_look(self) -> bool:
        """Whether more turns could be run than there are."""
        return self._machine.room() > 0

    @property
    def has_hope(self) -> bool:
        """Whether a fetch is worth a try, and there is room."""
        return self._machine.policy.hope and self._machine.room() > 0

    @property
    def is_quiet(self) -> bool:
        """Whether no turn is active, and nothing is to be sent."""
        return self._machine.is_quiet

    @property
    def committed(self) -> int:
        """Turns whose last commit is durable."""
        return self._machine.committed

    @property
    def abandoned(self) -> int:
        """Turns that were given back."""
        return self._machine.abandoned

    @property
    def lost(self) -> int:
        """Turns that were lost to others."""
        return self._machine.lost

    def drain(self) -> None:
        """Fetch no more; give back what has not begun. By any thread."""
        self._player.is_draining = True
        self._tell(self._machine.drain, self.now())

    def stop(self) -> None:
        """Give everything back, uncounted, without waiting for any step."""
        self._tell(self._machine.stop, self.now())

    def close(self) -> None:
        """Let go of all threads and of the executions in memory."""
        self._tell(self._machine.close)
        self._clean_up(self._residents.clear)
        self._pool.close()

    # --- inputs and effects -------------------------------------------------------------------------------------------

    def _tell(self, happened: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Give the machine an input, and carry out what it wants done."""
        with self._lock:
            answer = happened(*args, **kwargs)
            effects, ring_at = self._machine.take_outputs()
        self._carry_out_all(effects, ring_at)
        return answer

    def _carry_out_all(self, effects: Sequence[Effect], ring_at: float) -> None:
        for effect in effects:
            self._carry_out(effect)
        if ring_at < self._awake_by:
            self._poke()

    def _carry_out(self, effect: Effect) -> None:
        turn = effect.turn
        if effect.event:
            level = logging.ERROR if effect.event == "turn.refused" else logging.WARNING
            log.log(level, effect.event, extra={"instance": turn.instance, "problem": effect.problem})
        if effect.kind == "drop":
            self._drop(turn)
        elif getattr(self._here, "turn", None) is turn:
            self._here.goes_on = True
        else:
            self._start(turn)

    def _start(self, turn: ActiveTurn) -> None:
        """Have a thread of the pool play a turn."""
        try:
            self._pool.put(partial(self._advance, turn))
        except RuntimeError as problem:  # the system has no thread left; it may have one when it is tried again
            reason = f"the turn could not be started: {problem}"
            self._tell(self._machine.give_back, turn, reason, self.now(), counted=False, delay_s=BROKEN_S)

    def _drop(self, turn: ActiveTurn) -> None:
        """Stop the steps of a turn, and close its code, in the thread that plays it or in another."""
        if not turn.has_begun:
            self._marks.clear(turn.token)
        resident = self._residents.take(turn.instance)
        with self._lock:
            work: Work = turn.work or Work()
            work.is_dropped = True
            steps = list(work.steps.values())
            work.steps.clear()
            closes = self._closes(turn, work)
        if closes:
            self._clean_up(partial(work.close, turn.instance))
        for step in steps:
            step.stop()
        if resident is not None and resident is not work.execution:
            self._clean_up(resident.close)

    def _clean_up(self, close: Callable[[], None]) -> None:
        """Have code closed by a thread of the pool."""
        with suppress(RuntimeError):  # no thread at all: then what is in memory ends with the process
            self._pool.put(close)

    def _closes(self, turn: ActiveTurn, work: Work) -> bool:
        """Return, once, whether the code of a turn is to be closed by the caller. The lock is held."""
        is_unwanted = work.is_dropped or (turn.is_over and work.resident is None)
        if not is_unwanted or work.is_closed or turn.phase is _PLAYING:
            return False
        work.is_closed = True
        return True

    def _break_off(self, turn: ActiveTurn, now: float) -> None:
        """Take a turn that does not give its thread back for dead: it counts."""
        work: Work = turn.work
        execution = work.execution
        ident, stack = work.code.break_off(None if execution is None else execution.thread_id)
        log.error("turn.overran", extra={"instance": turn.instance, "stack": stack})
        self._pool.write_off(ident)
        seconds = 0.0 if work.definition is None else work.definition.turn_timeout_s
        reason = f"a turn took longer than {seconds:g} s without a running step"
        self._tell(self._machine.give_back, turn, reason, now, counted=True, delay_s=BROKEN_S)

    # --- in a thread of the pool --------------------------------------------------------------------------------------

    def _advance(self, turn: ActiveTurn) -> None:
        """Play a turn until it waits; a sync step it begins is run here, and the turn taken on if nobody else does."""
        began = self.now()
        goes_on = True
        while goes_on:
            step = self._play(turn)
            if step is None:
                break
            self._here.turn, self._here.goes_on = turn, False
            step.run_here()
            goes_on, self._here.turn = self._here.goes_on, None
        self._machine.policy.took(self.now() - began)

    def _play(self, turn: ActiveTurn) -> StepRun | None:
        """Play a turn until it waits, and start its steps; return one that this thread is to run."""
        if turn.work is None:
            turn.work = Work()
        work: Work = turn.work
        machine = self._machine
        goes_on, mine = True, None
        while goes_on and mine is None:
            now, has_begun = self.now(), turn.has_begun
            with self._lock:
                inputs = machine.take(turn, now)
            if inputs is None:
                break
            if not has_begun:
                self._marks.clear(turn.token)
            report = self._player.play(turn, inputs, now)
            calls, work.calls = work.calls, ()
            runs = [StepRun(call, self, partial(self._step_ended, turn)) for call in calls] if calls else ()
            if work.resident is not None and report.is_last:
                self._player.keep(work.resident, turn.locked)
            with self._lock:
                stopped = [work.steps.pop(number, None) for number in report.stopped] if report.stopped else ()
                if turn.is_over:
                    runs = ()
                for run in runs:
                    work.steps[run.call.step_no] = run  # from now on it ends with the turn
                goes_on = machine.played(turn, report, now)
                effects, ring_at = machine.take_outputs()
            if effects or ring_at < self._awake_by:
                self._carry_out_all(effects, ring_at)
            for step in stopped:
                if step is not None:
                    step.stop()
            mine = self._started(runs) if runs else None
        if goes_on and mine is not None:
            self._start(turn)  # something came in, and this thread runs a step
        if turn.is_over or work.is_dropped:
            self._close(turn, work)
        return mine

    def _close(self, turn: ActiveTurn, work: Work) -> None:
        with self._lock:
            closes = self._closes(turn, work)
        if closes:
            if work.resident is not None:
                self._residents.discard(work.resident)
            work.close(turn.instance)

    def _started(self, runs: Sequence[StepRun]) -> StepRun | None:
        """Start steps, and return the first sync one, which this thread is to run."""
        mine: StepRun | None = None
        for run in runs:
            if run.is_async:
                run.start_async()
            elif mine is None:
                mine = run
            else:
                self._pool.put(run.run_here)
        return mine

    def _step_ended(self, turn: ActiveTurn, number: int, outcome: StepOutcome) -> None:
        with self._lock:
            turn.work.steps.pop(number, None)
            self._machine.step_ended(turn, number, outcome)
            effects, ring_at = self._machine.take_outputs()
        self._carry_out_all(effects, ring_at)

    def _may_commit(self, turn: ActiveTurn) -> bool:
        with self._lock:
            return self._machine.may_commit(turn)

    # --- where steps run ----------------------------------------------------------------------------------------------

    def later(self, at: float, work: Callable[[], None]) -> None:
        """Call `work` at a time, from the thread of the main loop."""
        with self._lock:
            heapq.heappush(self._timers, (at, next(self._numbers), work))
        if at < self._awake_by:
            self._poke()

    def hand_in(self, work: Callable[[], None]) -> None:
        """Have work done by a thread of the pool."""
        try:
            self._pool.put(work)
        except RuntimeError:  # the system has no thread left
            self.later(self.now() + BROKEN_S, partial(self.hand_in, work))

    def write_off(self, ident: int) -> None:
        """Count a thread no longer."""
        self._pool.write_off(ident)


def _has_mail(view: View, turn: ActiveTurn, at: Timestamp) -> bool:
    return any(message.seq not in turn.held for message in view.visible(turn.instance, at))


def _times_out_at(turn: ActiveTurn) -> float:
    """Return when the code of a turn has run too long without giving its thread back."""
    work: Work | None = turn.work
    if work is None or turn.is_over or work.definition is None or not work.definition.turn_timeout_s:
        return NEVER
    since = work.code.since
    return NEVER if since is None else since + work.definition.turn_timeout_s
