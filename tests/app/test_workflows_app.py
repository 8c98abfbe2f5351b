"""Workflows as people write, start and meet them: on every store, with a real worker."""

import asyncio
import re
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.errors import (
    ActivityError,
    DecisionClosed,
    DecisionNotFound,
    InvalidArguments,
    InvalidValue,
    UsageError,
    WorkflowAlreadyStarted,
    WorkflowCancelled,
    WorkflowCodeError,
    WorkflowFailed,
    WorkflowFinished,
    WorkflowNotAllowed,
    WorkflowNotFound,
)
from holdfast.model.workflows.instances import InstanceStatus

#: Seconds after which a test that hangs is called broken; none waits so long.
LONG = 30


class Declined(Exception):
    """Of the user."""


class Working:
    """An application with its worker."""

    def __init__(self, hf):
        self.hf = hf
        self._worker = None

    def __enter__(self):
        self._worker = self.hf.worker(concurrency=4)
        self._worker.start()
        return self.hf

    def __exit__(self, *error):
        self._worker.stop()
        assert self._worker.join(LONG)


@pytest.fixture(params=["memory", "wal", "sqlite"])
def hf(request, tmp_path):
    urls = {"memory": "memory:", "wal": f"wal:{tmp_path / 'journal'}", "sqlite": f"sqlite:{tmp_path / 'jobs.db'}"}
    with Holdfast(urls[request.param]) as app:
        yield app


@pytest.fixture
def onboard(hf):
    @hf.task(name="double", raises=(Declined,))
    def double(n: int) -> int:
        if n < 0:
            raise Declined("negative", n)
        return 2 * n

    @hf.workflow
    async def onboard(user: int) -> str:
        one, two = await asyncio.gather(double.call(user), double.options(priority=9).call(n=user + 1))
        step = await hf.step(lambda: 7)
        hf.set_status({"at": step})
        hf.kv.set("user", user)
        paid = await hf.signal("paid", type=dict[str, int])
        return f"{one} {two} {step} {paid['eur']}"

    return onboard


def test_a_workflow_runs_from_start_to_result(hf, onboard):
    run = onboard.start(3, id="user-3")
    assert (run.id, run.created) == ("user-3", True)
    with Working(hf):
        assert run.wait_status(timeout=LONG).custom_status == {"at": 7}
        assert run.kv.all() == {"user": 3}
        assert run.kv.get("user", type=int) == 3
        run.signal("paid", {"eur": 9})
        assert run.result(timeout=LONG) == "6 8 7 9"
    assert run.status().status is InstanceStatus.COMPLETED
    assert [execution.execution_id for execution in run.executions()] == [1]
    assert type(run.history()[-1].kind).__name__ == "OrchestrationCompleted"
    assert hf.instance("user-3").result() == "6 8 7 9"


def test_signals_may_come_with_the_start(hf, onboard):
    run = onboard.options(id="s", signals=[("paid", {"eur": 1})]).start(1)
    with Working(hf):
        assert run.result(timeout=LONG) == "2 4 7 1"


def test_a_start_with_a_known_id_gives_the_run_there_is(hf, onboard):
    assert onboard.start(3, id="u").created
    assert not onboard.start(3, id="u").created  # it waits for its first turn
    with pytest.raises(WorkflowAlreadyStarted, match="with other input"):
        onboard.start(4, id="u")
    with Working(hf):
        hf.instance("u").signal("paid", {"eur": 1})
        assert onboard.start(user=3, id="u").result(timeout=LONG) == "6 8 7 1"
    assert onboard.start(3, id="u").result() == "6 8 7 1"
    with pytest.raises(WorkflowAlreadyStarted):
        onboard.start(4, id="u")


def test_nobody_is_told_what_nobody_can_read(hf, onboard):
    run = onboard.start(1, id="u")
    with Working(hf):
        run.signal("paid", {"eur": 1})
        run.result(timeout=LONG)
    with pytest.raises(WorkflowFinished, match="Nothing was sent"):
        run.signal("paid", {"eur": 1})
    with pytest.raises(WorkflowFinished):
        run.cancel("too late")
    with pytest.raises(WorkflowNotFound):
        hf.instance("nobody")


def test_a_held_signal_waits_for_its_instance(hf, onboard):
    later = hf.instance("later", missing_ok=True)
    with pytest.raises(WorkflowNotFound, match="hold=seconds"):
        later.signal("paid", {"eur": 5})
    later.signal("paid", {"eur": 5}, hold=60)
    with Working(hf):
        assert onboard.start(1, id="later").result(timeout=LONG) == "2 4 7 5"


def test_a_failure_comes_with_its_class_and_its_causes(hf):
    @hf.task(name="pay", raises=(Declined,), max_attempts=1)
    def pay(amount: int) -> None:
        raise Declined("no funds", amount)

    @hf.workflow(raises=(Declined,))
    async def buy(amount: int) -> None:
        try:
            await pay.call(amount)
        except Declined as problem:
            raise LookupError("cannot buy") from problem

    with Working(hf), pytest.raises(WorkflowFailed, match="cannot buy") as caught:
        buy.start(5, id="b").result(timeout=LONG)
    assert isinstance(caught.value, LookupError)
    assert caught.value.is_a(LookupError)
    cause = caught.value.__cause__
    assert isinstance(cause, ActivityError)
    assert "raise Declined" in cause.traceback_text or "pay" in str(cause)
    assert any("cannot buy" in note for note in caught.value.__notes__)
    assert hf.instance("b").explain().code == "ended"


def test_a_cancelled_workflow_says_why(hf):
    @hf.workflow
    async def wait() -> None:
        await hf.signal("never")

    run = wait.start(id="w")
    run.cancel("not needed")
    with Working(hf), pytest.raises(WorkflowCancelled, match="not needed"):
        run.result(timeout=LONG)
    assert run.status().status is InstanceStatus.CANCELLED


def test_a_wait_that_runs_out_says_what_the_instance_waits_for(hf, onboard):
    run = onboard.start(1)
    with pytest.raises(TimeoutError, match="no live worker has workflow 'onboard'"):
        run.result(timeout=0)
    with Working(hf):
        run.wait_status(timeout=LONG)
        with pytest.raises(TimeoutError, match=r"waits for signal 'paid'\. It goes on"):
            run.result(timeout=0)


def test_a_plain_def_is_a_workflow_too(hf):
    @hf.task(name="double")
    def double(n: int) -> int:
        return 2 * n

    @hf.workflow
    def plain(n: int) -> int:
        one, two = double.begin(n), double.begin(n + 1)
        hf.wait([one, two])
        return one.result() + two.result() + double.call(n)

    with Working(hf):
        assert plain.start(2).result(timeout=LONG) == 4 + 6 + 4


def test_workflows_call_and_start_each_other(hf):
    @hf.workflow
    async def child(n: int) -> int:
        return n + 1

    @hf.workflow
    async def parent(n: int) -> list[int | str]:
        apart = child.options(id="apart").start(n + 10)
        return [await child.options(id="own").call(n), apart.id]

    run = parent.start(1, id="p")
    with Working(hf):
        assert run.result(timeout=LONG) == [2, "apart"]
        assert hf.instance("apart").result(timeout=LONG) == 12
    assert [one.id for one in run.children()] == ["own"]
    assert hf.instance("own").status().parent == "p"
    assert {one.id for one in hf.instances(workflow="child")} == {"own", "apart"}
    assert hf.instances(status="FAILED") == []


def test_a_detached_start_brings_its_signals_along(hf, onboard):
    @hf.workflow
    async def parent() -> str:
        return onboard.options(id="told", signals=[("paid", {"eur": 2})]).start(1).id

    with Working(hf):
        parent.start().result(timeout=LONG)
        assert hf.instance("told").result(timeout=LONG) == "2 4 7 2"


def test_people_answer_what_a_workflow_asks(hf):
    @hf.workflow
    async def approve() -> str:
        hf.set_status("asked")
        return await hf.decision("Go on?", ["yes", "no"], assignee="ann")

    run = approve.start(id="a")
    with Working(hf):
        run.wait_status(timeout=LONG)
        (found,) = hf.decisions()
        record = found.record()
        assert (record.prompt, record.options, record.assignee, record.is_open) == (
            "Go on?",
            ("yes", "no"),
            "ann",
            True,
        )
        assert "decision" in run.explain().sentence
        with pytest.raises(InvalidValue, match="not one of yes, no"):
            found.resolve("perhaps")
        with pytest.raises(InvalidValue, match="a choice or a message"):
            found.resolve()
        hf.decision_record(found.id).resolve("yes", by="bob")
        assert run.result(timeout=LONG) == "yes"
    with pytest.raises(DecisionClosed):
        found.resolve("no")
    with pytest.raises(DecisionNotFound):
        hf.decision_record("nobody")
    assert hf.decisions() == []
    assert [one.record().by for one in hf.decisions(open=None, instance="a")] == ["bob"]


def test_several_versions_live_beside_each_other(hf):
    @hf.workflow(name="greet")
    async def old(who: str) -> str:
        return f"hello {who}"

    @hf.workflow(name="greet", version="2.0.0")
    async def new(who: str) -> str:
        return f"good day {who}"

    with Working(hf):
        assert old.start("ann").result(timeout=LONG) == "good day ann"
        assert new.options(version="1.0.0").start("ann").result(timeout=LONG) == "hello ann"
    with pytest.raises(InvalidValue, match=r"no version 3\.0\.0.*There are: 1\.0\.0, 2\.0\.0"):
        new.options(version="3.0.0").start("ann")
    with pytest.raises(InvalidValue, match="registered already"):
        hf.workflow(name="greet")(lambda who: who)


def test_everything_can_be_awaited(hf, onboard):
    async def story():
        run = await onboard.aio.start(1, id="a")
        assert (await run.aio.wait_status(timeout=LONG)).custom_status == {"at": 7}
        await run.aio.signal("paid", {"eur": 4})
        assert await run.aio.result(timeout=LONG) == "2 4 7 4"
        assert await run.aio.kv() == {"user": 1}
        assert (await run.aio.explain()).code == "ended"
        assert [one.id for one in await hf.aio.instances()] == ["a"]
        assert (await hf.aio.instance("a")).id == "a"
        assert await hf.aio.decisions() == []
        with pytest.raises(WorkflowNotFound):
            await hf.aio.instance("b")
        waiting = await onboard.aio.start(2)
        with pytest.raises(TimeoutError, match="It goes on"):
            await waiting.aio.result(timeout=0.01)
        await waiting.aio.cancel("enough")
        with pytest.raises(WorkflowCancelled):
            await waiting.aio.result(timeout=LONG)

    with Working(hf):
        asyncio.run(story())


# --- what is refused --------------------------------------------------------------------------------------------------


def test_handles_and_the_store_are_refused_inside_a_workflow(hf, onboard):
    @hf.task(name="noop")
    def noop() -> None: ...

    @hf.workflow
    async def meddler(which: str) -> str:
        run = onboard.options(id=f"x{which}").start(1)
        calls = {
            "result": run.result,
            "status": run.status,
            "signal": lambda: run.signal("paid"),
            "cancel": run.cancel,
            "instance": lambda: hf.instance("x"),
            "instances": hf.instances,
            "decisions": hf.decisions,
            "enqueue": noop.enqueue,
            "close": hf.close,
        }
        try:
            calls[which]()
        except WorkflowNotAllowed as problem:
            return str(problem)
        return "allowed"

    with Working(hf):
        for which in ("result", "status", "signal", "cancel", "instance", "instances", "decisions", "enqueue", "close"):
            assert "not within a workflow" in meddler.start(which).result(timeout=LONG), which


def test_the_store_is_out_of_reach_of_a_plain_def_too_but_not_of_its_steps(hf, onboard):
    @hf.task(name="noop")
    def noop() -> None: ...

    @hf.workflow
    def meddler() -> str:
        try:
            noop.enqueue()
        except WorkflowNotAllowed:
            job = hf.step(lambda: noop.enqueue().id)
            return f"refused, then {len(job)}"
        return "allowed"

    with Working(hf):
        assert meddler.start().result(timeout=LONG) == "refused, then 36"


def within(levels, value):
    for _ in range(levels):
        value = [value]
    return value


BAD = [
    ({1}, "x: object of type set cannot be encoded as JSON"),
    ([1, {"a": object()}], r"x\[1\]\.a: object of type object cannot be encoded as JSON"),
    (float("nan"), "x: nan is not JSON"),
    ({"a": [2**70]}, r"x\.a\[0\]: the integer 1180591620717411303424 is outside the 64 bits"),
    (["\ud800"], r"x\[0\]: text with a lone surrogate"),
    ({"a": {1: 2}}, r"x\.a: the name 1 is not text"),
    (within(70, 1), r"x\[0\].*: nested deeper than 64 levels"),
]


@pytest.mark.parametrize(("value", "said"), BAD, ids=range(len(BAD)))
def test_an_argument_that_cannot_be_kept_is_refused_at_the_call_by_its_path(hf, value, said):
    @hf.task(name="act")
    def act(x: Any) -> None: ...

    @hf.workflow
    async def flow(x: Any) -> None: ...

    @hf.workflow
    async def outer(x: Any) -> str:
        calls = {"call": act.call, "child": flow.call, "start": flow.start, "again": hf.continue_as_new}
        try:
            calls[x](value)
        except TypeError as problem:
            return str(problem)
        return "allowed"

    with pytest.raises(InvalidArguments, match=f"flow: {said}.*Nothing was stored"):
        flow.start(value)
    with Working(hf):
        for how in ("call", "child", "start", "again"):
            assert re.search(said, outer.start(how).result(timeout=LONG)), how


@pytest.mark.parametrize("value", [object(), range(3), iter([1])], ids=["object", "range", "iterator"])
def test_what_is_no_list_is_refused_where_a_list_is_wanted(hf, value):
    @hf.task(name="act")
    def act(x: list) -> None: ...

    @hf.workflow
    async def flow(x: list) -> None: ...

    with pytest.raises(InvalidArguments, match="x: "):
        flow.start(value)
    with pytest.raises(UsageError, match="x: "):
        act.enqueue(value)


def test_what_workflows_call_is_refused_outside(hf, onboard):
    @hf.task(name="noop")
    def noop() -> None: ...

    for call in (noop.call, lambda: onboard.call(1), hf.now, lambda: hf.signal("x"), lambda: hf.step(noop), hf.info):
        with pytest.raises(WorkflowNotAllowed):
            call()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "k"}, "key does not go with a call from a workflow"),
        ({"id": "j"}, "id does not go with a call from a workflow"),
        ({"queue": "no name"}, "queue"),
        ({"priority": 1000}, "priority"),
        ({"total_timeout": float("nan")}, "a number"),
    ],
)
def test_options_that_no_activity_has_are_refused_at_the_call(hf, options, message):
    @hf.task(name="noop")
    def noop() -> None: ...

    @hf.workflow
    async def flow() -> None:
        await noop.options(**options).call()

    # A wrong value may come from data; an option that does not exist is an error in the code.
    with Working(hf), pytest.raises((WorkflowFailed, WorkflowCodeError), match=message):
        flow.start().result(timeout=LONG)


def test_options_of_calls_from_workflows_are_refused_when_enqueuing(hf):
    @hf.task(name="noop")
    def noop() -> None: ...

    for options in ({"session": "s"}, {"total_timeout": 5}):
        with pytest.raises(InvalidArguments, match="calls from workflows only"):
            noop.options(**options).enqueue()
    assert hf.jobs() == []


def test_bad_starts_write_nothing(hf, onboard):
    bad = [
        (lambda: onboard.start("x"), InvalidArguments),
        (onboard.start, InvalidArguments),
        (lambda: onboard.start(1, id=""), InvalidValue),
        (lambda: onboard.start(1, id="a::sub::b"), InvalidValue),
        (lambda: onboard.start(1, id="x" * 600), InvalidValue),
        (lambda: onboard.options(signals=["@x"]), InvalidValue),
        (lambda: onboard.options(signals=[("x", object())]), InvalidValue),
        (lambda: hf.instances(status="LATE"), InvalidValue),
        (lambda: hf.instances(limit=0), InvalidValue),
    ]
    for call, kind in bad:
        with pytest.raises(kind):
            call()
    assert list(hf.engine.store.feed(0)) == []


def test_a_workflow_needs_an_application_without_namespace_and_a_name_for_its_parameters():
    with Holdfast("memory:", namespace="team") as hf, pytest.raises(InvalidValue, match="belong to no namespace"):
        hf.workflow(lambda: None)
    with Holdfast("memory:") as hf:
        with pytest.raises(InvalidValue, match="a parameter named id"):

            @hf.workflow
            async def flow(id: str) -> None: ...  # noqa: A002 - what is refused

        with pytest.raises(InvalidArguments, match="no option 'colour'"):
            hf.workflow(colour="red")(lambda: None)


def test_a_task_by_the_clock_starts_an_instance_once(hf, onboard):
    @hf.task(name="nightly")
    def nightly() -> str:
        for _ in range(2):  # as an attempt that is repeated does
            run = onboard.options(signals=[("paid", {"eur": 1})]).start(1, id=hf.current.job_id)
        return run.id

    schedule = hf.schedule("nightly", nightly, cron="0 3 * * *")
    job = schedule.trigger()
    with Working(hf):
        assert hf.instance(job.result(timeout=LONG)).result(timeout=LONG) == "2 4 7 1"
    assert [one.id for one in hf.instances()] == [job.id]


@pytest.mark.parametrize("timeout", [float("nan"), "5", True])
def test_what_is_no_time_to_wait_for_an_instance_is_refused(hf, onboard, timeout):
    run = onboard.start(1)
    for wait in (run.wait, run.wait_status, run.result):
        with pytest.raises(InvalidValue, match="timeout"):
            wait(timeout=timeout)
    with pytest.raises(InvalidValue, match="timeout"):
        asyncio.run(run.aio.wait(timeout=timeout))


def test_started_workflow_is_listed_before_its_first_turn(hf):
    @hf.workflow(name="waits")
    def waits() -> int:
        return 1

    first, second = waits.start(), waits.start()
    assert {run.id for run in hf.instances()} == {first.id, second.id}
    assert {run.id for run in hf.instances(status="RUNNING", workflow="waits")} == {first.id, second.id}
    assert [(run.status().status, run.status().has_begun) for run in hf.instances()] == [("RUNNING", False)] * 2
    assert len(hf.instances(limit=1)) == 1
    assert hf.instances(status="COMPLETED") == hf.instances(workflow="other") == []
    with Working(hf):
        assert (first.result(timeout=LONG), second.result(timeout=LONG)) == (1, 1)
    assert [(run.status().status, run.status().has_begun) for run in hf.instances()] == [("COMPLETED", True)] * 2
