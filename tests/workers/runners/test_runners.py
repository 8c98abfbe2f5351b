"""Runners alone, handing in at a desk of the test's own."""

import asyncio
import contextvars
import os
import sys
import threading
from queue import Queue

import msgspec
import pytest

from holdfast.app.tasks.signature_codec import SignatureCodec
from holdfast.model.ids import JobId, RunId, Token
from holdfast.model.jobs import Job
from holdfast.model.outcomes import Grant
from holdfast.model.times import Timestamp
from holdfast.workers.handlers.context import current
from holdfast.workers.handlers.leased_job import Assignment, Stop
from holdfast.workers.handlers.outcome import GaveUp, Raised, Returned
from holdfast.workers.runners.asyncio_runner import LoopRunner
from holdfast.workers.runners.thread_runner import ThreadRunner
from holdfast.workers.task_registry import TaskSpec

LONG = 20


class Desk:
    def __init__(self):
        self.ended = Queue()

    def settle(self, assignment, outcome):
        self.ended.put(("settled", assignment.grant.token, outcome))

    def end(self, assignment, outcome):
        self.ended.put(("ended", assignment.grant.token, outcome))

    def end_for_next(self, assignment, outcome):
        self.end(assignment, outcome)

    def next(self):
        return self.ended.get(timeout=LONG)


def assignment(function, token=1):
    job = Job(JobId("j"), "t", msgspec.Raw(b"{}"), Timestamp("2026-01-01T00:00:00.000000Z"), timeout_s=5)
    isolation = "loop" if asyncio.iscoroutinefunction(function) else "thread"
    spec = TaskSpec(name="t", run=function, codec=SignatureCodec(function), isolation=isolation)
    made = Assignment(Grant(job, RunId("r"), Token(token), 30.0), spec, 0.0)
    made.started_at = 0.0
    return made


@pytest.fixture
def desk():
    return Desk()


@pytest.fixture
def threads(desk):
    runner = ThreadRunner(2, desk)
    yield runner
    runner.close()


@pytest.fixture
def loop(desk):
    runner = LoopRunner(desk)
    yield runner
    runner.close()


variable = contextvars.ContextVar("variable", default="fresh")


def test_one_handler_does_not_see_the_variables_of_another(threads, loop, desk):
    def stain():
        variable.set("stained")

    def look():
        return variable.get()

    async def stain_async():
        variable.set("stained")

    async def look_async():
        return variable.get()

    for runner, first, second in ((threads, stain, look), (loop, stain_async, look_async)):
        runner.start(assignment(first))
        assert desk.next()[2] == Returned()
        runner.start(assignment(second))
        assert desk.next()[2] == Returned(msgspec.Raw(b'"fresh"'))


def test_no_more_threads_are_made_than_are_needed(threads, desk):
    before = threading.active_count()
    for token in range(5):
        threads.start(assignment(lambda: None, token))
        desk.next()
    assert threading.active_count() - before <= 2


def test_a_thread_that_runs_too_long_is_settled_now_and_ends_later(threads, desk):
    go = threading.Event()
    slow = assignment(lambda: go.wait(LONG))
    threads.start(slow)
    slow.ask_to_stop(Stop.TIMEOUT)
    threads.stop(slow)
    kind, _, outcome = desk.next()
    assert (kind, outcome.error_kind) == ("settled", "timeout")
    go.set()
    assert desk.next() == ("ended", 1, Returned(msgspec.Raw(b"true")))


def test_a_thread_that_is_cancelled_is_left_to_its_own_judgement(threads, desk):
    def listens():
        assert current.get().wait_cancelled(LONG)
        return "in order"

    one = assignment(listens)
    threads.start(one)
    one.ask_to_stop(Stop.CANCEL)
    threads.stop(one)
    assert desk.next() == ("ended", 1, Returned(msgspec.Raw(b'"in order"')))


def test_a_coroutine_cancelled_before_it_began_does_not_run(loop, desk):
    ran = threading.Event()

    async def handler():
        ran.set()

    one = assignment(handler)
    one.ask_to_stop(Stop.CANCEL)
    loop.start(one)
    assert desk.next()[2] == GaveUp()
    assert not ran.is_set()


def test_a_coroutine_that_cancels_itself_has_failed(loop, desk):
    async def handler():
        raise asyncio.CancelledError

    loop.start(assignment(handler))
    outcome = desk.next()[2]
    assert isinstance(outcome, Raised)
    assert "cancelled from within" in outcome.error


def test_a_hundred_coroutines_run_together(loop, desk):
    together, everyone = [], asyncio.Event()

    async def handler():
        together.append(1)
        if len(together) == 100:
            everyone.set()
        await everyone.wait()

    for token in range(100):
        loop.start(assignment(handler, token))
    assert {desk.next()[1] for _ in range(100)} == set(range(100))


def test_a_closed_loop_cancels_what_still_runs(desk):
    loop = LoopRunner(desk)
    started = threading.Event()

    async def handler():
        started.set()
        await asyncio.Event().wait()

    one = assignment(handler)
    loop.start(one)
    assert started.wait(LONG)
    one.ask_to_stop(Stop.SHUTDOWN)
    loop.close()
    assert desk.next()[2].begun
    loop.stop(one)  # nothing to stop any more, and no harm


def test_a_coroutine_that_runs_too_long_and_will_not_be_cancelled_is_settled_now(loop, desk):
    started, go = threading.Event(), threading.Event()

    async def handler():
        started.set()
        go.wait(LONG)  # blocks the loop itself, so that nothing can be cancelled

    slow = assignment(handler)
    loop.start(slow)
    assert started.wait(LONG)
    slow.ask_to_stop(Stop.TIMEOUT)
    loop.stop(slow)
    kind, _, outcome = desk.next()
    assert (kind, outcome.error_kind) == ("settled", "timeout")
    go.set()
    assert desk.next()[0] == "ended"


def leave(how):
    match how:
        case "exits":
            sys.exit(7)
        case "raises":
            raise RuntimeError("in the fork")


@pytest.mark.parametrize(("how", "code"), [("returns", 0), ("exits", 7), ("raises", 1)])
def test_a_fork_that_leaves_its_handler_ends_there(threads, loop, desk, how, code):
    def forks():
        pid = os.fork()
        if pid:
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return leave(how)

    async def forks_async():
        return forks()

    for runner, handler in ((threads, forks), (loop, forks_async)):
        runner.start(assignment(handler))
        assert desk.next()[2] == Returned(msgspec.Raw(str(code).encode()))
