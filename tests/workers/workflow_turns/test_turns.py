"""Workflows end to end in a real worker, on every local store: what each thing a workflow can do comes to."""

import asyncio
import threading
from typing import Any

import pytest
from turnskit import LONG, App

from holdfast import Retry
from holdfast.errors import ActivityError, ChildError, StepError
from holdfast.failpoints import listening
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.history import Status
from holdfast.workers.workflow_turns.machine import LINGER_S, Phase
from holdfast.workers.workflow_turns.scheduler import TurnScheduler
from holdfast.workflows.api import context as face
from holdfast.workflows.api.idempotency import idempotency_key


@pytest.fixture
def app(url):
    made = App(url)
    yield made
    made.close()


class Declined(Exception):
    """A failure of the application's own."""

    def __init__(self, code):
        super().__init__(code)
        self.code = code


def committed(app):
    """Give the commits of turns in the feed."""
    return [entry for entry in app.hf.engine.store.feed(0) if b"turn:committed" in bytes(entry.event)]


def kinds_of(app, instance="i"):
    return [type(event.kind).__name__ for event in app.provider.read(instance)]


def test_activities_steps_and_a_return_become_one_history(app):
    @app.activity
    def double(n: int) -> int:
        return 2 * n

    @app.workflow
    async def flow(n: int) -> int:
        doubled = await double.call(n)
        return await face.step(lambda: doubled + 1)

    app.start(flow, 20)
    app.settle()
    assert app.result() == 41
    assert kinds_of(app) == [
        "OrchestrationStarted",
        "ActivityScheduled",
        "ActivityCompleted",
        "StepCompleted",
        "OrchestrationCompleted",
    ]


def test_one_short_step_and_a_return_are_one_commit(app):
    @app.workflow
    async def flow() -> int:
        return await face.step(lambda: 7)

    app.start(flow)
    app.settle()
    assert app.result() == 7
    assert len(committed(app)) == 1


def test_a_finished_step_is_durable_before_the_next_one_starts(app):
    seen = []

    def first() -> int:
        return 1

    def second() -> int:
        seen.append(kinds_of(app))
        return 2

    @app.workflow
    async def flow() -> int:
        return await face.step(first) + await face.step(second)

    app.start(flow)
    app.settle()
    assert app.result() == 3
    assert seen == [["OrchestrationStarted", "StepCompleted"]]


def test_async_steps_run_on_a_real_loop_and_sync_ones_beside_each_other(app):
    barrier = threading.Barrier(2, timeout=20)

    async def on_loop(n: int) -> int:
        await asyncio.sleep(0)
        return n

    def meets(n: int) -> int:
        barrier.wait()
        return n

    @app.workflow
    async def flow() -> list[int]:
        return await asyncio.gather(face.step(on_loop, 1), face.step(meets, 2), face.step(meets, 3))

    app.start(flow)
    app.settle()
    assert app.result() == [1, 2, 3]


def test_a_failing_step_is_tried_again_and_then_raises_in_the_workflow(app):
    tries = []

    def fails() -> None:
        tries.append(idempotency_key())
        raise ValueError("no")

    @app.workflow
    async def flow() -> str:
        try:
            await face.step.options(attempts=3)(fails)
        except ValueError as problem:
            return f"{isinstance(problem, StepError)} {problem.attempts}"
        return "never"

    app.start(flow)
    worker = app.worker()
    worker.start()
    app.wait()
    assert app.result() == "True 3"
    assert len(tries) == 3
    assert len(set(tries)) == 1


def test_timers_fire(app):
    @app.workflow
    async def flow() -> str:
        try:
            async with asyncio.timeout(0.01):
                await face.signal("never")
        except TimeoutError:
            await asyncio.sleep(0.01)
            return "late"
        return "never"

    app.start(flow)
    app.worker().start()
    app.wait()
    assert app.result() == "late"


def test_signals_arrive_in_order_from_before_the_start_on(app):
    @app.workflow
    async def flow() -> list[int]:
        return [await face.signal("n") for _ in range(5)]

    app.start(flow)
    for number in range(3):
        app.signal("n", number)
    app.settle()
    assert app.status() is Status.RUNNING
    app.signal("n", 3)
    app.signal("n", 4)
    app.settle()
    assert app.result() == [0, 1, 2, 3, 4]


def test_children_return_and_fail_to_their_parents(app):
    @app.workflow
    async def child(n: int) -> int:
        if n < 0:
            raise ValueError(n)
        return n + await face.step(lambda: 1)

    @app.workflow
    async def parent() -> list[str]:
        found = [str(await child.call(1))]
        try:
            await child.call(-1)
        except ValueError as problem:
            found.append(f"{isinstance(problem, ChildError)}")
        return found

    app.start(parent)
    app.settle()
    assert app.result() == ["2", "True"]


def test_signals_sent_throughout_continuations_arrive_once_and_in_order(app):
    count, every = 60, 3

    @app.workflow
    async def counts(seen: list[int]) -> list[int]:
        for _ in range(every):
            seen = [*seen, await face.signal("n", type=int)]
        if len(seen) < count:
            face.continue_as_new(seen)
        return seen

    app.start(counts, [])
    app.worker().start()
    for number in range(count):
        app.signal("n", number)
    app.wait()
    assert app.result() == list(range(count))


def test_a_cancel_can_be_cleaned_up_after(app):
    cleaned = []

    @app.workflow
    async def flow() -> None:
        try:
            await face.signal("never")
        except asyncio.CancelledError:
            await face.step(cleaned.append, 1)
            raise

    app.start(flow)
    app.settle()
    app.cancel("enough")
    app.settle()
    assert app.status() is Status.CANCELLED
    assert cleaned == [1]


def test_cancelling_reaches_an_async_step_that_runs(app):
    started, ended = threading.Event(), threading.Event()

    async def waits() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    @app.workflow
    async def flow() -> None:
        await face.step(waits)

    app.start(flow)
    app.worker().start()
    assert started.wait(20)
    app.cancel()
    app.wait(status=Status.CANCELLED)
    assert ended.wait(20)


def test_a_timeout_around_a_step_that_hangs_works(app):
    hangs = threading.Event()

    @app.workflow
    async def flow() -> str:
        try:
            async with asyncio.timeout(0.05):
                await face.step(hangs.wait)
        except TimeoutError:
            return "late"
        return "never"

    app.start(flow)
    app.worker().start()
    app.wait()
    hangs.set()
    assert app.result() == "late"


def test_a_step_that_exceeds_its_own_timeout_fails_and_its_result_is_ignored(app):
    hangs = threading.Event()

    @app.workflow
    async def flow() -> str:
        try:
            await face.step.options(timeout=0.02)(hangs.wait)
        except TimeoutError as problem:
            return type(problem).__name__
        return "never"

    app.start(flow)
    app.worker(turns=1).start()
    app.wait()
    assert app.result() == "StepError"
    app.start(flow, instance="j")
    app.wait("j")  # the thread that hangs was replaced
    hangs.set()


def test_an_activity_beside_a_long_step_is_not_held_up(app):
    went = threading.Event()

    @app.activity
    def goes() -> None:
        went.set()

    @app.workflow
    async def flow() -> bool:
        first, _ = await asyncio.gather(face.step(went.wait, 20), goes.call())
        return first

    app.start(flow)
    app.worker().start()
    app.wait()
    assert app.result() is True


@pytest.mark.parametrize("isolation", ["thread", "loop"])
def test_what_an_activity_raised_is_met_again(app, isolation):
    if isolation == "thread":

        @app.activity(max_attempts=1)
        def fails() -> None:
            raise Declined(402) from KeyError("card")

    else:

        @app.activity(max_attempts=1)
        async def fails() -> None:
            raise Declined(402) from KeyError("card")

    @app.workflow(raises=(Declined,))
    async def flow() -> list[Any]:
        try:
            await fails.call()
        except Declined as problem:
            cause = problem.details.cause.type_name
            return [isinstance(problem, ActivityError), problem.code, cause, "raise Declined" in problem.traceback_text]
        return []

    app.start(flow)
    app.settle()
    assert app.result() == [True, 402, "KeyError", True]


def test_the_key_of_an_activity_is_the_same_on_every_attempt(app):
    keys = []

    @app.activity
    def fails() -> None:
        keys.append(idempotency_key())
        if len(keys) < 2:
            raise Retry(after=0)

    @app.workflow
    async def flow() -> None:
        await fails.call()

    app.start(flow)
    app.worker().start()
    app.wait()
    assert len(keys) == 2
    assert len(set(keys)) == 1


def test_def_workflows_run_too(app):
    @app.activity
    def double(n: int) -> int:
        return 2 * n

    @app.workflow
    def flow(n: int) -> int:
        return double.call(n) + face.step(abs, -1)

    app.start(flow, 4)
    app.settle()
    assert app.result() == 9


def test_many_workflows_share_commits(app):
    sent = []

    @app.workflow
    async def flow() -> int:
        return await face.step(lambda: 1)

    for number in range(60):
        app.start(flow, instance=f"w{number}")
    with listening("pump.sent", lambda: sent.append(1)):
        worker = app.settle()
    assert worker.turns.committed == 60
    assert len(sent) < 30
    assert {type(app.end(f"w{number}")) for number in range(60)} == {event_kinds.OrchestrationCompleted}


def test_turns_that_end_make_room_for_others_in_the_same_commit(app):
    commits = []

    @app.workflow
    async def flow() -> int:
        return 1

    for number in range(20):
        app.start(flow, instance=f"w{number}")
    app.hf.engine.told = lambda one: commits.append({type(event).__name__ for event in one.events})
    assert app.settle(turns=1).turns.committed == 20
    # Only the first had to be asked for before any had ended.
    assert sum("TurnLocked" in written and "TurnCommitted" not in written for written in commits) == 1


def test_a_turn_that_takes_long_holds_up_no_other(app):
    inside, goes_on = threading.Event(), threading.Lock()
    goes_on.acquire()

    @app.workflow
    async def long() -> bool:
        inside.set()
        return goes_on.acquire(timeout=LONG)

    @app.workflow
    async def flow() -> int:
        for _ in range(3):
            await face.step(lambda: 1)
        return 3

    app.start(long, instance="long")
    app.worker().start()
    try:
        assert inside.wait(LONG)
        app.start(flow)
        app.wait()
        assert app.result() == 3
    finally:
        goes_on.release()
    app.wait("long")


def test_what_was_decided_is_durable_although_a_step_hangs_in_the_only_thread_and_turns_wait_for_it(app):
    hangs, goes_on = threading.Event(), threading.Event()
    names = [f"w{number}" for number in range(3)]

    def slow() -> int:
        hangs.set()
        assert goes_on.wait(LONG)
        return 1

    @app.workflow
    async def flow() -> int:
        await face.step(lambda: 1)
        return await face.step(slow)

    for name in names:
        app.start(flow, instance=name)
    app.worker(turns=1).start()
    try:
        assert hangs.wait(LONG)
        store = app.hf.engine.store
        while True:
            with app.hf.engine.read() as view:
                seq = view.seq
            if all("StepCompleted" in kinds_of(app, name) for name in names):
                break
            assert store.wait(seq, LONG)
    finally:
        goes_on.set()
    for name in names:
        app.wait(name)


def test_a_turn_that_ends_when_it_was_just_found_slow_is_committed_soon(app, monkeypatch):
    ends, found = threading.Event(), []
    errands = TurnScheduler.errands

    @app.workflow
    def slow() -> int:
        while not ends.is_set():
            pass
        return 1

    def and_then_it_ends(scheduler, now, jobs=0):
        machine = scheduler._machine
        was_coming = machine._coming
        given = errands(scheduler, now, jobs)
        if was_coming and not machine._coming and any(turn.phase is Phase.PLAYING for turn in machine.turns.values()):
            ends.set()
            while not machine._outbox:
                threading.Event().wait(0.001)
            found.append(scheduler.due_at() - scheduler.now())
        return given

    monkeypatch.setattr(TurnScheduler, "errands", and_then_it_ends)
    app.start(slow)
    app.settle()
    assert app.result() == 1
    assert found, "it was not found slow"
    assert found[0] <= LINGER_S
