"""The records of workflows: each survives JSON unchanged, under the name the contract gives it."""

import msgspec
import pytest

from holdfast.model.error_details import Category, ErrorDetails
from holdfast.model.workflows import event_kinds, work_items
from holdfast.model.workflows.history import Event, activity_key, decision_id, decode_event, encode_event, step_key

DETAILS = ErrorDetails(category=Category.APPLICATION, kind="Error", message="no", cause=None)
#: A value for each type of field.
SAMPLES = {
    "str": "text \0 ü",
    "int": 2**63 - 1,
    "float": 1.5,
    "bool": True,
    "ErrorDetails": DETAILS,
    "tuple[str, ...]": ("a", "b"),
    "tuple[Carried, ...]": (("name", "data"),),
    "ActivityOptions": work_items.ActivityOptions(priority=3),
}


def filled(struct):
    values = {}
    for name, annotation in struct.__annotations__.items():
        values[name] = SAMPLES[annotation.replace(" | None", "")]
    return struct(**values)


KINDS = sorted(event_kinds.AnyKind.__args__, key=lambda kind: kind.__name__)
ITEMS = sorted(work_items.WorkItem.__args__, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_survives_json_under_its_bare_name(kind):
    event = Event(event_id=7, instance="i/…", execution_id=2, timestamp_ms=1, kind=filled(kind), source_event_id=3)
    text = encode_event(event)
    assert decode_event(text) == event
    assert msgspec.json.decode(text)["kind"]["type"] == kind.__name__


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.__name__)
def test_every_work_item_survives_json_and_knows_its_queue(item):
    made = filled(item)
    text = work_items.encode_item(made)
    assert work_items.decode_item(text) == made
    assert msgspec.json.decode(text)["type"] == item.__name__
    assert (work_items.goes_to(made) is None) == (item is work_items.ActivityExecute)


def test_what_is_not_given_is_left_out():
    item = work_items.StartOrchestration(instance="i", orchestration="o", input="{}")
    assert msgspec.json.decode(work_items.encode_item(item)) == {
        "type": "StartOrchestration",
        "instance": "i",
        "orchestration": "o",
        "input": "{}",
    }


def test_derived_ids_are_the_same_for_the_same_thing_and_differ_for_others():
    made = [
        function(instance, execution_id, number)
        for function in (decision_id, activity_key, step_key)
        for instance in ("a", "b")
        for execution_id in (1, 2)
        for number in (1, 2)
    ]
    assert len(set(made)) == len(made)
    assert decision_id("a", 1, 1) == decision_id("a", 1, 1)
