"""The engine: the one writer path, and group commit.

Callers of any thread hand in commands. One of them becomes the leader: it takes all that wait, opens one batch of the
store, decides each command against the state the ones before it left, commits once, and gives everyone their outcome.
Whoever arrives meanwhile forms the next batch. An outcome leaves only after the commit is durable.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import cache, partial
from itertools import repeat
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.clock import Clock, SystemClock
from holdfast.engine.admission import admitted
from holdfast.engine.commit_stats import Committed
from holdfast.engine.guarded_clock import Reading, Timekeeper
from holdfast.engine.hold_timer import HoldWatch
from holdfast.engine.lease_timer import LeaseWatch
from holdfast.engine.remote_admission import decided_elsewhere
from holdfast.engine.turn_lock_timer import TurnWatch
from holdfast.errors import CorruptState, InvalidOperation, JobNotFound, StoreClosed, StoreError, UsageError
from holdfast.failpoints import reach
from holdfast.model.access import Access
from holdfast.model.commands import ClockJump, Command, Enqueue, Expire, Extend, Lease, StartDirect
from holdfast.model.events import Event
from holdfast.model.ids import JobId, Token, uuid7
from holdfast.model.jobs import Job, Run
from holdfast.model.outcomes import Done, Extended, Outcome, Refusal, refuse
from holdfast.model.times import milliseconds
from holdfast.model.workflows.commands import FetchActivity, FetchMore, FetchTurn, RenewTurn
from holdfast.rules.access.command_scope import out_of_reach
from holdfast.rules.clock_jump import carried_over
from holdfast.rules.decide import decide
from holdfast.rules.jobs.leases import IN_THE_WAY
from holdfast.rules.random_source import Draws
from holdfast.rules.state import Lane
from holdfast.stores.protocol import Batch, Elsewhere, Joinable, Store, View
from holdfast.stores.sidecar.protocol import RunLogs

#: Commands one batch takes before others must wait for the next; bounds how long the first of them waits.
BATCH = 1000
#: Delayed jobs made ready by one Lease.
PROMOTED = 500

#: What must be out of the way of those who ask for work: the lane of what may have lapsed, and of what waited.
_CLEARED: dict[type, tuple[Lane | None, Lane]] = {
    Lease: (Lane.LEASE, Lane.DELAYED),
    StartDirect: (Lane.LEASE, Lane.DELAYED),
    FetchActivity: (Lane.LEASE, Lane.DELAYED),
    FetchTurn: (Lane.TURN, Lane.MAIL),
    FetchMore: (None, Lane.MAIL),
}


class _Waiter:
    """Commands of one caller, and the outcomes or the error they ended in."""

    __slots__ = ("accesses", "commands", "error", "outcomes", "wake")

    def __init__(self, commands: Sequence[Command | Refusal], accesses: Iterable[Access | None] = repeat(None)) -> None:
        self.commands = commands
        #: By whose rights each of them is judged.
        self.accesses = accesses
        self.outcomes: list[Outcome] | None = None
        self.error: Exception | None = None
        #: Set when the outcomes are there, or when it is this caller's turn to lead.
        self.wake = threading.Event()

    @property
    def is_settled(self) -> bool:
        return self.outcomes is not None or self.error is not None


class _Breakage(Exception):
    """Deciding raised what no rule raises; nothing was added."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class _Turn(NamedTuple):
    """What the commands of one batch share: the state, one look at the clock, one source of chance."""

    batch: Batch
    reading: Reading
    draws: Draws
    #: Every event of the batch so far.
    added: list[Event]
    #: Leases whose holder asked in time, although there was nothing to write, and the seconds they have left.
    alive: list[tuple[JobId, Token, float]]
    #: The same of locks of instances.
    held: list[tuple[Token, float]]


class Engine:
    """The authority over one store, for this process."""

    def __init__(self, store: Store, *, clock: Clock | None = None) -> None:
        """Take charge of `store`; call `recover` before dispatching from it."""
        self.store = store
        #: The process that may use it. A forked child has no thread that would open the locks it inherited.
        self._pid = os.getpid()
        #: Who decides instead, if it is another process.
        self._elsewhere = store if isinstance(store, Elsewhere) else None
        self.time = Timekeeper(self._elsewhere.clock if self._elsewhere is not None else clock or SystemClock())
        self.watch = LeaseWatch()
        self.turn_watch = TurnWatch()
        self.hold_watch = HoldWatch()
        #: The last time the wall clock jumped forward.
        self.jump: ClockJump | None = None
        #: Jumps over which the holds of this opening have not been carried yet.
        self._jumps: deque[ClockJump] = deque()
        #: Expiries that the clock, set back, has moved out of reach must be looked for: after a step, and first of all.
        self.stepped_back = True
        #: The clock was set back before this opening, while others had the store.
        self.was_set_back = False
        #: This opening of the store; local workers put it into their leases. None where another process decides: it
        #: could not tell whether this one lives, and goes by leases alone.
        self.session_id = self.new_id() if self.is_authority else None
        if self.session_id is not None:
            store.sessions.hold(self.session_id)
        #: Hears of each commit once it is durable, if anybody counts them: one thread at a time. It raises nothing.
        self.told: Callable[[Committed], None] | None = None
        #: When old content is looked for again, by the monotonic clock.
        self.next_sweep = 0.0
        self._lock = threading.Lock()
        self._waiting: deque[_Waiter] = deque()
        #: Whose turn it is to commit; set exactly while somebody waits or is being served.
        self._leader: _Waiter | None = None
        #: Those the leader is serving.
        self._taken: list[_Waiter] = []
        #: The contradiction at which this authority stopped.
        self._stopped: CorruptState | None = None
        self._closed = False

    @property
    def is_authority(self) -> bool:
        """Whether commands are decided here, and time's own ones are sent from here; otherwise by a coordinator."""
        return self._elsewhere is None

    # --- commands ---------------------------------------------------------------------------------------------------

    def submit(self, command: Command) -> Outcome:
        """Decide one command; return when its outcome is durable. A refusal is an outcome, not an exception."""
        return self.submit_many((command,))[0]

    def submit_many(self, commands: Sequence[Command], *, attempt_s: float | None = None) -> list[Outcome]:
        """Decide several commands in order, each atomic alone, with one commit together.

        Another process that decides is asked until it answers; with `attempt_s` once, for so many seconds. Raises
        StoreError if the store failed: then the outcome is unknown, and sending the same commands again, after
        reopening if it is here, settles it.
        """
        if self._elsewhere is not None:
            self._demand_own()
            self._demand_ready()
            return decided_elsewhere(self._elsewhere, commands, self.store.blobs, attempt_s)
        return self._served(_Waiter(self._admitted(commands)))

    def submit_judged(self, commands: Sequence[Command], accesses: Sequence[Access | None]) -> list[Outcome]:
        """Decide commands of others as `submit_many` does, each as far as who sent it reaches; None: that is anywhere.

        Judged at its turn: what it names may have come to be in the same batch.
        """
        return self._served(_Waiter(self._admitted(commands), accesses))

    def _admitted(self, commands: Sequence[Command]) -> list[Command | Refusal]:
        workers = cache(self.store.workers.all)  # read once for all signals among them, if there are any
        return [admitted(command, self.store.blobs, workers) for command in commands]

    def _served(self, waiter: _Waiter) -> list[Outcome]:
        """Wait until a caller has its outcomes."""
        try:
            self._join(waiter)
            if self._leader is not waiter:
                waiter.wake.wait()
            if not waiter.is_settled:
                self._lead()
        except BaseException:
            # Interrupted, at whatever point: only this caller gives up, and nobody waits for it.
            self._leave(waiter)
            raise
        if waiter.error is not None:
            raise waiter.error
        assert waiter.outcomes is not None
        return waiter.outcomes

    def ask(self, command: Command) -> Outcome:
        """Decide one command as `submit` does, and raise its refusal."""
        outcome = self.submit(command)
        if isinstance(outcome, Refusal):
            raise outcome.error()
        return outcome

    def ask_within(self, connection: object, command: Enqueue) -> Outcome:
        """Decide a command inside a transaction of the caller, who commits it; raise its refusal.

        Nobody waits in line for it, and nothing is durable before that commit.
        """
        self._demand_own()
        self._demand_ready()
        store = self.store
        if not isinstance(store, Joinable):
            raise InvalidOperation(
                f"connection: the store {store.promises.name}: has no transactions of its users. Nothing was stored.",
                hint="Use sqlite:, or enqueue after your own commit.",
                field="connection",
            )
        with store.join(connection) as batch:
            outcome = self._decide(self._turn(batch), admitted(command, store.blobs_within(connection)))
        if isinstance(outcome, Refusal):
            raise outcome.error()
        return outcome

    # --- the line of those who wait ---------------------------------------------------------------------------------

    def _join(self, waiter: _Waiter) -> None:
        """Stand in the line; lead if nobody does."""
        self._demand_own()  # before the lock, which nobody would open in a forked child
        with self._lock:
            self._demand_ready()
            self._waiting.append(waiter)
            if self._leader is None:
                self._leader = waiter

    def _lead(self) -> None:
        """Commit everything that waits, then hand over to the next in line."""
        with self._lock:
            taken = self._take()
        self._settle(taken)
        with self._lock:
            self._hand_over()

    def _take(self) -> list[_Waiter]:
        """Take waiters from the front: the leader is always the first of them."""
        taken: list[_Waiter] = []
        size = 0
        for waiter in self._waiting:
            size += len(waiter.commands)
            if taken and size > BATCH:
                break
            taken.append(waiter)
        self._taken = taken
        for _ in taken:
            self._waiting.popleft()
        return taken

    def _hand_over(self) -> None:
        """Wake those who were served, and make the next in line lead. Whoever was not served goes back to the front."""
        missed = [waiter for waiter in self._taken if not waiter.is_settled and waiter not in self._waiting]
        self._waiting.extendleft(reversed(missed))
        for waiter in self._taken:
            if waiter.is_settled:
                waiter.wake.set()
        self._taken = []
        self._leader = self._waiting[0] if self._waiting else None
        if self._leader is not None:
            self._leader.wake.set()

    def _leave(self, waiter: _Waiter) -> None:
        """Forget a caller that gave up. Those taken with it are decided by the next leader, as if it had not begun."""
        with self._lock:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            self._taken = [other for other in self._taken if other is not waiter]
            if self._leader is waiter:
                self._hand_over()
            elif self._leader is not None:
                # It may have been interrupted between naming the next leader and waking it.
                self._leader.wake.set()

    # --- deciding ---------------------------------------------------------------------------------------------------

    def _settle(self, taken: Sequence[_Waiter]) -> None:
        """Give each of these their outcomes, or the error they ended in."""
        try:
            self._commit(taken)
        except _Breakage as breakage:
            if len(taken) == 1:
                taken[0].error = breakage.cause
                return
            # One of them broke the code itself, and nothing was written. Each alone, so that no other pays for it.
            for waiter in taken:
                self._settle([waiter])
        except Exception as error:  # noqa: BLE001 - everyone in the batch must hear of it, whatever it is
            if isinstance(error, CorruptState):
                self._stopped = error
            for waiter in taken:
                waiter.outcomes, waiter.error = None, error

    def _commit(self, taken: Sequence[_Waiter]) -> None:
        """Decide all commands of the waiters in one batch of the store."""
        with self.store.write() as batch:
            turn = self._turn(batch)
            jumps = self._carry_over(turn)
            try:
                outcomes = [
                    [self._decide(turn, *asked) for asked in zip(waiter.commands, waiter.accesses, strict=False)]
                    for waiter in taken
                ]
            except StoreError:
                raise
            except Exception as problem:
                raise _Breakage(problem) from problem
            reach("engine.decided")
        # Durable: from here on an interruption takes nobody's outcome away.
        for waiter, found in zip(taken, outcomes, strict=True):
            waiter.outcomes = found
        for _ in range(jumps):
            self._jumps.popleft()
        reach("engine.committed")
        self._note(turn)
        for job_id, token, seconds in turn.alive:
            self.watch.renew(job_id, token, turn.reading.monotonic + seconds)
        for token, seconds in turn.held:
            self.turn_watch.renew(token, turn.reading.monotonic + seconds)
        if self.told is not None:
            commands = [command for waiter in taken for command in waiter.commands]
            answers = [outcome for found in outcomes for outcome in found]
            took_s = self.time.clock.monotonic() - turn.reading.monotonic
            self.told(Committed(commands, answers, turn.added, turn.reading.now, turn.reading.monotonic, took_s))

    def _turn(self, batch: Batch) -> _Turn:
        reading = self.look()
        return _Turn(batch, reading, Draws(reading.now, _seed()), [], [], [])

    def _note(self, turn: _Turn) -> None:
        """Let the watches learn from what was committed; most commits have nothing for most of them."""
        kinds = set(map(type, turn.added))
        for watch in (self.watch, self.turn_watch, self.hold_watch):
            if not kinds.isdisjoint(watch.watched):
                watch.note(turn.added, turn.reading.now, turn.reading.monotonic)

    def _carry_over(self, turn: _Turn) -> int:
        """Let the holds of this opening outlive jumps of the clock, before anything is decided; count the jumps.

        Their handlers live in this process, and by its monotonic clock they have time left.
        """
        jumps = list(self._jumps)
        for jump in jumps:
            events = tuple(carried_over(turn.batch, self.session_id or "", jump))
            if events:
                turn.batch.add(events, turn.reading.now)
                turn.added.extend(events)
        return len(jumps)

    def _decide(self, turn: _Turn, command: Command | Refusal, access: Access | None = None) -> Outcome:
        if isinstance(command, Refusal):
            return command
        lanes = _CLEARED.get(type(command))
        if lanes is not None:
            self._clear_the_way(turn, *lanes)
        now = turn.reading.now
        if access is not None:
            judge = partial(decide, command=command, now=now, draws=turn.draws, jump=self.jump)
            refusal = out_of_reach(access, command, turn.batch, judge)
            if refusal is not None:
                return refusal
        decision = decide(turn.batch, command, now, turn.draws, self.jump)
        if not decision.events:
            if isinstance(command, Extend) and isinstance(decision.outcome, Extended):
                turn.alive.append((command.job_id, command.token, decision.outcome.lease_s))
            elif isinstance(command, RenewTurn) and isinstance(decision.outcome, Done):
                turn.held.append((command.token, command.lock_s))
            return decision.outcome
        try:
            turn.batch.add(decision.events, now)
        except UsageError as problem:
            return refuse(type(problem), problem.message, hint=problem.hint, **problem.facts)
        turn.added.extend(decision.events)
        return decision.outcome

    def _clear_the_way(self, turn: _Turn, lapsing: Lane | None, waiting: Lane) -> None:
        """End what lapsed and make ready what waited, so that what may be granted is found."""
        now = turn.reading.now
        lapsed = None if lapsing is None else turn.batch.next_due(lapsing)
        if lapsed is not None and lapsed <= now:
            self._decide(turn, Expire(limit=IN_THE_WAY, jump=self.jump))
        delayed = turn.batch.next_due(waiting)
        if delayed is not None and delayed <= now:
            turn.batch.promote(now, PROMOTED)

    # --- reading ----------------------------------------------------------------------------------------------------

    def read(self, *, attempt_s: float | None = None) -> AbstractContextManager[View]:
        """Open a view of what is durable, consistent if it is here.

        With `attempt_s` another process that decides is asked once for each look-up, for so many seconds.
        """
        self._demand_own()
        return self.store.read() if self._elsewhere is None else self._elsewhere.read(attempt_s=attempt_s)

    def would_change(self, command: Command) -> bool:
        """Tell whether a command would write anything now. A look only: it waits for nobody who writes."""
        reading = self.look()
        with self.read() as view:
            return bool(decide(view, command, reading.now, Draws(reading.now, _seed()), self.jump).events)

    def job(self, job_id: JobId) -> Job:
        """Give a job. Raises JobNotFound."""
        with self.read() as view:
            job = view.get(Job, job_id)
        if job is None:
            raise JobNotFound(f"there is no job {job_id}.", job_id=job_id)
        return job

    def runs(self, job_id: JobId) -> Sequence[Run]:
        """Give a job's runs, oldest first, each with the file that holds its lines, where one does."""
        with self.read() as view:
            return tuple(located(run, self.store.logs) for run in view.runs(job_id))

    # --- life -------------------------------------------------------------------------------------------------------

    def look(self) -> Reading:
        """Look at the clock by which this engine decides, and remember its steps."""
        self._demand_own()
        reading = self.time.read()
        if reading.jumped_from is not None:
            self.jump = ClockJump(reading.jumped_from, reading.now)
            if self.is_authority:
                self._jumps.append(self.jump)
        if reading.stepped_back:
            self.stepped_back = True
            # What lapses from here on at times the jump had passed over lapses on its own account.
            self.jump = None
        return reading

    @property
    def is_set_back(self) -> bool:
        """Whether the wall clock was set back, so that only the monotonic clock can tell when some holds end."""
        return self.was_set_back or self.time.steps["back"] > 0

    def next_overdue(self) -> float | None:
        """Return when the first hold is over by the monotonic clock alone; None while the wall clock can tell."""
        if not self.is_set_back:
            return None
        watches = (self.watch, self.turn_watch, self.hold_watch)
        return min((at for watch in watches if (at := watch.next_deadline()) is not None), default=None)

    def new_id(self) -> str:
        """Make a new time-ordered id."""
        return uuid7(milliseconds(self.look().now), _seed(), _seed())

    def close(self) -> None:
        """Take no more commands and close the store. In a forked child nothing happens: it is the parent's."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._closed = True
        self.store.close()

    def _demand_ready(self) -> None:
        """Refuse any command after the end."""
        if self._closed:
            raise StoreClosed("the engine was closed; the command was not sent.")
        if self._stopped is not None:
            message = f"the engine stopped at a contradiction and takes no command: {self._stopped.message}"
            raise CorruptState(message, hint=self._stopped.hint)

    def _demand_own(self) -> None:
        """Refuse a forked child."""
        if os.getpid() != self._pid:
            raise StoreClosed(
                "the engine was made before the process forked and belongs to the parent. Nothing was done.",
                hint="Open the store again in the child.",
            )


def located(run: Run, logs: RunLogs) -> Run:
    """Fill in which file holds the lines of a run, where one does.

    It is looked up and not stored: the file goes with retention, and the store may be moved.
    """
    path = logs.path(run.run_id)
    return run if path is None else replace(run, log_path=path)


def _seed() -> int:
    return int.from_bytes(os.urandom(8))
