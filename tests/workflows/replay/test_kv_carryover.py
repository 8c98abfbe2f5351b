"""The keys an execution began with."""

from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.history import Event, KvEntry
from holdfast.workflows.replay.kv_carryover import applied, began_with, left_by_earlier

START = event_kinds.OrchestrationStarted(name="f", version="1", input="{}")


def history(number, *changes, origin=None):
    return [
        Event(event_id=at, instance="i", execution_id=origin or number, timestamp_ms=0, kind=kind)
        for at, kind in enumerate((START, *changes), 1)
    ]


def put(key, value):
    return event_kinds.KeyValueSet(key=key, value=value)


def values(found):
    return None if found is None else {key: entry.value for key, entry in found.items()}


def test_executions_leave_their_keys_to_the_next():
    histories = {
        1: history(1, put("a", "1"), put("b", "1")),
        2: history(2, event_kinds.KeyValueCleared(key="a"), put("c", "2")),
        3: history(3, event_kinds.KeyValuesCleared()),
        4: history(4),
    }
    assert [values(left_by_earlier(histories, number)) for number in (1, 2, 3, 4)] == [
        {},
        {"a": "1", "b": "1"},
        {"b": "1", "c": "2"},
        {},
    ]


def test_a_copy_began_with_what_the_copied_one_began_with():
    histories = {1: history(1, put("a", "1")), 2: history(2, put("a", "2")), 3: history(3, put("a", "2"), origin=2)}
    assert values(left_by_earlier(histories, 3)) == {"a": "1"}


def test_of_histories_that_are_gone_only_what_was_not_changed_is_known():
    present = {"kept": KvEntry("k", 0), "changed": KvEntry("new", 0)}
    histories = {5: history(5, put("changed", "new"))}
    assert left_by_earlier(histories, 5) is None
    assert values(began_with(histories, 5, present)) == {"kept": "k"}
    assert values(began_with({5: history(5, event_kinds.KeyValuesCleared())}, 5, present)) == {}
    known = {1: history(1, put("changed", "old")), 2: history(2, put("changed", "new"))}
    assert values(began_with(known, 2, present)) == {"kept": "k", "changed": "old"}


def test_keys_remember_when_they_were_set():
    set_at = event_kinds.KeyValueSet(key="a", value="1", last_updated_at_ms=7)
    assert applied({}, history(1, set_at)) == {"a": KvEntry("1", 7)}
