"""Instances go on from an earlier event, in a copy of their own, or end by hand."""

import asyncio

import pytest

from holdfast import Holdfast
from holdfast.app.tasks.signature_codec import SignatureCodec
from holdfast.app.workflows.handle import Instance
from holdfast.errors import (
    ChildError,
    HistoryCorrupt,
    InvalidArguments,
    InvalidOperation,
    InvalidValue,
    NondeterminismError,
    WorkflowAlreadyStarted,
    WorkflowCancelled,
    WorkflowFailed,
    WorkflowFinished,
    WorkflowNotFound,
)
from holdfast.model.workflows.history import REPAIR_EVENT_ID, activity_key
from holdfast.model.workflows.instances import InstanceStatus, Turn
from holdfast.testing.corruption import corrupt_history
from holdfast.workflows.api.definitions import Definitions
from holdfast.workflows.provider import Provider
from holdfast.workflows.runtime.completion import poison

LONG = 30


@pytest.fixture(params=["memory", "wal", "sqlite"])
def hf(request, tmp_path):
    urls = {"memory": "memory:", "wal": f"wal:{tmp_path / 'journal'}", "sqlite": f"sqlite:{tmp_path / 'jobs.db'}"}
    with Holdfast(urls[request.param]) as app:
        app.keys, app.broken = [], True

        @app.task(name="pay", max_attempts=1)
        def pay(amount: int) -> int:
            app.keys.append(app.idempotency_key())
            if app.broken:
                raise OSError("the bank is closed")
            return amount

        app.pay = pay
        yield app


def settle(hf):
    """Work until nothing is left to do."""
    worker = hf.worker(until_idle=True)
    worker.start()
    assert worker.join(LONG)


def rewritten(hf):
    """Take the workflows away, so that other code can be registered under their names."""
    hf.workflows = Definitions(SignatureCodec)


def kinds_of(run, execution_id=None):
    return [type(event.kind).__name__ for event in run.history(execution_id)]


def unchanged(hf, run, error, act, **match):
    with hf.engine.read() as view:
        before = view.seq
    with pytest.raises(error, **match):
        act(run)
    with hf.engine.read() as view:
        assert view.seq == before


def paying(hf):
    @hf.workflow
    async def order(amount: int) -> list:
        hf.kv.set("tries", hf.kv.get("tries", 0) + 1)
        first = await hf.step(lambda: 5)
        paid = await hf.pay.call(amount)
        word = await hf.signal("go", type=str)
        return [first, paid, word]

    return order


# --- reset ------------------------------------------------------------------------------------------------------------


def test_a_reset_runs_what_failed_again_under_its_old_key_and_delivers_later_signals_again(hf):
    run = paying(hf).start(7, id="o")
    run.signal("go", "early")
    settle(hf)
    with pytest.raises(WorkflowFailed, match="the bank is closed"):
        run.result(timeout=0)
    assert run.kv.all() == {"tries": 1}
    hf.broken = False
    run.reset(reason="the bank is open")
    state = run.status()
    assert (state.status, state.execution_id) == (InstanceStatus.RUNNING, 2)
    settle(hf)
    assert run.result(timeout=0) == [5, 7, "early"]
    assert len(hf.keys) == 2
    assert hf.keys[0] == hf.keys[1]
    # The keys are as they were when the first execution began: it counts one try, not two.
    assert run.kv.all() == {"tries": 1}
    assert kinds_of(run, 1)[-1] == "OrchestrationFailed"
    assert kinds_of(run).count("StepCompleted") == 1
    assert hf.engine.store.check() == []


def test_a_reset_to_an_event_goes_on_behind_it(hf):
    hf.broken = False
    run = paying(hf).start(7, id="o")
    settle(hf)
    run.signal("go", "late")
    settle(hf)
    assert run.result(timeout=0) == [5, 7, "late"]
    at = kinds_of(run).index("ActivityScheduled")
    run.reset(to=at)
    settle(hf)
    # What was asked for behind that event is asked for anew, as something else.
    assert run.result(timeout=0) == [5, 7, "late"]
    assert len(set(hf.keys)) == 2
    run.reset(to=at + 1)
    settle(hf)
    assert run.result(timeout=0) == [5, 7, "late"]
    assert hf.keys[2] == hf.keys[1]
    assert run.status().execution_id == 3


def test_a_blocked_instance_is_reset_to_before_the_difference(hf):
    hf.broken = False
    run = paying(hf).start(7, id="o")
    settle(hf)
    rewritten(hf)

    @hf.workflow
    async def order(amount: int) -> list:
        hf.kv.set("tries", 1)
        first = await hf.step(lambda: 6)
        paid = await hf.pay.call(amount + 1)
        return [first, paid]

    run.signal("go", "unread")
    settle(hf)
    with pytest.raises(NondeterminismError):
        run.result(timeout=0)
    run.reset()
    assert run.status().blocked is None
    settle(hf)
    assert run.result(timeout=0) == [5, 8]
    (old, _) = run.executions()
    assert old.status is InstanceStatus.CANCELLED
    assert hf.engine.store.check() == []


def test_work_that_a_blocked_execution_has_on_the_way_is_run_under_its_old_key(hf):
    @hf.workflow
    async def order() -> list:
        return [await hf.pay.call(1), await hf.step(lambda: 1)]

    run = order.start(id="o")
    hf.queue("default").pause("later")
    settle(hf)
    assert kinds_of(run) == ["OrchestrationStarted", "ActivityScheduled"]
    rewritten(hf)

    @hf.workflow(name="order")
    async def other() -> list:
        await asyncio.sleep(1)
        return []

    run.signal("x")
    settle(hf)
    assert run.status().blocked is not None
    rewritten(hf)
    hf.workflows.add(order.definition)
    run.reset(to=2)
    hf.broken = False
    settle(hf)
    hf.queue("default").resume()
    settle(hf)
    # The job of the execution that was given up was revoked: one ran, for the same event.
    assert run.result(timeout=0) == [1, 1]
    assert hf.keys == [activity_key("o", 1, 2)]


def test_messages_that_an_end_by_poison_kept_are_delivered_again(hf):
    hf.broken = False
    run = paying(hf).start(7, id="o")
    run.signal("go", "kept")
    provider = Provider(hf.engine)
    item, token, _ = provider.fetch_orchestration_item(LONG)
    end = poison(item, 11, 1)
    provider.ack_orchestration_item(token, end.execution_id, end.history_delta, metadata=end.metadata)
    with pytest.raises(WorkflowFailed, match="delivered 11 times"):
        run.result(timeout=0)
    run.reset()
    settle(hf)
    assert run.result(timeout=0) == [5, 7, "kept"]


def test_a_signal_that_met_other_code_is_delivered_again_when_its_workflow_chose_to_fail(hf):
    def build(amount):
        @hf.workflow(name="strict", on_nondeterminism="fail")
        async def strict() -> str:
            await hf.pay.call(amount)
            return await hf.signal("go")

        return strict

    hf.broken = False
    run = build(1).start(id="s")
    settle(hf)
    rewritten(hf)
    build(2)
    run.signal("go", "kept")
    settle(hf)
    assert run.status().status is InstanceStatus.FAILED
    rewritten(hf)
    build(1)
    run.reset()
    settle(hf)
    assert run.result(timeout=0) == "kept"


def test_a_question_that_was_answered_later_is_not_put_to_anybody_again(hf):
    @hf.workflow
    async def ask() -> str:
        answer = await hf.decision("Ship it?", options=["yes", "no"])
        await hf.pay.call(1)
        return answer

    run = ask.start(id="a")
    settle(hf)
    (question,) = hf.decisions()
    question.resolve("yes", by="ann")
    settle(hf)
    assert run.status().status is InstanceStatus.FAILED
    hf.broken = False
    run.reset(to=2)
    assert [one.record().is_open for one in hf.decisions()] == [True]
    settle(hf)
    assert run.result(timeout=0) == "yes"
    assert list(hf.decisions()) == []


def test_open_children_begin_anew_under_their_own_ids(hf):
    @hf.workflow
    async def child() -> str:
        return await hf.signal("go", type=str)

    @hf.workflow
    async def parent() -> str:
        return await child.call()

    run = parent.start(id="p")
    settle(hf)
    run.cancel("enough", force=True)
    settle(hf)
    with pytest.raises(WorkflowCancelled):
        run.result(timeout=0)
    run.reset()
    settle(hf)
    first, second = run.children()
    assert first.status().status is InstanceStatus.CANCELLED
    second.signal("go", "again")
    settle(hf)
    assert run.result(timeout=0) == "again"


@pytest.mark.parametrize("back", [0, 1])
def test_a_child_that_the_code_named_and_that_has_ended_is_not_waited_for_in_vain(hf, back):
    """`back`: the reset leaves the call out as well, so that the next execution gives it anew."""
    begun = []

    @hf.workflow
    async def child(n: int) -> int:
        begun.append(n)
        return n * 10

    @hf.workflow
    async def parent() -> list:
        found = await child.options(id="c").call(4)
        return [found, await hf.pay.call(1)]

    run = parent.start(id="p")
    settle(hf)
    with pytest.raises(WorkflowFailed, match="the bank is closed"):
        run.result(timeout=0)
    hf.broken = False
    run.reset(to=kinds_of(run).index("SubOrchestrationScheduled") + 1 - back)
    settle(hf)
    assert run.result(timeout=0) == [40, 1]
    assert begun == [4]
    assert hf.engine.store.check() == []


def test_a_timer_and_the_workflows_own_timeout_count_again(hf):
    @hf.workflow(timeout=3600)
    async def slow() -> str:
        await asyncio.sleep(0.02)
        await hf.pay.call(1)
        return "done"

    run = slow.start(id="s")
    while not run.status().has_ended:
        settle(hf)
    hf.broken = False
    run.reset(to=2)
    while not run.status().has_ended:
        settle(hf)
    assert run.result(timeout=0) == "done"
    own = [event for event in run.history() if event.source_event_id == 1]
    assert len(own) == 1


def test_what_cannot_be_reset_is_refused_and_nothing_changes(hf):
    run = paying(hf).start(7, id="o")
    unchanged(hf, run, InvalidOperation, lambda one: one.reset(), match="has not begun")
    hf.broken = False
    settle(hf)
    unchanged(hf, run, InvalidOperation, lambda one: one.reset(), match="is running, and not blocked")
    unchanged(hf, Instance(hf, "nobody"), WorkflowNotFound, lambda one: one.reset())
    run.signal("go", "x")
    settle(hf)
    last = len(run.history())
    unchanged(hf, run, InvalidValue, lambda one: one.reset(to=last + 1), match=f"events 1-{last - 1}")
    unchanged(hf, run, InvalidValue, lambda one: one.reset(to=0))


# --- fork -------------------------------------------------------------------------------------------------------------


def test_a_fork_has_work_and_keys_of_its_own_and_both_name_each_other(hf):
    run = paying(hf).start(7, id="o")
    settle(hf)
    hf.broken = False
    copy = run.fork(id="copy")
    settle(hf)
    copy.signal("go", "mine")
    settle(hf)
    assert copy.result(timeout=0) == [5, 7, "mine"]
    assert copy.kv.all() == {"tries": 1}
    assert len(set(hf.keys)) == 2
    assert run.status().status is InstanceStatus.FAILED
    assert (run.status().forks, copy.status().forked_from) == (("copy",), "o")
    assert hf.engine.store.check() == []


def test_a_fork_of_what_runs_goes_on_where_it_stands(hf):
    hf.broken = False
    run = paying(hf).start(7, id="o")
    settle(hf)
    copy = run.fork()
    settle(hf)
    for one, word in ((run, "old"), (copy, "new")):
        one.signal("go", word)
    settle(hf)
    assert (run.result(timeout=0), copy.result(timeout=0)) == ([5, 7, "old"], [5, 7, "new"])
    assert len(hf.keys) == 1


def test_a_fork_with_other_input_begins_at_the_start(hf):
    hf.broken = False
    run = paying(hf).start(7, id="o")
    settle(hf)
    copy = run.fork(id="copy", input={"amount": 9})
    settle(hf)
    copy.signal("go", "new")
    settle(hf)
    assert copy.result(timeout=0) == [5, 9, "new"]
    assert copy.status().forked_from == "o"


def test_code_behind_a_cut_is_reached_for_the_first_time_and_patched(hf):
    @hf.workflow
    async def renew(fails: bool) -> str:
        is_new = hf.patched("new")
        if fails and hf.broken:
            raise ValueError(f"new: {is_new}")
        told = await hf.step(str, f"new: {is_new}")
        await hf.signal("go")
        return told

    failed, done = renew.start(fails=True, id="failed"), renew.start(fails=False, id="done")
    done.signal("go")
    settle(hf)
    hf.broken = False
    failed.reset()
    runs = [failed, done.fork(id="to", to=1), done.fork(id="input", input={"fails": False})]
    done.reset(to=1)
    settle(hf)
    for run in runs:
        run.signal("go")
    settle(hf)
    for run in (*runs, done):
        assert run.result(timeout=0) == "new: True"
        assert kinds_of(run)[:2] == ["OrchestrationStarted", "PatchRecorded"]


def test_what_cannot_be_forked_is_refused_and_nothing_changes(hf):
    order = paying(hf)
    run = order.start(7, id="o")
    order.start(8, id="other")
    settle(hf)
    unchanged(hf, run, WorkflowAlreadyStarted, lambda one: one.fork(id="other"))
    unchanged(hf, run, WorkflowAlreadyStarted, lambda one: one.fork(id="o"))
    unchanged(hf, run, InvalidValue, lambda one: one.fork(id=""))
    unchanged(hf, run, InvalidValue, lambda one: one.fork(to=99))
    unchanged(hf, run, InvalidValue, lambda one: one.fork(to=1, input={"amount": 1}))
    unchanged(hf, run, InvalidArguments, lambda one: one.fork(input={"amount": "many"}))
    unchanged(hf, Instance(hf, "nobody"), WorkflowNotFound, lambda one: one.fork())


# --- fail -------------------------------------------------------------------------------------------------------------


def test_a_damaged_instance_is_ended_and_its_parent_told(hf):
    @hf.workflow
    async def child() -> str:
        return await hf.signal("go", type=str)

    @hf.workflow
    async def parent() -> str:
        try:
            return await child.options(id="c").call()
        except ChildError as problem:
            return str(problem)

    run = parent.start(id="p")
    settle(hf)
    damaged = hf.instance("c")
    corrupt_history(hf.engine.store, "c")
    damaged.fail("beyond repair")
    assert damaged.status().status is InstanceStatus.FAILED
    unchanged(hf, damaged, WorkflowFinished, lambda one: one.fail())
    unchanged(hf, damaged, HistoryCorrupt, lambda one: one.reset())
    settle(hf)
    assert "beyond repair" in run.result(timeout=0)


def test_a_damaged_instance_is_ended_although_its_parent_is_damaged_too(hf):
    @hf.workflow
    async def child() -> str:
        return await hf.signal("go", type=str)

    @hf.workflow
    async def parent() -> str:
        return await child.options(id="c").call()

    parent.start(id="p")
    settle(hf)
    for name in ("c", "p"):
        corrupt_history(hf.engine.store, name)
    hf.instance("c").signal("go", "on")
    settle(hf)
    for name in ("c", "p"):
        hf.instance(name).fail("damaged")
        settle(hf)
        with pytest.raises(WorkflowFailed, match="damaged"):
            hf.instance(name).result(timeout=0)


def test_what_comes_for_a_damaged_instance_after_its_end_is_taken_and_dropped(hf):
    @hf.workflow
    async def child() -> str:
        return await hf.signal("go", type=str)

    @hf.workflow
    async def parent() -> str:
        await hf.step(lambda: 1)
        return await child.call()

    run = parent.start(id="p")
    settle(hf)
    corrupt_history(hf.engine.store, "p")
    run.fail("beyond repair")
    (called,) = run.children()
    called.cancel("its parent is gone")
    settle(hf)
    assert called.status().status is InstanceStatus.CANCELLED
    with hf.engine.read() as view:
        assert not view.mail("p")
        assert view.get(Turn, "p") is None


def test_a_blocked_instance_is_ended_and_a_reset_delivers_what_it_had_not_read(hf):
    hf.broken = False
    order = paying(hf)
    run = order.start(7, id="o")
    settle(hf)
    rewritten(hf)

    @hf.workflow(name="order")
    async def other(amount: int) -> None:
        await asyncio.sleep(amount)

    run.signal("go", "kept")
    settle(hf)
    assert run.status().blocked is not None
    run.fail("no longer needed")
    with pytest.raises(WorkflowFailed, match="no longer needed"):
        run.result(timeout=0)
    assert run.history()[-1].event_id == REPAIR_EVENT_ID
    rewritten(hf)
    hf.workflows.add(order.definition)
    run.reset()
    settle(hf)
    assert run.result(timeout=0) == [5, 7, "kept"]


def test_a_start_whose_input_fits_no_code_can_be_ended(hf):
    order = paying(hf)
    run = order.start(7, id="o")
    rewritten(hf)

    @hf.workflow(name="order")
    async def other(amount: list[str]) -> None:
        del amount

    settle(hf)
    assert run.status().blocked is not None
    run.fail("never mind")
    assert run.status().status is InstanceStatus.FAILED
    assert kinds_of(run) == ["OrchestrationStarted", "OrchestrationFailed"]


def test_what_is_neither_blocked_nor_damaged_is_not_ended(hf):
    run = paying(hf).start(7, id="o")
    unchanged(hf, run, InvalidOperation, lambda one: one.fail(), match="neither blocked nor damaged")
    unchanged(hf, Instance(hf, "nobody"), WorkflowNotFound, lambda one: one.fail())


def test_the_awaitable_twins_do_the_same(hf):
    run = paying(hf).start(7, id="o")
    settle(hf)
    hf.broken = False

    async def both():
        copy = await run.aio.fork(id="copy")
        await run.aio.reset()
        with pytest.raises(InvalidOperation):
            await run.aio.fail("no")
        return copy

    copy = asyncio.run(both())
    settle(hf)
    for one in (run, copy):
        one.signal("go", "x")
    settle(hf)
    assert (run.result(timeout=0), copy.result(timeout=0)) == ([5, 7, "x"], [5, 7, "x"])
