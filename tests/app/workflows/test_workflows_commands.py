"""Commands to instances, by whoever has no code of their workflow."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.app.workflows.commands import cancel_command, signal_command, start_command
from holdfast.errors import InvalidValue
from holdfast.model.workflows.work_items import CancelInstance, QueueMessage, StartOrchestration, decode_item

GIVEN = msgspec.Raw(b'{"a": 1}')


def test_a_start_carries_its_arguments_and_its_signals():
    command = start_command("w", "i", GIVEN, version="1.0.0", signals=[("n", "1")], cmd="c")
    start = decode_item(command.message.item)
    assert isinstance(start, StartOrchestration)
    assert (start.instance, start.orchestration, start.input, start.version) == ("i", "w", '{"a":1}', "1.0.0")
    signal = decode_item(command.signals[0].item)
    assert isinstance(signal, QueueMessage)
    assert (signal.instance, signal.name, signal.data, command.cmd) == ("i", "n", "1", "c")


@pytest.mark.parametrize(
    ("workflow", "instance", "given", "more"),
    [
        ("no name", "i", GIVEN, {}),
        ("w", "", GIVEN, {}),
        ("w", "a::sub::b", GIVEN, {}),
        ("w", "i", msgspec.Raw(b"[]"), {}),
        ("w", "i", GIVEN, {"version": "new"}),
        ("w", "i", GIVEN, {"signals": [("@mine", "1")]}),
    ],
)
def test_what_can_be_no_start_is_refused(workflow, instance, given, more):
    with pytest.raises(InvalidValue):
        start_command(workflow, instance, given, **more)


def test_signals_and_cancellations_are_told_to_the_instance():
    signal = signal_command("i", "n", "null", hold_s=5)
    assert signal.hold_s == 5
    cancel = decode_item(cancel_command("i", "why", force=True).message.item)
    assert isinstance(cancel, CancelInstance)
    assert (cancel.instance, cancel.reason, cancel.force) == ("i", "why", True)
