"""A new execution from a point of an old history."""

import asyncio
from uuid import UUID

import pytest
from flowskit import kinds_of
from msgspec.structs import replace

from holdfast.errors import InvalidValue
from holdfast.model.error_details import Category, ErrorDetails
from holdfast.model.workflows import event_kinds, work_items
from holdfast.model.workflows.block_reasons import Blockage
from holdfast.model.workflows.history import REPAIR_EVENT_ID, Event, OrchestrationItem, Status, TurnCommit
from holdfast.workflows.api import context as hf
from holdfast.workflows.replay.fork import (
    before_failure,
    children_left,
    copied_for_fork,
    copied_for_reset,
    delivered_again,
    demand_event,
    kept_messages,
)
from holdfast.workflows.runtime.completion import poison
from holdfast.workflows.runtime.turn import run_turn
from support.flows import World


def story_in(world):
    def double(x: int) -> int:
        return 2 * x

    double = world.activity(double)

    async def child() -> str:
        return await hf.signal("go")

    child = world.workflow(child)

    async def main() -> list:
        first = await double.call(1)
        second = await hf.step(int, "5")
        await asyncio.sleep(60)
        word, third = await asyncio.gather(child.call(), double.call(2))
        return [first, second, word, third]

    return world.workflow(main)


def forked(world, until, instance="copy"):
    """Begin another instance with a part of the history, as a store does."""
    copied = copied_for_fork(world.history()[:until], instance, world.now_ms)
    resume = work_items.ResumeInstance(instance=instance, execution_id=1)
    row = world._row(instance)
    world._apply(row, TurnCommit(execution_id=1, history_delta=tuple(copied), orchestrator_items=(resume,)))
    return copied


@pytest.fixture
def world():
    world = World()
    world.start(story_in(world))
    world.settle()
    world.signal("go", "old", instance="i::sub::1-7")
    world.settle()
    assert world.result() == [2, 5, "old", 4]
    return world


def test_a_fork_at_any_event_comes_to_the_same_end_with_work_of_its_own(world):
    length = len(world.history()) - 1
    for until in range(1, length + 1):
        name = f"copy-{until}"
        forked(world, until, name)
        world.settle()
        child = next((one for one in world.rows if one.startswith(f"{name}::sub::")), None)
        if child is not None:
            world.signal("go", "new", instance=child)
            world.settle()
        assert world.rows[name].status is Status.COMPLETED
        assert world.result(name) == [2, 5, "old" if child is None else "new", 4], f"until {until}"
    assert len(world.history()) == length + 1


def test_a_fork_detaches_instances_of_its_own_and_knows_those_it_was_copied_with():
    world = World()

    async def other(n: int) -> int:
        return n

    other = world.workflow(other)

    async def main() -> list[str]:
        first = other.start_detached(1).id
        await hf.signal("go")
        return [first, other.start_detached(2).id]

    world.start(world.workflow(main))
    world.signal("go", None)
    world.settle()
    first, second = world.result()
    forked(world, [type(event.kind).__name__ for event in world.history()].index("QueueEventDelivered"))
    world.signal("go", None, instance="copy")
    world.settle()
    again, own = world.result("copy")
    assert again == first
    assert own not in (first, second)
    assert {world.result(one) for one in (first, second, own)} == {1, 2}
    assert [type(event.kind).__name__ for event in world.history("copy")].count("OrchestrationChained") == 2
    # Ids of chance alone, as they were made once, are known as well.
    drawn = str(UUID(int=1, version=4))
    chained = world.history()[1]
    world.history()[1] = replace(chained, kind=replace(chained.kind, instance=drawn))
    forked(world, len(world.history()) - 1, "third")
    world.settle()
    assert world.result("third") == [drawn, second]


def resumed(world, until, execution_id=2, messages=()):
    """Run the first turn of a reset, and give what it commits."""
    copied = copied_for_reset(world.history()[:until], execution_id, world.now_ms)
    resume = work_items.ResumeInstance(instance="i", execution_id=execution_id)
    item = OrchestrationItem(
        instance="i",
        orchestration_name="main",
        execution_id=execution_id,
        version="1.0.0",
        history=tuple(copied),
        messages=(resume, *messages),
    )
    turn = run_turn(world.definitions, item, now_ms=world.now_ms)
    return turn.commit()


def test_a_reset_asks_for_open_work_by_the_execution_that_first_did(world):
    until = kinds_of(world.history()).index("TimerFired") + 3
    commit = resumed(world, until)
    (work,) = commit.worker_items
    assert (work.execution_id, work.id) == (1, 8)
    (child,) = [one for one in commit.orchestrator_items if isinstance(one, work_items.StartOrchestration)]
    assert (child.instance, child.parent_execution_id) == ("i::sub::2-7", 2)
    assert commit.history_delta == ()


def test_what_the_messages_of_the_first_turn_complete_is_not_asked_for_again(world):
    until = kinds_of(world.history()).index("TimerFired") + 3
    done = work_items.ActivityCompleted(instance="i", execution_id=1, id=8, result="4")
    commit = resumed(world, until, messages=(done,))
    assert commit.worker_items == ()
    assert kinds_of(commit.history_delta) == ["ActivityCompleted"]
    stray = work_items.ActivityCompleted(instance="i", execution_id=2, id=8, result="4")
    assert len(resumed(world, until, messages=(stray,)).worker_items) == 1


def test_a_timer_is_set_again_for_the_time_it_had(world):
    at = kinds_of(world.history()).index("TimerCreated")
    (timer,) = resumed(world, at + 1).orchestrator_items
    assert isinstance(timer, work_items.TimerFired)
    assert (timer.execution_id, timer.fire_at_ms) == (2, world.history()[at].kind.fire_at_ms)


def test_a_step_that_is_open_keeps_its_key(world):
    at = kinds_of(world.history()).index("StepCompleted")
    copied = copied_for_reset(world.history()[:at], 2, world.now_ms)
    item = OrchestrationItem(
        instance="i", orchestration_name="main", execution_id=2, version="1.0.0", history=tuple(copied), messages=()
    )
    turn = run_turn(world.definitions, item, now_ms=world.now_ms)
    (call,) = turn.take_steps()
    assert (call.execution_id, call.step_no) == (1, 1)


# --- patches ----------------------------------------------------------------------------------------------------------


def growing_in(world, patches):
    """Register a workflow that has come to know these patches."""

    def echo(x: str) -> str:
        return x

    echo = world.activity(echo, name="echo")

    async def main() -> list:
        answers = []
        for place in ("first", "second", "third"):
            answers.append(place in patches and hf.patched(place))
            answers.append(place in patches and hf.patched(f"{place} again"))
            await echo.call(f"{place} {answers[-2:]}")
            await hf.signal("go")
        return answers

    return world.workflow(main)


def grown(patches):
    world = World()
    world.start(growing_in(world, patches))
    for _ in range(3):
        world.settle()
        world.signal("go", None)
    world.settle()
    return world


@pytest.mark.parametrize("sticky", [True, False])
def test_behind_a_copy_a_patch_is_true_wherever_that_was_cut(sticky):
    old = grown(["first", "second", "third"])
    assert old.result() == [True] * 6
    for until in range(1, len(old.history())):
        world = World(sticky=sticky)
        growing_in(world, ["first", "second", "third"])
        world.rows["i"] = old.rows["i"]
        forked(world, until, "copy")
        for _ in range(3):
            world.settle()
            world.signal("go", None, instance="copy")
        world.settle()
        assert world.result("copy") == [True] * 6, f"until {until}"
        patches = [
            event.kind.id for event in world.history("copy") if isinstance(event.kind, event_kinds.PatchRecorded)
        ]
        assert len(patches) == len(set(patches)) == 6


@pytest.mark.parametrize("sticky", [True, False])
def test_within_a_copy_a_patch_is_false_that_its_code_did_not_know(sticky):
    old = grown([])
    history = kinds_of(old.history())
    for until in range(1, len(history)):
        world = World(sticky=sticky)
        growing_in(world, ["first", "second", "third"])
        world.rows["i"] = old.rows["i"]
        forked(world, until, "copy")
        for _ in range(3):
            world.settle()
            world.signal("go", None, instance="copy")
        world.settle()
        # Whoever has called is past the patch before the call.
        passed = history[:until].count("ActivityScheduled")
        assert world.result("copy") == [False] * 2 * passed + [True] * 2 * (3 - passed), f"until {until}"


def test_code_that_waited_behind_its_last_event_was_there_before_a_patch_was():
    def build(world, *, is_new):
        async def main() -> bool:
            answer = is_new and hf.patched("p")
            await hf.signal("go")
            return answer

        return world.workflow(main)

    world = World()
    world.start(build(world, is_new=False))
    world.settle()
    changed = World()
    build(changed, is_new=True)
    changed.rows = world.rows
    forked(changed, 1)
    for instance in ("i", "copy"):
        changed.signal("go", None, instance=instance)
    changed.settle()
    assert (changed.result("i"), changed.result("copy")) == (False, True)


# --- up to where ------------------------------------------------------------------------------------------------------


def events(*given):
    return [
        Event(event_id=at, instance="i", execution_id=1, timestamp_ms=at, kind=kind, source_event_id=source)
        for at, (kind, source) in enumerate(((one if isinstance(one, tuple) else (one, None)) for one in given), 1)
    ]


START = event_kinds.OrchestrationStarted(name="main", version="1.0.0", input="{}")
ASKED = event_kinds.ActivityScheduled(name="a", input="{}")
DONE = (event_kinds.ActivityCompleted(result="1"), 2)


def failure(kind="Error", category=Category.APPLICATION, message="", data=None):
    return event_kinds.OrchestrationFailed(
        details=ErrorDetails(category=category, kind=kind, message=message, data=data)
    )


@pytest.mark.parametrize(
    ("history", "kept"),
    [
        # What came in last, and what it led to, is taken back.
        ((START, ASKED, DONE, failure()), 2),
        ((START, ASKED, DONE, event_kinds.PatchRecorded(id="p"), failure()), 2),
        ((START, failure()), 1),
        ((START, ASKED, DONE, event_kinds.OrchestrationCompleted(output="1")), 2),
        # What was ended from outside did not fail.
        ((START, ASKED, DONE, failure("Dead", Category.POISON)), 3),
        ((START, ASKED, DONE, failure("Cancelled")), 3),
        ((START, ASKED, event_kinds.OrchestrationCancelRequested(reason="r"), failure("Cancelled")), 2),
        (
            (
                START,
                (event_kinds.TimerCreated(fire_at_ms=5), 1),
                (event_kinds.TimerFired(fire_at_ms=5), 2),
                failure("Cancelled"),
            ),
            2,
        ),
        # What goes on stands where it stands.
        ((START, ASKED, DONE), 3),
    ],
)
def test_a_copy_ends_before_the_turn_that_failed(history, kept):
    assert before_failure(events(*history), None) == kept


def test_what_its_code_does_not_follow_is_kept_up_to_the_difference():
    text = (
        "workflow 'main' 1.0.0, instance 'i', execution 1: event 3 differs (events 1-2 match)\n"
        "  recorded: completion of event 2\n  code now: nothing"
    )
    assert before_failure(events(START, ASKED, DONE), Blockage("Nondeterminism", text)) == 2
    assert before_failure(events(START, ASKED, DONE), Blockage("Input", "no")) == 3
    assert before_failure(events(START, ASKED, DONE, failure("Nondeterminism", message=text)), None) == 2


def test_what_was_ended_by_hand_is_kept_whole():
    *rest, last = events(START, ASKED, DONE, failure())
    by_hand = Event(event_id=REPAIR_EVENT_ID, instance="i", execution_id=1, timestamp_ms=9, kind=last.kind)
    assert before_failure([*rest, by_hand], None) == 3
    assert demand_event([*rest, by_hand], REPAIR_EVENT_ID) == 3


def test_an_event_that_is_not_there_is_refused():
    history = events(START, ASKED, DONE, failure())
    assert [demand_event(history, at) for at in (1, 2, 3, 4)] == [1, 2, 3, 3]
    for at in (0, 5, -1):
        with pytest.raises(InvalidValue, match="events 1-3"):
            demand_event(history, at)


# --- what is delivered again ------------------------------------------------------------------------------------------


def test_signals_and_answers_that_came_later_are_delivered_again_in_their_order():
    history = events(
        START,
        event_kinds.DecisionRequested(prompt="?"),
        event_kinds.QueueEventDelivered(name="s", data="1"),
        (event_kinds.DecisionResolved(chosen="yes", by="ann"), 2),
        event_kinds.ExternalEvent(name="e", data="2"),
        event_kinds.DecisionRequested(prompt="later"),
        (event_kinds.DecisionResolved(chosen="no", by="ann"), 6),
        failure(),
    )
    told = [(type(item).__name__, item.name, at) for item, at in delivered_again(history[:2], history[2:])]
    assert told == [("QueueMessage", "s", 3), ("QueueMessage", "@decision/2", 4), ("ExternalRaised", "e", 5)]
    expired = events(
        START, event_kinds.DecisionRequested(prompt="?"), (event_kinds.DecisionResolved(chosen="x", by="expiry"), 2)
    )
    assert list(delivered_again(expired[:2], expired[2:])) == []


def test_messages_that_an_end_kept_are_delivered_again(world):
    item = OrchestrationItem(
        instance="i",
        orchestration_name="main",
        execution_id=1,
        version="1.0.0",
        history=tuple(world.history()[:2]),
        messages=(
            work_items.QueueMessage(instance="i", name="s", data="1"),
            work_items.StartOrchestration(instance="i", orchestration="main", input="{}"),
            work_items.ActivityCompleted(instance="i", execution_id=1, id=2, result="2"),
        ),
    )
    ended = poison(item, 11, world.now_ms).history_delta
    told = [type(one).__name__ for one, _ in delivered_again(world.history()[:2], ended)]
    assert told == ["QueueMessage", "ActivityCompleted"]
    assert kept_messages(failure(data='{"members": []}').details) == []


def test_children_of_a_given_up_execution_are_asked_to_stop_unless_they_are_awaited(world):
    history = world.history()[:8]
    copied = copied_for_reset(history, 2, world.now_ms)
    assert [one.instance for one in children_left(history, copied)] == ["i::sub::1-7"]
    assert children_left(history, history) == []


def test_the_workflows_own_timeout_counts_from_the_copy_on():
    history = events(START, (event_kinds.TimerCreated(fire_at_ms=1002), 1), ASKED)
    assert copied_for_reset(history, 2, 50_000)[1].kind.fire_at_ms == 51_000
    fired = [*history, *events(START, START, START, (event_kinds.TimerFired(fire_at_ms=1002), 2))[3:]]
    assert copied_for_reset(fired, 2, 50_000)[1].kind.fire_at_ms == 1002
