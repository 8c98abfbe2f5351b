"""One batch of messages in, one commit out."""

import asyncio
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import msgspec
import pytest
from flowskit import kinds_of

from holdfast.errors import HistoryCorrupt, WorkflowNotAllowed
from holdfast.model.error_details import CANCELLED, EXISTS
from holdfast.model.workflows import event_kinds, work_items
from holdfast.model.workflows.history import OrchestrationItem, Status
from holdfast.workflows.api import context as hf
from holdfast.workflows.runtime.turn import run_turn
from support.flows import START_MS, World


def item(messages, history=(), *, execution_id=1, instance="i", **rest):
    return OrchestrationItem(
        instance=instance,
        orchestration_name="main",
        execution_id=execution_id,
        version="1.0.0",
        history=tuple(history),
        messages=tuple(messages),
        **rest,
    )


def start(instance="i", *, given="{}", **rest):
    return work_items.StartOrchestration(instance=instance, orchestration="main", input=given, **rest)


def signal(name, data="null"):
    return work_items.QueueMessage(instance="i", name=name, data=data)


@pytest.fixture
def world():
    return World()


def activity_workflow(world):
    def double(x: int) -> int:
        return 2 * x

    double = world.activity(double)

    async def main() -> int:
        return await double.call(1) + await double.call(2)

    return world.workflow(main)


def turn_of(world, messages, history=(), now_ms=START_MS, **rest):
    return run_turn(world.definitions, item(messages, history, **rest), now_ms=now_ms, seed=7)


# --- starting ---------------------------------------------------------------------------------------------------------


def test_a_start_is_taken_first_wherever_it_stands(world):
    async def main() -> str:
        return await hf.signal("word")

    world.workflow(main)
    turn = turn_of(world, [signal("word", '"hello"'), start()])
    commit = turn.commit()
    assert kinds_of(commit.history_delta) == ["OrchestrationStarted", "QueueEventDelivered", "OrchestrationCompleted"]
    assert commit.metadata.status is Status.COMPLETED
    assert commit.metadata.output == '"hello"'


def test_the_first_commit_introduces_the_execution(world):
    activity_workflow(world)
    metadata = turn_of(world, [start(parent_instance="p", parent_id=4, parent_execution_id=2)]).commit().metadata
    assert (metadata.status, metadata.orchestration_name, metadata.orchestration_version) == (
        Status.RUNNING,
        "main",
        "1.0.0",
    )
    assert metadata.parent_instance_id == "p"
    assert metadata.pinned_engine_version
    assert metadata.waiting_on == ("activity 2 'double'",)


def test_an_unregistered_workflow_is_abandoned_and_named(world):
    turn = turn_of(world, [start()])
    assert turn.stage == "abandoned"
    assert turn.abandoned.is_unregistered
    assert "'main'" in turn.abandoned.reason


def test_an_unregistered_version_is_abandoned_and_named(world):
    activity_workflow(world)
    turn = turn_of(world, [start(version="2.0.0")])
    assert turn.abandoned.reason == "no live worker has workflow 'main' 2.0.0"


def test_a_start_takes_the_newest_version_and_stays_on_it(world):
    async def old() -> str:
        return await hf.signal("go")

    async def new() -> str:
        return "new"

    world.workflow(old, name="main", version="1.9.0")
    world.start(world.workflow(old, name="main", version="1.10.0"))
    world.settle()
    world.workflow(new, name="main", version="2.0.0")
    world.forget()
    world.signal("go", "old")
    world.settle()
    assert world.result() == "old"
    assert world.history()[0].kind.version == "1.10.0"


def test_a_duplicate_start_changes_nothing(world):
    workflow = activity_workflow(world)
    world.start(workflow)
    world.move()
    world.start(workflow)
    world.settle()
    assert world.result() == 6
    assert [reason for _, reason in world.dropped] == ["the execution has begun already"]


def test_another_parent_that_asked_for_the_id_is_told(world):
    activity_workflow(world)
    first = turn_of(world, [start(parent_instance="mother", parent_id=2, parent_execution_id=1)])
    history = first.commit().history_delta
    again = start(parent_instance="mother", parent_id=2, parent_execution_id=1)
    other = start(parent_instance="stranger", parent_id=9, parent_execution_id=3)
    commit = turn_of(world, [again, other], history).commit()
    (told,) = commit.orchestrator_items
    assert (told.parent_instance, told.parent_execution_id, told.parent_id) == ("stranger", 3, 9)
    assert told.details.kind == EXISTS
    assert "already exists" in told.details.message


def test_an_instance_that_has_ended_still_tells_another_parent(world):
    async def main() -> int:
        return 1

    world.workflow(main)
    history = turn_of(world, [start()]).commit().history_delta
    turn = turn_of(world, [start(parent_instance="stranger", parent_id=9)], history)
    assert [type(one).__name__ for one in turn.commit().orchestrator_items] == ["SubOrchFailed"]
    assert turn.commit().history_delta == ()


ENDS = {"Completed": "1", "Failed": "no", "Cancelled": "enough"}


def ended_child(world, end, given="{}"):
    """Give the history of an instance that was begun for event 2 of its mother's first execution, and ended so."""

    async def main(n: int = 1) -> int:
        if end == "Failed":
            raise ValueError("no")
        return n if end == "Completed" else await hf.signal("never")

    world.workflow(main)
    begin = start(given=given, parent_instance="mother", parent_id=2, parent_execution_id=1)
    forced = work_items.CancelInstance(instance="i", reason="enough", force=True)
    return turn_of(world, [begin, *([forced] if end == "Cancelled" else [])]).commit().history_delta


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("link", [(2, 1), (2, 2), (5, 1)])
def test_a_parent_that_asks_again_for_a_child_that_has_ended_is_told_how(world, end, link):
    history = ended_child(world, end)
    again = start(parent_instance="mother", parent_id=link[0], parent_execution_id=link[1])
    turn = turn_of(world, [again, again], history)
    told, twice = turn.commit().orchestrator_items
    assert told == twice
    assert (told.parent_instance, told.parent_id, told.parent_execution_id) == ("mother", *link)
    assert ENDS[end] == (told.result if end == "Completed" else told.details.message)
    assert turn.commit().history_delta == ()


def test_a_parent_that_asks_for_something_else_under_the_id_of_an_ended_child_is_told_that_it_exists(world):
    history = ended_child(world, "Completed")
    other = start(given='{"n":2}', parent_instance="mother", parent_id=2, parent_execution_id=2)
    renamed = msgspec.structs.replace(other, orchestration="another", input="{}")
    told = turn_of(world, [other, renamed], history).commit().orchestrator_items
    assert [one.details.kind for one in told] == [EXISTS, EXISTS]


def test_a_child_that_continued_with_other_input_is_known_by_what_it_was_begun_with(world):
    history = ended_child(world, "Completed", '{"n":9}')  # as its last execution says
    again = start(parent_instance="mother", parent_id=5, parent_execution_id=1)
    digest = work_items.start_digest("main", "{}")
    (told,) = turn_of(world, [again], history, digest=digest).commit().orchestrator_items
    assert told.result == "9"


def test_who_asks_in_the_very_turn_of_the_end_is_told_once(world):
    async def main() -> int:
        return await hf.signal("n", type=int)

    world.workflow(main)
    begin = start(parent_instance="mother", parent_id=2, parent_execution_id=1)
    again = msgspec.structs.replace(begin, parent_execution_id=2)
    other = msgspec.structs.replace(begin, parent_instance="stranger")
    told = turn_of(world, [begin, signal("n", "7"), begin, again, other]).commit().orchestrator_items
    found = {(one.parent_instance, one.parent_execution_id): type(one).__name__ for one in told}
    assert len(told) == 3
    assert found == {
        ("mother", 1): "SubOrchCompleted",
        ("mother", 2): "SubOrchCompleted",
        ("stranger", 1): "SubOrchFailed",
    }


def test_who_asks_for_an_instance_that_is_ended_without_its_code_is_told(world):
    begin = start(parent_instance="mother", parent_id=2, parent_execution_id=1)
    other = msgspec.structs.replace(begin, parent_instance="stranger")
    forced = work_items.CancelInstance(instance="i", reason="enough", force=True)
    told = turn_of(world, [begin, other, forced]).commit().orchestrator_items
    assert {one.parent_instance: one.details.kind for one in told} == {"mother": CANCELLED, "stranger": EXISTS}
    assert len(told) == 2


# --- filtering --------------------------------------------------------------------------------------------------------


def test_late_doubled_and_foreign_completions_are_dropped_and_never_an_error(world):
    activity_workflow(world)
    history = turn_of(world, [start()]).commit().history_delta
    done = work_items.ActivityCompleted(instance="i", execution_id=1, id=2, result="2")
    strange = [
        work_items.ActivityCompleted(instance="i", execution_id=9, id=2, result="0"),
        work_items.ActivityCompleted(instance="i", execution_id=1, id=77, result="0"),
        work_items.ActivityCompleted(instance="i", execution_id=1, id=1, result="0"),
        work_items.TimerFired(instance="i", execution_id=1, id=2, fire_at_ms=0),
        work_items.SubOrchCompleted(parent_instance="i", parent_execution_id=1, parent_id=2, result="0"),
        work_items.ActivityExecute(instance="i", execution_id=1, id=2, name="double", input="{}"),
    ]
    turn = turn_of(world, [*strange, done, done], history)
    assert len(turn.dropped) == len(strange) + 1
    assert kinds_of(turn.commit().history_delta) == ["ActivityCompleted", "ActivityScheduled"]


def test_messages_after_the_end_are_dropped_and_counted(world):
    async def main() -> str:
        return await hf.signal("word")

    world.workflow(main)
    turn = turn_of(world, [start(), signal("word", '"a"'), signal("word", '"b"')])
    assert turn.commit().metadata.output == '"a"'
    assert [message.data for message, _ in turn.dropped] == ['"b"']


def test_messages_for_an_ended_instance_are_settled_without_a_trace_in_its_history(world):
    async def main() -> int:
        return 1

    world.workflow(main)
    history = turn_of(world, [start()]).commit().history_delta
    turn = turn_of(world, [signal("late")], history)
    assert turn.stage == "over"
    assert turn.commit().history_delta == ()
    assert len(turn.dropped) == 1


def test_an_execution_that_continued_waits_for_its_successor(world):
    async def main() -> None:
        hf.continue_as_new()

    world.workflow(main)
    history = turn_of(world, [start()]).commit().history_delta
    turn = turn_of(world, [signal("word")], history)
    assert turn.stage == "abandoned"
    assert turn.abandoned.delay_s == 0.5


# --- order ------------------------------------------------------------------------------------------------------------


def test_an_answer_that_came_before_the_deadline_wins_even_if_both_are_found_together(world):
    async def main() -> str:
        try:
            async with asyncio.timeout(60):
                return await hf.signal("answer")
        except TimeoutError:
            return "late"

    world.workflow(main)
    history = turn_of(world, [start()]).commit().history_delta
    timer = work_items.TimerFired(instance="i", execution_id=1, id=2, fire_at_ms=START_MS + 60_000)
    answer = signal("answer", '"in time"')
    later = START_MS + 3_600_000
    assert turn_of(world, [answer, timer], history, later).commit().metadata.output == '"in time"'
    assert turn_of(world, [timer, answer], history, later).commit().metadata.output == '"late"'


def test_a_timer_made_and_cancelled_in_one_turn_is_never_queued(world):
    async def main() -> int:
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
        await hf.signal("never")
        return 1

    world.workflow(main)
    commit = turn_of(world, [start()]).commit()
    assert kinds_of(commit.history_delta) == ["OrchestrationStarted", "TimerCreated"]
    assert commit.orchestrator_items == ()
    assert commit.cancelled_timers == ()


def test_a_cancelled_timer_of_an_earlier_turn_is_taken_back(world):
    async def main() -> None:
        async with asyncio.timeout(60):
            await hf.signal("go")
        await hf.signal("never")

    world.workflow(main)
    history = turn_of(world, [start()]).commit().history_delta
    commit = turn_of(world, [signal("go")], history).commit()
    assert commit.cancelled_timers == (2,)


# --- ending -----------------------------------------------------------------------------------------------------------


def everything_open(world, ending):
    def work() -> int:
        return 1

    work = world.activity(work)

    async def child() -> None:
        await hf.signal("never")

    child = world.workflow(child)

    async def main() -> str:
        tasks = [
            asyncio.create_task(work.call()),
            asyncio.create_task(asyncio.sleep(1000)),
            asyncio.create_task(child.call()),
            asyncio.create_task(child.options(id="left", on_parent_end="leave").call()),
            asyncio.create_task(hf.decision("Really?", ["yes"], timeout=50)),
        ]
        await asyncio.sleep(0)
        assert tasks
        child.options(id="own").start_detached()
        hf.send_signal("friend", "hello", 1)
        return await ending()

    world.workflow(main)


async def return_at_once():
    return "done"


async def fail_at_once():
    raise RuntimeError("no")


async def continue_at_once():
    hf.continue_as_new()


@pytest.mark.parametrize("ending", [return_at_once, fail_at_once, continue_at_once])
def test_what_is_open_ends_in_the_same_commit_and_what_is_detached_is_honoured(world, ending):
    everything_open(world, ending)
    commit = turn_of(world, [start()]).commit()
    by_kind = {}
    for event in commit.history_delta:
        by_kind.setdefault(type(event.kind).__name__, []).append(event.event_id)
    assert [one.activity_id for one in commit.cancelled_activities] == by_kind["ActivityScheduled"]
    assert len(commit.worker_items) == 1
    assert commit.cancelled_timers == ()
    assert not [one for one in commit.orchestrator_items if isinstance(one, work_items.TimerFired)]
    sent = [(type(one).__name__, getattr(one, "instance", "")) for one in commit.orchestrator_items]
    assert ("StartOrchestration", "own") in sent
    assert ("QueueMessage", "friend") in sent
    assert [name for kind, name in sent if kind == "CancelInstance"] == [
        f"i::sub::1-{by_kind['SubOrchestrationScheduled'][0]}"
    ]
    assert kinds_of(commit.history_delta)[-1] in {
        "OrchestrationCompleted",
        "OrchestrationFailed",
        "OrchestrationContinuedAsNew",
    }


def test_leftover_tasks_are_cancelled_and_may_ask_for_nothing(world):
    story = []

    def work() -> int:
        return 1

    work = world.activity(work)

    async def leftover() -> None:
        try:
            await hf.signal("never")
        finally:
            story.append("cancelled")
            await work.call()
            story.append("never reached")

    async def main() -> int:
        task = asyncio.create_task(leftover())
        await asyncio.sleep(1)
        assert task
        return 5

    assert world.run(world.workflow(main)) == 5
    assert story == ["cancelled"]
    assert "ActivityScheduled" not in kinds_of(world.history())


@pytest.mark.parametrize("ends", ["returns", "continues", "continues elsewhere"])
def test_however_code_ends_its_leftover_tasks_are_cancelled(world, ends):
    story = []

    async def leftover() -> None:
        try:
            await hf.signal("never")
        except BaseException as problem:
            story.append(type(problem).__name__)
            await asyncio.sleep(0)
            story.append("cleaned up")
            raise

    async def other() -> None:
        hf.continue_as_new("returns")

    async def main(ends: str) -> str:
        left = asyncio.create_task(leftover())
        await hf.signal("go")
        if ends == "continues":
            hf.continue_as_new("returns")
        if ends == "continues elsewhere":
            await asyncio.create_task(other())
        assert left
        return ends

    workflow = world.workflow(main)
    world.start(workflow, ends)
    for _ in range(2 if ends == "returns" else 3):
        world.settle()
        world.signal("go")
    world.settle()
    assert world.result() == "returns"
    assert story == ["CancelledError", "cleaned up"] * (1 if ends == "returns" else 2)


@pytest.mark.parametrize("sticky", [True, False])
@pytest.mark.parametrize("reader", ["main", "leftover", "def"])
def test_what_clean_up_would_read_passes_to_the_next_execution(sticky, reader):
    world = World(sticky=sticky)

    async def leftover() -> None:
        try:
            await hf.signal("never")
        finally:
            await hf.signal("n")

    async def main(*, is_next: bool = False) -> list:
        if is_next:
            return [await hf.signal("n") for _ in range(3)]
        left = asyncio.create_task(leftover()) if reader == "leftover" else None
        await hf.signal("go")
        try:
            hf.continue_as_new(is_next=True)
        finally:
            if left is None:
                await hf.signal("n")

    def blocking(*, is_next: bool = False) -> list:
        if is_next:
            return [hf.signal("n") for _ in range(3)]
        hf.signal("go")
        try:
            hf.continue_as_new(is_next=True)
        finally:
            hf.signal("n")

    world.start(world.workflow(blocking if reader == "def" else main))
    for number in range(3):
        world.signal("n", number)
    world.signal("go")
    world.settle()
    assert world.result() == [0, 1, 2]


@pytest.mark.parametrize("way", ["async def", "def"])
def test_finally_blocks_can_tell_that_the_workflow_only_leaves_this_process(way, caplog):
    world, story = World(guarded=True), []

    def clean_up(seen):
        story.append((seen, hf.is_leaving()))
        hf.log.warning("cleaned up")
        for effect in (lambda: hf.set_status("over"), lambda: subprocess.run(["true"], check=True)):
            with suppress(WorkflowNotAllowed):
                effect()
                story.append("an effect")

    async def waits() -> str:
        try:
            await hf.signal("go")
        finally:
            clean_up("main")
        return "done"

    async def main() -> str:
        beside = asyncio.create_task(waits())
        try:
            return await beside
        finally:
            clean_up("outer")

    def blocking() -> str:
        try:
            hf.signal("go")
        finally:
            clean_up("main")
        return "done"

    world.start(world.workflow(blocking if way == "def" else main))
    world.settle()
    world.forget()
    assert story
    assert {leaving for _, leaving in story} == {True}
    assert caplog.records == []
    story.clear()
    world.signal("go")
    world.settle()
    assert world.result() == "done"
    assert story[0] == ("main", False)
    assert "cleaned up" in caplog.text


def test_finally_blocks_of_an_ended_workflow_are_not_told_that_it_leaves(world):
    story = []

    async def leftover() -> None:
        try:
            await hf.signal("never")
        finally:
            story.append(hf.is_leaving())

    async def main() -> None:
        left = asyncio.create_task(leftover())
        await asyncio.sleep(0)
        assert left

    world.run(world.workflow(main))
    assert story == [False]


def test_a_result_that_is_not_json_fails_the_workflow_with_kind_encoding(world):
    async def main():
        return object()

    details = world.run(world.workflow(main))
    assert details.kind == "Encoding"
    assert world.rows["i"].status is Status.FAILED


def test_sys_exit_fails_the_workflow_and_not_its_worker(world):
    async def main():
        raise SystemExit(3)

    assert world.run(world.workflow(main)).type_name == "SystemExit"


def test_the_parent_is_told_of_the_end(world):
    async def main() -> int:
        return 4

    world.workflow(main)
    commit = turn_of(world, [start(parent_instance="p", parent_id=5, parent_execution_id=2)]).commit()
    (told,) = commit.orchestrator_items
    assert told == work_items.SubOrchCompleted(parent_instance="p", parent_execution_id=2, parent_id=5, result="4")


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        lambda history: history[1:],
        lambda history: [*history[:1], *history[2:]],
        lambda history: [
            *history,
            msgspec.structs.replace(history[-1], kind=event_kinds.TimerFired(fire_at_ms=0), event_id=9),
        ],
    ],
    ids=["headless", "gap", "ids jump"],
)
def test_a_damaged_history_blocks_and_nothing_is_written(world, damage):
    activity_workflow(world)
    world.workflow(activity_free, name="other")
    history = list(turn_of(world, [start()]).commit().history_delta)
    done = work_items.ActivityCompleted(instance="i", execution_id=1, id=2, result="2")
    history.extend(turn_of(world, [done], history).commit().history_delta)
    turn = turn_of(world, [signal("word")], damage(history))
    assert turn.stage == "blocked"
    assert isinstance(turn.blocked.error, HistoryCorrupt)


async def activity_free() -> None:
    return None


def test_a_completion_without_its_schedule_is_damage(world):
    activity_workflow(world)
    history = list(turn_of(world, [start()]).commit().history_delta)
    stray = msgspec.structs.replace(
        history[-1], event_id=3, kind=event_kinds.ActivityCompleted(result="1"), source_event_id=1
    )
    turn = turn_of(world, [signal("word")], [*history, stray])
    assert isinstance(turn.blocked.error, HistoryCorrupt)


def test_an_unreadable_history_blocks_until_it_is_forced(world):
    activity_workflow(world)
    broken = turn_of(world, [signal("word")], history_error="execution 1, event 4: not JSON")
    assert broken.blocked.kind == "HistoryCorrupt"
    force = work_items.CancelInstance(instance="i", reason="give up", force=True)
    commit = turn_of(world, [force], history_error="execution 1, event 4: not JSON").commit()
    assert commit.history_delta[0].event_id == 2**31 - 1
    assert commit.metadata.status is Status.CANCELLED


def test_an_instance_without_code_can_be_forced_to_end(world):
    activity_workflow(world)
    history = turn_of(world, [start()]).commit().history_delta
    empty = World()
    assert turn_of(empty, [signal("word")], history).stage == "abandoned"
    force = work_items.CancelInstance(instance="i", reason="give up", force=True)
    commit = turn_of(empty, [force], history).commit()
    assert [one.activity_id for one in commit.cancelled_activities] == [2]
    assert commit.history_delta[0].kind.details.kind == CANCELLED


def test_a_recorded_input_that_no_longer_fits_blocks(world):
    async def main(user: int) -> int:
        return user

    world.workflow(main)
    turn = turn_of(world, [start()])
    assert turn.blocked.kind == "Input"
    assert "user" in turn.blocked.text


# --- steps in a turn --------------------------------------------------------------------------------------------------


def slow_step(world):
    async def main() -> str:
        try:
            async with asyncio.timeout(10):
                return await hf.step(str, "done")
        except TimeoutError:
            return "late"

    world.workflow(main)


def test_a_timer_that_fires_while_a_step_runs_is_delivered_within_the_turn(world):
    slow_step(world)
    turn = turn_of(world, [start()])
    (call,) = turn.take_steps()
    assert not turn.is_idle
    turn.deliver(
        [work_items.TimerFired(instance="i", execution_id=1, id=2, fire_at_ms=START_MS + 10_000)], START_MS + 10_000
    )
    assert turn.take_stopped_steps() == [1]
    turn.finish_step(call.step_no, '"too late"', START_MS + 11_000)
    assert turn.stage == "over"
    assert turn.commit().metadata.output == '"late"'


def test_steps_that_run_when_the_workflow_ends_are_stopped(world):
    slow_step(world)
    turn = turn_of(world, [start()])
    turn.take_steps()
    turn.deliver([work_items.CancelInstance(instance="i", reason="now", force=True)], START_MS)
    assert turn.take_stopped_steps() == [1]


def test_a_turn_that_goes_on_under_its_lock_leaves_a_waker_and_takes_it_back(world):
    async def main() -> int:
        return await hf.step(int, 1) + await hf.step(int, 2)

    world.workflow(main)
    turn = turn_of(world, [start()])
    (call,) = turn.take_steps()
    turn.finish_step(call.step_no, "1", START_MS)
    assert turn.must_commit
    assert turn.take_steps() == []
    held = turn.commit(hold_until_ms=START_MS + 30_000)
    assert held.orchestrator_items == (
        work_items.TimerFired(instance="i", execution_id=1, id=0, fire_at_ms=START_MS + 30_000),
    )
    (call,) = turn.take_steps()
    turn.finish_step(call.step_no, "2", START_MS)
    last = turn.commit()
    assert last.cancelled_timers == (0,)
    assert last.metadata.output == "3"


def test_a_worker_that_dies_under_its_lock_is_followed_by_another(world):
    async def main() -> int:
        return await hf.step(int, 1) + await hf.step(int, 2)

    world = World(crashes=[(1, "before")])
    assert world.run(world.workflow(main)) == 3
    assert world.now_ms == START_MS + 30_000


def test_signals_and_cancels_that_meet_a_continuation_go_on(world):
    async def main() -> None:
        await hf.signal("go")
        hf.continue_as_new()

    world.workflow(main)
    messages = [
        start(),
        signal("unread", "1"),
        signal("go"),
        signal("late", "2"),
        work_items.ExternalRaised(instance="i", name="outside", data="3"),
        work_items.CancelInstance(instance="i", reason="stop"),
        work_items.ActivityCompleted(instance="i", execution_id=1, id=9, result="0"),
    ]
    turn = turn_of(world, messages)
    following, cancel = turn.commit().orchestrator_items
    assert following.carry_forward_events == (("unread", "1"), ("late", "2"), ("outside", "3"))
    assert isinstance(cancel, work_items.CancelInstance)
    assert len(turn.dropped) == 1


# --- residents --------------------------------------------------------------------------------------------------------


def test_a_resident_that_is_behind_is_dropped_and_replayed(world):
    activity_workflow(world)
    first = turn_of(world, [start()])
    history = list(first.commit().history_delta)
    done = work_items.ActivityCompleted(instance="i", execution_id=1, id=2, result="2")
    history.extend(turn_of(world, [done], history).commit().history_delta)
    again = work_items.ActivityCompleted(instance="i", execution_id=1, id=4, result="4")
    turn = run_turn(world.definitions, item([again], history), now_ms=START_MS, resident=first.execution)
    assert turn.execution is not first.execution
    assert first.execution._loop.is_closed()
    assert turn.commit().metadata.output == "6"


def test_a_resident_may_go_on_in_another_thread(world):
    def double(x: int) -> int:
        return 2 * x

    double = world.activity(double)

    async def numbers():
        for n in range(5):
            yield await double.call(n)

    async def main() -> list[int]:
        found = [n async for n in numbers()]
        return [*found, *await asyncio.gather(double.call(7), asyncio.sleep(1, 8))]

    world.start(world.workflow(main))
    moved = True
    while moved:
        with ThreadPoolExecutor(1) as thread:
            moved = thread.submit(lambda: world.move() or world._jump(None)).result()
    assert world.result() == [0, 2, 4, 6, 8, 14, 8]


def test_a_type_that_raises_anything_blocks_or_fails_and_never_breaks_the_turn(world):
    class Careless(msgspec.Struct):
        value: int = 0

        def __post_init__(self):
            if self.value == 0:
                raise RuntimeError("never zero")

    async def main(first: Careless) -> int:
        return 1

    world.workflow(main)
    careless = work_items.StartOrchestration(instance="i", orchestration="main", input='{"first":{}}')
    assert turn_of(world, [careless]).blocked.kind == "Input"
