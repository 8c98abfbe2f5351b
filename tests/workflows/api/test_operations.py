"""Activities, children and steps as workflow code meets them."""

import asyncio
import time

import pytest
from flowskit import assert_alike, kinds_of

from holdfast.errors import (
    ActivityCancelled,
    ActivityDead,
    ActivityError,
    ActivityTimeout,
    ChildCancelled,
    ChildError,
    InvalidArguments,
    InvalidValue,
    StepError,
)
from holdfast.model.error_details import CANCELLED, DEAD, TIMEOUT, Category, ErrorDetails
from holdfast.model.workflows.history import Status
from holdfast.model.workflows.work_items import ActivityCompleted, ActivityFailed, ActivityOptions
from holdfast.workflows.api import context as hf
from holdfast.workflows.api.idempotency import idempotency_key
from holdfast.workflows.api.operations import child_id, demand_instance_id
from support.flows import START_MS, World


class Declined(Exception):
    def __init__(self, code: int, why: str) -> None:
        super().__init__(code, why)
        self.code = code


class Unkept(Exception):
    def __init__(self, thing: object) -> None:
        super().__init__(thing)


# --- activities -------------------------------------------------------------------------------------------------------


def test_an_activity_carries_its_queue_session_and_options():
    world = World()

    def send(to: str) -> None:
        return None

    send = world.activity(
        send, tag="mail", session_id="s1", options=ActivityOptions(priority=9, max_attempts=2, timeout_s=5.0)
    )

    async def main() -> None:
        await send.call(to="a@example.com")

    world.start(world.workflow(main))
    world._run_turn("i")
    (item,) = world.commit_log[0].worker_items
    assert (item.name, item.input, item.tag, item.session_id) == ("send", '{"to":"a@example.com"}', "mail", "s1")
    assert item.options.priority == 9
    assert (item.instance, item.execution_id, item.id) == ("i", 1, 2)


def test_wrong_arguments_fail_at_the_call_and_nothing_is_recorded():
    world = World()

    def send(to: str) -> None:
        return None

    send = world.activity(send)

    async def main() -> str:
        try:
            send.call(7)
        except InvalidArguments as problem:
            return type(problem).__name__
        return ""

    assert world.run(world.workflow(main)) == "InvalidArguments"
    assert len(world.history()) == 2


def failing(world, problem, raises=(), workflow_raises=()):
    def work() -> int:
        raise problem

    work = world.activity(work, raises=raises)

    async def main() -> list:
        try:
            await work.call()
        except ActivityError as found:
            return [
                type(found).__name__,
                isinstance(found, ValueError | Declined),
                found.type_name,
                found.is_a(type(problem)),
                found.is_a(OSError),
                getattr(found, "code", None) == 4,
                "work" in str(found),
                "Traceback" in found.traceback_text,
            ]
        return []

    return world.workflow(main, raises=workflow_raises)


def test_a_builtin_error_is_an_instance_of_both_classes():
    world = World()
    found = world.run(failing(world, ValueError("bad")))
    assert found == ["ActivityError", True, "ValueError", True, False, False, True, True]


@pytest.mark.parametrize("where", ["task", "workflow"])
def test_a_listed_error_is_an_instance_of_both_classes_with_its_facts(where):
    world = World()
    listed = {"raises": (Declined,)} if where == "task" else {"workflow_raises": (Declined,)}
    found = world.run(failing(world, Declined(4, "poor"), **listed))
    assert found == ["ActivityError", True, "test_operations.Declined", True, False, True, True, True]


def test_an_unlisted_or_unkeepable_error_is_the_plain_class():
    world = World()
    assert world.run(failing(world, Declined(4, "poor")))[:3] == ["ActivityError", False, "test_operations.Declined"]
    world = World()
    assert world.run(failing(world, Unkept(object()), raises=(Unkept,)))[:2] == ["ActivityError", False]


@pytest.mark.parametrize(
    ("details", "kind"),
    [
        (ErrorDetails(category=Category.POISON, kind=DEAD, message="gone"), ActivityDead),
        (ErrorDetails(category=Category.APPLICATION, kind=CANCELLED, message="by ann"), ActivityCancelled),
        (ErrorDetails(category=Category.APPLICATION, kind=TIMEOUT, message="slow"), ActivityTimeout),
        (ErrorDetails(category=Category.INFRASTRUCTURE, kind="Error", message="disk"), ActivityError),
    ],
)
def test_every_end_of_a_job_reaches_the_code_as_an_exception(details, kind):
    world = World()

    def work() -> int:
        return 1

    work = world.activity(work)

    async def main() -> str:
        try:
            await work.call()
        except ActivityError as found:
            return type(found).__name__
        return ""

    world.start(world.workflow(main))
    world._run_turn("i")
    world._jobs.clear()
    world.send(ActivityFailed(instance="i", execution_id=1, id=2, details=details))
    world.settle()
    assert world.result() == kind.__name__


@pytest.mark.parametrize("kind", [TIMEOUT, "total"])
def test_activity_that_ran_out_of_time_is_a_timeout_error(kind):
    world = World()

    def work() -> int:
        return 1

    work = world.activity(work, total_timeout_s=30)

    async def main() -> str:
        try:
            await work.call()
        except TimeoutError as found:
            return f"{type(found).__name__}: {found}"
        return ""

    world.start(world.workflow(main))
    world._run_turn("i")
    world._jobs.clear()  # nobody does it
    if kind == TIMEOUT:
        late = ErrorDetails(category=Category.APPLICATION, kind=TIMEOUT, message="ran longer than 5 s")
        world.send(ActivityFailed(instance="i", execution_id=1, id=2, details=late))
    world.settle()
    assert world.result().startswith("ActivityTimeout: activity ")
    assert ("longer than 5 s" if kind == TIMEOUT else "total timeout of 30 s") in world.result()


@pytest.mark.parametrize("sticky", [True, False])
def test_the_total_timeout_bounds_all_attempts(sticky):
    world = World(sticky=sticky)

    def work() -> int:
        return 1

    work = world.activity(work, total_timeout_s=30)

    async def main() -> str:
        try:
            await work.call()
        except ActivityTimeout as found:
            await hf.signal("go")
            return str(found)
        return ""

    world.start(world.workflow(main))
    world._run_turn("i")
    world._jobs.clear()  # nobody does it
    world.settle()
    assert world.now_ms == START_MS + 30_000
    assert kinds_of(world.history())[-2:] == ["TimerFired", "ActivityCancelRequested"]
    world.send(ActivityCompleted(instance="i", execution_id=1, id=2, result="1"))
    world.signal("go")
    world.settle()
    assert "total timeout of 30 s" in world.result()


def test_an_activity_in_time_takes_its_total_timeout_back():
    world = World()

    def work() -> int:
        return 4

    work = world.activity(work, total_timeout_s=30)

    async def main() -> int:
        return await work.call()

    assert world.run(world.workflow(main)) == 4
    assert world.now_ms == START_MS


# --- children ---------------------------------------------------------------------------------------------------------


def family(world):
    def double(x: int) -> int:
        return 2 * x

    double = world.activity(double)

    async def child(n: int) -> int:
        await asyncio.sleep(n)
        if n == 3:
            raise ValueError("three")
        return await double.call(n)

    child = world.workflow(child)

    async def main() -> list:
        found = await asyncio.gather(*(child.call(n) for n in range(5)), return_exceptions=True)
        return [one if isinstance(one, int) else [type(one).__name__, isinstance(one, ValueError)] for one in found]

    return world.workflow(main)


def test_children_come_out_alike_in_every_order_and_through_every_crash():
    assert_alike(family, 20)
    world = World()
    assert world.run(family(world)) == [0, 2, 4, ["ChildError", True], 8]
    assert sorted(world.rows) == ["i", *(f"i::sub::1-{n}" for n in range(2, 7))]


def test_a_parent_hears_the_end_of_a_child_that_continued_as_new():
    world = World()

    async def child(n: int = 0) -> int:
        if n < 5:
            await asyncio.sleep(1)
            hf.continue_as_new(n + 1)
        return n

    child = world.workflow(child)

    async def main() -> int:
        return await child.call()

    assert world.run(world.workflow(main)) == 5


def test_cancelling_the_await_cancels_the_child():
    world = World()

    async def child() -> None:
        await hf.signal("never")

    child = world.workflow(child)

    async def main() -> str:
        try:
            await asyncio.wait_for(child.options(id="kid").call(), 5)
        except TimeoutError:
            return "late"
        return ""

    assert world.run(world.workflow(main)) == "late"
    assert world.rows["kid"].status is Status.CANCELLED
    assert "SubOrchestrationCancelRequested" in kinds_of(world.history())


def test_a_cancelled_child_is_seen_as_such():
    world = World()

    async def child() -> None:
        await hf.signal("never")

    child = world.workflow(child)

    async def main() -> str:
        try:
            await child.options(id="kid").call()
        except ChildError as found:
            return f"{isinstance(found, ChildCancelled)} {found}"
        return ""

    world.start(world.workflow(main))
    world.settle()
    world.cancel("by hand", instance="kid")
    world.settle()
    assert world.result().startswith("True")
    assert "by hand" in world.result()


def test_children_end_with_their_parent_unless_they_are_left():
    world = World()

    async def child() -> None:
        await hf.signal("never")

    child = world.workflow(child)

    async def main() -> int:
        tasks = [
            asyncio.create_task(child.options(id="goes").call()),
            asyncio.create_task(child.options(id="stays", on_parent_end="leave").call()),
        ]
        await asyncio.sleep(1)
        return len(tasks)

    world.run(world.workflow(main))
    assert world.rows["goes"].status is Status.CANCELLED
    assert world.rows["stays"].status is Status.RUNNING


def test_a_detached_start_has_no_link_and_the_same_id_on_every_replay():
    def build(world):
        async def other(n: int) -> int:
            return n

        other = world.workflow(other)

        async def main() -> list:
            first = other.start_detached(1)
            await asyncio.sleep(1)
            return [first.id, other.options(id="named").start_detached(2).id]

        return world.workflow(main)

    assert_alike(build, 3)
    world = World()
    made, named = world.run(build(world))
    assert world.result(made) == 1
    assert world.result(named) == 2
    assert world.history(named)[0].kind.parent_instance is None


def test_a_child_of_a_long_id_has_an_id_that_fits_and_differs():
    parent = "é" * 512
    ids = {child_id(parent, 1, n) for n in range(100)}
    assert len(ids) == 100
    assert all(len(one) <= 512 and len(one.encode()) <= 2048 for one in ids)


@pytest.mark.parametrize("text", ["", "a" * 513, "a\0b", "\ud800", "x::sub::1-2", 5, "𝄞" * 513])
def test_a_bad_instance_id_is_refused(text):
    with pytest.raises(InvalidValue):
        demand_instance_id(text)


# --- steps ------------------------------------------------------------------------------------------------------------


def test_a_finished_step_is_committed_before_the_next_one_starts():
    world = World()
    seen = []

    def note() -> int:
        seen.append(len(world.commit_log))
        return len(seen)

    async def main() -> int:
        for _ in range(3):
            await hf.step(note)
        return len(seen)

    assert world.run(world.workflow(main)) == 3
    assert seen == [0, 1, 2]


def test_a_workflow_of_one_step_is_one_commit():
    world = World()

    async def main() -> int:
        return await hf.step(int, "7")

    assert world.run(world.workflow(main)) == 7
    assert world.commits == 1


def test_a_recorded_step_is_not_run_again():
    for number in range(4):
        world = World(sticky=False, crashes=[(number, "after")])
        calls = []

        async def main() -> list[int]:
            found = []
            for n in range(3):
                found.append(await hf.step(calls.append, n) or n)  # noqa: B023 - called at once
                await asyncio.sleep(1)
            return found

        assert world.run(world.workflow(main)) == [0, 1, 2]
        assert calls == [0, 1, 2]


def test_a_crash_before_the_commit_runs_a_step_again_with_the_same_key():
    world = World(crashes=[(1, "before")])
    keys = []

    def note(n: int) -> None:
        keys.append((n, idempotency_key()))

    async def main() -> None:
        await hf.step(note, 1)
        await hf.step(note, 2)

    world.run(world.workflow(main))
    assert [n for n, _ in keys] == [1, 2, 2]
    assert len(set(keys)) == 2


def test_a_failed_step_is_rebuilt_and_named():
    world = World()

    async def main() -> list:
        try:
            await hf.step(int, "seven")
        except StepError as found:
            return [isinstance(found, ValueError), found.type_name, "int" in str(found), found.attempts]
        return []

    assert world.run(world.workflow(main)) == [True, "ValueError", True, 1]


def test_a_result_that_is_not_json_fails_the_step_with_kind_encoding():
    world = World()

    async def main() -> str:
        try:
            await hf.step(object)
        except StepError as found:
            return found.details.kind
        return ""

    assert world.run(world.workflow(main)) == "Encoding"


def test_a_timeout_around_a_step_drops_it():
    world = World()

    def work() -> int:
        return 1

    work = world.activity(work)

    async def main() -> list:
        slow = asyncio.create_task(hf.step(int, 1))
        await asyncio.sleep(0)
        slow.cancel()
        await asyncio.wait([slow])
        return [slow.cancelled(), await hf.step(int, 2)]

    assert world.run(world.workflow(main)) == [True, 2]
    assert [event.kind.step_no for event in world.history() if hasattr(event.kind, "step_no")] == [2]


def test_fifty_parallel_steps_keep_their_numbers():
    def build(world):
        async def main() -> list[int]:
            return await asyncio.gather(*(hf.step(int, n) for n in range(50)))

        return world.workflow(main)

    for seed in range(3):
        world = World(seed, sticky=False, crashes=[(20, "before"), (30, "after")])
        assert world.run(build(world)) == list(range(50))


def test_a_step_is_typed_by_its_annotations():
    world = World()

    def pair() -> tuple[int, str]:
        return (1, "a")

    async def main() -> str:
        return type(await hf.step(pair)).__name__

    assert world.run(world.workflow(main)) == "tuple"


def test_a_workflow_does_not_wait_in_real_time():
    begun = time.monotonic()
    world = World()

    async def main() -> int:
        for _ in range(30):
            await asyncio.sleep(86_400)
        return 30

    assert world.run(world.workflow(main)) == 30
    assert time.monotonic() - begun < 5
