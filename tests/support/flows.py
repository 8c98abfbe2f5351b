"""A small world for workflows: a provider in memory, its workers, and a clock that jumps to what is due next.

Everything that could happen in more than one order happens in the order a seed says, so that a run can be repeated. It
can crash at a commit, forget residents, and deliver things twice. Used to test the runtime without any store.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from holdfast.app.tasks.signature_codec import SignatureCodec
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.event_kinds import AnyKind
from holdfast.model.workflows.history import Event, KvEntry, OrchestrationItem, Status, TurnCommit, activity_key
from holdfast.model.workflows.work_items import (
    ActivityCompleted,
    ActivityExecute,
    ActivityFailed,
    CancelInstance,
    QueueMessage,
    StartOrchestration,
    TimerFired,
    WorkItem,
    goes_to,
)
from holdfast.testing.turning import RunsSteps
from holdfast.workflows.api.definitions import Codec, Definition, Definitions
from holdfast.workflows.api.error_conversion import details_of
from holdfast.workflows.api.idempotency import running_key
from holdfast.workflows.api.steps import StepCall
from holdfast.workflows.api.workflow import Activity, Workflow, activity
from holdfast.workflows.determinism.guard import Guard
from holdfast.workflows.runtime.execution import Execution
from holdfast.workflows.runtime.turn import Turn, run_turn

R = TypeVar("R")

#: Milliseconds: when every world begins.
START_MS = 1_767_225_600_000
#: Milliseconds that a lock lives without being renewed.
LOCK_MS = 30_000
#: Moves after which a run is taken to go round in circles.
MANY_MOVES = 1_000_000


class Crash(Exception):
    """The process dies here; what was not committed is gone."""


class Row(msgspec.Struct):
    """One instance, as the provider keeps it."""

    execution_id: int = 1
    #: Execution → its events.
    histories: dict[int, list[Event]] = {}
    status: Status = Status.RUNNING
    output: str | None = None
    custom_status: str | None = None
    kv: dict[str, KvEntry] = {}
    waiting_on: tuple[str, ...] = ()
    #: Visible messages: due, sequence number, message.
    messages: list[tuple[int, int, WorkItem]] = []


class World(RunsSteps):
    """Definitions, a provider and workers, all under one seed."""

    def __init__(
        self,
        seed: int = 0,
        *,
        sticky: bool = True,
        batches: bool = True,
        crashes: Sequence[tuple[int, str]] = (),
        guarded: bool = False,
        watch: bool = False,
    ) -> None:
        """`crashes` are numbers of commits with `before` or `after`; without `batches` a turn takes all messages.

        With `guarded`, restricted calls of workflow code are refused. With `watch`, reads of clocks, randomness and
        files are refused as well.
        """
        self.definitions = Definitions(codec_of)
        if guarded or watch:
            self.definitions.guard = Guard(on_read=_raise if watch else None)
        self.activities: dict[str, tuple[Callable[..., Any], Codec]] = {}
        self.rows: dict[str, Row] = {}
        self.now_ms = START_MS
        self.commits = 0
        self.turns = 0
        self.commit_log: list[TurnCommit] = []
        self.dropped: list[tuple[WorkItem, str]] = []
        #: Calls of activities and steps, by name, in order.
        self.called: list[str] = []
        self.turn: Turn | None = None
        self._rng = random.Random(seed)
        self._sticky = sticky
        self._batches = batches
        self._crashes = set(crashes)
        self._residents: dict[str, Execution] = {}
        self._jobs: dict[tuple[str, int, int], ActivityExecute] = {}
        self._seq = 0

    # --- registering --------------------------------------------------------------------------------------------------

    def workflow(self, function: Callable[..., Any], **options: Any) -> Workflow[..., Any]:
        """Register a workflow."""
        options.setdefault("name", function.__name__)
        definition = Definition(function=function, codec=SignatureCodec(function), **options)
        self.definitions.add(definition)
        return Workflow(definition)

    def activity(self, function: Callable[..., R], **options: Any) -> Activity[..., R]:
        """Register an activity."""
        codec = SignatureCodec(function)
        made: Activity[..., R] = activity(function, codec, **options)
        self.activities[made.name] = (function, codec)
        return made

    # --- from outside -------------------------------------------------------------------------------------------------

    def start(self, workflow: Workflow[..., Any], *args: Any, instance: str = "i", **kwargs: Any) -> str:
        """Start an instance."""
        packed = bytes(workflow.definition.codec.pack(args, kwargs)).decode()
        self.send(
            StartOrchestration(
                instance=instance, orchestration=workflow.name, input=packed, version=workflow.chosen.version
            )
        )
        return instance

    def signal(self, name: str, data: Any = None, *, instance: str = "i") -> None:
        """Send a signal."""
        self.send(QueueMessage(instance=instance, name=name, data=msgspec.json.encode(data).decode()))

    def answer(self, event_id: int, chosen: str, *, instance: str = "i") -> None:
        """Answer a decision."""
        data = msgspec.json.encode({"chosen": chosen, "by": "tester"}).decode()
        self.send(QueueMessage(instance=instance, name=f"@decision/{event_id}", data=data))

    def cancel(self, reason: str = "stop", *, instance: str = "i", force: bool = False) -> None:
        """Ask an instance to stop."""
        self.send(CancelInstance(instance=instance, reason=reason, force=force))

    def send(self, item: WorkItem) -> None:
        """Put a message into its instance's queue."""
        target = goes_to(item)
        assert target is not None
        self._seq += 1
        due = item.fire_at_ms if isinstance(item, TimerFired) else self.now_ms
        self._row(target).messages.append((due, self._seq, item))

    # --- what happened ------------------------------------------------------------------------------------------------

    def history(self, instance: str = "i", execution_id: int | None = None) -> list[Event]:
        """Give the events of the current execution, or of another."""
        row = self.rows[instance]
        return row.histories[execution_id or row.execution_id]

    def end(self, instance: str = "i") -> AnyKind:
        """Give the last event's kind."""
        return self.history(instance)[-1].kind

    def result(self, instance: str = "i") -> Any:
        """Give what an instance returned; its details, if it failed."""
        kind = self.end(instance)
        if isinstance(kind, event_kinds.OrchestrationCompleted):
            return msgspec.json.decode(kind.output)
        assert isinstance(kind, event_kinds.OrchestrationFailed), (
            f"{instance} has not ended: {self.rows[instance].waiting_on}"
        )
        return kind.details

    # --- running ------------------------------------------------------------------------------------------------------

    def run(self, workflow: Workflow[..., Any] | None = None, *args: Any, **kwargs: Any) -> Any:
        """Start a workflow, if one is given, go on until nothing is left to do, and give its result."""
        if workflow is not None:
            self.start(workflow, *args, **kwargs)
        self.settle()
        return self.result(kwargs.get("instance", "i"))

    def settle(self, until_ms: int | None = None) -> None:
        """Go on until nothing is left to do; time passes only when all is idle, and not beyond `until_ms`."""
        for _ in range(MANY_MOVES):
            if not self.move() and not self._jump(until_ms):
                return
        raise AssertionError("the world does not come to rest")

    def move(self) -> bool:
        """Do one thing that can be done now, as the seed says; False if there is none."""
        ready = [name for name, row in self.rows.items() if self._visible(row)]
        moves: list[Any] = [*ready, *self._jobs]
        if not moves:
            return False
        chosen = moves[self._rng.randrange(len(moves))]
        try:
            if isinstance(chosen, str):
                self._run_turn(chosen)
            else:
                self._run_job(chosen)
        except Crash:
            self.forget()
        return True

    def forget(self) -> None:
        """Lose all residents, as a process that died."""
        residents, self._residents = self._residents, {}
        for execution in residents.values():
            execution.close()

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now_ms += round(seconds * 1000)

    def _jump(self, until_ms: int | None) -> bool:
        due = [
            message[0]
            for name, row in self.rows.items()
            for message in row.messages
            if message[0] > self.now_ms and self._exists(name)
        ]
        if not due or (until_ms is not None and min(due) > until_ms):
            return False
        self.now_ms = min(due)
        return True

    def _row(self, instance: str) -> Row:
        return self.rows.setdefault(instance, Row())

    def _exists(self, instance: str) -> bool:
        row = self.rows[instance]
        return bool(row.histories) or any(isinstance(found[2], StartOrchestration) for found in row.messages)

    def _visible(self, row: Row) -> list[tuple[int, int, WorkItem]]:
        found = sorted((one for one in row.messages if one[0] <= self.now_ms), key=lambda one: one[:2])
        if not row.histories and not any(isinstance(one[2], StartOrchestration) for one in found):
            return []
        return found

    # --- turns --------------------------------------------------------------------------------------------------------

    def _run_turn(self, instance: str) -> None:
        row = self._row(instance)
        visible = self._visible(row)
        count = self._rng.randint(1, len(visible)) if self._batches and row.histories else len(visible)
        batch = visible[:count] if row.histories else visible
        self.turns += 1
        resident = self._residents.pop(instance, None) if self._sticky else None
        turn = run_turn(
            self.definitions,
            self._item(instance, row, batch),
            now_ms=self.now_ms,
            seed=len(instance),
            resident=resident,
        )
        self.turn = turn
        if turn.abandoned is not None:
            raise AssertionError(str(turn.abandoned))
        try:
            batch = self._run_steps(turn, row, batch)
            if turn.blocked is not None:
                raise turn.blocked.error
            self._commit(row, turn, batch)
        except Crash:
            turn.discard()
            raise
        self.dropped.extend(turn.dropped)
        if turn.stage == "running" and turn.execution is not None:
            if self._sticky:
                self._residents[instance] = turn.execution
            else:
                turn.execution.close()

    def _item(self, instance: str, row: Row, batch: Sequence[tuple[int, int, WorkItem]]) -> OrchestrationItem:
        return OrchestrationItem(
            instance=instance,
            orchestration_name="",
            execution_id=row.execution_id,
            version="",
            history=tuple(row.histories.get(row.execution_id, ())),
            messages=tuple(found[2] for found in batch),
            kv_snapshot=dict(row.kv),
        )

    def _run_steps(self, turn: Turn, row: Row, batch: list[Any]) -> list[Any]:
        running: list[StepCall] = []
        while not turn.is_idle:
            if turn.must_commit:
                self._commit(row, turn, batch, hold=True)
                batch = []
            running.extend(turn.take_steps())
            stopped = turn.take_stopped_steps()
            running = [call for call in running if call.step_no not in stopped]
            if not running:
                continue
            call = running.pop(self._rng.randrange(len(running)))
            self.called.append(call.name)
            turn.finish_step(call.step_no, self.run_step(call), self.now_ms)
        return batch

    def _commit(self, row: Row, turn: Turn, batch: Sequence[Any], *, hold: bool = False) -> None:
        number = self.commits
        if (number, "before") in self._crashes:
            self._crashes.remove((number, "before"))
            raise Crash
        commit = turn.commit(hold_until_ms=self.now_ms + LOCK_MS if hold else None)
        self.commits += 1
        self.commit_log.append(commit)
        gone = {found[1] for found in batch}
        row.messages = [found for found in row.messages if found[1] not in gone]
        self._apply(row, commit)
        if (number, "after") in self._crashes:
            self._crashes.remove((number, "after"))
            raise Crash

    def _apply(self, row: Row, commit: TurnCommit) -> None:
        row.execution_id = max(row.execution_id, commit.execution_id)
        history = row.histories.setdefault(commit.execution_id, [])
        for event in commit.history_delta:
            assert event.event_id > (history[-1].event_id if history else 0), "event ids must rise"
            history.append(event)
        for item in commit.worker_items:
            assert isinstance(item, ActivityExecute)
            self._jobs[item.instance, item.execution_id, item.id] = item
        for one in commit.cancelled_activities:
            self._jobs.pop((one.instance, one.execution_id, one.activity_id), None)
        for message in commit.orchestrator_items:
            self.send(message)
        stopped = set(commit.cancelled_timers)
        row.messages = [
            found
            for found in row.messages
            if not (
                isinstance(found[2], TimerFired)
                and found[2].execution_id == commit.execution_id
                and found[2].id in stopped
            )
        ]
        if commit.metadata.status is not None:
            row.status = commit.metadata.status
            row.output = commit.metadata.output
        row.waiting_on = commit.metadata.waiting_on or ()
        self._publish(row, commit, history)

    def _publish(self, row: Row, commit: TurnCommit, history: list[Event]) -> None:
        for event in commit.history_delta:
            if isinstance(event.kind, event_kinds.CustomStatusUpdated):
                row.custom_status = event.kind.status
        if commit.metadata.status not in {None, Status.RUNNING}:
            for event in history:
                match event.kind:
                    case event_kinds.KeyValueSet():
                        row.kv[event.kind.key] = KvEntry(event.kind.value, event.kind.last_updated_at_ms)
                    case event_kinds.KeyValueCleared():
                        row.kv.pop(event.kind.key, None)
                    case event_kinds.KeyValuesCleared():
                        row.kv.clear()
                    case _:
                        pass

    def run_async(self, value: Any) -> Any:
        """Run a coroutine that waits for nothing: time in here passes only when all is idle. Leave others alone."""
        if not asyncio.iscoroutine(value):
            return value
        try:
            value.send(None)
        except StopIteration as end:
            return end.value
        value.close()
        raise AssertionError("a step or activity of this world may not wait")

    # --- activities ---------------------------------------------------------------------------------------------------

    def _run_job(self, job: tuple[str, int, int]) -> None:
        item = self._jobs.pop(job)
        self.called.append(item.name)
        self.send(self.run_activity(item))

    def run_activity(self, item: ActivityExecute) -> WorkItem:
        """Run an activity's function, and give the message that tells its outcome."""
        function, codec = self.activities[item.name]
        at: dict[str, Any] = {"instance": item.instance, "execution_id": item.execution_id, "id": item.id}
        token = running_key.set(partial(activity_key, item.instance, item.execution_id, item.id))
        try:
            args, kwargs = codec.unpack(msgspec.Raw(item.input.encode()))
            value = self.run_async(function(*args, **kwargs))
            result = bytes(codec.pack_result(value)).decode()
        except Exception as problem:  # noqa: BLE001 - users' code: whatever it raises is its outcome
            return ActivityFailed(**at, details=details_of(problem))
        finally:
            running_key.reset(token)
        return ActivityCompleted(**at, result=result)


def codec_of(function: Callable[..., Any]) -> Codec:
    """Type a function by its annotations."""
    return SignatureCodec(function)


def _raise(problem: Exception) -> None:
    raise problem
