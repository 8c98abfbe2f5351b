"""The turns of one worker as a state machine: who is advanced, what is sent, what is given back.

Pure and single-threaded: no thread, store, clock or user code. Inputs are method calls with the time (monotonic
seconds); outputs are `effects` (advance a turn, drop one) and `commands`. The scheduler carries both, under one lock.

    fetched → QUEUED → PLAYING ⇄ RESTING → over

A thread plays a turn: it takes the inputs (`take`), runs the code, and reports (`played`). Only one thread at a time
plays a turn. While none does, steps run or a commit is under way. Messages leave the queue only if a commit names
them, so a message that arrives at any moment is delivered by this turn or by the next one.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import Any, Literal

import msgspec

from holdfast.errors import LeaseLost, UnknownLease
from holdfast.model.ids import Token
from holdfast.model.outcomes import Brought, Delivered, Fetched, LockedTurn, Refusal
from holdfast.model.outcomes import Outcome as Reply
from holdfast.model.times import Timestamp, seconds_between
from holdfast.model.workflows.commands import (
    AbandonTurn,
    AckTurn,
    AnnounceHandlers,
    FetchMore,
    FetchTurn,
    ParkMessages,
    RenewTurn,
)
from holdfast.rules.jobs.suspects import is_on_trial, must_run_alone
from holdfast.workers.lone_work import ASK_AGAIN_S, PAUSE_S
from holdfast.workers.workflow_turns import NEVER, Errand

#: Seconds a lock lives without being renewed, and between two renewals.
LOCK_S, RENEW_S = 30.0, 10.0
#: Seconds after which what a turn has decided is committed although a step still runs.
IDLE_S = 0.05
#: Seconds until a turn that broke is tried again.
BROKEN_S = 1.0
#: A turn that waits for a thread longer is given back, for others to run. Seconds.
PATIENCE_S = 0.5
#: Seconds that a commit waits for turns that are about to have one, too, so that one write serves them all.
LINGER_S = 0.01
#: Turns fetched for each that can be played at once: most wait for a commit, or for a thread for a moment.
AHEAD = 8
#: Seconds until the store is looked at again where it cannot be told when something comes.
LOOK_AGAIN_S = 0.1
#: Commands of one cycle.
MOST = 100
_GONE = {LeaseLost.code, UnknownLease.code}
#: Commands that are made when they are asked for, and do not wait in the outbox.
_UNQUEUED = {"renew", "more", "fetch"}


class Opened(msgspec.Struct, frozen=True, gc=False):
    """Input of a turn: it begins."""


class Came(msgspec.Struct, frozen=True, gc=False):
    """Input of a turn: more messages."""

    messages: Sequence[Delivered]


class StepEnded(msgspec.Struct, frozen=True, gc=False):
    """Input of a turn: a step has an outcome."""

    step_no: int
    outcome: Any


class Idled(msgspec.Struct, frozen=True, gc=False):
    """Input of a turn: nothing has happened for a while, and a step runs."""


Input = Opened | Came | StepEnded | Idled
_OPENED, _IDLED = Opened(), Idled()


class Phase(Enum):
    """What is done with a turn."""

    #: A thread was asked for.
    QUEUED = "queued"
    #: A thread runs its code.
    PLAYING = "playing"
    #: It waits: for a step, a commit, messages.
    RESTING = "resting"


class Played(msgspec.Struct, frozen=True, gc=False):
    """The report of the thread that has advanced a turn: what the turn wants done."""

    ack: AckTurn | None = None
    abandon: AbandonTurn | None = None
    #: The turn ends with this command.
    is_last: bool = False
    #: The lock gets a new end with this command.
    extends: bool = False
    #: Numbers of the steps to start, and of those that nobody waits for any more.
    steps: Sequence[int] = ()
    stopped: Sequence[int] = ()
    #: Messages to be set aside.
    unreadable: tuple[int, ...] = ()
    #: Something was decided that is not committed yet.
    has_news: bool = False


class ActiveTurn(msgspec.Struct, eq=False):
    """One turn in this worker, from its fetch to its last commit. Changed by the machine alone, but for `work`."""

    locked: LockedTurn
    #: Seconds that its oldest message had waited when it was fetched.
    age_s: float
    fetched_at: float
    renew_at: float
    lost_at: float
    phase: Phase = Phase.RESTING
    inbox: list[Input] = msgspec.field(default_factory=list)
    #: To be played although the inbox is empty: a commit was answered.
    is_due: bool = False
    #: It may have something to send in a moment.
    is_coming: bool = False
    has_begun: bool = False
    began_at: float = NEVER
    playing_since: float = NEVER
    #: A commit of it is being made, waits to be sent, or is under way; no other may be made.
    is_sending: bool = False
    is_fetching: bool = False
    wants_more: bool = False
    #: Over for this worker: what still comes is ignored.
    is_over: bool = False
    #: When what it has decided is committed although a step runs.
    idle_at: float = NEVER
    #: Numbers of the messages that this worker has and that no commit has handled.
    held: set[int] = msgspec.field(default_factory=set)
    #: Numbers of the steps that run.
    steps: set[int] = msgspec.field(default_factory=set)
    #: The player's: the code, and what belongs to it.
    work: Any = None

    #: The lock's, and the id of the instance.
    token: Token = Token(0)
    instance: str = ""

    def __post_init__(self) -> None:
        """Take what names the turn from its lock."""
        self.token, self.instance = self.locked.token, self.locked.instance_id


class Effect(msgspec.Struct, frozen=True):
    """Something for the scheduler to do."""

    #: `play`: have a thread advance the turn. `drop`: stop its steps and close its code.
    kind: Literal["play", "drop"]
    turn: ActiveTurn
    #: To be logged: the name of the event, and the problem.
    event: str = ""
    problem: str = ""


class FetchPolicy:
    """Whether there is room for more turns, and a reason to try a fetch."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        #: Seconds that a thread is busy with a turn at a time, on average; long ones are not fetched ahead.
        self._mean_s = 0.0
        #: A fetch is worth a try; and as of which event one was in vain although something seemed to be there.
        self.hope = True
        self._fruitless = self._seq = -1
        #: When something is due, here or elsewhere (monotonic); and whether something was at the last look.
        self.mail_at = NEVER
        self._is_due = False
        self.is_draining = False

    def room(self, active: int) -> int:
        """Count the turns that may be fetched beside the active ones."""
        if self.is_draining:
            return 0
        limit = self._threads * (AHEAD if self._mean_s < IDLE_S else 1)
        return max(0, min(MOST, limit - active))

    def took(self, seconds: float) -> None:
        """Note how long a thread was busy with a turn."""
        self._mean_s += (seconds - self._mean_s) / 8

    def tire(self) -> None:
        """Note that a turn waited for a thread in vain: no more are fetched than there are threads, for a while."""
        self._mean_s = 1.0

    def fetched(self, found: int, wanted: int) -> None:
        """Hope for more if there were as many as were asked for; else not before something happens."""
        self.hope = found == wanted
        if not found:
            self._fruitless = self._seq

    def looked(self, seq: int, left_s: float, now: float) -> None:
        """Note as of which event the store was looked at, and in how many seconds something is due."""
        self._seq = seq
        # What is due already is somebody's, or about to be; something later may hide behind it.
        self.mail_at = now + (left_s if left_s > 0 else LOOK_AGAIN_S)
        self._is_due = left_s <= 0

    def hope_again(self, is_something_there: Callable[[], bool]) -> None:
        """Hope if something is there to be fetched, unless it was there before and could not be had."""
        if not self.hope and self._seq != self._fruitless:
            self.hope = self._is_due or is_something_there()

    def mail_came(self, now: float) -> bool:
        """Return, once, whether something is due, here or elsewhere; who may have it only the store can tell."""
        if self.mail_at > now:
            return False
        self.mail_at, self.hope = NEVER, True
        return True


class TurnMachine:
    """All turns of one worker."""

    def __init__(self, threads: int, handlers: Sequence[str], session_id: str | None = None) -> None:
        """Expect to play so many turns at once; announce the workflows this worker has code for."""
        self.policy = FetchPolicy(threads)
        self.turns: dict[int, ActiveTurn] = {}
        self.effects: list[Effect] = []
        #: The scheduler should be awake by then; set by inputs, reset by the scheduler.
        self.ring_at = NEVER
        self._session_id = session_id
        #: Commands to be sent, in order; they stay until they are answered.
        self._outbox: deque[Errand] = deque([Errand("announce", AnnounceHandlers(handlers=tuple(handlers)))])
        #: Turns that may have something to send in a moment.
        self._coming = 0
        #: What is to be sent was held back for turns that are coming; once.
        self._lingers = False
        self.is_draining = False
        #: Until then nothing is fetched, so that the worker becomes empty for a turn that must run alone.
        self._paused_until = 0.0
        #: Turns of instances that were lost with a worker before: hardly ever one.
        self._suspects: dict[Token, ActiveTurn] = {}
        #: Turns whose last commit is durable, those given back, those that turned out to be another's.
        self.committed = self.abandoned = self.lost = 0

    def take_outputs(self) -> tuple[list[Effect], float]:
        """Return what is to be done, once, and by when the scheduler should be awake."""
        effects, ring_at = self.effects, self.ring_at
        if effects:
            self.effects = []
        self.ring_at = NEVER
        return effects, ring_at

    # --- a thread plays a turn ----------------------------------------------------------------------------------------

    def take(self, turn: ActiveTurn, now: float) -> list[Input] | None:
        """Return what a thread is to advance the turn with; None: nothing, and the thread leaves it."""
        if turn.is_over or not (turn.inbox or turn.is_due):
            self._rest(turn)
            return None
        inputs, turn.inbox = turn.inbox, []
        turn.is_due, turn.idle_at = False, NEVER
        if not turn.has_begun:
            turn.has_begun, turn.began_at = True, now
        turn.phase, turn.playing_since = Phase.PLAYING, now
        if not turn.is_coming:
            self._expect(turn, coming=True)
        return inputs

    def may_commit(self, turn: ActiveTurn) -> bool:
        """Return whether the playing thread may make a commit now; if so, no other is made until it is answered.

        What arrived meanwhile is played first: it would stay in the queue and make another turn.
        """
        if turn.is_sending or turn.inbox or turn.is_over:
            return False
        turn.is_sending = True
        return True

    def played(self, turn: ActiveTurn, report: Played, now: float) -> bool:
        """Take the report of a thread; return whether the turn is to be played again at once."""
        if report.stopped:
            turn.steps.difference_update(report.stopped)
        if turn.is_over:
            self._rest(turn)
            return False
        if report.unreadable:
            self._post(Errand("park", ParkMessages(token=turn.token, messages=report.unreadable), turn), now)
            turn.held.difference_update(report.unreadable)
        if report.abandon is not None:
            self._leave(turn, report.abandon, now)
        elif report.ack is not None:
            turn.is_over = report.is_last
            self._post(Errand("ack", report.ack, turn, report.is_last, report.extends), now)
        if report.steps:
            turn.steps.update(report.steps)
        if turn.steps and report.has_news and not turn.is_sending:
            turn.idle_at = now + IDLE_S
            self.ring_at = min(self.ring_at, turn.idle_at)
        if turn.is_over or not (turn.inbox or turn.is_due):
            self._rest(turn)
            return False
        turn.phase, turn.playing_since = Phase.QUEUED, NEVER
        return True

    def step_ended(self, turn: ActiveTurn, step_no: int, outcome: Any) -> None:
        """Take the outcome of a step."""
        turn.steps.discard(step_no)
        self._put(turn, StepEnded(step_no, outcome))

    def give_back(
        self, turn: ActiveTurn, reason: str | None, now: float, *, counted: bool, delay_s: float | None = None
    ) -> None:
        """Give an instance back, for others to run; what its turn still does is ignored.

        A commit that was made before is sent first. After the last one there is nothing to give back.
        """
        if turn.token not in self.turns or turn.is_over:
            return
        self._leave(turn, abandon(turn, reason, counted=counted, delay_s=delay_s), now)
        self.effects.append(Effect("drop", turn))

    def _cannot_keep(self, turn: ActiveTurn, problem: str, now: float) -> None:
        """Give back a turn that wants something that cannot be kept. It counts, so that it ends, with this reason."""
        self._leave(turn, abandon(turn, problem, counted=True, delay_s=BROKEN_S), now)
        self.effects.append(Effect("drop", turn, "turn.refused", problem))

    # --- commands -----------------------------------------------------------------------------------------------------

    def commands(self, now: float, jobs: int = 0) -> list[Errand]:
        """Return what is to be sent now; asked again, what is not answered is returned again.

        `jobs` is how many jobs the worker holds beside its turns.
        """
        self._lingers = bool(self._outbox) and not self._lingers and self._coming > 0
        errands = [] if self._lingers else list(itertools.islice(self._outbox, MOST))
        for turn in self.turns.values():
            if turn.is_fetching:  # the store was busy, and nothing was sent
                turn.is_fetching, turn.wants_more = False, True
            if turn.is_coming and turn.playing_since < now - IDLE_S:
                self._expect(turn, coming=False)  # a long replay, say: others are not to wait for it
            if turn.is_over:
                continue
            if turn.renew_at <= now and not turn.is_sending:
                errands.append(Errand("renew", RenewTurn(token=turn.token, lock_s=LOCK_S), turn))
            if turn.wants_more and turn.has_begun:
                turn.wants_more, turn.is_fetching = False, True
                errands.append(Errand("more", FetchMore(token=turn.token, having=tuple(turn.held)), turn))
        # Those that end with this commit make room for others in the same.
        ending = sum([errand.is_last for errand in errands])
        holds = len(self.turns) - ending + jobs
        if self.room(ending) and not self._lingers and self._may_fetch(holds, now):
            errands.append(Errand("fetch", self._fetch(self.room(ending), holds, now)))
        return errands

    def _may_fetch(self, holds: int, now: float) -> bool:
        """Whether a fetch is worth a try. Whoever has become empty fetches at once what it has made way for."""
        if self.makes_way(now):
            return not self._runs_alone and not holds
        return self.policy.hope

    def _fetch(self, room: int, holds: int, now: float) -> FetchTurn:
        on_trial = any(
            is_on_trial(_lost(turn), now - turn.began_at if turn.has_begun else None)
            for turn in self._suspects.values()
        )
        return FetchTurn(lock_s=LOCK_S, n=room, session_id=self._session_id, holds=holds, on_trial=on_trial)

    def makes_way(self, now: float) -> bool:
        """Whether nothing may be begun beside the turns: one must run alone, or waits until this worker is empty."""
        return self._runs_alone or now < self._paused_until

    @property
    def _runs_alone(self) -> bool:
        """Whether one of the turns was lost so often in a row that it runs beside nothing else."""
        return bool(self._suspects) and any(must_run_alone(_lost(turn)) for turn in self._suspects.values())

    def answered(self, errands: Sequence[Errand], replies: Sequence[Reply], at: Timestamp, now: float) -> None:
        """Take the answers to commands, in their order; `at` is `now` by the store's clock. Raises a refused fetch."""
        for errand in errands:
            if errand.kind in _UNQUEUED:
                break
            self._outbox.popleft()
        for errand, reply in zip(errands, replies, strict=True):
            turn = errand.turn
            if errand.kind == "fetch":
                self._fetched(errand.command, reply, at, now)
            elif turn is None or turn.token not in self.turns:
                continue  # it was lost by an earlier answer
            elif isinstance(reply, Refusal):
                self._refused(errand, turn, reply, now)
            else:
                self._answered(errand, turn, reply, now)

    def _fetched(self, command: object, reply: Reply, at: Timestamp, now: float) -> None:
        if isinstance(reply, Refusal):
            raise reply.error()
        assert isinstance(reply, Fetched)
        assert isinstance(command, FetchTurn)
        found = () if reply.turn is None else (reply.turn, *reply.others)
        self.policy.fetched(len(found), command.n)
        # What was lost with another worker does not run beside everything: it is asked for again.
        self._paused_until = now + PAUSE_S if reply.alone_next is not None else 0.0
        if reply.held_back or reply.alone_next is not None:
            self.policy.mail_at = min(self.policy.mail_at, now + ASK_AGAIN_S)
        for locked in found:
            turn = ActiveTurn(
                locked,
                age_s=0.0 if locked.since is None else seconds_between(locked.since, at),
                fetched_at=now,
                renew_at=now + RENEW_S,
                lost_at=now + LOCK_S,
                held={message.seq for message in locked.messages},
            )
            self.turns[locked.token] = turn
            if locked.attempts > 1:
                self._suspects[locked.token] = turn
            self._put(turn, _OPENED)
            if self.is_draining:  # it was asked for before
                self.give_back(turn, None, now, counted=False)

    def _answered(self, errand: Errand, turn: ActiveTurn, reply: Reply, now: float) -> None:
        match errand.kind:
            case "ack" | "abandon" if errand.is_last:
                self.committed += errand.kind == "ack"
                self.abandoned += errand.kind == "abandon"
                self._end(turn)
            case "ack":
                assert isinstance(errand.command, AckTurn)
                if errand.command.handled:
                    turn.held.difference_update([one.message for one in errand.command.handled])
                turn.is_sending, turn.is_due = turn.is_over, True
                if errand.extends:
                    self._renewed(turn, now)
                self._play(turn)
            case "renew":
                self._renewed(turn, now)
            case "more":
                assert isinstance(reply, Brought)
                turn.is_fetching = False
                fresh = [message for message in reply.messages if message.seq not in turn.held]
                if fresh:
                    turn.held.update(message.seq for message in fresh)
                    self._put(turn, Came(fresh))
            case _:
                pass

    def _renewed(self, turn: ActiveTurn, now: float) -> None:
        turn.renew_at, turn.lost_at = now + RENEW_S, now + LOCK_S

    def _refused(self, errand: Errand, turn: ActiveTurn, reply: Refusal, now: float) -> None:
        if errand.kind in {"abandon", "park"}:
            if errand.is_last:
                self._end(turn)
        elif reply.code in _GONE:
            self._lose(turn, reply.message)
        else:
            self._cannot_keep(turn, reply.message, now)

    # --- time, messages, the end --------------------------------------------------------------------------------------

    def mail(self, turns: Collection[ActiveTurn]) -> None:
        """Fetch what came in for turns that are under way."""
        for turn in turns:
            turn.wants_more = True

    def watched(self) -> list[ActiveTurn]:
        """Return the turns for which messages may come in while they are under way: those with steps."""
        return [turn for turn in self.turns.values() if turn.steps and not turn.is_over]

    def tick(self, now: float) -> None:
        """Do what time asks for."""
        if self.policy.mail_came(now):
            self.mail(self.watched())
        for turn in list(self.turns.values()):
            if turn.idle_at <= now:
                turn.idle_at = NEVER
                self._put(turn, _IDLED)
            elif not turn.has_begun and not turn.is_over and now - turn.fetched_at >= PATIENCE_S:
                self.policy.tire()
                self.give_back(turn, None, now, counted=False)
            if turn.lost_at <= now and not turn.is_sending and not turn.is_over:
                self._lose(turn, "its lock could not be renewed in time")

    def _lose(self, turn: ActiveTurn, problem: str) -> None:
        """Drop a turn that is another's by now."""
        self.lost += 1
        self._end(turn)
        self.effects.append(Effect("drop", turn, "turn.lost", problem))

    def drain(self, now: float) -> None:
        """Fetch no more; give back what has not begun. Turns with steps end when these do."""
        self.policy.is_draining = self.is_draining = True
        for turn in list(self.turns.values()):
            if not turn.has_begun:
                self.give_back(turn, None, now, counted=False)
            else:
                turn.is_due = True  # one that waits for nothing here is given back by its player
                self._play(turn)

    def stop(self, now: float) -> None:
        """Give everything back, uncounted, without waiting for any step."""
        for turn in list(self.turns.values()):
            self.give_back(turn, None, now, counted=False)

    def close(self) -> None:
        """End all turns without a word: their locks run out."""
        for turn in list(self.turns.values()):
            self._end(turn)
            self.effects.append(Effect("drop", turn))

    def due_at(self, now: float) -> float:
        """Return when `tick` or `commands` has something to do."""
        times = [self.policy.mail_at if self.room() or self.turns else NEVER]
        if now < self._paused_until:
            times.append(self._paused_until)
        if self._outbox or self._coming:
            times.append(now + LINGER_S)
        for turn in self.turns.values():
            if turn.is_over:
                continue
            times += (turn.idle_at, turn.renew_at)
            if turn.wants_more and turn.has_begun:
                times.append(now)
            if not turn.has_begun:
                times.append(turn.fetched_at + PATIENCE_S)
        return min(times)

    def room(self, ending: int = 0) -> int:
        """Count the turns that may be fetched; `ending` of the active ones make room."""
        return self.policy.room(len(self.turns) - ending)

    @property
    def is_quiet(self) -> bool:
        """Whether no turn is active, and nothing is to be sent."""
        return not self.turns and not self._outbox

    # --- inside -------------------------------------------------------------------------------------------------------

    def _put(self, turn: ActiveTurn, one: Input) -> None:
        turn.inbox.append(one)
        self._play(turn)

    def _play(self, turn: ActiveTurn) -> None:
        """Have a thread advance the turn, unless one does or will."""
        if turn.phase is Phase.RESTING and not turn.is_over:
            turn.phase = Phase.QUEUED
            if not turn.is_coming:
                self._expect(turn, coming=True)
            self.effects.append(Effect("play", turn))

    def _rest(self, turn: ActiveTurn) -> None:
        turn.phase, turn.playing_since = Phase.RESTING, NEVER
        if turn.is_coming:
            self._expect(turn, coming=False)

    def _leave(self, turn: ActiveTurn, command: AbandonTurn, now: float) -> None:
        turn.is_over = turn.is_sending = True
        self._expect(turn, coming=False)
        self._post(Errand("abandon", command, turn, is_last=True), now)

    def _post(self, errand: Errand, now: float) -> None:
        self._outbox.append(errand)
        if len(self._outbox) == 1:
            self.ring_at = min(self.ring_at, now + LINGER_S)

    def _expect(self, turn: ActiveTurn, *, coming: bool) -> None:
        """Note whether a turn may have something to send in a moment; after the last one, what waited is sent."""
        if turn.is_coming is not coming:
            turn.is_coming = coming
            self._coming += 1 if coming else -1
            if self._outbox and not self._coming:
                self.ring_at = 0.0

    def _end(self, turn: ActiveTurn) -> None:
        turn.is_over = True
        self._expect(turn, coming=False)
        self.turns.pop(turn.token, None)
        self._suspects.pop(turn.token, None)


def _lost(turn: ActiveTurn) -> int:
    """How often the instance was lost with its worker before this turn; `attempts` counts this turn, too."""
    return turn.locked.attempts - 1


def abandon(turn: ActiveTurn, reason: str | None, *, counted: bool, delay_s: float | None = None) -> AbandonTurn:
    """Return the command that gives an instance back."""
    return AbandonTurn(token=turn.token, delay_s=delay_s, given_back=not counted, reason=reason)
