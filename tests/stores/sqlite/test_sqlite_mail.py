"""Messages of workflow instances in `sqlite:`: found in their order, be they few or many, written or not yet."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast.engine import Engine
from holdfast.model.events import MessageStored
from holdfast.model.ids import Token
from holdfast.model.outcomes import Begun
from holdfast.model.times import Timestamp
from holdfast.model.workflows.commands import (
    AckTurn,
    Delta,
    FetchTurn,
    NewEvent,
    NewMessage,
    SendMessage,
    StartInstance,
    TellInstance,
)
from holdfast.model.workflows.event_kinds import OrchestrationStarted
from holdfast.model.workflows.history import Event
from holdfast.model.workflows.instances import Message
from holdfast.model.workflows.work_items import QueueMessage, StartOrchestration, TimerFired, WorkItem
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import ManualClock

NOW = Timestamp("2026-01-01T00:00:00.000000Z")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def engine(tmp_path: Path, clock: ManualClock) -> Iterator[Engine]:
    store = SqliteStore.open(tmp_path / "flows.db")
    yield Engine(store, clock=clock)
    assert store.check() == []
    store.close()


def new(item: WorkItem) -> NewMessage:
    return NewMessage(item=msgspec.Raw(msgspec.json.encode(item)))


def start(instance: str) -> NewMessage:
    return new(StartOrchestration(instance=instance, orchestration="flow", input="1"))


@pytest.mark.parametrize("count", [3, 250])
def test_messages_whose_time_has_come_are_found_in_order_be_they_few_or_many(engine, clock, count):
    later_ones = [SendMessage(message=start(f"later-{n}"), delay_s=3600) for n in range(10)]
    latest_first = [SendMessage(message=start(f"due-{n}"), delay_s=float(n + 1)) for n in reversed(range(count))]
    engine.submit_many([*later_ones, *latest_first])
    clock.advance(count + 1)
    with engine.read() as view:
        assert list(view.candidates(engine.look().now)) == [f"due-{n}" for n in range(count)]


def test_a_timer_is_stopped_by_a_later_turn_of_the_same_commit(engine):
    engine.submit_many([SendMessage(message=start("a")), SendMessage(message=start("b"))])
    fetched = engine.submit(FetchTurn(lock_s=30, n=2))
    tokens = {turn.instance_id: turn.token for turn in (fetched.turn, *fetched.others)}
    timer = TimerFired(instance="a", execution_id=1, id=2, fire_at_ms=4_000_000_000_000)
    engine.submit_many(
        [
            ack("a", tokens["a"], messages=(new(timer),), hold_s=30),
            ack("b", tokens["b"]),
            AckTurn(token=tokens["a"], execution_id=1, cancelled_timers=(2,)),
        ]
    )
    with engine.read() as view:
        assert list(view.all(Message)) == []


def ack(instance: str, token: Token, **more: object) -> AckTurn:
    began = Event(
        event_id=1,
        instance=instance,
        execution_id=1,
        timestamp_ms=0,
        kind=OrchestrationStarted(name="flow", version="1.0.0", input="1"),
    )
    delta = Delta(events=(NewEvent(event=msgspec.Raw(msgspec.json.encode(began))),))
    return AckTurn(token=token, execution_id=1, delta=delta, **more)


def begin(instance: str) -> StartInstance:
    return StartInstance(message=start(instance))


def held(instance: str) -> TellInstance:
    return TellInstance(message=new(QueueMessage(instance=instance, name="n", data="1")), hold_s=60.0)


def parked(engine: Engine, instance: str) -> list[str | None]:
    with engine.read() as view:
        return [message.parked for message in view.mail(instance)]


def test_an_instance_with_an_id_above_all_is_started_without_asking_who_has_it(engine):
    engine.ask(begin("a"))
    asked: list[str] = []
    engine.store._writer.set_trace_callback(asked.append)
    engine.submit_many([begin(f"b{number:03}") for number in reversed(range(100))])
    engine.store._writer.set_trace_callback(None)
    assert [sql for sql in asked if "SELECT" in sql] == []


@pytest.mark.parametrize("together", [True, False])
def test_what_was_held_for_an_id_above_all_is_found_by_its_start(engine, together):
    engine.ask(begin("a"))
    if together:
        engine.submit_many([held("z"), held("z"), begin("z")])
    else:
        for command in (held("z"), held("z"), begin("z")):
            engine.ask(command)
    assert parked(engine, "z") == [None, None, None]


@pytest.mark.parametrize("together", [True, False])
def test_an_id_above_all_is_given_once(engine, together):
    engine.ask(begin("a"))
    commands = [begin("z"), begin("z")]
    replies = engine.submit_many(commands) if together else [engine.ask(command) for command in commands]
    assert replies == [Begun(instance_id="z"), Begun(instance_id="z", created=False)]


def test_what_another_process_sent_to_an_id_above_all_is_found(engine, tmp_path):
    engine.ask(begin("a"))
    other = Engine(SqliteStore.open(tmp_path / "flows.db"), clock=engine.time.clock)
    other.submit_many([held("y"), begin("z")])
    other.close()
    assert engine.submit_many([begin("y"), begin("z")]) == [
        Begun(instance_id="y"),
        Begun(instance_id="z", created=False),
    ]
    assert parked(engine, "y") == [None, None]


def test_what_a_batch_took_back_was_never_there(engine):
    engine.ask(begin("a"))
    with contextlib.suppress(ZeroDivisionError), engine.store.write() as batch:
        batch.add([MessageStored(instance_id="z", kind="StartOrchestration", item=msgspec.Raw(b"{}"))], NOW)
        seen = len(batch.mail("z"))
        raise ZeroDivisionError
    assert seen == 1
    assert parked(engine, "z") == []
    assert engine.ask(begin("z")) == Begun(instance_id="z")
