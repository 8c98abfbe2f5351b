"""How an execution ended, as its last event says it; and when two ends are the same."""

import asyncio

import msgspec
import pytest

from holdfast.app.tasks.signature_codec import SignatureCodec
from holdfast.model.error_details import CANCELLED, ENCODING, Category, ErrorDetails
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.history import Event
from holdfast.workflows.runtime.result import cancelled_details, is_same_end, verdict

replace = msgspec.structs.replace
REQUEST = Event(
    event_id=2,
    instance="i",
    execution_id=1,
    timestamp_ms=0,
    kind=event_kinds.OrchestrationCancelRequested(reason="too late"),
)


class Secret:
    """Nothing that JSON knows."""


async def flow(way: str) -> object:
    match way:
        case "raise":
            raise ValueError("no")
        case "cancel":
            raise asyncio.CancelledError
        case "secret":
            return Secret()
        case _:
            return {"way": way}


def ended(way, cancel=None):
    async def run():
        main = asyncio.ensure_future(flow(way))
        await asyncio.wait([main])
        return verdict(main, SignatureCodec(flow), cancel)

    return asyncio.run(run())


@pytest.mark.parametrize("cancel", [None, REQUEST])
def test_code_that_returned_or_raised_ends_so_whether_its_end_was_asked_for_or_not(cancel):
    assert ended("return", cancel) == event_kinds.OrchestrationCompleted(output='{"way":"return"}')
    details = ended("raise", cancel).details
    assert (details.category, details.message) == (Category.APPLICATION, "no")
    assert details.type_name.endswith("ValueError")
    assert details.kind != CANCELLED


def test_code_that_was_cancelled_ends_with_the_reason_of_the_request_or_without_one():
    assert ended("cancel", REQUEST).details == cancelled_details("too late")
    assert ended("cancel").details == cancelled_details("cancelled")
    assert cancelled_details("too late").kind == CANCELLED


def test_a_result_that_cannot_be_kept_is_a_failure_that_says_so():
    details = ended("secret").details
    assert details.kind == ENCODING
    assert details.message.startswith("the result cannot be kept")


FAILED = event_kinds.OrchestrationFailed(
    details=ErrorDetails(category=Category.APPLICATION, kind="Error", message="at 0x1", type_name="ValueError")
)
DONE = event_kinds.OrchestrationCompleted(output="1")


def failed(**changes):
    return event_kinds.OrchestrationFailed(details=replace(FAILED.details, **changes))


def test_two_ends_are_the_same_but_for_what_differs_between_two_runs_of_the_same_code():
    assert is_same_end(DONE, event_kinds.OrchestrationCompleted(output="1"))
    assert is_same_end(FAILED, failed(message="at 0x2"))


@pytest.mark.parametrize(
    ("recorded", "present"),
    [
        (DONE, event_kinds.OrchestrationCompleted(output="2")),
        (DONE, FAILED),
        (FAILED, DONE),
        (FAILED, failed(kind=CANCELLED)),
        (FAILED, failed(type_name="KeyError")),
        (DONE, None),
    ],
)
def test_ends_that_say_something_else_differ(recorded, present):
    assert not is_same_end(recorded, present)


def test_an_instance_may_have_been_failed_from_outside_while_its_code_goes_on():
    assert is_same_end(FAILED, None)
