"""Code that no longer fits its instances blocks them alone, until it fits again; whoever waits is told.

Other bad input: `promises/test_bad_workflows_harm_nobody.py`, row by row.
"""

import asyncio
import threading

import pytest

from holdfast import Holdfast
from holdfast.app.tasks.signature_codec import SignatureCodec
from holdfast.engine.health import blocked
from holdfast.errors import (
    HistoryCorrupt,
    InvalidArguments,
    NondeterminismError,
    WorkflowCancelled,
    WorkflowCodeError,
    WorkflowFailed,
)
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.instances import InstanceStatus
from holdfast.testing.corruption import corrupt_history
from holdfast.workflows.api.definitions import Definitions
from holdfast.workflows.replay.check import check_execution
from holdfast.workflows.replay.export import ExportedExecution

LONG = 30


@pytest.fixture(params=["memory", "wal", "sqlite"])
def hf(request, tmp_path):
    urls = {"memory": "memory:", "wal": f"wal:{tmp_path / 'journal'}", "sqlite": f"sqlite:{tmp_path / 'jobs.db'}"}
    with Holdfast(urls[request.param]) as app:

        @app.workflow
        async def fine(n: int) -> int:
            return n + 1

        app.fine = fine
        yield app


def settle(hf):
    """Work until nothing is left to do."""
    worker = hf.worker(until_idle=True)
    worker.start()
    assert worker.join(LONG)


def forget(hf):
    """Take all workflows away, as a program without them would be; `fine` stays."""
    hf.workflows = Definitions(SignatureCodec)
    hf.workflows.add(hf.fine.definition)


def others_go_on(hf):
    assert hf.fine.start(1).created
    settle(hf)
    assert [one.result() for one in hf.instances(workflow="fine", limit=1)] == [2]


def test_changed_code_blocks_its_instance_until_it_fits_again(hf):
    @hf.workflow
    async def shifting() -> str:
        await hf.signal("a")
        await asyncio.sleep(0.001)
        return await hf.signal("b", type=str)

    run = shifting.start(id="s")
    run.signal("a")
    settle(hf)
    was = shifting.definition
    forget(hf)

    @hf.workflow(name="shifting")
    async def changed() -> str:
        await hf.signal("a")
        hf.send_signal("s", "other")
        return "changed"

    run.signal("b", "done")
    settle(hf)
    with pytest.raises(NondeterminismError) as caught:
        run.result(timeout=LONG)
    problem = caught.value
    assert (problem.instance, problem.execution_id) == ("s", 1)
    assert problem.event_id > 1
    assert "timer" in problem.recorded
    assert "'other'" in problem.found
    assert problem.location.startswith("test_workflows_trouble.py:")
    assert str(problem).endswith(NondeterminismError.default_hint)
    state = run.status()
    assert state.status is InstanceStatus.RUNNING
    assert state.blocked is not None
    assert state.blocked.kind == "Nondeterminism"
    assert run.explain().code == "blocked"
    others_go_on(hf)
    forget(hf)
    hf.workflows.add(was)
    settle(hf)
    assert run.result(timeout=0) == "done"


def test_input_that_no_longer_fits_blocks_its_instance(hf):
    @hf.workflow
    async def picky(n: int) -> int:
        return n

    run = picky.start(5, id="p")
    forget(hf)

    @hf.workflow(name="picky")
    async def other(n: str) -> str:
        return n

    settle(hf)
    with pytest.raises(InvalidArguments, match="instance 'p' is blocked"):
        run.result(timeout=0)
    assert run.status().blocked.kind == "Input"
    others_go_on(hf)


def test_a_blocked_instance_tells_whoever_awaits_it(hf):
    @hf.workflow
    async def long() -> str:
        return await hf.signal("go", type=str)

    run = long.start(id="bad")
    settle(hf)
    corrupt_history(hf.engine.store, "bad")
    run.signal("go", "a")

    async def story():
        with pytest.raises(HistoryCorrupt):
            await run.aio.result(timeout=LONG)

    done = threading.Thread(target=settle, args=(hf,))
    done.start()
    asyncio.run(story())
    done.join(LONG)


# --- errors in workflow code ------------------------------------------------------------------------------------------


def redeploy(hf, function, **options):
    """Register other code under the same name."""
    forget(hf)
    return hf.workflow(name="pay", **options)(function)


def test_error_in_workflow_code_blocks_the_run_until_fixed_code_is_deployed(hf):
    charged = []

    @hf.workflow
    async def pay(n: int) -> str:
        first = await hf.signal("go", type=int)
        await hf.step(charged.append, first)
        return missing_name  # noqa: F821 - the error under test

    run = pay.start(1, id="p")
    settle(hf)
    run.signal("go", 1)
    settle(hf)
    with pytest.raises(WorkflowCodeError) as caught:
        run.result(timeout=LONG)
    assert "NameError: name 'missing_name' is not defined" in str(caught.value)
    assert "test_workflows_trouble.py" in str(caught.value)
    state = run.status()
    assert (state.status, state.blocked.kind) == (InstanceStatus.RUNNING, "CodeError")
    reason = run.explain()
    assert reason.code == "blocked"
    assert "NameError" in reason.sentence
    assert any("return missing_name" in line for line in reason.lines)
    others_go_on(hf)

    async def fixed(n: int) -> str:
        first = await hf.signal("go", type=int)
        await hf.step(charged.append, first)
        return "paid"

    redeploy(hf, fixed)
    settle(hf)
    assert run.result(timeout=0) == "paid"
    assert charged == [1]


def test_blocked_run_keeps_its_messages_in_order(hf):
    @hf.workflow
    async def pay() -> list[int]:
        found = [await hf.signal("x", type=int)]
        undefined()  # noqa: F821 - the error under test
        return found

    run = pay.start(id="p")
    settle(hf)
    for number in (1, 2, 3):
        run.signal("x", number)
        settle(hf)
    assert run.status().blocked.kind == "CodeError"

    async def fixed() -> list[int]:
        return [await hf.signal("x", type=int) for _ in range(3)]

    redeploy(hf, fixed)
    settle(hf)
    assert run.result(timeout=0) == [1, 2, 3]


def test_run_blocked_in_its_first_turn_goes_on_with_fixed_code(hf):
    @hf.workflow
    async def pay() -> str:
        await asyncio.to_thread(print)  # refused by the loop of every workflow
        return "never"

    run = pay.start(id="p")
    settle(hf)
    assert "WorkflowNotAllowed" in run.status().blocked.text

    async def fixed() -> str:
        return "fixed"

    redeploy(hf, fixed)
    settle(hf)
    assert run.result(timeout=0) == "fixed"


@pytest.mark.parametrize("begun", [False, True])
def test_run_blocked_by_its_code_can_be_failed_by_hand(hf, begun):
    @hf.workflow
    async def pay() -> None:
        if begun:
            await hf.signal("go")
        undefined()  # noqa: F821 - the error under test

    run = pay.start(id="p")
    settle(hf)
    if begun:
        run.signal("go")
        settle(hf)
    run.fail("given up")
    with pytest.raises(WorkflowFailed, match="given up"):
        run.result(timeout=0)


@pytest.mark.parametrize("begun", [False, True])
def test_forced_cancel_ends_a_run_blocked_by_its_code(hf, begun):
    @hf.workflow
    async def pay() -> None:
        if begun:
            await hf.signal("go")
            await hf.step(int, 1)
        undefined()  # noqa: F821 - the error under test

    run = pay.start(id="p")
    settle(hf)
    if begun:
        run.signal("go")
        settle(hf)
    assert run.status().blocked.kind == "CodeError"
    run.cancel("enough", force=True)
    settle(hf)
    with pytest.raises(WorkflowCancelled, match="enough"):
        run.result(timeout=0)


def test_error_in_workflow_code_fails_the_run_where_the_workflow_says_so(hf):
    @hf.workflow(on_error="fail")
    async def pay() -> None:
        undefined()  # noqa: F821 - the error under test

    run = pay.start(id="p")
    settle(hf)
    with pytest.raises(WorkflowFailed, match="undefined"):
        run.result(timeout=0)


def test_signal_of_the_wrong_type_leaves_the_run_waiting(hf):
    @hf.workflow
    async def paid() -> int:
        return await hf.signal("amount", type=int)

    run = paid.start(id="p")
    settle(hf)
    run.signal("amount", "five")
    settle(hf)
    assert run.status().status is InstanceStatus.RUNNING
    reason = run.explain()
    assert reason.code == "waiting"
    assert "set aside: 1 of signal 'amount', the last one because Expected `int`, got `str`" in reason.sentence
    run.signal("amount", 5)
    settle(hf)
    assert run.result(timeout=0) == 5


def test_error_in_workflow_code_does_not_wait_for_steps_beside_it(hf):
    begun, release, quick = threading.Event(), threading.Event(), []

    def slow() -> str:
        begun.set()
        assert release.wait(LONG)
        return "slow"

    def fast() -> None:
        assert begun.wait(LONG)
        quick.append(1)

    @hf.workflow
    async def pay() -> str:
        beside = asyncio.create_task(hf.step(slow))
        await asyncio.sleep(0)
        await hf.step(fast)
        return await undefined(beside)  # noqa: F821 - the error under test

    run = pay.start(id="p")
    worker = hf.worker(until_idle=True)
    worker.start()
    with pytest.raises(WorkflowCodeError):
        run.result(timeout=LONG)
    release.set()
    assert worker.join(LONG)
    assert [event.kind.name for event in run.history() if isinstance(event.kind, event_kinds.StepCompleted)] == ["fast"]

    async def fixed() -> str:
        beside = asyncio.create_task(hf.step(slow))
        await asyncio.sleep(0)
        await hf.step(fast)
        return await beside

    redeploy(hf, fixed)
    settle(hf)
    assert (run.result(timeout=0), quick) == ("slow", [1])


def test_run_blocked_by_its_code_is_named_by_doctor_and_check(hf):
    @hf.workflow
    async def pay() -> None:
        await hf.step(int, 1)
        undefined()  # noqa: F821 - the error under test

    run = pay.start(id="p")
    settle(hf)
    assert run.status().blocked.kind == "CodeError"
    with hf.engine.read() as view:
        (finding,) = blocked(view)
    assert finding.id == "p"
    assert "NameError" in finding.message
    assert finding.remedy.endswith("deploy code that gets further.")
    recorded = ExportedExecution(execution_id=1, events=tuple(run.history()))
    (found,) = check_execution(hf.workflows, recorded)
    assert (found.kind, found.is_note) == ("error", False)
    assert "undefined" in found.text
