"""A world in which the faults of a plan strike, on a real store. Same plan, same run.

Turns go through the provider, activities are leased and reported as workers do it, every decision is the engine's. The
process dies at a commit: what it had in memory is gone, and the next one opens what the store kept. Time stands still
while anything can be done, and then goes on to what is due next.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import takewhile
from typing import Any

import msgspec

from holdfast.clock import Clock
from holdfast.engine.blob_content import fetch
from holdfast.engine.engine import Engine
from holdfast.engine.maintenance import end_dead_sessions, recover
from holdfast.errors import HoldfastError, UnknownTask
from holdfast.model.error_details import ErrorDetails
from holdfast.model.events import Event as AnyEvent
from holdfast.model.ids import uuid7
from holdfast.model.jobs import Job, JobStatus
from holdfast.model.outcomes import Grant, Leased, Reported
from holdfast.model.payloads import NULL
from holdfast.model.times import milliseconds, moment
from holdfast.model.workflows.commands import FetchActivity
from holdfast.model.workflows.history import (
    Event,
    KvEntry,
    OrchestrationItem,
    TurnCommit,
    activity_key,
)
from holdfast.model.workflows.instances import Instance, owned_by
from holdfast.model.workflows.work_items import (
    ActivityCompleted,
    ActivityFailed,
    QueueMessage,
    StartOrchestration,
    SubOrchCompleted,
    SubOrchFailed,
    TimerFired,
    WorkItem,
)
from holdfast.rules.invariants import violations
from holdfast.rules.random_source import Draws
from holdfast.rules.state import Lane
from holdfast.stores.protocol import Batch, Store
from holdfast.testing.clock import START, ManualClock
from holdfast.testing.crashsafe.cast import Cast
from holdfast.testing.crashsafe.faults import Fault, Plan, Size, What
from holdfast.testing.crashsafe.grounds import Ground, InMemory, Mortal
from holdfast.testing.crashsafe.judging import Broken, Outcome, Recorded, broken_by, outcome_of
from holdfast.testing.crashsafe.striking import Strikes
from holdfast.testing.here import awaited
from holdfast.testing.simfs import SimCrash
from holdfast.testing.turning import LOCK_S, Turning
from holdfast.workers.handlers.context import Context
from holdfast.workers.handlers.outcome import Outcome as Ended
from holdfast.workers.handlers.outcome import Raised, Returned, command_of
from holdfast.workers.runners.invoke import call
from holdfast.workflows.api.context import encoded
from holdfast.workflows.api.steps import StepCall
from holdfast.workflows.api.workflow import Workflow
from holdfast.workflows.provider import Provider

#: The instance under test.
INSTANCE = "i"
#: Who runs activities here, and has their sessions.
WORKER = "here"
#: Activities that it takes one after the other at most, before it does something else.
AT_ONCE = 8
#: Seconds: no clock here knows less.
TICK_S = 0.000_001
#: The clock is never set back to before this.
EARLIEST = START - timedelta(hours=1)
#: Messages that may come twice. A signal never does: it is taken from its queue in the commit that records it.
_REPEATABLE = (ActivityCompleted, ActivityFailed, TimerFired, SubOrchCompleted, SubOrchFailed, StartOrchestration)
#: What time brings.
_LANES = (Lane.MAIL, Lane.TURN, Lane.DELAYED, Lane.LEASE)

#: A signal: its name and data, and the seconds after the start at which it is sent.
Signal = tuple[str, Any] | tuple[str, Any, float]


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of an activity or a step."""

    name: str
    #: The same on every attempt.
    key: str
    #: JSON; None if it raised.
    result: str | None


class _Repeatable(Engine):
    """An engine whose chance is counted: ids and jitter come out alike in every run. It dies when it is struck."""

    def __init__(self, store: Store, clock: Clock, chance: random.Random, strikes: Strikes) -> None:
        self._chance = chance
        #: What the commit under way, or the last one, says.
        self._facts: Sequence[AnyEvent] = ()
        super().__init__(Mortal(store, lambda when: strikes.at(when, self._facts)), clock=clock)

    def _turn(self, batch: Batch) -> Any:
        turn = super()._turn(batch)
        self._facts = turn.added
        return turn._replace(draws=Draws(turn.reading.now, self._chance.getrandbits(64)))

    def new_id(self) -> str:
        chance = self._chance
        return uuid7(milliseconds(self.look().now), chance.getrandbits(12), chance.getrandbits(62))


class FaultyWorld(Turning):
    """One run under a plan, on one ground."""

    def __init__(self, cast: Cast, plan: Plan, signals: Sequence[Signal] = (), ground: Ground | None = None) -> None:
        """Set the stage; the ground is to be cleared by whoever made it."""
        super().__init__(cast.definitions, sticky=not any(fault.what is What.NO_RESIDENCY for fault in plan))
        self._parts = cast.parts()
        self._ground = ground or InMemory()
        self.clock = ManualClock()
        self.strikes = Strikes(plan)
        order = next((fault for fault in plan if fault.what is What.OTHER_ORDER), None)
        #: None: the first of everything, as early as it can be.
        self._order = None if order is None else random.Random(order.at)  # noqa: S311 - to be repeatable is its purpose
        self._chance = random.Random(0)  # noqa: S311 - the same
        self._twice = {fault.at for fault in plan if fault.what is What.MESSAGE_TWICE}
        self._runs_twice = {fault.at for fault in plan if fault.what is What.ACTIVITY_TWICE}
        self._jumps: dict[int, list[Fault]] = {}
        for fault in plan:
            if fault.what is What.CLOCK_JUMP:
                self._jumps.setdefault(fault.at, []).append(fault)
        #: From outside: seconds since the beginning, what is sent then. No step of the wall clock delays who sends.
        self._outside: list[tuple[float, WorkItem]] = []
        #: Activities that are leased.
        self._held: list[Grant] = []
        self._begun_with: dict[tuple[str, int], dict[str, KvEntry]] = {}
        self._results: dict[str, str] = {}
        self.moves = self.messages = self.activities_run = self.crashed = 0
        #: Every execution of an activity or step, in order.
        self.calls: list[Call] = []
        for name, data, *after in signals:
            message = QueueMessage(instance=INSTANCE, name=name, data=encoded(data, f"signal {name!r}"))
            self.post(message, after[0] if after else 0)
        self._provider = self._opened()

    @property
    def commits(self) -> int:
        """How many commits were made."""
        return self.strikes.commits

    # --- from outside -------------------------------------------------------------------------------------------------

    def start(self, workflow: Workflow[..., Any], *args: Any, instance: str = INSTANCE, **kwargs: Any) -> None:
        """Start an instance, before all else."""
        packed = bytes(workflow.definition.codec.pack(args, kwargs)).decode()
        begun = StartOrchestration(
            instance=instance, orchestration=workflow.name, input=packed, version=workflow.chosen.version
        )
        self._outside.insert(0, (0.0, begun))

    def post(self, message: WorkItem, after_s: float = 0.0) -> None:
        """Send a message so many seconds after the beginning."""
        self._outside.append((after_s, message))
        self._outside.sort(key=lambda found: found[0])

    # --- the run ------------------------------------------------------------------------------------------------------

    def drive(self, most: int) -> None:
        """Go on until nothing is left to do. Raises Broken if that takes more than `most` moves, or cannot be done."""
        try:
            while self.moves < most:
                if not self._survive(self.move) and not self._survive(self._pass_time):
                    return
        except HoldfastError as problem:
            if isinstance(problem, UnknownTask):
                raise
            raise broken_by(problem) from problem
        finally:
            self.forget()
        raise Broken("does not end", f"it goes on after {most} moves")

    def _survive(self, action: Callable[[], bool]) -> bool:
        """Do something; if the process dies of it, open the store again in the next."""
        try:
            return action()
        except SimCrash:
            self.crash()
        return True

    def crash(self) -> None:
        """Lose what is in memory only, and go on with what the store kept."""
        self.crashed += 1
        self._held.clear()
        self.forget()
        self._ground.crash()
        self._provider = self._opened()

    def _opened(self) -> Provider:
        while True:
            engine = _Repeatable(self._ground.open(self.clock), self.clock, self._chance, self.strikes)
            try:
                recover(engine)
                end_dead_sessions(engine)  # where several processes may be at work, a worker does so in passing
            except SimCrash:
                self.crashed += 1
                self._ground.crash()
            else:
                return Provider(engine)

    # --- moves --------------------------------------------------------------------------------------------------------

    def move(self) -> bool:
        """Do one thing that can be done now; False if there is none."""
        for fault in self._jumps.pop(self.moves, ()):
            self.clock.set_wall(max(EARLIEST, self.clock.now() + timedelta(milliseconds=fault.by_ms)))
        self.moves += 1
        ways = [self._send_next, self._run_turn, *([self._run_held] * len(self._held)), self._lease]
        while ways:
            # In another order a lease is often taken late, and an activity kept for long.
            way = ways[0 if self._order is None else self._order.randrange(len(ways))]
            if way():
                return True
            ways = [other for other in ways if other != way]
        return False

    def _send_next(self) -> bool:
        if not self._outside or self._outside[0][0] - self.clock.monotonic() > TICK_S:
            return False
        _, message = self._outside[0]
        before = self.commits
        try:
            for one in self._doubled([message]):
                self._provider.enqueue_for_orchestrator(one)
        finally:
            # Whoever sends hears no answer from a process that died before it: then it is sent again.
            if self.commits != before:
                self._outside.pop(0)
        return True

    def _run_turn(self) -> bool:
        return self.turn_once(self._provider, len(INSTANCE))

    def _pass_time(self) -> bool:
        now = self.clock.now()
        with self._provider.engine.read() as view:
            due = [when for lane in _LANES if (when := view.next_due(lane)) is not None]
        ahead = [(moment(when) - now).total_seconds() for when in due]
        ahead += [after_s - self.clock.monotonic() for after_s, _ in self._outside]
        soonest = min((seconds for seconds in ahead if seconds > TICK_S), default=None)
        if soonest is not None:
            self.clock.advance(soonest)
        return soonest is not None

    def choose_step(self, waiting: Sequence[StepCall]) -> int:
        """Let any of them end first."""
        return 0 if self._order is None else self._order.randrange(len(waiting))

    def before_commit(self, item: OrchestrationItem, commit: TurnCommit) -> TurnCommit:
        """Note what an execution began with; send messages twice, if the plan says so."""
        if commit.history_delta and commit.history_delta[0].event_id == 1:
            self._begun_with[item.instance, commit.execution_id] = dict(item.kv_snapshot)
        return msgspec.structs.replace(commit, orchestrator_items=tuple(self._doubled(commit.orchestrator_items)))

    def _doubled(self, items: Iterable[WorkItem]) -> list[WorkItem]:
        sent: list[WorkItem] = []
        for item in items:
            sent.append(item)
            if isinstance(item, _REPEATABLE):
                if self.messages in self._twice:
                    sent.append(item)
                self.messages += 1
        return sent

    # --- users' functions ---------------------------------------------------------------------------------------------

    def _lease(self) -> bool:
        """Take an activity; in another order often several, so that any of them can end first."""
        most = 1 if self._order is None else self._order.randint(1, AT_ONCE)
        return sum(takewhile(bool, (self._lease_one() for _ in range(most)))) > 0

    def _lease_one(self) -> bool:
        engine = self._provider.engine
        command = FetchActivity(
            worker_id=WORKER,
            lease_s=LOCK_S,
            queues=None,
            session_id=engine.session_id,
            affinity_owner=WORKER,
            affinity_s=LOCK_S,
        )
        leased = engine.ask(command)
        assert isinstance(leased, Leased)
        self._held.extend(leased.grants)
        return bool(leased.grants)

    def _run_held(self) -> bool:
        """Run an activity and report it; it is lost if its lease lapsed, or its workflow no longer waits."""
        grant = self._held.pop(0 if self._order is None else self._order.randrange(len(self._held)))
        number = self.activities_run
        self.activities_run += 1
        ended = self._attempted(grant)
        if number in self._runs_twice:
            ended = self._attempted(grant)
        outcome = self._provider.engine.submit(command_of(grant, ended))
        if isinstance(outcome, Reported) and outcome.job_status is not JobStatus.QUEUED:
            for again in self._doubled(_told(grant.job, ended))[1:]:
                self._provider.enqueue_for_orchestrator(again)
        return True

    def _attempted(self, grant: Grant) -> Ended:
        spec = self._parts.of(grant.job.job_type)
        params = fetch(self._provider.engine.store, grant.job.params)
        job = msgspec.structs.replace(grant.job, params=params)
        run = awaited(spec.run) if inspect.iscoroutinefunction(spec.run) else spec.run
        ended = call(replace(spec, run=run), Context(msgspec.structs.replace(grant, job=job)))
        result = bytes(ended.result).decode() if isinstance(ended, Returned) else None
        self._take_down(spec.name, activity_key(*_owner(job)), result)
        return ended

    def run_step(self, call: StepCall) -> str | ErrorDetails:
        """Run a step's function."""
        outcome = super().run_step(call)
        self._take_down(call.name, call.idempotency_key, outcome if isinstance(outcome, str) else None)
        return outcome

    def _take_down(self, name: str, key: str, result: str | None) -> None:
        self.calls.append(Call(name=name, key=key, result=result))
        if result is None:
            return
        before = self._results.setdefault(key, result)
        if before != result:
            raise Broken("not idempotent", f"{name!r} gave {before}, then {result} under one idempotency key ({key})")

    # --- what it came to ----------------------------------------------------------------------------------------------

    def history(self, instance: str = INSTANCE) -> list[Event]:
        """Give the events of an instance's current execution."""
        return self._provider.read(instance)

    def outcome(self, instance: str = INSTANCE) -> Outcome:
        """Give what an instance came to. Raises Broken if it has not ended."""
        events = self.history(instance)
        ended = outcome_of(events[-1].kind) if events else None
        if ended is None:
            with self._provider.engine.read() as view:
                found = view.get(Instance, instance)
            waits = ", ".join(found.waiting_on or ()) if found is not None else ""
            raise Broken("does not end", f"it waits for {waits or 'nothing that will come'}")
        return ended

    def recorded(self) -> list[Recorded]:
        """Give all executions of all instances."""
        return [
            Recorded(
                events=tuple(self._provider.read_with_execution(instance, number)),
                kv=self._begun_with.get((instance, number), {}),
            )
            for instance in self._provider.list_instances()
            for number in self._provider.list_executions(instance)
        ]

    def demand_sound(self) -> None:
        """Demand that what the store kept is whole. Raises Broken."""
        with self._provider.engine.read() as view:
            for fault in violations(view):
                raise Broken("breaks a rule of the store", str(fault))

    def size(self) -> Size:
        """Say how much happened."""
        return Size(commits=self.commits, messages=self.messages, activities=self.activities_run, moves=self.moves)


def _owner(job: Job) -> tuple[str, int, int]:
    owner = owned_by(job.owner)
    assert owner is not None, f"job {job.job_id} is no activity"
    return owner


def _told(job: Job, ended: Ended) -> list[WorkItem]:
    """Give the message that a report of an activity sends, where it can be sent again from outside."""
    instance, execution_id, number = _owner(job)
    match ended:
        case Returned():
            result = bytes(ended.result).decode()
            return [ActivityCompleted(instance=instance, execution_id=execution_id, id=number, result=result)]
        case Raised() if ended.details != NULL:
            details = msgspec.json.decode(ended.details, type=ErrorDetails)
            return [ActivityFailed(instance=instance, execution_id=execution_id, id=number, details=details)]
        case _:
            return []
