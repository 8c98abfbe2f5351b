"""The code of an execution as it runs: a task of its loop, and a thread behind it if it is a `def`."""

import threading
from contextvars import ContextVar, copy_context
from types import SimpleNamespace

import pytest

from holdfast.app.tasks.signature_codec import SignatureCodec
from holdfast.workflows.api.definitions import Definition
from holdfast.workflows.runtime.event_loop import Loop
from holdfast.workflows.runtime.user_code import Program

OUTSIDE = ContextVar("OUTSIDE", default="nothing")


@pytest.fixture
def loop():
    made = Loop(SimpleNamespace(time=lambda: 0.0, report=pytest.fail))
    yield made
    made.close()


def program(loop, function, *args, **kwargs):
    return Program(loop, Definition(name="f", function=function, codec=SignatureCodec(function)), args, kwargs)


def test_nothing_of_it_runs_before_its_loop_does(loop):
    story = []

    async def flow(a: int, *, b: int) -> int:
        story.append((a, b))
        return a + b

    made = program(loop, flow, 1, b=2)
    assert (story, made.main.get_name(), made.thread_id) == ([], "main", None)
    loop.run_until_idle()
    assert (story, made.main.result(), made.thread_id) == ([(1, 2)], 3, None)
    made.evict()  # it has no thread


def test_it_sees_no_context_of_whoever_begins_it(loop):
    async def flow() -> str:
        return OUTSIDE.get()

    def begin():
        OUTSIDE.set("something")
        made = program(loop, flow)
        loop.run_until_idle()
        return made.main.result()

    assert copy_context().run(begin) == "nothing"


def test_a_def_runs_in_a_thread_of_its_own_which_waits_for_the_loop(loop):
    future, threads = loop.create_future(), []

    def flow(n: int) -> int:
        threads.append(threading.get_ident())
        return n + made.block_until(future)

    made = program(loop, flow, 1)
    assert made.thread_id is None
    loop.run_until_idle()
    assert threads == [made.thread_id] != [threading.get_ident()]
    assert not made.main.done()
    future.set_result(41)
    loop.run_until_idle()
    assert made.main.result() == 42
    made.evict()


def test_a_thread_that_waits_is_ended_where_it_waits_when_the_code_is_let_go(loop):
    future, story = loop.create_future(), []

    def flow() -> None:
        story.append(threading.current_thread())
        try:
            made.block_until(future)
        finally:
            story.append("left")

    made = program(loop, flow)
    loop.run_until_idle()
    made.evict()
    assert story[1:] == ["left"]
    story[0].join(15)
    assert not story[0].is_alive()
