"""The first difference between code and history is found, and both sides are named."""

import asyncio
import inspect

import pytest
from flowskit import kinds_of

from holdfast.errors import NondeterminismError
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.history import Status
from holdfast.workflows.api import context as hf
from holdfast.workflows.runtime.execution import Execution
from support.flows import START_MS, World


def send(to: str) -> str:
    return to


def bill(amount: int) -> int:
    return amount


def worlds():
    world = World()
    return world, world.activity(send, tag="mail"), world.activity(bill)


def recorded(make, drive=lambda world: None):
    """Run a workflow until it waits, and give the world it waits in."""
    world, mail, pay = worlds()
    world.start(world.workflow(make(mail, pay), name="onboard"))
    world.settle(world.now_ms)
    drive(world)
    world.settle(world.now_ms)
    return world


def difference(before, after, drive=lambda world: None, **options):
    """Record with one code, go on with another, and give the error."""
    world = recorded(before, drive)
    changed, mail, pay = worlds()
    changed.workflow(after(mail, pay), name="onboard", **options)
    changed.rows = world.rows
    changed.signal("go")
    with pytest.raises(NondeterminismError) as found:
        changed._run_turn("i")
    return found.value


def waits(mail, pay):
    async def onboard() -> None:
        await mail.call("a@example.com")
        await hf.signal("wait")

    return onboard


def test_the_message_names_event_both_sides_and_the_line():
    def sleeps(mail, pay):
        async def onboard() -> None:
            await asyncio.sleep(86_400)

        return onboard

    problem = difference(waits, sleeps)
    line = inspect.getsourcelines(sleeps)[1] + 2
    assert str(problem) == (
        "workflow 'onboard' 1.0.0, instance 'i', execution 1: event 2 differs (event 1 matches)\n"
        "  recorded: activity 'send' queue 'mail' input {\"to\":\"a@example.com\"}\n"
        f"  code now: timer 86400 s            test_history_match.py:{line} in "
        "test_the_message_names_event_both_sides_and_the_line.<locals>.sleeps.<locals>.onboard\n"
        '  If the change is meant, guard it with hf.patched("…") or register a new version.'
    )
    assert (problem.instance, problem.execution_id, problem.event_id) == ("i", 1, 2)
    assert problem.found == "timer 86400 s"
    assert problem.location.startswith("test_history_match.py:")


def test_the_line_is_known_inside_gather_too():
    def gathers(mail, pay):
        async def onboard() -> None:
            await asyncio.gather(pay.call(1), pay.call(2))

        return onboard

    problem = difference(waits, gathers)
    assert "onboard" in problem.location
    assert problem.found.startswith("activity 'bill'")


def change(kind):
    """Give a workflow before and after a change of one kind of command."""

    def build(variant):
        def make(mail, pay):
            async def onboard() -> None:
                await COMMANDS[kind][variant](mail, pay)
                await hf.signal("wait")

            return onboard

        return make

    return build(0), build(1)


async def _call_and_leave(call):
    task = asyncio.create_task(call)
    await asyncio.sleep(0)
    return task


async def _cancelled(call):
    task = await _call_and_leave(call)
    task.cancel()
    await asyncio.wait([task])


COMMANDS = {
    "task": (lambda mail, pay: _call_and_leave(mail.call("a")), lambda mail, pay: _call_and_leave(pay.call(1))),
    "input": (lambda mail, pay: _call_and_leave(mail.call("a")), lambda mail, pay: _call_and_leave(mail.call("b"))),
    "cancelled instead": (
        lambda mail, pay: _call_and_leave(mail.call("a")),
        lambda mail, pay: _no_longer(mail.call("a")),
    ),
    "decision options": (
        lambda mail, pay: _call_and_leave(hf.decision("Go?", ["yes", "no"])),
        lambda mail, pay: _call_and_leave(hf.decision("Go?", ["yes", "never"])),
    ),
    "signal target": (lambda mail, pay: _send("a"), lambda mail, pay: _send("b")),
    "key": (lambda mail, pay: _set("a", 1), lambda mail, pay: _set("a", 2)),
}


async def _no_longer(call):
    call.close()


async def _send(target):
    hf.send_signal(target, "hello", 1)


async def _set(key, value):
    hf.kv.set(key, value)
    hf.send_signal("x", "y")


@pytest.mark.parametrize("kind", list(COMMANDS))
def test_every_compared_part_is_compared(kind):
    before, after = change(kind)
    problem = difference(before, after)
    assert problem.event_id == 2
    assert problem.recorded != problem.found


def test_inputs_are_not_compared_when_that_is_turned_off():
    before, after = change("input")
    world = recorded(before)
    changed, mail, pay = worlds()
    changed.workflow(after(mail, pay), name="onboard", compare_inputs=False)
    changed.rows = world.rows
    changed.signal("wait")
    changed.settle()
    assert changed.rows["i"].status is Status.COMPLETED


def test_a_recorded_command_the_code_no_longer_gives_is_a_difference():
    def silent(mail, pay):
        async def onboard() -> None:
            await hf.signal("wait")

        return onboard

    problem = difference(waits, silent)
    assert problem.found == "nothing; it waits for signal 'wait'"


def test_code_that_ends_earlier_is_a_difference():
    def ends(mail, pay):
        async def onboard() -> None:
            return None

        return onboard

    assert difference(waits, ends).found == "returned null"


def test_a_new_command_in_the_middle_is_a_difference_and_past_the_end_new_work():
    def more(mail, pay):
        async def onboard() -> None:
            await mail.call("a@example.com")
            await pay.call(3)
            await hf.signal("wait")

        return onboard

    def signalled(world):
        world.signal("go")

    problem = difference(waits, more, signalled)
    assert problem.event_id == 4
    assert problem.recorded == "QueueEventDelivered"
    assert problem.found == "activity 'bill' queue 'default' input {\"amount\":3}"
    world = recorded(waits)
    changed, mail, pay = worlds()
    changed.workflow(more(mail, pay), name="onboard")
    changed.rows = world.rows
    changed.signal("wait")
    changed.settle()
    assert changed.rows["i"].status is Status.COMPLETED
    assert changed.called == ["bill"]


def test_steps_are_compared_by_number_and_name():
    def steps(name):
        def make(mail, pay):
            async def onboard() -> None:
                await hf.step.options(name="first")(int, 1)
                await hf.step.options(name=name)(int, 2)
                await hf.signal("wait")

            return onboard

        return make

    problem = difference(steps("charge"), steps("refund"))
    assert (problem.recorded, problem.found) == ("step 2 'charge'", "step 2 'refund'")


def test_a_timer_that_was_cancelled_cannot_have_fired():
    def fires(mail, pay):
        async def onboard() -> None:
            await asyncio.sleep(5)
            await hf.signal("wait")

        return onboard

    def stops(mail, pay):
        async def onboard() -> None:
            async with asyncio.timeout(5):
                await asyncio.sleep(0)
            await hf.signal("wait")

        return onboard

    def wait_for_it(world):
        world.settle(START_MS + 5000)

    problem = difference(fires, stops, wait_for_it)
    assert problem.recorded == "firing of event 2"
    assert problem.found == "event 2 is no longer waited for"


def test_the_time_of_a_timer_is_not_compared_and_the_recorded_one_holds():
    def sleeps(seconds):
        def make(mail, pay):
            async def onboard() -> float:
                await asyncio.sleep(seconds)
                return hf.now().timestamp() - hf.info().started_at.timestamp()

            return onboard

        return make

    world = recorded(sleeps(50))
    changed, mail, pay = worlds()
    workflow = changed.workflow(sleeps(70)(mail, pay), name="onboard")
    changed.rows = world.rows
    execution = Execution(workflow.definition, changed.definitions, "i", 1, {})
    execution.replay(world.history())
    assert execution.notes == ["event 2: the timer is now +20 s; the recorded time holds"]
    changed.settle()
    assert changed.result() == 50.0


def test_what_is_only_published_may_go_or_come():
    def talks(mail, pay):
        async def onboard() -> str:
            hf.set_status("begun")
            hf.kv.set("stage", 1)
            await mail.call("a@example.com")
            hf.set_status("sent")
            return await hf.signal("wait")

        return onboard

    def silent(mail, pay):
        async def onboard() -> str:
            await mail.call("a@example.com")
            return await hf.signal("wait")

        return onboard

    for before, after in ((talks, silent), (silent, _without_keys(talks))):
        world = recorded(before)
        changed, mail, pay = worlds()
        changed.workflow(after(mail, pay), name="onboard")
        changed.rows = world.rows
        changed.signal("wait", "done")
        changed.settle()
        assert changed.result() == "done"


def _without_keys(make):
    def again(mail, pay):
        async def onboard() -> str:
            hf.set_status("begun")
            await mail.call("a@example.com")
            hf.set_status("sent")
            return await hf.signal("wait")

        return onboard

    assert make
    return again


def test_keys_that_were_published_stay_as_the_store_has_them():
    def sets(mail, pay):
        async def onboard() -> int | None:
            hf.kv.set("stage", 1)
            await hf.signal("wait")
            return hf.kv.get("stage")

        return onboard

    def reads(mail, pay):
        async def onboard() -> int | None:
            await hf.signal("wait")
            return hf.kv.get("stage")

        return onboard

    world = recorded(sets)
    changed, mail, pay = worlds()
    changed.workflow(reads(mail, pay), name="onboard")
    changed.rows = world.rows
    changed.signal("wait")
    changed.settle()
    assert changed.result() == 1


def test_nothing_is_written_and_rolling_back_heals():
    def sleeps(mail, pay):
        async def onboard() -> None:
            await asyncio.sleep(86_400)

        return onboard

    world = recorded(waits)
    before = list(world.history())
    changed, mail, pay = worlds()
    changed.workflow(sleeps(mail, pay), name="onboard")
    changed.rows = world.rows
    changed.signal("wait")
    with pytest.raises(NondeterminismError):
        changed._run_turn("i")
    assert world.history() == before
    assert len(world.rows["i"].messages) == 1
    world.settle()
    assert world.rows["i"].status is Status.COMPLETED


def test_code_that_swallows_everything_is_found_out_all_the_same():
    def stubborn(mail, pay):
        async def onboard() -> None:
            while True:
                try:
                    await asyncio.sleep(86_400)
                except Exception:  # noqa: BLE001 - as careless as it gets
                    continue
                finally:
                    await persistent(pay)

        return onboard

    async def persistent(pay) -> None:
        while True:
            try:
                return await pay.call(1)
            except Exception:  # noqa: BLE001 - the same
                continue

    assert difference(waits, stubborn).event_id == 2


def test_a_workflow_may_choose_to_fail_instead():
    def sleeps(mail, pay):
        async def onboard() -> None:
            await asyncio.sleep(86_400)

        return onboard

    world = recorded(waits)
    changed, mail, pay = worlds()
    changed.workflow(sleeps(mail, pay), name="onboard", on_nondeterminism="fail")
    changed.rows = world.rows
    changed.signal("wait")
    changed._run_turn("i")
    assert changed.result().kind == "Nondeterminism"
    assert kinds_of(changed.history())[-1] == "OrchestrationFailed"


def test_replaying_an_ended_history_compares_the_result():
    def gives(value):
        def make(mail, pay):
            async def onboard() -> int:
                await hf.step(int, 1)
                return value

            return onboard

        return make

    world = recorded(gives(1))
    changed, mail, pay = worlds()
    workflow = changed.workflow(gives(2)(mail, pay), name="onboard")
    execution = Execution(workflow.definition, changed.definitions, "i", 1, {})
    execution.replay(world.history())
    assert isinstance(execution.blocked, NondeterminismError)
    assert (execution.blocked.recorded, execution.blocked.found) == ("returned 1", "returned 2")
    same = Execution(world.definitions.get("onboard"), world.definitions, "i", 1, {})
    same.replay(world.history())
    assert same.blocked is None
    assert same.terminal == event_kinds.OrchestrationCompleted(output="1")


# --- patches ----------------------------------------------------------------------------------------------------------


def patched(mail, pay):
    async def onboard() -> list[bool]:
        answers = [hf.patched("bill first")]
        if answers[0]:
            await pay.call(1)
        await mail.call("a@example.com")
        await hf.signal("wait")
        answers.append(hf.patched("bill first"))
        answers.append(hf.patched("later"))
        return answers

    return onboard


@pytest.mark.parametrize("sticky", [True, False])
def test_a_patch_is_false_for_what_passed_it_before_and_true_for_what_comes_to_it_now(sticky):
    world = recorded(waits)
    changed, mail, pay = worlds()
    changed._sticky = sticky
    workflow = changed.workflow(patched(mail, pay), name="onboard")
    changed.rows = world.rows
    changed.signal("wait")
    changed.settle()
    assert changed.result() == [False, False, True]
    fresh = changed.start(workflow, instance="new")
    changed.signal("wait", instance="new")
    changed.settle()
    assert changed.result(fresh) == [True, True, True]
    assert kinds_of(changed.history("new")).count("PatchRecorded") == 2


@pytest.mark.parametrize("sticky", [True, False])
def test_a_history_is_as_long_behind_a_patch_whether_resident_or_replayed(sticky):
    def sized(_mail, _pay):
        async def onboard() -> list[int]:
            hf.patched("p")
            size = hf.history_size()
            await hf.signal("wait")
            return [size, hf.history_size()]

        return onboard

    world, mail, pay = worlds()
    world._sticky = sticky
    world.start(world.workflow(sized(mail, pay), name="onboard"))
    world.settle()
    world.signal("wait")
    world.settle()
    assert world.result() == [2, 3]


def test_a_recorded_patch_whose_call_is_gone_is_tolerated():
    world = recorded(patched)

    def settled(mail, pay):
        async def onboard() -> str:
            await pay.call(1)
            await mail.call("a@example.com")
            return await hf.signal("wait")

        return onboard

    changed, mail, pay = worlds()
    changed.workflow(settled(mail, pay), name="onboard")
    changed.rows = world.rows
    changed.signal("wait", "done")
    changed.settle()
    assert changed.result() == "done"
