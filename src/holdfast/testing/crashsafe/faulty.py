"""A world in which the faults of a plan strike. Same plan, same run.

An activity's outcome is a commit of its own here, as it is in a store: a crash before it runs the activity again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.errors import HoldfastError, UnknownTask
from holdfast.flows.face import encoded
from holdfast.flows.steps import StepCall
from holdfast.model.details import ENCODING, ErrorDetails
from holdfast.model.history import TurnCommit, activity_key
from holdfast.model.workitems import (
    ActivityCompleted,
    ActivityExecute,
    ActivityFailed,
    ActivityOptions,
    QueueMessage,
    StartOrchestration,
    SubOrchCompleted,
    SubOrchFailed,
    TimerFired,
    WorkItem,
)
from holdfast.testing.crashsafe.cast import Cast
from holdfast.testing.crashsafe.faults import Fault, Plan, Size, What
from holdfast.testing.crashsafe.judging import Broken, Outcome, Recorded, broken_by, outcome_of
from holdfast.testing.flows import START_MS, Crash, Row, World
from holdfast.workers.signals import Cancel, Fatal

#: The instance under test.
INSTANCE = "i"
#: Messages that may come twice. A signal never does: it is taken from its queue in the commit that records it.
_REPEATABLE = (ActivityCompleted, ActivityFailed, TimerFired, SubOrchCompleted, SubOrchFailed, StartOrchestration)

#: Exceptions by which an activity ends itself.
_LAST = (Fatal.__name__, Cancel.__name__)

#: A signal: its name and data, and the seconds after the start at which it is sent.
Signal = tuple[str, Any] | tuple[str, Any, float]


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of an activity or a step."""

    name: str
    #: The same on every attempt.
    key: str
    #: JSON; None if it raised.
    result: str | None


class _First(random.Random):
    """Takes what is first, and all there is: the order of a run without faults."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        del stop, step
        return start - start

    def randint(self, a: int, b: int) -> int:
        del a
        return b

    def random(self) -> float:
        return 1.0


class FaultyWorld(World):
    """One run of one workflow under a plan."""

    def __init__(self, cast: Cast, plan: Plan, signals: Sequence[Signal] = (), *, watch: bool = False) -> None:
        """Set the stage; `watch` finds clocks and randomness that workflow code reads directly."""
        crashes = {What.CRASH_BEFORE: "before", What.CRASH_AFTER: "after"}
        super().__init__(
            sticky=not any(fault.what is What.NO_RESIDENCY for fault in plan),
            crashes=[(fault.at, crashes[fault.what]) for fault in plan if fault.what in crashes],
            watch=watch,
        )
        self.definitions = cast.definitions
        self._parts = cast.parts()
        order = next((fault for fault in plan if fault.what is What.OTHER_ORDER), None)
        self._is_ordered = order is None
        self._rng = _First() if order is None else random.Random(order.at)  # noqa: S311 - repeatable
        self._twice = {fault.at for fault in plan if fault.what is What.MESSAGE_TWICE}
        self._runs_twice = {fault.at for fault in plan if fault.what is What.ACTIVITY_TWICE}
        self._jumps: dict[int, list[Fault]] = {}
        for fault in plan:
            if fault.what is What.CLOCK_JUMP:
                self._jumps.setdefault(fault.at, []).append(fault)
        self._outside = sorted((_sent(signal) for signal in signals), key=lambda found: found[0])
        self._attempts: dict[str, int] = {}
        self._begun_with: dict[tuple[str, int], dict[str, Any]] = {}
        self._results: dict[str, str] = {}
        self.moves = self.messages = self.activities_run = 0
        #: Every execution of an activity or step, in order.
        self.calls: list[Call] = []

    # --- the run ------------------------------------------------------------------------------------------------------

    def drive(self, most: int) -> None:
        """Go on until nothing is left to do. Raises Broken if that takes more than `most` moves, or cannot be done."""
        try:
            while self.moves < most:
                if not self.move() and not self._jump(None):
                    return
        except HoldfastError as problem:
            if isinstance(problem, UnknownTask):
                raise
            raise broken_by(problem) from problem
        finally:
            self.forget()
        raise Broken("does not end", f"it goes on after {most} moves")

    def move(self) -> bool:
        """Do one thing; what comes from outside comes as early as it can, or in another order at any time."""
        for fault in self._jumps.pop(self.moves, ()):
            self.now_ms = max(START_MS - 3_600_000, self.now_ms + fault.by_ms)
        self.moves += 1
        due = bool(self._outside) and self._outside[0][0] <= self.now_ms
        if due and (self._is_ordered or self._rng.random() < 0.5):
            self._send_next()
            return True
        if super().move():
            return True
        if due:
            self._send_next()
        return due

    def _send_next(self) -> None:
        self.send(self._outside.pop(0)[1])

    def _jump(self, until_ms: int | None) -> bool:
        ahead = [due for due, _ in self._outside if due > self.now_ms]
        before = self.now_ms
        jumped = super()._jump(until_ms)
        if ahead and (not jumped or min(ahead) < self.now_ms):
            self.now_ms = max(before, min(ahead))
            return True
        return jumped

    def send(self, item: WorkItem) -> None:
        """Put a message into its queue; twice, if the plan says so."""
        super().send(item)
        if isinstance(item, _REPEATABLE):
            if self.messages in self._twice:
                super().send(item)
            self.messages += 1

    # --- users' functions ---------------------------------------------------------------------------------------------

    def _run_job(self, job: tuple[str, int, int]) -> None:
        item = self._jobs[job]
        number, commit = self.activities_run, self.commits
        self.activities_run += 1
        told = self._attempted(item)
        if number in self._runs_twice:
            told = self._attempted(item)
        self._crash_at(commit, "before")
        if told is not None and self._jobs.pop(job, None) is not None:
            self.send(told)
        self.commits += 1
        self._crash_at(commit, "after")

    def _crash_at(self, commit: int, when: str) -> None:
        if (commit, when) in self._crashes:
            self._crashes.remove((commit, when))
            raise Crash

    def _attempted(self, item: ActivityExecute) -> WorkItem | None:
        """Run an activity; None if it failed and is tried again."""
        key = activity_key(item.instance, item.execution_id, item.id)
        self.called.append(item.name)
        told = self.run_activity(item)
        self._take_down(item.name, key, told.result if isinstance(told, ActivityCompleted) else None)
        if isinstance(told, ActivityFailed):
            self._attempts[key] = self._attempts.get(key, 0) + 1
            most = (item.options or ActivityOptions()).max_attempts
            if self._attempts[key] < most and self._is_tried_again(item.name, told.details):
                return None
        return told

    def _is_tried_again(self, name: str, details: ErrorDetails) -> bool:
        last = {*_LAST, *(kind.__name__ for kind in self._parts[name].no_retry)}
        names = (details.type_name or "", *details.type_bases)
        return details.kind != ENCODING and not any(one.rpartition(".")[2] in last for one in names)

    def run_activity(self, item: ActivityExecute) -> WorkItem:
        """Run an activity's function."""
        part = self._parts.get(item.name)
        if part is None:
            raise UnknownTask(
                f"activity {item.name!r} has no function here. Nothing was shown.",
                hint="Give one in `stubs`, or use a workflow of an application that has the task.",
            )
        self.activities[item.name] = (part.function, part.codec)
        return super().run_activity(item)

    def run_step(self, call: StepCall) -> str | ErrorDetails:
        """Run a step's function."""
        outcome = super().run_step(call)
        self._take_down(call.name, call.idempotency_key, outcome if isinstance(outcome, str) else None)
        return outcome

    def run_async(self, value: Any) -> Any:
        """Run a coroutine to its end."""
        return asyncio.run(value) if asyncio.iscoroutine(value) else value

    def _take_down(self, name: str, key: str, result: str | None) -> None:
        self.calls.append(Call(name=name, key=key, result=result))
        if result is None:
            return
        before = self._results.setdefault(key, result)
        if before != result:
            raise Broken("not idempotent", f"{name!r} gave {before}, then {result} under one idempotency key ({key})")

    # --- what it came to ----------------------------------------------------------------------------------------------

    def _apply(self, row: Row, commit: TurnCommit) -> None:
        if commit.history_delta and commit.execution_id not in row.histories:
            self._begun_with[commit.history_delta[0].instance, commit.execution_id] = dict(row.kv)
        super()._apply(row, commit)

    def outcome(self) -> Outcome:
        """Give what the instance under test came to. Raises Broken if it has not ended."""
        row = self.rows[INSTANCE]
        ended = outcome_of(row.histories[row.execution_id][-1].kind) if row.histories else None
        if ended is None:
            waits = ", ".join(row.waiting_on) or "nothing that will come"
            raise Broken("does not end", f"it waits for {waits}")
        return ended

    def recorded(self) -> list[Recorded]:
        """Give all executions of all instances."""
        return [
            Recorded(events=tuple(events), kv=self._begun_with.get((instance, number), {}))
            for instance, row in self.rows.items()
            for number, events in row.histories.items()
        ]

    def size(self) -> Size:
        """Say how much happened."""
        return Size(commits=self.commits, messages=self.messages, activities=self.activities_run, moves=self.moves)


def _sent(signal: Signal) -> tuple[int, QueueMessage]:
    name, data, *after = signal
    message = QueueMessage(instance=INSTANCE, name=name, data=encoded(data, f"signal {name!r}"))
    return START_MS + round(1000 * (after[0] if after else 0)), message
