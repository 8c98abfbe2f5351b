"""What a turn begins with: its history from the store, or an execution in memory that stands where that ends."""

from types import SimpleNamespace

import msgspec
import pytest
from turnskit import App

from holdfast.errors import StoreFailed
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.commands import FetchTurn
from holdfast.model.workflows.history import ExecutionMetadata, TurnCommit
from holdfast.workers.workflow_turns.machine import ActiveTurn
from holdfast.workers.workflow_turns.player import Player
from holdfast.workflows.api import context as face
from holdfast.workflows.runtime.execution_cache import Residents

replace = msgspec.structs.replace


@pytest.fixture
def app():
    made = App("memory:")
    yield made
    made.close()


@pytest.fixture
def player(app):
    return Player(app.hf.engine, app.definitions, Residents(), lambda turn: True)


@pytest.fixture
def locked(app):
    """The second turn of an instance that waited for a signal."""

    @app.workflow
    async def flow() -> str:
        return await face.signal("go", type=str)

    app.start(flow)
    app.settle()
    app.signal("go", "on")
    return app.hf.engine.ask(FetchTurn(lock_s=30.0, session_id=app.hf.engine.session_id)).turn


class Suspended:
    """An execution in memory, as far as it is asked where it stands."""

    def __init__(self, instance):
        self.instance = instance
        self.definition = SimpleNamespace(is_blocking=False)
        self.closed = 0

    def close(self, *, clean_up=True):
        del clean_up
        self.closed += 1


def resident(app, locked, **fields):
    """An execution that stands where the history of a turn ends; its place in the store is not known yet."""
    made = Suspended(locked.instance_id)
    made.execution_id, made.last_event_id, made.history_id = locked.execution_id, locked.last_event_id, None
    made.started = app.provider.read(locked.instance_id)[0]
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_a_turn_that_nobody_has_in_memory_begins_with_its_history_and_its_messages(app, player, locked):
    ready = player._open(locked)
    assert ready.resident is None
    assert list(ready.item.history) == list(app.provider.read("i"))
    assert [message.name for message in ready.item.messages] == ["go"]
    assert ready.unreadable == ()


def test_what_is_in_memory_reads_nothing_of_its_history_and_is_known_by_its_seed_at_first(app, player, locked):
    mine = resident(app, locked)
    player._residents.keep(mine)
    ready = player._open(locked)
    assert ready.resident is mine
    assert not ready.item.history
    assert mine.history_id == locked.history_id
    assert len(player._residents) == 0  # whoever has it keeps it back


def other_seed(app, locked):
    started = app.provider.read(locked.instance_id)[0]
    return {"started": replace(started, kind=replace(started.kind, seed=started.kind.seed + 1))}


@pytest.mark.parametrize(
    "difference",
    [
        lambda _, locked: {"execution_id": locked.execution_id + 1},
        lambda _, locked: {"last_event_id": locked.last_event_id - 1},
        lambda _, locked: {"history_id": locked.history_id + 1},
        other_seed,
    ],
    ids=["execution", "behind", "history", "seed"],
)
def test_an_execution_that_stands_elsewhere_or_is_another_is_closed_and_the_history_read(
    app, player, locked, difference
):
    other = resident(app, locked, **difference(app, locked))
    player._residents.keep(other)
    ready = player._open(locked)
    assert ready.resident is None
    assert other.closed
    assert ready.item.history


def test_what_was_delivered_in_vain_before_is_begun_from_its_history(app, player, locked):
    mine = resident(app, locked)
    player._residents.keep(mine)
    ready = player._open(replace(locked, attempts=2))
    assert ready.resident is None
    assert mine.closed
    assert ready.item.history


def test_an_execution_is_kept_with_the_place_of_its_history(app, player, locked):
    mine = resident(app, locked, history_id=None)
    player.keep(mine, locked)
    assert mine.history_id == locked.history_id
    assert player._residents.take("i") is mine


def test_messages_that_cannot_be_read_are_named_and_the_others_delivered(player, locked):
    (good,) = locked.messages
    bad = replace(good, seq=good.seq + 1, item=msgspec.Raw(b'{"type":"Unheard"}'))
    ready = player._open(replace(locked, messages=(bad, good)))
    assert ready.unreadable == (bad.seq,)
    assert [message.name for message in ready.item.messages] == ["go"]


def test_a_commit_is_admitted_here_unless_another_process_decides_or_the_store_is_in_trouble(
    app, player, locked, monkeypatch
):
    one = ActiveTurn(locked, 0.0, 0.0, 0.0, 0.0)
    event = replace(app.provider.read("i")[0], event_id=locked.last_event_id + 1, kind=event_kinds.KeyValuesCleared())
    commit = TurnCommit(execution_id=1, history_delta=(event,), metadata=ExecutionMetadata())
    admitted = []

    def admit(command, events, blobs):
        admitted.append(tuple(events))
        return command

    monkeypatch.setattr("holdfast.workers.workflow_turns.player.admit_own", admit)
    assert player._ack(one, commit, 5.0).hold_s == 5.0
    assert admitted == [(event,)]

    def in_trouble(*_):
        raise StoreFailed("the disk is full")

    monkeypatch.setattr("holdfast.workers.workflow_turns.player.admit_own", in_trouble)
    whole = player._ack(one, commit, None, keep=True)
    assert (whole.token, len(whole.delta.events)) == (locked.token, 1)
    remote = Player(
        SimpleNamespace(is_authority=False, new_id=app.hf.engine.new_id), app.definitions, Residents(), bool
    )
    assert remote._ack(one, commit, None, keep=True).delta == whole.delta
