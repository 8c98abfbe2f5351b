"""Signals of declared types: wrong data is refused to the sender where the type is known, else set aside."""

import asyncio
import enum
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import msgspec
import pytest

from holdfast import Holdfast
from holdfast.app.tasks.signature_codec import SignatureCodec
from holdfast.app.workflows.commands import signal_command
from holdfast.errors import InvalidValue, WorkflowFinished
from holdfast.model.outcomes import Done, Refusal
from holdfast.model.workflows.commands import SignalMismatch
from holdfast.model.workflows.instances import InstanceStatus
from holdfast.workflows.api.definitions import Definitions

LONG = 30


@dataclass
class Paid:
    eur: int
    items: list[str]


GOOD = {"eur": 9, "items": ["book"]}
BAD = {"eur": 9, "items": ["book", 3]}


def declare(app):
    @app.workflow(signals={"paid": Paid})
    async def order() -> str:
        paid = await app.signal("paid")
        return f"{type(paid).__name__} {paid.eur}"

    return order


@pytest.fixture(params=["memory", "wal", "sqlite"])
def hf(request, tmp_path):
    urls = {"memory": "memory:", "wal": f"wal:{tmp_path / 'journal'}", "sqlite": f"sqlite:{tmp_path / 'jobs.db'}"}
    with Holdfast(urls[request.param]) as app:
        yield app


@pytest.fixture
def order(hf):
    return declare(hf)


@contextmanager
def working(app):
    worker = app.worker()
    worker.start()
    try:
        yield
    finally:
        worker.stop()
        assert worker.join(LONG)


def settle(app):
    worker = app.worker(until_idle=True)
    worker.start()
    assert worker.join(LONG)


def forget(app):
    """Take the workflows away, as from a program that has no code of them."""
    app.workflows = Definitions(SignatureCodec)


def test_signal_of_the_wrong_type_is_refused_in_the_process_that_has_the_workflow(hf, order):
    run = order.start(id="o-1")
    for handle in (run, hf.instance("o-1")):
        with pytest.raises(InvalidValue) as refused:
            handle.signal("paid", BAD)
        said = str(refused.value)
        assert "signal 'paid'" in said
        assert "workflow 'order'" in said
        assert "Expected `str`, got `int` - at `$.items[1]`" in said
        assert "Nothing was sent" in said
        assert refused.value.facts["instance"] == "o-1"
        assert refused.value.hint
    run.signal("paid", GOOD)
    settle(hf)
    assert run.result(timeout=0) == "Paid 9"
    assert "set aside" not in run.explain().sentence


def test_awaited_signal_of_the_wrong_type_is_refused(hf, order):
    run = order.start(id="o-1")
    with pytest.raises(InvalidValue, match="Nothing was sent"):
        asyncio.run(run.aio.signal("paid", BAD))


def test_signal_object_of_the_declared_type_is_taken(hf, order):
    run = order.start(id="o-1")
    run.signal("paid", Paid(eur=4, items=[]))
    settle(hf)
    assert run.result(timeout=0) == "Paid 4"


def test_start_with_a_signal_of_the_wrong_type_is_refused(hf, order):
    with pytest.raises(InvalidValue, match=r"'paid'.*Nothing was started"):
        order.options(id="o-1", signals=[("paid", BAD)]).start()
    assert hf.instances() == []
    run = order.options(id="o-1", signals=[("paid", GOOD)]).start()
    settle(hf)
    assert run.result(timeout=0) == "Paid 9"


def test_signal_is_checked_by_the_version_of_the_instance(hf):
    @hf.workflow(name="order", version="1.0.0", signals={"paid": int})
    async def first() -> int:
        return await hf.signal("paid")

    run = first.start(id="o-1")
    settle(hf)

    @hf.workflow(name="order", version="1.1.0", signals={"paid": str})
    async def second() -> str:
        return await hf.signal("paid")

    with pytest.raises(InvalidValue, match="Expected `int`, got `str`"):
        run.signal("paid", "nine")
    run.signal("paid", 9)
    fresh = second.start(id="o-2")
    with pytest.raises(InvalidValue, match="Expected `str`, got `int`"):
        fresh.signal("paid", 9)


def test_signal_without_a_declared_type_takes_anything(hf, order):
    run = order.start(id="o-1")
    run.signal("other", {"any": ["thing"]})


def test_type_at_the_wait_wins_over_the_declared_one(hf):
    @hf.workflow(signals={"paid": int})
    async def order() -> float:
        return await hf.signal("paid", type=float)

    run = order.start(id="o-1")
    run.signal("paid", 9)
    settle(hf)
    assert isinstance(run.result(timeout=0), float)


def test_ended_instance_refuses_any_signal_as_finished(hf, order):
    run = order.options(id="o-1", signals=[("paid", GOOD)]).start()
    settle(hf)
    with pytest.raises(WorkflowFinished):
        run.signal("paid", BAD)


@pytest.mark.parametrize(
    ("signals", "said"),
    [
        ({"@paid": int}, "@paid"),
        ({"paid": object()}, "paid"),
        ({"paid": type("Own", (), {})}, "paid"),
        (["paid"], "signals"),
    ],
)
def test_declaration_that_names_no_type_is_refused(hf, signals, said):
    with pytest.raises(InvalidValue, match=said):

        @hf.workflow(signals=signals)
        async def order() -> None: ...

    assert hf.workflows.all() == []


# --- senders without the workflow -------------------------------------------------------------------------------------


def test_signal_of_the_wrong_type_is_refused_while_a_live_worker_knows_the_type(hf, order):
    run = order.start(id="o-1")
    with working(hf):
        forget(hf)
        with pytest.raises(InvalidValue) as refused:
            hf.instance("o-1").signal("paid", BAD)
        assert "signal 'paid'" in str(refused.value)
        assert "workflow 'order'" in str(refused.value)
        assert "$.items[1]" in str(refused.value)
        assert "Nothing was sent" in str(refused.value)
        hf.instance("o-1").signal("paid", GOOD)
        assert run.wait(timeout=LONG).status is InstanceStatus.COMPLETED
        assert "set aside" not in hf.instance("o-1").explain().sentence


def test_signal_of_the_wrong_type_is_set_aside_where_no_live_worker_knows_the_type(hf, order):
    run = order.start(id="o-1")
    settle(hf)  # the worker has gone
    known, hf.workflows = hf.workflows, Definitions(SignatureCodec)
    hf.instance("o-1").signal("paid", BAD)
    hf.workflows = known
    settle(hf)
    assert "set aside: 1 of signal 'paid'" in run.explain().sentence
    assert run.status().status is InstanceStatus.RUNNING
    run.signal("paid", GOOD)
    settle(hf)
    assert run.result(timeout=0) == "Paid 9"


def test_signal_is_taken_if_one_live_worker_takes_it(tmp_path):
    url = f"sqlite:{tmp_path / 'jobs.db'}"
    with Holdfast(url) as old, Holdfast(url) as new, Holdfast(url) as sender:

        @old.workflow(name="order", signals={"paid": int})
        async def order() -> None:
            await old.signal("paid")

        @new.workflow(name="order", signals={"paid": str})
        async def changed() -> None:
            await new.signal("paid")

        order.start(id="o-1")
        with working(old):
            with pytest.raises(InvalidValue):
                sender.instance("o-1").signal("paid", "nine")
            with working(new):
                sender.instance("o-1").signal("paid", "nine")
                with pytest.raises(InvalidValue):
                    sender.instance("o-1").signal("paid", [])


def test_worker_of_a_namespace_refuses_no_signal(hf, order):
    """Workflows belong to no namespace: who may work for one must not judge them."""
    order.start(id="o-1")
    with working(hf):
        (worker,) = hf.workers()
    forget(hf)
    hf.engine.store.workers.note(msgspec.structs.replace(worker, namespace="shop"))
    hf.instance("o-1").signal("paid", BAD)
    hf.engine.store.workers.note(worker)
    with pytest.raises(InvalidValue):
        hf.instance("o-1").signal("paid", BAD)


def test_repeat_of_a_signal_that_was_taken_is_answered_as_the_first_time(hf, order):
    """Workers come and go between a command and its repeat; what is stored is not refused afterwards."""
    order.start(id="o-1")
    first = signal_command("o-1", "paid", "[]", cmd="c-1")
    assert hf.engine.submit(first) == Done()
    with working(hf):
        assert hf.engine.submit(first) == Done()
        assert isinstance(hf.engine.submit(signal_command("o-1", "paid", "[]", cmd="c-2")), Refusal)


def test_sender_has_no_say_in_who_refuses_a_signal(hf, order):
    order.start(id="o-1")
    claimed = SignalMismatch(workflow="order", signal="paid", problem="so it says")
    command = msgspec.structs.replace(signal_command("o-1", "paid", "{}"), signal_mismatches=(claimed,))
    assert hf.engine.submit(command) == Done()


def test_worker_publishes_what_a_schema_can_tell(hf):
    class Open(enum.Enum):
        ONE = "one"

        @classmethod
        def _missing_(cls, value):
            return cls.ONE

    class Closed(enum.Enum):
        ONE = "one"

    class Huge(msgspec.Struct):
        a: Literal[tuple("x" * 1000 + str(n) for n in range(70))]

    class Within(msgspec.Struct):
        inner: list[dict[str, Open]]

    @hf.workflow(version="1.2.3", signals={"open": Within, "huge": Huge, "closed": Closed})
    async def order() -> None: ...

    with working(hf):
        (worker,) = hf.workers()
    assert {code: list(signals) for code, signals in worker.signals.items()} == {"order 1.2.3": ["closed"]}
