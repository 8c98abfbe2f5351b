"""An exception that raises when it is asked what it is ends what raised it, as any other does."""

import asyncio
import threading
from contextlib import suppress
from dataclasses import dataclass

import pytest
from oddities import ODD, Causeless, raise_odd, raise_odd_later
from turnskit import LONG, App

from holdfast.errors import ActivityError, JobFailed, StepError
from holdfast.model.error_details import Category
from holdfast.workers.handlers.control_exceptions import Fatal, Snooze
from holdfast.workers.handlers.outcome import Raised, outcome_of
from holdfast.workers.workflow_turns.threads import ThreadPool
from holdfast.workflows.api import context as face


@pytest.fixture
def app(clock):
    made = App("memory:", clock)
    yield made
    made.close()


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("function", [raise_odd, raise_odd_later])
def test_a_step_that_raises_it_fails(app, function, name):
    @app.workflow
    async def flow(name: str) -> str:
        try:
            return await face.step(function, name)
        except StepError as problem:
            return problem.type_name

    app.start(flow, name)
    app.settle()
    assert app.result().endswith(name)


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("is_async", [False, True])
def test_an_activity_that_raises_it_fails(app, is_async, name):
    @app.activity(max_attempts=1)
    def act(name: str) -> None:
        raise_odd(name)

    @app.activity(max_attempts=1)
    async def act_later(name: str) -> None:
        raise_odd(name)

    @app.workflow
    async def flow(name: str) -> str:
        try:
            await (act_later if is_async else act).call(name)
        except ActivityError as problem:
            return problem.type_name

    app.start(flow, name)
    app.settle()
    assert app.result().endswith(name)


@pytest.mark.parametrize("name", ODD)
def test_a_workflow_that_raises_it_fails_with_it(app, name):
    @app.workflow(on_error="fail")
    async def flow(name: str) -> None:
        raise_odd(name)

    app.start(flow, name)
    app.settle()
    assert app.result().category is Category.APPLICATION
    assert app.result().type_name.endswith(name)


@pytest.mark.parametrize("name", ODD)
def test_a_task_nobody_waits_for_does_not_end_the_workflow(app, name):
    @app.workflow
    async def flow(name: str) -> int:
        asyncio.create_task(raise_odd_later(name))  # noqa: RUF006 - nobody keeps it, on purpose
        return await face.step(lambda: 1)

    app.start(flow, name)
    app.settle()
    assert app.result() == 1


@pytest.mark.parametrize("name", ODD)
def test_a_job_that_raises_it_fails(app, name):
    @app.hf.task(max_attempts=1)
    def task(name: str) -> None:
        raise_odd(name)

    job = task.enqueue(name)
    app.settle()
    with pytest.raises(JobFailed, match=name):
        job.result()


def test_a_signal_of_ours_that_cannot_say_what_it_wants_is_a_failure():
    class Mute(Fatal):
        def __str__(self):
            raise RuntimeError("no text")

    class Timeless(Snooze):
        def __init__(self):
            pass

    assert outcome_of(Mute()).fatal
    assert isinstance(outcome_of(Timeless()), Raised)


def test_a_class_that_is_not_to_be_retried_is_not_whatever_it_refuses_to_say():
    assert outcome_of(Causeless("x"), (Causeless,)).fatal


def test_a_thread_of_the_crew_outlives_what_cannot_be_logged():
    crew, done = ThreadPool(1), threading.Event()
    threads = []

    def break_off():
        threads.append(threading.current_thread())
        raise_odd("Causeless")

    crew.put(break_off)
    crew.put(lambda: threads.append(threading.current_thread()))
    crew.put(done.set)
    try:
        assert done.wait(LONG)
        assert threads[0] is threads[1]
    finally:
        crew.close()


async def leave():
    raise SystemExit(3)


async def beside():
    await asyncio.gather(leave(), return_exceptions=True)


def left():
    return leave()


@pytest.mark.parametrize("function", [leave, left, beside])
def test_an_exit_beside_a_step_ends_neither_the_loop_nor_what_runs_there_later(app, function):
    @app.workflow
    async def flow() -> int:
        with suppress(StepError):
            await face.step.options(name="leaves")(function)
        return await face.step.options(name="stays")(stay)

    async def stay():
        return 1

    app.start(flow)
    app.settle()
    assert app.result() == 1


@dataclass
class Picky:
    number: int

    def __post_init__(self):
        if threading.current_thread() is not threading.main_thread():
            raise LookupError("not here")


def test_arguments_whose_class_raises_on_the_worker_fail_the_job(app):
    @app.hf.task(max_attempts=1)
    def task(picky: Picky) -> None:
        pass

    job = task.enqueue(Picky(1))
    app.settle()
    with pytest.raises(JobFailed, match="LookupError: not here"):
        job.result()


class Sealed(dict):
    """Raises what is no Exception when it is encoded."""

    def items(self):
        raise SystemExit(3)


@dataclass
class Row:
    when: object


def listed():
    return {"rows": [1, {"when": object()}]}


def typed() -> list[Row]:
    return [Row(1), Row(object())]


def sealed():
    return Sealed(a=1)


UNENCODABLE = [
    (listed, "result.rows[1].when: object of type object cannot be encoded as JSON"),
    (typed, "result[1].when: object of type object cannot be encoded as JSON"),
    (sealed, "3"),
]


@pytest.mark.parametrize(("given", "said"), UNENCODABLE, ids=["listed", "typed", "raises"])
@pytest.mark.parametrize("is_async", [False, True])
def test_step_whose_result_cannot_be_encoded_fails_at_once(app, is_async, given, said):
    calls = []

    def act():
        calls.append(1)
        return given()

    async def act_later():
        return act()

    act.__annotations__ = act_later.__annotations__ = given.__annotations__

    @app.workflow
    async def flow() -> str:
        try:
            await face.step.options(attempts=3)(act_later if is_async else act)
        except StepError as problem:
            return f"{problem.details.kind}: {problem.message}"

    app.start(flow)
    app.settle()
    assert app.result().startswith("Encoding: ")
    assert said in app.result()
    assert calls == [1]


@pytest.mark.parametrize(("given", "said"), UNENCODABLE, ids=["listed", "typed", "raises"])
def test_activity_whose_result_cannot_be_encoded_fails_at_once(app, given, said):
    calls = []

    def act():
        calls.append(1)
        return given()

    act.__annotations__ = given.__annotations__
    act = app.activity(act, max_attempts=4)

    @app.workflow
    async def flow() -> str:
        try:
            await act.call()
        except ActivityError as problem:
            return f"{problem.details.kind} after {problem.attempts}: {problem.message}"

    app.start(flow)
    app.settle()
    assert app.result().startswith("Encoding after 1: ")
    assert said in app.result()
    assert calls == [1]


@pytest.mark.parametrize(("given", "said"), UNENCODABLE, ids=["listed", "typed", "raises"])
@pytest.mark.parametrize("is_async", [False, True])
def test_workflow_whose_result_cannot_be_encoded_fails(app, is_async, given, said):
    def plain():
        return given()

    async def flow():
        return given()

    chosen = flow if is_async else plain
    chosen.__annotations__ = given.__annotations__
    app.start(app.workflow(chosen))
    app.settle()
    assert app.result().kind == "Encoding"
    assert said in app.result().message


class Declined(Exception):
    """Its arguments are other than it is made with."""

    def __init__(self, code, *, reason):
        super().__init__(f"{reason} ({code})")


FAILURES = {
    "ValueError": (ValueError, lambda: ValueError("bad row", object())),
    "LookupError": (LookupError, lambda: KeyError({1})),
    "UnicodeDecodeError": (UnicodeDecodeError, lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad byte")),
    "ExceptionGroup": (ExceptionGroup, lambda: ExceptionGroup("two", [ValueError(object()), KeyError("k")])),
    "Declined": (Declined, lambda: Declined(402, reason="no funds")),
}


@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.parametrize("way", ["step", "activity", "child"])
def test_failure_is_caught_by_its_class_in_a_workflow_whatever_its_arguments(app, way, name):
    def fail() -> None:
        problem = FAILURES[name][1]()
        raise problem

    act = app.activity(fail, max_attempts=1)

    @app.workflow(raises=(Declined,))
    async def child() -> None:
        fail()

    @app.workflow(raises=(Declined,))
    async def flow() -> str:
        try:
            await {"step": lambda: face.step(fail), "activity": act.call, "child": child.call}[way]()
        except FAILURES[name][0] as problem:
            return problem.repr_text
        return "not caught"

    app.start(flow)
    app.settle()
    assert app.result().startswith(type(FAILURES[name][1]()).__name__)
