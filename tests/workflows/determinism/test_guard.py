"""A guard is in force in threads that run workflow code, while they run it, and nowhere else."""

import asyncio
import gc
import selectors
import socket
import sys
import threading
import time

import pytest

from holdfast import Holdfast
from holdfast.errors import WorkflowCodeError, WorkflowNotAllowed
from holdfast.testing import assert_crash_safe, replay, use, virtual
from holdfast.workflows.api import context as hf
from support.flows import World

app = Holdfast("memory:")


def sleep():
    time.sleep(0)  # noqa: TID251 - the mistake in question


@app.workflow
async def sleeper() -> int:
    await asyncio.sleep(0)
    sleep()
    return 1


@app.workflow
def blocking_sleeper() -> int:
    hf.step(int)
    sleep()
    return 1


@pytest.mark.parametrize("flow", [sleeper, blocking_sleeper])
def test_worker_without_guard_lets_the_call_through(flow):
    with Holdfast("memory:") as plain:
        run = plain.workflow(flow.definition.function).start()
        plain.work(until_idle=True)
        assert run.result(timeout=5) == 1


def test_worker_with_guard_blocks_the_run_with_the_line():
    with Holdfast("memory:", guard_workflows=True) as guarded:
        run = guarded.workflow(sleeper.definition.function).start()
        guarded.work(until_idle=True)
        with pytest.raises(WorkflowCodeError, match=r"time\.sleep \(test_guard\.py:\d+ in sleep\)"):
            run.result(timeout=5)


@pytest.mark.parametrize("flow", [sleeper, blocking_sleeper])
def test_testing_helpers_guard_workflow_code(flow):
    with virtual(app) as world, pytest.raises(WorkflowCodeError, match=r"time\.sleep"):
        world.run(flow.start())
    with pytest.raises(AssertionError, match=r"time\.sleep"):
        assert_crash_safe(flow, seeds=1)
    with use(app):
        run = flow.start()
        app.work(until_idle=True)
        with pytest.raises(WorkflowCodeError, match=r"time\.sleep"):
            run.result(timeout=5)
    assert app.workflows.guard is None


def test_replay_guards_workflow_code():
    with Holdfast("memory:") as plain:
        flow = plain.workflow(sleeper.definition.function)
        run = flow.start()
        plain.work(until_idle=True)
        events = [event for event in run.history() if type(event.kind).__name__ != "OrchestrationCompleted"]
        with pytest.raises(WorkflowCodeError, match=r"time\.sleep"):
            replay(events, flow)


def test_pytest_fixtures_guard_workflow_code(holdfast_app, holdfast_crash):
    assert holdfast_app.workflows.guard is not None
    assert holdfast_crash.app.workflows.guard is not None


def test_call_is_refused_again_after_the_code_caught_the_first_refusal():
    async def main() -> int:
        refused = 0
        for _ in range(3):
            try:
                sleep()
            except Exception:  # noqa: BLE001 - as a library that tries again
                refused += 1
        return refused

    world = World(guarded=True)
    assert world.run(world.workflow(main)) == 3


def test_call_is_refused_in_the_next_callback_while_the_first_refusal_is_kept():
    async def main() -> list[str]:
        async def mistake() -> None:
            sleep()

        found = await asyncio.gather(mistake(), mistake(), return_exceptions=True)
        return [type(one).__name__ for one in found]

    world = World(guarded=True)
    assert world.run(world.workflow(main)) == ["WorkflowNotAllowed"] * 2


def test_def_workflow_is_guarded_again_after_each_wait():
    def main() -> list[str]:
        found = []
        for _ in range(2):
            hf.sleep(1)
            try:
                sleep()
            except WorkflowNotAllowed as problem:
                found.append(problem)
        return [type(one).__name__ for one in found]

    world = World(guarded=True)
    assert world.run(world.workflow(main)) == ["WorkflowNotAllowed"] * 2


def test_guard_is_gone_when_the_turn_ends():
    async def main() -> bool:
        seen = sys.getprofile() is not None
        await hf.step(sleep)
        return seen

    world = World(guarded=True)
    assert world.run(world.workflow(main)) is True
    assert sys.getprofile() is None
    sleep()


def test_guard_is_gone_when_a_turn_raises():
    async def main() -> None:
        sleep()

    world = World(guarded=True)
    with pytest.raises(WorkflowCodeError):
        world.run(world.workflow(main))
    assert sys.getprofile() is None
    gc.collect()
    assert sys.getprofile() is None


def test_profile_function_of_somebody_else_is_put_back():
    def other(_frame, _event, _called):
        pass

    async def main() -> bool:
        return sys.getprofile() is not other

    world = World(guarded=True)
    flow = world.workflow(main)
    sys.setprofile(other)
    try:
        assert world.run(flow) is True
        assert sys.getprofile() is other
    finally:
        sys.setprofile(None)


def test_two_applications_in_one_process_differ():
    """The guarded one refuses; the other one does not, in the same thread."""
    done = []
    for guarded in (True, False, True):
        world = World(guarded=guarded)

        async def main() -> bool:
            try:
                sleep()
            except WorkflowNotAllowed:
                return True
            return False

        done.append(world.run(world.workflow(main)))
    assert done == [True, False, True]


def test_open_connection_and_selector_are_refused():
    ours, theirs = socket.socketpair()

    async def main() -> list[str]:
        found = []
        for use_it in (lambda: ours.send(b"x"), lambda: theirs.recv(1), lambda: selector.select(0)):
            try:
                use_it()
            except WorkflowNotAllowed as problem:
                found.append(str(problem))
        return found

    with ours, theirs, selectors.PollSelector() as selector:
        selector.register(ours, selectors.EVENT_READ)
        world = World(guarded=True)
        assert len(world.run(world.workflow(main))) == 3


def test_condition_that_does_not_wait_is_allowed():
    async def main() -> bool:
        return threading.Event().wait(0)

    world = World(guarded=True)
    assert world.run(world.workflow(main)) is False


def test_finaliser_that_the_collector_calls_may_do_everything():
    """It may belong to any code of the process."""
    done = []

    class Connection:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            socket.socket().close()
            done.append(True)

    async def main() -> None:
        Connection()
        gc.collect()

    world = World(guarded=True)
    world.run(world.workflow(main))
    assert done == [True]


def test_collector_is_watched_only_while_a_turn_runs():
    before = list(gc.callbacks)

    async def main() -> int:
        return len(gc.callbacks)

    world = World()
    assert world.run(world.workflow(main)) == len(before) + 1
    assert gc.callbacks == before
