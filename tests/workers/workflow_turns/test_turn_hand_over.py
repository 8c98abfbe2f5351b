"""Turns that a worker hands over when it ends: another worker can fetch them at once, on every local store.

The clock stands still throughout, so nothing here is fetched because a lock or a timer ran out.
"""

import asyncio
import threading

import pytest
from turnskit import LONG, App

from holdfast.workers.workflow_turns.machine import TurnMachine
from holdfast.workflows.api import context as face
from holdfast.workflows.runtime.turn import Turn


@pytest.fixture
def app(url, clock):
    made = App(url, clock)
    yield made
    made.close()


class EndlessWork:
    """A step that is called again and again; one of the calls asks for the end of the worker that runs it."""

    def __init__(self, *, in_call):
        self._in_call = in_call
        self.calls = 0
        #: What the call does. A worker is made after the workflow that it runs.
        self.end = lambda: None
        #: The first worker has ended: another one makes the calls now.
        self.is_over = threading.Event()

    def __call__(self) -> bool:
        """Return whether the workflow is to go on."""
        self.calls += 1
        if self.calls == self._in_call:
            self.end()
        return not self.is_over.is_set()

    def run_until_end_of(self, worker):
        """Let a worker run until it has ended, as the call asked for."""
        worker.start()
        assert worker.join(LONG)
        self.is_over.set()


def async_loop(app, work):
    @app.workflow
    async def flow() -> str:
        while await face.step(work):
            pass
        return "done"

    return flow


def def_loop(app, work):
    @app.workflow
    def flow() -> str:
        while face.step(work):
            pass
        return "done"

    return flow


def parallel_loop(app, work):
    @app.workflow
    async def flow() -> str:
        while all(await asyncio.gather(face.step(work), face.step(work))):
            pass
        return "done"

    return flow


@pytest.mark.parametrize("shape", [async_loop, def_loop, parallel_loop])
@pytest.mark.parametrize("in_call", [1, 2, 3, 7])
@pytest.mark.parametrize("way", ["drain", "drain at once", "stop"])
def test_instance_of_a_worker_that_ends_amid_its_steps_is_fetched_by_the_next_one_at_once(app, shape, in_call, way):
    work = EndlessWork(in_call=in_call)
    app.start(shape(app, work))
    worker = app.worker()
    work.end = {"drain": worker.drain, "drain at once": lambda: worker.drain(0), "stop": worker.stop}[way]
    work.run_until_end_of(worker)
    app.settle()  # ends as soon as nothing can be fetched
    assert app.result() == "done"


def test_instances_of_a_worker_that_drains_are_all_finished_by_a_worker_until_idle(app):
    work = EndlessWork(in_call=100)
    flow = async_loop(app, work)
    names = [f"w{number}" for number in range(20)]
    for name in names:
        app.start(flow, instance=name)
    worker = app.worker()
    work.end = worker.drain
    work.run_until_end_of(worker)
    app.settle()
    assert [app.result(name) for name in names] == ["done"] * len(names)


def test_signal_sent_while_its_worker_drains_is_read_by_the_next_worker(app):
    work = EndlessWork(in_call=3)

    @app.workflow
    async def flow() -> int:
        while await face.step(work):
            pass
        return await face.signal("last", type=int)

    app.start(flow)
    worker = app.worker()

    def end() -> None:
        app.signal("last", 7)
        worker.drain()

    work.end = end
    work.run_until_end_of(worker)
    app.settle()
    assert app.result() == 7


def test_steps_of_an_instance_that_was_handed_over_do_not_wait_for_its_timer(app, clock):
    work = EndlessWork(in_call=3)

    @app.workflow
    async def flow() -> str:
        async def steps() -> None:
            while await face.step(work):
                pass

        await asyncio.gather(asyncio.sleep(3600), steps())
        return "done"

    app.start(flow)
    worker = app.worker()
    work.end = worker.drain
    work.run_until_end_of(worker)
    app.settle()
    calls = work.calls
    clock.advance(3600)
    app.settle()
    assert app.result() == "done"
    assert work.calls == calls


def test_step_that_ends_while_its_turn_is_handed_over_is_not_run_again(app, monkeypatch):
    ran, b_may_end, b_has_ended = [], threading.Event(), threading.Event()
    take, finish = TurnMachine.step_ended, Turn.finish_step

    def taken(machine, turn, step_no, outcome):
        take(machine, turn, step_no, outcome)
        if outcome == '"b"':
            b_has_ended.set()

    def finished(turn, step_no, outcome, now_ms):
        finish(turn, step_no, outcome, now_ms)
        if outcome == '"a"':  # its thread has not yet asked what to do next
            b_may_end.set()
            assert b_has_ended.wait(LONG)

    monkeypatch.setattr(TurnMachine, "step_ended", taken)
    monkeypatch.setattr(Turn, "finish_step", finished)

    def a() -> str:
        ran.append("a")
        worker.drain()
        return "a"

    def b() -> str:
        ran.append("b")
        assert b_may_end.wait(LONG)
        return "b"

    @app.workflow
    async def flow() -> None:
        await asyncio.gather(face.step(a), face.step(b))

    app.start(flow)
    worker = app.worker()
    worker.start()
    assert worker.join(LONG)
    app.settle()
    app.wait()
    assert sorted(ran) == ["a", "b"]


def test_turn_whose_step_is_cancelled_while_its_worker_drains_is_handed_over(app, clock):
    begun = threading.Event()
    ran = []

    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    def last() -> None:
        ran.append("last")

    @app.workflow
    async def flow() -> None:
        step, stop = asyncio.ensure_future(face.step(endless)), asyncio.ensure_future(face.signal("stop"))
        await asyncio.wait([step, stop], return_when=asyncio.FIRST_COMPLETED)
        step.cancel()
        await face.step(last)

    app.start(flow)
    worker = app.worker()
    worker.start()
    assert begun.wait(LONG)
    worker.pump.quiet()
    app.signal("stop")
    clock.advance(2)  # it looks for messages
    other = app.worker()
    other.start()
    app.wait()
    assert ran == ["last"]


def test_what_is_decided_beside_a_step_of_a_worker_that_drains_is_committed_before_it_ends(app, clock):
    begun, was_called = threading.Event(), threading.Event()

    def long() -> None:
        begun.set()
        assert was_called.wait(LONG)

    @app.activity
    def call() -> None:
        was_called.set()

    @app.workflow
    async def flow() -> None:
        async def answer() -> None:
            await face.signal("go")
            await call.call()

        await asyncio.gather(face.step(long), answer())

    app.start(flow)
    worker = app.worker()
    worker.start()
    assert begun.wait(LONG)
    worker.pump.quiet()
    app.signal("go")
    app.worker().start()
    for _ in range(LONG):
        clock.advance(1)  # it looks for messages, and then nothing more comes
        if was_called.wait(1):
            break
    app.wait()
