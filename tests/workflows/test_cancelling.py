"""Cancellation: delivered once, may be cleaned up after, and always comes to an end."""

import asyncio
import gc

import pytest
from flowskit import assert_alike, kinds_of

from holdfast.model.workflows.history import Status
from holdfast.workflows.api import context as hf
from support.flows import START_MS, World


def cleaning(world, **options):
    def work(name: str) -> str:
        return name

    work = world.activity(work)

    async def main() -> str:
        story = []
        try:
            await hf.signal("never")
        except asyncio.CancelledError as stop:
            story.append(f"stopped: {stop}")
            await asyncio.sleep(5)
            story.append(await work.call("swept"))
            story.append(await hf.step(str, "wiped"))
            hf.set_status(story)
            raise

    return world.workflow(main, **options)


def returning(world):
    def work(name: str) -> str:
        return name

    work = world.activity(work)

    async def main() -> list[str]:
        try:
            await hf.signal("never")
        except asyncio.CancelledError as stop:
            return [str(stop), await work.call("swept"), await hf.step(str, "wiped")]
        return []

    world.from_outside = [lambda: world.cancel("enough")]
    return world.workflow(main)


def test_clean_up_may_wait_and_comes_out_alike_everywhere():
    assert_alike(returning, 20)


def test_the_error_carries_the_reason_and_the_instance_ends_cancelled():
    world = World()
    world.start(cleaning(world))
    world.settle()
    world.cancel("no longer wanted")
    world.settle()
    assert world.rows["i"].custom_status == '["stopped: no longer wanted","swept","wiped"]'
    assert world.rows["i"].status is Status.CANCELLED
    assert world.result().kind == "Cancelled"
    assert world.result().message == "no longer wanted"


def test_a_return_after_a_cancel_completes_with_the_request_visible():
    world = World()
    world.start(returning(world))
    world.from_outside[0]()
    world.settle()
    assert world.result() == ["enough", "swept", "wiped"]
    assert "OrchestrationCancelRequested" in kinds_of(world.history())


def test_another_error_fails_it():
    async def main() -> None:
        try:
            await hf.signal("never")
        except asyncio.CancelledError:
            raise KeyError("lost") from None

    world = World()
    world.start(world.workflow(main))
    world.cancel()
    world.settle()
    assert world.rows["i"].status is Status.FAILED
    assert world.result().type_name == "KeyError"


def test_it_is_delivered_once():
    async def main() -> int:
        count = 0
        for _ in range(5):
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                count += 1
        return count

    world = World()
    world.start(world.workflow(main))
    for _ in range(3):
        world.cancel()
    world.settle()
    assert world.result() == 1
    assert [reason for _, reason in world.dropped] == ["a cancellation is under way"] * 2


@pytest.mark.parametrize("sticky", [True, False])
def test_the_deadline_comes_even_if_clean_up_waits_for_ever(sticky):
    async def main() -> None:
        try:
            await hf.signal("never")
        finally:
            await hf.signal("never either")

    world = World(sticky=sticky)
    world.start(world.workflow(main, cancel_grace_s=30))
    world.cancel("stop")
    world.settle()
    assert world.rows["i"].status is Status.CANCELLED
    assert world.now_ms == START_MS + 30_000
    assert kinds_of(world.history())[-2:] == ["OrchestrationCancelRequested", "OrchestrationFailed"]


def test_force_ends_it_in_one_commit_without_running_code():
    story = []

    def work() -> int:
        return 1

    world = World()
    work = world.activity(work)

    async def main() -> None:
        try:
            await work.call()
        except asyncio.CancelledError:
            story.append("ran")
            raise

    world.start(world.workflow(main))
    world.move()
    before = world.commits
    world.cancel("now", force=True)
    world._run_turn("i")
    assert story == []
    assert world.commits == before + 1
    assert world.rows["i"].status is Status.CANCELLED
    assert [one.activity_id for one in world.commit_log[-1].cancelled_activities] == [2]


STUBBORN = {
    "signal": lambda _work: hf.signal("never"),
    "timer": lambda _work: asyncio.sleep(1000),
    "step": lambda _work: hf.step(str, "x"),
    "activity": lambda work: work.call(),
    "decision": lambda _work: hf.decision("?", ["yes"]),
}


@pytest.mark.parametrize("wait", list(STUBBORN))
def test_code_that_catches_everything_for_ever_is_ended_and_left_where_it_stands(wait):
    tries = []

    def work() -> int:
        return 1

    world = World()
    work = world.activity(work)

    async def main() -> None:
        await asyncio.sleep(1)
        while True:
            try:
                await asyncio.Event().wait() if not tries else await STUBBORN[wait](work)
            except BaseException:  # noqa: BLE001 - what is tried here
                tries.append(wait)
                if len(tries) > 10_000:
                    return

    world.start(world.workflow(main))
    world.settle()
    world.cancel("now", force=True)
    world.settle()
    assert world.rows["i"].status is Status.CANCELLED
    assert len(tries) < 1000
    world.forget()
    gc.collect()
    assert len(tries) < 1000


def test_without_grace_a_cancel_is_forced():
    world = World()
    world.start(cleaning(world, cancel_grace_s=0))
    world.cancel("now")
    world.settle()
    assert world.rows["i"].status is Status.CANCELLED
    assert world.rows["i"].custom_status is None


def test_force_overrides_a_cancellation_under_way():
    world = World()
    world.start(cleaning(world))
    world.cancel("gently")
    world.settle(world.now_ms)
    world.cancel("now", force=True)
    world.settle(world.now_ms)
    assert world.rows["i"].status is Status.CANCELLED
    assert world.result().message == "now"


def test_a_workflow_that_runs_out_of_time_is_cancelled_with_that_reason():
    async def main() -> str:
        try:
            await hf.signal("never")
        except asyncio.CancelledError as stop:
            return f"{stop} at {hf.now().timestamp() - hf.info().started_at.timestamp():.0f}"
        return ""

    for sticky in (True, False):
        world = World(sticky=sticky)
        assert world.run(world.workflow(main, timeout_s=90)) == "timeout at 90"


def test_a_workflow_in_time_takes_its_timeout_back():
    async def main() -> int:
        await asyncio.sleep(5)
        return 1

    world = World()
    assert world.run(world.workflow(main, timeout_s=90)) == 1
    assert world.now_ms == START_MS + 5000


def test_changing_the_timeout_breaks_no_running_instance():
    async def main() -> str:
        return await hf.signal("go")

    old, new = World(), World()
    old.start(old.workflow(main, timeout_s=90))
    old.settle(old.now_ms)
    new.workflow(main)
    new.rows = old.rows
    new.signal("go", "went")
    new.settle()
    assert new.result() == "went"


def test_cancelling_an_await_revokes_the_activity_in_that_commit():
    def work() -> int:
        return 1

    world = World()
    work = world.activity(work)

    async def main() -> str:
        try:
            async with asyncio.timeout(10):
                await work.call()
        except TimeoutError:
            return "late"
        return ""

    world.start(world.workflow(main))
    world._run_turn("i")
    world._jobs.clear()  # nobody does it
    world.settle()
    assert world.result() == "late"
    assert [one.activity_id for one in world.commit_log[-1].cancelled_activities] == [3]
    assert kinds_of(world.history())[-3:] == ["TimerFired", "ActivityCancelRequested", "OrchestrationCompleted"]
