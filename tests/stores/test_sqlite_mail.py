"""Messages of workflow instances in `sqlite:`: found in their order, be they few or many, written or not yet."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast.engine import Engine
from holdfast.model.flowcommands import AckTurn, Delta, FetchTurn, NewEvent, NewMessage, SendMessage
from holdfast.model.history import Event
from holdfast.model.ids import Token
from holdfast.model.instances import Message
from holdfast.model.kinds import OrchestrationStarted
from holdfast.model.workitems import StartOrchestration, TimerFired, WorkItem
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import ManualClock


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
