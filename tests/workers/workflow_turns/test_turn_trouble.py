"""What goes wrong around a turn, and what comes of it: nobody's instance is lost, blamed or done twice."""

import asyncio
import threading

import pytest
from turnskit import LONG, App, Definitions, Register, SignatureCodec

from holdfast.errors import ChildError, ProviderError, StoreBusy
from holdfast.failpoints import listening
from holdfast.model.commands import Lease
from holdfast.model.times import seconds_between
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.block_reasons import blockage_of
from holdfast.model.workflows.commands import FetchTurn
from holdfast.model.workflows.history import Status
from holdfast.model.workflows.instances import Turn
from holdfast.testing.corruption import corrupt_history
from holdfast.workers.workflow_turns import NoTurns
from holdfast.workflows.api import context as face


@pytest.fixture
def app(url, clock):
    made = App(url, clock)
    yield made
    made.close()


@pytest.fixture
def real(url):
    made = App(url)
    yield made
    made.close()


class Gate:
    """A step that says it has begun and waits to be let go."""

    def __init__(self):
        self.begun, self.open, self.calls = threading.Event(), threading.Event(), 0

    def __call__(self) -> int:
        self.calls += 1
        self.begun.set()
        assert self.open.wait(LONG)
        return 7


def gated(app):
    gate = Gate()

    @app.workflow
    async def flow() -> int:
        return await face.step.options(name="gate")(gate)

    return gate, flow


def turn_of(app, instance="i"):
    with app.hf.engine.read() as view:
        return view.get(Turn, instance)


def wait_for_reason(app, instance="i"):
    store = app.hf.engine.store
    while True:
        with app.hf.engine.read() as view:
            seq, turn = view.seq, view.get(Turn, instance)
        if turn is not None and turn.reason is not None and turn.locked_until is None:
            return turn
        assert store.wait(seq, LONG)


# --- locks ------------------------------------------------------------------------------------------------------------


def test_a_turn_whose_holder_is_gone_is_taken_over_when_its_lock_ends(app, clock):
    @app.workflow
    async def flow() -> int:
        return await face.step(lambda: 1)

    app.start(flow)
    _, token, _ = app.provider.fetch_orchestration_item(30)
    app.settle()
    assert app.provider.list_instances() == []
    clock.advance(31)
    app.settle()
    assert app.result() == 1
    with pytest.raises(ProviderError):
        app.provider.ack_orchestration_item(token, 1)


def test_a_turn_that_lost_its_lock_is_thrown_away_and_the_new_holder_goes_on(app, clock):
    gate, flow = gated(app)
    app.start(flow)
    worker = app.worker()
    worker.start()
    assert gate.begun.wait(LONG)
    clock.advance(40)
    _, token, _ = app.provider.fetch_orchestration_item(30)
    gate.open.set()
    while not worker.turns.lost:
        worker.slots.poke()
        threading.Event().wait(0.001)
    assert app.provider.list_instances() == []
    app.provider.abandon_orchestration_item(token)
    app.wait()
    assert app.result() == 7
    assert gate.calls == 2
    assert [type(event.kind) for event in app.provider.read("i")].count(event_kinds.StepCompleted) == 1


def test_a_lock_is_renewed_while_a_step_runs(app, clock):
    gate, flow = gated(app)
    app.start(flow)
    worker = app.worker()
    worker.start()
    assert gate.begun.wait(LONG)
    renewed = threading.Event()
    for _ in range(5):
        before = turn_of(app).locked_until
        with listening("turns.answered", renewed.set):
            renewed.clear()
            clock.advance(11)
            worker.slots.poke()
            assert renewed.wait(LONG)
        while turn_of(app).locked_until == before:
            threading.Event().wait(0.001)
    assert app.provider.fetch_orchestration_item(30) is None
    gate.open.set()
    app.wait()
    assert gate.calls == 1


def test_a_busy_store_only_delays_an_ack(app):
    @app.workflow
    async def flow() -> int:
        return await face.step(lambda: 1)

    app.start(flow)
    left = [1, 1]

    def busy():
        if left:
            left.pop()
            raise StoreBusy("busy")

    worker = app.worker(until_idle=True)
    with listening("pump.sending", busy):
        worker.start()
        while not worker.join(0.01):
            worker.slots.poke()
    assert not left
    assert app.result() == 1


# --- code that is not there, or differs -------------------------------------------------------------------------------


def test_what_nobody_has_code_for_waits_and_is_never_poison(app, clock):
    @app.workflow
    async def flow() -> int:
        return 1

    @app.workflow(name="other")
    async def other() -> int:
        return 2

    app.start(flow, instance="mine", version="1.0.0")
    app.start(flow, instance="theirs", version="2.0.0")
    app.start(other, instance="after")
    for _ in range(15):
        app.settle()
        clock.advance(61)
    assert app.result("mine") == 1
    assert app.result("after") == 2
    assert app.provider.list_instances_by_status("Completed") != []
    turn = turn_of(app, "theirs")
    assert turn.reason == "no live worker has workflow 'flow' 2.0.0"

    @app.workflow(name="flow", version="2.0.0")
    async def newer() -> int:
        return 3

    app.settle()  # announced by the worker: what waited for it is due at once
    assert app.result("theirs") == 3


def test_what_is_unregistered_is_tried_the_rarer_the_longer_it_waits(app, clock):
    @app.workflow
    async def flow() -> int:
        return 1

    app.start(flow, version="9.0.0")
    waits = []
    for age in (0, 10, 300):
        clock.advance(age)
        app.settle()
        message = next(iter(mail(app)))
        waits.append(message.visible_at)
    at = app.hf.engine.look().now
    assert waits[-1] > at
    assert 59 < seconds_between(at, waits[-1]) <= 60


def mail(app, instance="i"):
    with app.hf.engine.read() as view:
        return list(view.mail(instance))


def test_code_that_differs_blocks_its_instance_alone_and_the_old_code_heals_it(url, clock, tmp_path):
    app = App(url, clock)
    try:

        @app.workflow
        async def flow() -> str:
            await face.signal("go")
            await asyncio.sleep(1)
            return await face.step(lambda: "old")

        old = app.definitions
        app.start(flow)
        app.settle()
        app.signal("go")
        app.settle()
        app.definitions = Definitions(SignatureCodec)

        @Register(app.definitions, SignatureCodec)(name="flow")
        async def changed() -> str:
            await face.signal("go")
            return await face.step(lambda: "new")

        app.start(changed, instance="fresh")
        app.signal("go", instance="fresh")
        clock.advance(2)
        app.settle()
        turn = turn_of(app)
        assert blockage_of(turn.reason).kind == "Nondeterminism"
        assert "event" in blockage_of(turn.reason).text
        assert app.status() is Status.RUNNING
        assert app.result("fresh") == "new"
        clock.advance(100)
        app.settle()
        assert turn_of(app).reason_at == turn.reason_at  # since it was first seen
        assert next(iter(mail(app))).attempts == 0
        app.definitions = old
        app.settle()
        assert app.result() == "old"
        assert turn_of(app) is None
    finally:
        app.close()


def test_a_damaged_history_blocks_its_instance_and_others_go_on(app):
    @app.workflow
    async def flow() -> str:
        await face.signal("go")
        return "done"

    for name in ("bad", "good"):
        app.start(flow, instance=name)
    app.settle()
    corrupt_history(app.hf.engine.store, "bad")
    for name in ("bad", "good"):
        app.signal("go", instance=name)
    app.settle()
    assert app.result("good") == "done"
    assert blockage_of(turn_of(app, "bad").reason).kind == "HistoryCorrupt"


# --- poison -----------------------------------------------------------------------------------------------------------


def test_what_is_delivered_too_often_fails_as_poison_and_tells_its_parent(app, clock):
    @app.workflow(max_turn_attempts=3)
    async def child() -> int:
        return 1

    @app.workflow
    async def parent() -> str:
        try:
            await child.options(id="c").call()
        except ChildError as problem:
            return problem.details.category
        return "never"

    app.start(parent)
    app.definitions._found.pop("child")
    app.settle()
    clock.advance(2)
    for _ in range(3):
        item, token, _ = app.provider.fetch_orchestration_item(30)
        assert item.instance == "c"
        app.provider.abandon_orchestration_item(token)
    app.definitions.add(child.definition)
    app.settle()
    assert app.status("c") is Status.FAILED
    assert app.result("c").category == "Poison"
    assert "StartOrchestration" in app.result("c").data
    assert app.result() == "Poison"


# --- time -------------------------------------------------------------------------------------------------------------


class Interrupting(Exception):
    """One whose text interrupts whoever asks for it."""

    def __str__(self):
        raise KeyboardInterrupt


@pytest.mark.parametrize("problem", [KeyboardInterrupt, Interrupting])
@pytest.mark.parametrize("where", ["workflow", "step", "callback"])
def test_nothing_that_code_raises_takes_a_thread_of_its_worker_along(app, problem, where):
    def fail() -> None:
        raise problem

    @app.workflow
    async def bad() -> None:
        if where == "workflow":
            fail()
        elif where == "step":
            await face.step.options(name="fail")(fail)
        else:
            asyncio.get_running_loop().call_soon(fail)
            await asyncio.sleep(0)

    @app.workflow
    async def fine() -> int:
        return await face.step(lambda: 1)

    for number in range(3):
        app.start(bad, instance=f"bad{number}")
    app.settle(turns=2)
    app.start(fine)
    app.settle(turns=2)
    assert app.result() == 1
    wanted = Status.COMPLETED if where == "callback" else Status.FAILED
    assert [app.status(f"bad{number}") for number in range(3)] == [wanted] * 3


@pytest.mark.parametrize("form", ["async", "def"])
def test_a_turn_that_does_not_give_its_thread_back_is_broken_off_and_counts(real, form, caplog):
    stuck = [True]

    def spin():
        while stuck:
            try:
                for _ in range(100):
                    pass
            finally:
                pass

    if form == "async":

        @real.workflow(turn_timeout=0.05)
        async def flow() -> str:
            spin()
            return "done"

    else:

        @real.workflow(turn_timeout=0.05)
        def flow() -> str:
            spin()
            return "done"

    @real.workflow
    async def other() -> str:
        return "other"

    real.start(flow)
    worker = real.worker(turns=1)
    worker.start()
    turn = wait_for_reason(real)
    assert turn.reason == "a turn took longer than 0.05 s without a running step"
    stuck.clear()
    real.start(other, instance="j")
    real.wait("j")
    real.wait()
    assert real.result() == "done"
    overran = next(record for record in caplog.records if record.message == "turn.overran")
    assert "spin" in overran.stack


# --- the end of a worker ----------------------------------------------------------------------------------------------


def test_a_worker_that_stops_hands_its_turns_over_at_once_and_uncounted(app):
    gate, flow = gated(app)
    app.start(flow)
    worker = app.worker()
    worker.start()
    assert gate.begun.wait(LONG)
    worker.drain(0)
    assert worker.join(LONG)
    gate.open.set()
    assert app.provider.get_queue_depths().orchestrator_queue == 1
    app.settle()  # the clock stands: nobody waited for the lock to end
    assert app.result() == 7
    assert gate.calls == 2


def test_a_worker_that_drains_lets_the_step_end_and_begins_no_other(app):
    gate = Gate()
    ran = []

    @app.workflow
    async def flow() -> int:
        first = await face.step.options(name="gate")(gate)
        return first + await face.step.options(name="second")(lambda: ran.append(1) or 1)

    app.start(flow)
    worker = app.worker()
    worker.start()
    assert gate.begun.wait(LONG)
    worker.drain(LONG)
    gate.open.set()
    assert worker.join(LONG)
    assert not ran
    assert [type(event.kind) for event in app.provider.read("i")] == [
        event_kinds.OrchestrationStarted,
        event_kinds.StepCompleted,
    ]
    app.settle()
    assert app.result() == 8
    assert gate.calls == 1


def test_an_idle_worker_with_workflows_ends_at_once(app):
    @app.workflow
    async def flow() -> None:
        await face.signal("never")

    app.start(flow)
    app.settle()
    worker = app.worker()
    worker.start()
    worker.drain(3600)
    assert worker.join(LONG)


def test_a_worker_without_workflows_asks_for_no_turn_and_has_no_thread_for_them(app, monkeypatch):
    sent = []
    submit = app.hf.engine.submit_many
    monkeypatch.setattr(app.hf.engine, "submit_many", lambda commands: sent.extend(commands) or submit(commands))

    @app.hf.task(name="job")
    def job() -> int:
        return 1

    handle = job.enqueue()
    before = set(threading.enumerate())
    worker = app.settle()
    assert handle.result(timeout=LONG) == 1
    assert isinstance(worker.turns, NoTurns)
    assert any(isinstance(command, Lease) for command in sent)
    assert not any(isinstance(command, FetchTurn) for command in sent)
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "holdfast-turn"]


# --- residents --------------------------------------------------------------------------------------------------------


def history_of(app, kept):
    @app.workflow(name=f"kept{kept}")
    async def flow() -> list[int]:
        found = []
        for _ in range(4):
            found.append(await face.signal("n") + await face.step(lambda: 1))
            await asyncio.sleep(0)
        return found

    app.start(flow, instance=f"i{kept}")
    for number in range(4):
        worker = app.worker(until_idle=True)
        worker.turns._residents._limit = kept
        worker.start()
        assert worker.join(LONG)
        app.signal("n", number, instance=f"i{kept}")
    app.settle()
    return [(type(event.kind).__name__, event.event_id) for event in app.provider.read(f"i{kept}")]


def test_resident_or_replayed_the_history_is_the_same(app):
    assert history_of(app, 0) == history_of(app, 1000)
    assert app.result("i0") == app.result("i1000") == [1, 2, 3, 4]


def test_a_resident_goes_on_without_reading_its_history(app, monkeypatch):
    gone = []

    @app.workflow
    async def flow() -> int:
        gone.append("began")
        return sum([await face.signal("n"), await face.signal("n")])

    app.start(flow)
    worker = app.worker()
    worker.start()
    app.wait(status=Status.RUNNING)
    for _ in range(2):
        app.signal("n", 1)
    app.wait()
    assert app.result() == 2
    assert gone == ["began"]


def test_another_instance_of_the_same_id_does_not_get_the_code_of_the_old_one(app):
    @app.workflow
    async def flow(name: str) -> str:
        await face.signal("go")
        await face.signal("end")
        return name

    worker = app.worker()
    worker.start()
    app.start(flow, "old")
    app.wait(status=Status.RUNNING)
    app.provider.delete_instance("i", force=True)
    item = None
    app.start(flow, "new")
    app.wait(status=Status.RUNNING)
    del item
    app.signal("go")
    app.signal("end")
    app.wait()
    assert app.result() == "new"


def test_an_instance_of_large_input_goes_on_in_memory_and_no_turn_of_it_breaks(app, caplog):
    @app.workflow
    async def flow(text: str) -> int:
        await face.signal("go")
        return len(text)

    app.start(flow, "x" * 3_000_000)
    worker = app.worker()
    worker.start()
    while app.provider.list_instances() == [] or turn_of(app) is not None:
        worker.slots.poke()
        threading.Event().wait(0.001)
    app.signal("go")
    app.wait()
    assert app.result() == 3_000_000
    assert not [record for record in caplog.records if record.message == "turn.broken"]


# --- no threads -------------------------------------------------------------------------------------------------------


def refuse_threads(monkeypatch, times):
    """Have the system refuse the next threads for turns; return those it was asked for."""
    asked, start = [], threading.Thread.start

    def begin(thread):
        if thread.name == "holdfast-turn":
            asked.append(thread)
            if len(asked) <= times:
                raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", begin)
    return asked


def test_turn_that_gets_no_thread_is_given_back_and_its_worker_goes_on(real, monkeypatch):
    @real.workflow
    async def flow() -> int:
        return 7

    asked = refuse_threads(monkeypatch, times=2)
    real.start(flow)
    real.worker().start()
    real.wait()
    assert (real.result(), len(asked)) == (7, 3)
