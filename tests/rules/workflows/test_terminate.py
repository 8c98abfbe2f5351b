"""Ends by hand: an instance that no code can end, and one that ended elsewhere."""

import msgspec
import pytest
from flowworld import GIVEN_UP, FlowWorld, delta, event, first, raw
from test_rewinding_rules import begun, blocked, code

from holdfast.model.workflows import commands as f
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.instances import Instance, InstanceStatus, Turn
from holdfast.model.workflows.work_items import QueueMessage, StartOrchestration

OUTPUT = msgspec.Raw(b'"given up"')
END = event(2**31 - 1, event_kinds.OrchestrationFailed(details=GIVEN_UP))


def failing(**more):
    given = {"instance_id": "i", "execution_id": 1, "last_event_id": 1, "ending": delta(END), "output": OUTPUT}
    return f.FailInstance(**given | more)


def importing(*executions, **more):
    given = executions or (ended(1),)
    return f.ImportInstance(**{"instance_id": "new", "executions": given} | more)


def ended(number, status=InstanceStatus.COMPLETED, *events):
    return f.Ended(execution_id=number, status=status, delta=delta(first("new", number), *events), output=OUTPUT)


def test_a_blocked_instance_ends_with_its_messages_in_one_decision():
    w = blocked(begun())
    told = failing(messages=(f.NewMessage(item=raw(QueueMessage(instance="p", name="s", data="1"))),))
    names = [type(one).__name__ for one in w.decide(told).events]
    assert names == ["TurnLocked", "TurnCommitted", "HistoryAppended", "MessageStored"]
    w.do(told)
    assert w.tables.get(Instance, "i").status is InstanceStatus.FAILED
    assert w.tables.get(Turn, "i") is None
    assert not w.tables.mail("i")


def test_one_that_never_began_is_made_to_be_ended():
    w = FlowWorld()
    w.send(StartOrchestration(instance="i", orchestration="flow", input="{}"))
    w.do(f.AbandonTurn(token=w.fetch().token, given_back=True, reason="blocked Input: no"))
    w.do(failing(ending=delta(first(), END), last_event_id=0))
    assert w.tables.get(Instance, "i").status is InstanceStatus.FAILED


def test_only_what_is_blocked_or_damaged_and_as_it_was_read_is_ended():
    w = begun()
    assert code(w.decide(failing())) == "invalid_operation"
    assert code(w.decide(failing(damaged=True, last_event_id=2))) == "version_conflict"
    assert code(w.decide(failing(damaged=True, execution_id=0))) == "version_conflict"
    assert code(w.decide(failing(instance_id="nobody"))) == "workflow_not_found"
    assert code(w.decide(failing(damaged=True))) == "taken"
    w.turn()
    assert code(w.decide(failing(damaged=True))) == "invalid_operation"


def test_an_imported_instance_has_all_its_executions_and_keys():
    w = FlowWorld()
    more = event(2, event_kinds.KeyValueSet(key="k", value="2"), "new", 2)
    base = (f.KeyWish(key="old", value=msgspec.Raw(b'"1"')),)
    first_one = ended(1, InstanceStatus.CONTINUED_AS_NEW)
    w.do(importing(first_one, ended(2, InstanceStatus.COMPLETED, more), keys=base))
    assert [one.status for one in w.tables.executions("new")] == [
        InstanceStatus.CONTINUED_AS_NEW,
        InstanceStatus.COMPLETED,
    ]
    assert {one.key: bytes(one.value) for one in w.tables.keys("new")} == {"old": b'"1"', "k": b'"2"'}
    assert code(w.decide(importing())) == "workflow_already_started"


def test_a_child_without_its_parent_is_a_root_where_it_is_imported():
    w = FlowWorld()
    begin = event_kinds.OrchestrationStarted(name="flow", version="1", input="{}", parent_instance="p", parent_id=2)
    history = delta(event(1, begin, "new"))
    one = f.Ended(execution_id=1, status=InstanceStatus.FAILED, delta=history)
    w.do(importing(one))
    assert w.tables.get(Instance, "new").parent_instance_id is None
    w.begin("p")
    w.ack(w.fetch().token, first("p"))
    w.do(importing(one, instance_id="second"))
    assert w.tables.get(Instance, "second").parent_instance_id == "p"


@pytest.mark.parametrize(
    "executions",
    [
        (ended(1, InstanceStatus.RUNNING),),
        (ended(1, InstanceStatus.CONTINUED_AS_NEW),),
        (ended(2), ended(1)),
        (ended(0),),
        (f.Ended(execution_id=1, status=InstanceStatus.FAILED, delta=f.Delta()),),
    ],
)
def test_an_import_that_is_not_over_or_not_whole_is_refused(executions):
    w = FlowWorld()
    assert code(w.decide(importing(*executions))) == "invalid_value"
    assert code(w.decide(f.ImportInstance(instance_id="new", executions=()))) == "invalid_value"
