"""A command sent again is done once, and gives its first answer."""

from __future__ import annotations

import pytest

from holdfast.failpoints import listening
from holdfast.stores.opening import open_store
from holdfast.testing import ManualClock
from holdfast.testing.conformance.commands import SAMPLES
from holdfast.testing.conformance.harness import Harness


class AnswerLost(Exception):
    """The caller never hears what became of its command."""


@pytest.fixture(params=["memory", "wal", "sqlite"])
def harness(request, tmp_path):
    clock = ManualClock()

    def opener(path):
        url = "memory:" if request.param == "memory" else f"{request.param}:{path / 'jobs'}"
        return open_store(url, clock=clock)

    opened = Harness(opener, tmp_path, clock)
    yield opened
    opened.close()


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_command_whose_answer_was_lost_is_sent_again_and_has_one_effect(harness, sample):
    command = SAMPLES[sample](harness)

    def lose_the_answer() -> None:
        raise AnswerLost

    with listening("engine.committed", lose_the_answer), pytest.raises(AnswerLost):
        harness.engine.submit(command)
    once = harness.dump()
    harness.ask(command)
    assert harness.dump() == once


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_command_that_was_not_kept_is_sent_again_and_has_one_effect(harness, sample):
    command = SAMPLES[sample](harness)

    def fail_before_the_commit() -> None:
        raise AnswerLost

    with listening("engine.decided", fail_before_the_commit), pytest.raises(AnswerLost):
        harness.engine.submit(command)
    harness.ask(command)
    once = harness.dump()
    harness.ask(command)
    assert harness.dump() == once
