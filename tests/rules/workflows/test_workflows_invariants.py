"""Every invariant of workflow instances is noticed when it is broken, and says for which instance."""

import msgspec
import pytest
from flowworld import FlowWorld, event, first, raw

from holdfast.model.records import key_of
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.decisions import Decision
from holdfast.model.workflows.instances import Execution, HistoryRow, Instance, InstanceStatus, KeyValue, Message, Turn
from holdfast.model.workflows.work_items import QueueMessage
from holdfast.rules.invariants import reported

ASKED = event(3, event_kinds.DecisionRequested(prompt="Go?", options=("yes", "no")))


@pytest.fixture
def world():
    """An instance with a key and a question, held with one message; another waits."""
    made = FlowWorld()
    made.begin()
    made.ack(made.fetch().token, first(), event(2, event_kinds.KeyValueSet(key="k", value="v")), ASKED)
    made.turn()
    made.send(QueueMessage(instance="i", name="s", data="2"))
    assert list(reported(made.tables)) == []
    return made


def plant(world, kind, number=0, **fields):
    """Put a record in the place of one of its kind, or beside it if what is changed is its key."""
    found = list(world.tables.all(kind))[number]
    made = msgspec.structs.replace(found, **fields)
    world.tables.put(kind, key_of(made), made)


@pytest.mark.parametrize(
    ("code", "concerns", "planted"),
    [
        ("instance", "i", (Instance, {"status": InstanceStatus.CONTINUED_AS_NEW})),
        ("instance", "i", (Instance, {"current_execution_id": 7})),
        ("instance", "other", (Instance, {"instance_id": "other", "seq": 1000})),
        ("execution", "other", (Execution, {"instance_id": "other", "history_id": 1000, "event_count": 0})),
        ("execution", "i", (Execution, {"execution_id": 2, "history_id": 1000, "event_count": 0, "last_event_id": 0})),
        ("history", "i", (Execution, {"event_count": 4})),
        ("history", "i", (Execution, {"last_event_id": 2})),
        ("history", "i", (HistoryRow, {"event": raw(event(2, event_kinds.PatchRecorded(id="p")))})),
        ("history", "i", (HistoryRow, {"event": msgspec.Raw(b'{"damaged":true}')})),
        ("turn", "i", (Turn, {"token": None})),
        ("turn", "i", (Turn, {"locked_until": None})),
        ("turn", "i", (Turn, {"messages": (1000,)})),
        ("turn", "other", (Turn, {"instance_id": "other", "token": None, "locked_until": None, "messages": ()})),
        ("A3", "i", (Turn, {"token": 1000})),
        ("message", "other", (Message, {"seq": 1000, "instance_id": "other"})),
        ("unreadable", "i", (Message, {"seq": 1000, "item": msgspec.Raw(b'{"damaged":true}')})),
        ("message", "i", (Message, {"seq": 1000, "item": raw(QueueMessage(instance="x", name="s", data="1"))})),
        ("key", "other", (KeyValue, {"instance_id": "other"})),
        ("decision", "other", (Decision, {"decision_id": "d", "instance_id": "other"})),
    ],
)
def test_what_is_wrong_with_a_record_is_told_of_its_instance(world, code, concerns, planted):
    kind, fields = planted
    plant(world, kind, **fields)
    assert (code, concerns) in {(fault.code, fault.id) for fault in reported(world.tables)}


def test_an_event_that_is_gone_is_missed(world):
    row = next(world.tables.all(HistoryRow))
    world.tables.put(HistoryRow, key_of(row), None)
    assert [fault.code for fault in reported(world.tables)] == ["history"]
