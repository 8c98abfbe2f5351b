"""Errors in workflow code block its run: what counts as one, what is kept, what goes on without code."""

import asyncio
import subprocess
import time

import pytest

import holdfast.workflows.api.context as hf
from holdfast.errors import InvalidArguments, WorkflowCodeError
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.work_items import CancelInstance, TimerFired
from holdfast.workflows.runtime.code_errors import CODE_ERRORS, code_error_in
from holdfast.workflows.runtime.execution import Execution
from holdfast.workflows.runtime.outbox import Outbox
from support.flows import World


class OwnTypeError(TypeError):
    """Somebody's own class: raised on purpose."""


def blocked(world):
    """Go on until the run is blocked, and give why."""
    with pytest.raises(WorkflowCodeError) as caught:
        world.settle()
    return caught.value


def with_code(world, function, **options):
    """Give a world with the same rows, and other code."""
    other = World()
    workflow = other.workflow(function, **{"name": "flow", **options})
    other.rows, other.now_ms = world.rows, world.now_ms
    return other, workflow


def kinds_of(world):
    return [type(event.kind).__name__ for event in world.history()]


# --- what counts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(CODE_ERRORS, key=lambda kind: kind.__name__))
def test_programming_error_blocks(kind):
    world = World()

    async def flow() -> None:
        raise kind("wrong")

    world.start(world.workflow(flow))
    problem = blocked(world)
    assert kind.__name__ in problem.message.splitlines()[0]
    assert problem.facts["type_name"] == kind.__name__
    assert not world.rows["i"].histories


@pytest.mark.parametrize(
    "problem", [ValueError("no"), RuntimeError("no"), KeyError("no"), OSError("no"), OwnTypeError("no")]
)
def test_exception_that_is_an_outcome_fails_the_run(problem):
    world = World()

    async def flow() -> None:
        raise problem

    assert world.run(world.workflow(flow)).message == str(problem)


def test_error_raised_in_an_activity_or_step_is_an_outcome():
    world = World()

    def broken() -> None:
        raise TypeError("inside")

    call = world.activity(broken)

    async def by_activity() -> None:
        await call.call()

    async def by_step() -> None:
        await hf.step(broken)

    assert "inside" in world.run(world.workflow(by_activity), instance="a").message
    assert "inside" in world.run(world.workflow(by_step), instance="s").message


def test_error_in_one_branch_of_a_group_blocks():
    world = World()

    async def wrong() -> None:
        await asyncio.sleep(1)
        None.missing  # noqa: B018 - the error under test

    async def flow() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(60))
            group.create_task(wrong())

    world.start(world.workflow(flow))
    assert "AttributeError: 'NoneType' object has no attribute 'missing'" in str(blocked(world))


def test_error_that_the_code_catches_blocks_nothing():
    world = World()

    async def flow() -> str:
        try:
            undefined()
        except NameError:
            return "caught"

    assert world.run(world.workflow(flow)) == "caught"


def test_group_without_error_in_code_is_an_outcome():
    group = ExceptionGroup("outer", [ValueError("a"), ExceptionGroup("inner", [KeyError("b")])])
    assert code_error_in(group) is None
    wrong = NameError("c")
    assert code_error_in(ExceptionGroup("outer", [ValueError("a"), ExceptionGroup("inner", [wrong])])) is wrong


def sleep_here():
    time.sleep(0)  # noqa: TID251 - the error under test


def start_process():
    subprocess.run(["true"], check=False)


@pytest.mark.parametrize("call", [sleep_here, start_process])
@pytest.mark.parametrize("is_async", [True, False])
def test_call_that_a_workflow_may_not_make_blocks(call, is_async):
    world = World(guarded=True)

    async def flow() -> None:
        call()

    def plain() -> None:
        call()

    world.start(world.workflow(flow if is_async else plain))
    assert "test_code_errors.py" in str(blocked(world))


def test_arguments_that_do_not_fit_block_at_the_call():
    world = World()

    def mail(to: str) -> None: ...

    call = world.activity(mail)

    async def flow() -> None:
        await call.call(5)

    world.start(world.workflow(flow))
    assert blocked(world).facts["type_name"] == InvalidArguments.__name__


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_step_that_ran_before_the_error_is_not_run_again():
    world = World()
    ran = []

    async def flow() -> None:
        await hf.step(ran.append, 1)
        hf.set_status("about to fail")
        hf.send_signal("other", "too early")
        undefined()  # noqa: F821 - the error under test

    world.start(world.workflow(flow))
    blocked(world)
    assert kinds_of(world) == ["OrchestrationStarted", "StepCompleted"]
    assert set(world.rows) == {"i"}
    for _ in range(3):
        world.forget()
        blocked(world)
    assert ran == [1]

    async def fixed() -> str:
        await hf.step(ran.append, 1)
        await hf.step(ran.append, 2)
        return "done"

    other, _ = with_code(world, fixed)
    other.settle()
    assert (other.result(), ran) == ("done", [1, 2])


def test_what_the_code_asked_for_before_the_failing_message_is_kept_with_the_step():
    """A timer that the failing code stopped is there again; what it asked for is not."""
    world = World()
    stop = []

    async def flow() -> None:
        timer = asyncio.create_task(asyncio.sleep(3600))
        await hf.step(stop.append, 1)
        timer.cancel()
        asyncio.create_task(asyncio.sleep(5))  # noqa: RUF006 - never to be seen
        await asyncio.sleep(0)
        undefined()  # noqa: F821 - the error under test

    world.start(world.workflow(flow))
    blocked(world)
    assert kinds_of(world) == ["OrchestrationStarted", "TimerCreated", "StepCompleted"]
    timers = [item.fire_at_ms - world.now_ms for _, _, item in world.rows["i"].messages if item.id]
    assert timers == [3_600_000]

    async def fixed() -> str:
        timer = asyncio.create_task(asyncio.sleep(3600))
        await hf.step(stop.append, 1)
        await timer
        return "slept"

    other, _ = with_code(world, fixed)
    other.settle()
    assert (other.result(), stop) == ("slept", [1])


def test_message_behind_a_kept_step_is_delivered_to_fixed_code():
    world = World(batches=False)

    async def flow() -> str:
        first, second = asyncio.create_task(hf.step(int, 1)), asyncio.create_task(hf.step(int, 2))
        await first
        await hf.signal("go")
        undefined()  # noqa: F821 - the error under test
        return str(await second)

    world.start(world.workflow(flow))
    turn = _begun(world)
    first, _second = turn.take_steps()
    turn.finish_step(first.step_no, "1", world.now_ms)
    world.signal("go", "x")
    batch = world._visible(world.rows["i"])
    turn.deliver([batch[-1][2]], world.now_ms)
    assert (turn.stage, turn.must_commit, turn.is_idle) == ("blocked", True, False)
    assert turn.take_steps() == []
    assert turn.take_stopped_steps() == [2]
    world._commit(world.rows["i"], turn, batch, hold=True)
    assert (turn.must_commit, turn.is_idle) == (False, True)
    assert kinds_of(world) == ["OrchestrationStarted", "StepCompleted"]

    async def fixed() -> str:
        first, second = asyncio.create_task(hf.step(int, 1)), asyncio.create_task(hf.step(int, 2))
        await first
        return f"{await hf.signal('go')}{await second}"

    other, _ = with_code(world, fixed)
    other.settle()
    assert other.result() == "x2"


def _begun(world):
    from holdfast.workflows.runtime.turn import run_turn  # noqa: PLC0415 - used by one test

    row = world._row("i")
    return run_turn(world.definitions, world._item("i", row, world._visible(row)), now_ms=world.now_ms, seed=1)


def test_blocked_turn_ignores_what_still_comes():
    world = World()

    async def flow() -> None:
        second = asyncio.create_task(hf.step(int, 2))
        await hf.step(int, 1)
        undefined(second)  # noqa: F821 - the error under test

    world.start(world.workflow(flow))
    turn = _begun(world)
    one, other = turn.take_steps()
    turn.finish_step(one.step_no, "1", world.now_ms)
    if turn.blocked is None:  # the steps begin in the order of their tasks
        turn.finish_step(other.step_no, "2", world.now_ms)
    before = turn.execution.last_event_id
    turn.finish_step(other.step_no, "2", world.now_ms)
    turn.deliver([CancelInstance(instance="i", reason="late")], world.now_ms)
    assert (turn.stage, turn.execution.last_event_id) == ("blocked", before)


# --- what ends it all the same ----------------------------------------------------------------------------------------


def test_clean_up_with_an_error_ends_at_the_deadline_of_its_cancellation():
    world = World()

    async def flow() -> None:
        try:
            await hf.signal("never")
        except asyncio.CancelledError:
            undefined()  # noqa: F821 - the error under test

    world.start(world.workflow(flow, cancel_grace_s=60))
    world.settle()
    world.cancel("enough")
    blocked(world)
    assert kinds_of(world)[-1] == "OrchestrationCancelRequested"
    world.advance(60)
    world.settle()
    assert world.result().kind == "Cancelled"


def test_own_timeout_ends_a_blocked_run_after_the_grace_of_its_cancellation():
    world = World(batches=False)

    async def flow() -> None:
        await hf.signal("go")
        undefined()  # noqa: F821 - the error under test

    world.start(world.workflow(flow, timeout_s=100, cancel_grace_s=10))
    world.settle(until_ms=world.now_ms)
    world.signal("go")
    blocked(world)
    world.advance(100)
    blocked(world)
    world.advance(10)
    world.settle()
    assert (world.result().kind, world.result().message) == ("Cancelled", "timeout")


def test_cancel_without_grace_ends_a_blocked_run():
    world = World(batches=False)

    async def flow() -> None:
        await hf.signal("go")
        undefined()  # noqa: F821 - the error under test

    world.start(world.workflow(flow, cancel_grace_s=0))
    world.settle()
    world.signal("go")
    blocked(world)
    world.cancel("now")
    world.settle()
    assert world.result().message == "now"


# --- replay -----------------------------------------------------------------------------------------------------------


def test_error_in_the_midst_of_a_history_is_shown_as_what_it_is():
    world = World()

    async def flow() -> None:
        await hf.step(int, 1)
        await hf.signal("go")

    world.start(world.workflow(flow))
    world.settle()
    world.signal("go")
    before = list(world.history())

    async def wrong() -> None:
        undefined()  # noqa: F821 - the error under test

    other, _ = with_code(world, wrong)
    assert "undefined" in str(blocked(other))
    assert other.history() == before


def test_recorded_end_by_an_error_in_code_still_replays():
    """Histories from before runs were blocked, or of workflows that fail."""
    world = World()

    async def flow() -> None:
        await hf.step(int, 1)
        undefined()  # noqa: F821 - the error under test

    assert world.run(world.workflow(flow, on_error="fail")).type_name == "NameError"
    other, workflow = with_code(world, flow)
    execution = Execution(workflow.definition, other.definitions, "i", 1, {})
    execution.replay(world.history())
    assert execution.blocked is None
    assert isinstance(execution.terminal, event_kinds.OrchestrationFailed)


def test_outbox_returns_to_a_mark():
    outbox = Outbox("i", 1)
    outbox.wake(1, 10)
    outbox.revoke(1, 7)
    mark = outbox.mark()
    outbox.let_sleep(1)
    outbox.let_sleep(5)
    outbox.wake(2, 20)
    outbox.revoke(1, 8)
    outbox.send(CancelInstance(instance="x", reason="no"))
    outbox.return_to(mark)
    from holdfast.model.workflows.history import ExecutionMetadata  # noqa: PLC0415 - used by one test

    commit = outbox.take(ExecutionMetadata())
    assert commit.orchestrator_items == (TimerFired(instance="i", execution_id=1, id=1, fire_at_ms=10),)
    assert [one.activity_id for one in commit.cancelled_activities] == [7]
    assert commit.cancelled_timers == ()
