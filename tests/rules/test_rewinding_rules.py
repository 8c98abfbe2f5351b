"""Reset and fork: what they take along, and what they leave alone."""

import msgspec
import pytest
from flowworld import FlowWorld, again, delta, event, first, fork_of, raw, reset_of

from holdfast.model.events import JobCancelled, TurnExpired
from holdfast.model.outcomes import Refusal
from holdfast.model.workflows import commands as f
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.block_reasons import blocked_reason
from holdfast.model.workflows.instances import Instance, InstanceStatus, Turn
from holdfast.model.workflows.work_items import ActivityExecute, QueueMessage, TimerFired
from holdfast.rules.workflows.rewind import changed_keys

TEXT = msgspec.Raw(b'"v"')


def begun(*events, **more):
    """A world with one instance that has had its first turn."""
    w = FlowWorld()
    w.begin()
    w.ack(w.fetch().token, first(), *events, **more)
    return w


def blocked(w):
    w.do(f.AbandonTurn(token=w.turn(), delay_s=60.0, given_back=True, reason=blocked_reason("Input", "no")))
    return w


def code(decision):
    return decision.outcome.code if isinstance(decision.outcome, Refusal) else "taken"


def test_a_blocked_execution_is_ended_and_the_next_begins_in_one_decision():
    work = ActivityExecute(instance="i", execution_id=1, id=2, name="send", input="{}")
    timer = TimerFired(instance="i", execution_id=1, id=3, fire_at_ms=4_000_000_000_000)
    w = blocked(
        begun(
            activities=(f.NewActivity(job_id="a", item=raw(work)),),
            messages=(f.NewMessage(item=raw(timer)),),
        )
    )
    kinds_told = [type(one).__name__ for one in w.decide(reset_of(w, reason="r")).events]
    assert kinds_told == [
        "InstanceReset",
        "MessageDropped",
        "JobCancelled",
        "TurnCommitted",
        "HistoryAppended",
        "TurnCommitted",
        "HistoryAppended",
        "MessageStored",
    ]
    w.do(reset_of(w))
    assert w.tables.get(Turn, "i") is None
    assert [one.status for one in w.tables.executions("i")] == [InstanceStatus.CANCELLED, InstanceStatus.RUNNING]
    # What was held back can be delivered, behind what says that the copy goes on.
    assert [message.kind for message in w.tables.visible("i", w.now)] == ["QueueMessage", "ResumeInstance"]


def test_an_ended_execution_stays_as_it_ended():
    w = begun(metadata=f.Metadata(status=InstanceStatus.FAILED, output=TEXT))
    events = w.decide(reset_of(w)).events
    assert not any(isinstance(one, JobCancelled) for one in events)
    assert [type(one).__name__ for one in events].count("HistoryAppended") == 1
    w.do(reset_of(w))
    assert [one.status for one in w.tables.executions("i")] == [InstanceStatus.FAILED, InstanceStatus.RUNNING]
    assert w.tables.get(Instance, "i").completed_at is None


def test_messages_that_are_delivered_again_stand_where_they_stood():
    w = begun(metadata=f.Metadata(status=InstanceStatus.FAILED))
    w.send(QueueMessage(instance="i", name="s", data="new"))
    old = again(QueueMessage(instance="i", name="s", data="old"), at="2020-01-01T00:00:00.000000Z")
    w.do(reset_of(w, messages=(old,)))
    told = [msgspec.json.decode(message.item)["data"] for message in w.tables.visible("i", w.now)]
    assert told == ["old", "new"]


def test_keys_are_what_they_were_when_the_copied_execution_began():
    w = begun(
        event(2, event_kinds.KeyValueSet(key="own", value="1")),
        event(3, event_kinds.KeyValueSet(key="shared", value="2")),
        metadata=f.Metadata(status=InstanceStatus.FAILED),
    )
    base = (f.KeyWish(key="shared", value=msgspec.Raw(b'"0"')),)
    part = delta(first(), event(2, event_kinds.KeyValueSet(key="own", value="1")))
    w.do(reset_of(w, keys=base, begins=part, until=2))
    found = {one.key: (bytes(one.value), bytes(one.live)) for one in w.tables.keys("i")}
    assert found == {"own": (b"null", b'"1"'), "shared": (b'"0"', b'"0"')}


def test_a_lock_whose_time_is_over_is_revoked_first():
    w = blocked(begun())
    w.wait(61)
    w.fetch(lock_s=5.0)
    w.wait(6)
    w.do(f.AbandonTurn(token=w.tables.get(Turn, "i").token, reason=blocked_reason("Input", "no")))
    w.wait(1)
    w.fetch(lock_s=5.0)
    assert code(w.decide(reset_of(w))) == "invalid_operation"
    w.wait(6)
    decision = w.decide(reset_of(w))
    assert isinstance(decision.events[0], TurnExpired)


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({"instance_id": "nobody"}, "workflow_not_found"),
        ({"history_id": 1}, "version_conflict"),
        ({"last_event_id": 9}, "version_conflict"),
    ],
)
def test_what_was_read_must_be_what_is_there(change, refused):
    w = begun(metadata=f.Metadata(status=InstanceStatus.FAILED))
    assert code(w.decide(msgspec.structs.replace(reset_of(w), **change))) == refused


def test_what_runs_is_not_reset():
    w = begun()
    assert code(w.decide(reset_of(w))) == "invalid_operation"
    w.turn()
    assert code(w.decide(reset_of(w))) == "invalid_operation"


def test_a_fork_changes_nothing_of_its_origin_but_the_name():
    w = begun()
    before = w.tables.get(Instance, "i")
    w.do(fork_of(w))
    assert w.tables.get(Instance, "i") == msgspec.structs.replace(before, forks=("copy",))
    assert w.tables.get(Instance, "copy").forked_from == "i"
    assert code(w.decide(fork_of(w))) == "workflow_already_started"
    assert code(w.decide(fork_of(w, name="nobody", new="other"))) == "workflow_not_found"


def test_a_copy_without_a_first_event_is_refused():
    w = begun(metadata=f.Metadata(status=InstanceStatus.FAILED))
    for bad in (delta(), delta(event(1, event_kinds.PatchRecorded(id="p")))):
        assert code(w.decide(reset_of(w, begins=bad))) == "invalid_value"
        assert code(w.decide(fork_of(w, begins=bad))) == "invalid_value"
    assert code(w.decide(fork_of(w, new=""))) == "invalid_value"


def test_keys_are_changed_in_order_and_a_clearing_takes_all_that_are_there():
    wishes = [f.KeyWish(key="a", value=TEXT), f.KeyWish(), f.KeyWish(key="b", value=TEXT, at_ms=5)]
    changed = changed_keys(wishes, ["old"])
    assert {one.key: bytes(one.value) for one in changed} == {"old": b"null", "a": b"null", "b": b'"v"'}
    many = [f.KeyWish(key=f"k{number}", value=TEXT) for number in range(1001)]
    assert changed_keys(many, []).code == "invalid_value"
