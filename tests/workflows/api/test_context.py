"""What workflow code may call: signals, decisions, values, state, continue-as-new."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from flowskit import assert_alike, kinds_of, run

from holdfast.errors import InvalidValue, WorkflowCodeError
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.history import Status
from holdfast.model.workflows.work_items import QueueMessage
from holdfast.workflows.api import context as hf
from support.flows import START_MS, World


class Payment(msgspec.Struct):
    amount: int


def result_of(main, *sends, **options):
    world = World(**options)
    world.start(world.workflow(main))
    for send in sends:
        send(world)
    world.settle()
    return world.result()


#: What no store could write down; and what would be too long to name anybody.
LONE, LONG_ID = "\ud800", "i::sub::" + "x" * 600


@pytest.mark.parametrize(
    "ask",
    [
        lambda: hf.kv.set(LONE, 1),
        lambda: hf.kv.delete(LONE),
        lambda: hf.send_signal(LONG_ID, "n"),
        lambda: hf.send_signal("i::sub::\0", "n"),
        lambda: hf.send_signal(f"i::sub::{LONE}", "n"),
        lambda: hf.decision(LONE),
        lambda: hf.decision("?", options=[LONE]),
        lambda: hf.decision("?", assignee=LONE),
        lambda: hf.decision("?", timeout=1, default=LONE),
        lambda: hf.patched(LONE),
        lambda: hf.step.options(name=LONE),
        lambda: hf.continue_as_new(version="newest"),
        lambda: hf.sleep(float("nan")),
    ],
)
def test_what_cannot_be_kept_is_refused_at_the_call_and_the_workflow_goes_on(ask):
    async def main() -> bool:
        with pytest.raises(InvalidValue):
            ask()
        return await hf.step(lambda: True)

    assert result_of(main)


def test_a_delay_of_less_than_nothing_is_none():
    async def main() -> float:
        await hf.sleep(float("-inf"))
        return hf.now().timestamp() * 1000

    assert result_of(main) == START_MS


# --- signals ----------------------------------------------------------------------------------------------------------


def test_signals_are_kept_from_the_start_in_the_order_they_came():
    async def main() -> list[int]:
        await asyncio.sleep(100)
        return [(await hf.signal("paid", type=Payment)).amount for _ in range(3)]

    def send(world):
        for amount in (1, 2, 3):
            world.signal("paid", {"amount": amount})

    assert result_of(main, send) == [1, 2, 3]


def test_a_cancelled_wait_consumes_nothing():
    async def main() -> list[str]:
        first = asyncio.create_task(hf.signal("word"))
        await asyncio.sleep(1)
        first.cancel()
        await asyncio.wait([first])
        return [await hf.signal("word"), await hf.signal("word")]

    async def woken_and_cancelled() -> list[str]:
        taken = asyncio.create_task(hf.signal("word"))
        await hf.signal("go")
        taken.cancel()
        await asyncio.wait([taken])
        return [await hf.signal("word")]

    def words(world):
        world.settle(world.now_ms)
        world.advance(5)
        world.settle(world.now_ms)
        world.signal("word", "a")
        world.signal("word", "b")

    assert result_of(main, words) == ["a", "b"]

    def later(world):
        world.signal("go")
        world.signal("word", "kept")

    assert result_of(woken_and_cancelled, later) == ["kept"]


def test_signal_of_the_wrong_type_is_set_aside_and_the_wait_goes_on():
    async def main() -> int:
        return (await hf.signal("paid", type=Payment)).amount

    def blocking() -> int:
        return hf.signal("paid", type=Payment).amount

    for function in (main, blocking):
        world = World()
        world.start(world.workflow(function))
        world.signal("paid", {})
        world.signal("paid", "five")
        world.settle()
        waiting, aside = world.rows["i"].waiting_on
        assert waiting == "signal 'paid'"
        assert aside.startswith("set aside: 2 of signal 'paid', the last one because Expected `object`, got `str`")
        rejected = [one.kind for one in world.history() if isinstance(one.kind, event_kinds.SignalRejected)]
        assert [(one.number, "amount" in one.reason) for one in rejected] == [(1, True), (2, False)]
        world.forget()
        world.signal("paid", {"amount": 5})
        world.settle()
        assert world.result() == 5


def test_signal_that_was_set_aside_stays_so_when_the_type_changes():
    def waiting_for(kind):
        async def main() -> list:
            return [await hf.signal("n", type=kind), await hf.signal("n", type=kind)]

        return main

    world = World()
    world.start(world.workflow(waiting_for(int)))
    for value in ("one", 1):
        world.signal("n", value)
    world.settle()
    other = World()
    other.workflow(waiting_for(int | str), name="main")
    other.rows = world.rows
    other.signal("n", "two")
    other.settle()
    assert other.result() == [1, "two"]


def test_signal_that_the_code_took_as_an_error_before_is_one_in_replay():
    """Histories from before such signals were set aside."""

    async def main() -> str:
        try:
            await hf.signal("n", type=int)
        except InvalidValue:
            await hf.step(str, "wrong")
        return "done"

    async def as_recorded() -> str:
        await hf.signal("n")
        await hf.step(str, "wrong")
        await hf.signal("later")
        return ""

    world = World()
    world.start(world.workflow(as_recorded, name="main"))
    world.signal("n", "x")
    world.settle()
    world.forget()
    other = World()
    other.workflow(main)
    other.rows = world.rows
    other.signal("later")
    other.settle()
    assert other.result() == "done"


def test_signal_of_the_wrong_type_is_not_handed_on_to_the_next_execution():
    async def main(n: int) -> int:
        if n:
            hf.continue_as_new(n - 1)
        return await hf.signal("n", type=int)

    async def twice(n: int) -> int:
        found = await hf.signal("n", type=int)
        if n:
            hf.continue_as_new(n - 1)
        return found

    world = World()
    world.start(world.workflow(main), 1)
    for value in ("x", 7):
        world.signal("n", value)
    world.settle()
    assert world.result() == 7
    world.start(world.workflow(twice), 1, instance="t")
    for value in ("x", 7, "y", 8):
        world.signal("n", value, instance="t")
    world.settle()
    assert world.result("t") == 8
    first = [one.kind.number for one in world.history("t", 1) if isinstance(one.kind, event_kinds.SignalRejected)]
    assert first == [1]


def test_type_that_no_signal_can_be_read_as_is_an_error_in_the_code():
    async def main() -> None:
        await hf.signal("n", type=list | tuple)

    with pytest.raises(WorkflowCodeError, match="TypeError"):
        result_of(main, lambda world: world.signal("n", 1))


@pytest.mark.parametrize("name", ["", "@mine", "x" * 257, "\ud800", 7])
def test_a_bad_signal_name_is_refused(name):
    async def main() -> None:
        await hf.signal(name)

    assert result_of(main).type_name == "holdfast.errors.InvalidValue"


def test_a_signal_to_an_instance_that_starts_later_arrives():
    world = World()

    async def sender() -> None:
        hf.send_signal("receiver", "hello", {"n": 1})

    async def receiver() -> dict[str, int]:
        return await hf.signal("hello")

    world.run(world.workflow(sender), instance="sender")
    assert world.run(world.workflow(receiver), instance="receiver") == {"n": 1}


# --- decisions --------------------------------------------------------------------------------------------------------


def asking(**options):
    async def main() -> str:
        return await hf.decision("Approve?", ["yes", "no"], **options)

    return main


def test_the_first_answer_wins():
    world = World()
    world.start(world.workflow(asking()))
    world.settle()
    assert world.rows["i"].waiting_on == ("decision 2 'Approve?'",)
    world.answer(2, "yes")
    world.answer(2, "no")
    world.settle()
    assert world.result() == "yes"


@pytest.mark.parametrize("sticky", [True, False])
def test_a_decision_that_expires_takes_its_default(sticky):
    assert result_of(asking(timeout=60, default="no"), sticky=sticky) == "no"


def test_a_decision_that_expires_without_default_is_a_timeout_error():
    details = result_of(asking(timeout=timedelta(minutes=1)))
    assert details.type_name == "TimeoutError"


def test_an_answer_in_time_takes_the_deadline_back():
    world = World()
    world.start(world.workflow(asking(timeout=60)))
    world.settle(world.now_ms)
    world.answer(2, "no")
    world.settle()
    assert world.result() == "no"
    assert world.now_ms == START_MS


def test_a_cancelled_wait_closes_the_decision():
    async def main() -> str:
        try:
            async with asyncio.timeout(5):
                return await hf.decision("Approve?", ["yes"], timeout=1000)
        except TimeoutError:
            await hf.signal("go")
            return "gave up"

    for sticky in (True, False):
        world = World(sticky=sticky)
        world.start(world.workflow(main))
        world.settle()
        assert kinds_of(world.history())[-1] == "DecisionResolved"
        assert world.history()[-1].kind.by == "cancelled"
        world.answer(3, "yes")
        world.signal("go")
        world.settle()
        assert world.result() == "gave up"


def test_without_options_the_answer_is_the_text():
    async def main() -> str:
        return await hf.decision("Why?")

    def reply(world):
        world.settle()
        world.send(_message('{"message": "because", "by": "ann"}'))

    assert result_of(main, reply) == "because"


def _message(data):
    return QueueMessage(instance="i", name="@decision/2", data=data)


@pytest.mark.parametrize(
    "data",
    ["{}", "no json", '{"chosen": 4}', '{"x": ' + "[" * 5000, '{"chosen": "\ud800"}'],
    ids=["empty", "text", "number", "deep", "half a letter"],
)
def test_what_is_no_answer_changes_nothing(data):
    world = World()
    world.start(world.workflow(asking()))
    world.settle()
    world.send(_message(data))
    world.settle()
    assert world.rows["i"].status is Status.RUNNING
    assert len(world.dropped) == 1


@pytest.mark.parametrize(
    "options", [{"options": []}, {"options": "yes"}, {"options": ["a", "a"]}, {"options": ["a"], "default": "b"}]
)
def test_a_decision_nobody_could_answer_is_refused(options):
    async def main() -> str:
        return await hf.decision("Approve?", **options)

    assert result_of(main).type_name == "holdfast.errors.InvalidValue"


# --- values -----------------------------------------------------------------------------------------------------------


def chances(world):
    async def main() -> list:
        found = [str(hf.uuid()), hf.random(), hf.rng().randint(1, 10**9)]
        await asyncio.sleep(1)
        return [*found, str(hf.uuid()), hf.random(), hf.rng().randint(1, 10**9)]

    return world.workflow(main)


def test_chance_is_the_same_on_every_replay():
    assert_alike(chances, 3)
    values = run(chances).result()
    assert len(set(map(str, values))) == 6


def test_the_streams_are_separate():
    async def plain() -> str:
        hf.random()
        return str(hf.uuid())

    async def more() -> str:
        [hf.random() for _ in range(10)]
        hf.rng().random()
        return str(hf.uuid())

    assert result_of(plain) == result_of(more)


def test_sleep_until_a_time():
    async def main() -> str:
        await hf.sleep_until(datetime(2026, 1, 2, tzinfo=UTC))
        await hf.sleep_until(datetime(2025, 1, 2, tzinfo=UTC))
        return hf.now().isoformat()

    async def naive() -> None:
        await hf.sleep_until(datetime(2026, 1, 2))  # noqa: DTZ001 - the mistake in question

    async def number() -> None:
        await hf.sleep_until(5)

    assert result_of(main) == "2026-01-02T00:00:00+00:00"
    assert "time zone" in result_of(naive).message
    with pytest.raises(WorkflowCodeError, match=r"InvalidArguments: sleep_until: a int is no datetime"):
        result_of(number)


def test_info_says_which_execution_it_is():
    async def main() -> list:
        info = hf.info()
        return [info.instance, info.execution_id, info.workflow, info.version, info.parent_instance, hf.history_size()]

    assert result_of(main) == ["i", 1, "main", "1.0.0", None, 1]


def growing(world):
    async def main() -> list:
        sizes = []
        while not hf.should_continue_as_new():
            await hf.step(str, "x" * 1_000_000)
            sizes.append(hf.history_size())
        return sizes

    return world.workflow(main)


def test_a_long_history_asks_to_be_continued():
    assert run(growing).result() == run(growing, sticky=False).result() == list(range(2, 13))


# --- published state --------------------------------------------------------------------------------------------------


def publishing(world):
    async def main() -> list:
        hf.set_status({"stage": 1})
        hf.kv.set("a", [1, 2])
        hf.kv.set("b", None)
        await asyncio.sleep(1)
        found = [hf.kv.get("a"), hf.kv.get("b", "default"), hf.kv.get("c", "default")]
        hf.kv.delete("a")
        await asyncio.sleep(1)
        found.append(hf.kv.get("a"))
        hf.kv.clear()
        hf.kv.set("d", 4)
        hf.set_status(None)
        return [*found, hf.kv.get("b", "gone")]

    return world.workflow(main)


def test_state_is_read_back_and_published():
    assert_alike(publishing, 3)
    world = run(publishing)
    assert world.result() == [[1, 2], None, "default", None, "gone"]
    assert {key: entry.value for key, entry in world.rows["i"].kv.items()} == {"d": "4"}
    assert world.rows["i"].custom_status is None


@pytest.mark.parametrize(
    "change",
    [
        lambda: hf.kv.set("", 1),
        lambda: hf.kv.set("k" * 257, 1),
        lambda: hf.kv.set("k", "v" * 65_537),
        lambda: hf.kv.set("k", object()),
        lambda: hf.set_status("s" * 262_145),
        lambda: [hf.kv.set(f"k{n}", 1) for n in range(1001)],
    ],
)
def test_state_that_no_store_takes_is_refused_in_the_code(change):
    async def main() -> None:
        change()

    assert result_of(main).type_name == "holdfast.errors.InvalidValue"


# --- continue as new --------------------------------------------------------------------------------------------------


def test_signals_sent_throughout_a_hundred_continuations_arrive_once_and_in_order():
    async def main(count: int = 0, found: list[int] | None = None) -> list[int]:
        found = found or []
        if count < 100:
            await asyncio.sleep(1)
            if count % 3 == 0:
                found.append(await hf.signal("n"))
            hf.continue_as_new(count + 1, found)
        while len(found) < 250:
            found.append(await hf.signal("n"))
        return found

    world = World(5)
    world.start(world.workflow(main))
    sent = 0
    while sent < 250 or world.rows["i"].status is not Status.COMPLETED:
        if sent < 250:
            world.signal("n", sent)
            sent += 1
        if not world.move() and not world._jump(None):
            assert sent < 250
    assert world.result() == list(range(250))
    assert world.rows["i"].execution_id == 101


@pytest.mark.parametrize("sticky", [True, False])
def test_it_takes_status_keys_and_a_late_cancel_along(sticky):
    async def main(n: int = 0) -> object:
        if n == 0:
            hf.set_status("kept")
            hf.kv.set("k", 1)
            hf.continue_as_new(1)
        try:
            await hf.signal("never")
        except asyncio.CancelledError:
            return [hf.kv.get("k"), hf.info().execution_id]

    world = World(sticky=sticky)
    world.start(world.workflow(main))
    world.cancel("stop")
    world.settle()
    assert world.result() == [1, 2]
    assert world.history()[0].kind.initial_custom_status == '"kept"'


def test_it_may_be_called_from_any_task_and_nothing_runs_after_it():
    story = []

    async def main(n: int = 0) -> str:
        if n:
            return "next"

        async def other() -> None:
            hf.continue_as_new(1)

        task = asyncio.create_task(other())
        await asyncio.sleep(0)
        await task
        story.append("after")
        return "never"

    assert result_of(main) == "next"
    assert story == []


def test_it_resolves_the_version_anew():
    async def old(n: int = 0) -> str:
        await hf.signal("go")
        hf.continue_as_new(n + 1)

    async def new(n: int = 0) -> str:
        return f"new {n}"

    world = World()
    world.start(world.workflow(old, name="main"))
    world.settle()
    world.workflow(new, name="main", version="2.0.0")
    world.signal("go")
    world.settle()
    assert world.result() == "new 1"


# --- logging ----------------------------------------------------------------------------------------------------------


def test_the_log_is_silent_in_replay_and_names_the_instance(caplog):
    caplog.set_level(logging.INFO, "holdfast.workflow")

    async def main() -> None:
        for n in range(3):
            hf.log.info("step.done", extra={"n": n})
            await asyncio.sleep(1)

    world = World(sticky=False)
    world.run(world.workflow(main))
    assert [(record.message, record.n, record.instance) for record in caplog.records] == [
        ("step.done", n, "i") for n in range(3)
    ]
