"""Histories as files: what a redacted one must not show."""

from typing import Literal

import msgspec

from holdfast.errors import StepError
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.history import Event
from holdfast.workflows.api import context as hf
from holdfast.workflows.api.error_conversion import details_of, rebuild
from holdfast.workflows.replay.check import check_file
from holdfast.workflows.replay.export import file_of, read_file, redacted, write_file
from support.flows import World


def test_redacted_file_does_not_quote_a_signal_that_was_set_aside():
    world = World()

    async def main() -> str:
        return await hf.signal("word", type=Literal["yes", "no"])

    world.start(world.workflow(main))
    world.signal("word", "secret")
    world.settle()
    assert "secret" in world.history()[-1].kind.reason
    file = write_file(file_of("i", "RUNNING", {1: world.history()}, redact=True))
    assert b"secret" not in file
    assert check_file(world.definitions, read_file(file, "file")) == []


def failure(problem):
    kind = event_kinds.StepFailed(step_no=1, name="s", details=details_of(problem))
    return Event(instance="i", event_id=2, timestamp_ms=0, execution_id=1, kind=kind)


def test_redacted_failure_keeps_its_class_and_no_word_of_it():
    problem = ValueError("secret", {"secret"}, 7)
    problem.__cause__ = ExceptionGroup("secret", [KeyError("secret")])
    event = redacted(failure(problem))
    assert b"secret" not in msgspec.json.encode(event)
    again = rebuild(StepError, "step", event.kind.details)
    assert isinstance(again, ValueError)
    assert event.kind.details.cause.type_name == "ExceptionGroup"
