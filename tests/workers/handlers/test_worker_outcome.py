"""Every way an execution can end is one outcome, and every outcome is one command."""

import msgspec
import pytest

from holdfast.model import commands as cmd
from holdfast.model.ids import JobId, RunId, Token
from holdfast.model.jobs import Job
from holdfast.model.outcomes import Grant
from holdfast.model.payloads import MAX_ERROR
from holdfast.model.times import Timestamp
from holdfast.workers.handlers.control_exceptions import Cancel, Fatal, Retry, Snooze
from holdfast.workers.handlers.outcome import (
    GaveUp,
    Outcome,
    Raised,
    Released,
    Returned,
    Snoozed,
    command_of,
    outcome_of,
)

GRANT = Grant(
    Job(JobId("j"), "t", msgspec.Raw(b"{}"), Timestamp("2026-01-01T00:00:00.000000Z")), RunId("r"), Token(7), 30.0
)
WHO = {"job_id": "j", "token": 7}


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Snooze(5), Snoozed(5)),
        (Cancel("why"), GaveUp("why")),
        (Retry("busy", after=3), Raised("busy", retry_after_s=3)),
        (Retry(), Raised("the handler asked for a retry")),
        (Fatal("gone"), Raised("gone", "fatal", fatal=True)),
        (Fatal(), Raised("fatal", "fatal", fatal=True)),
    ],
)
def test_what_a_handler_wishes_is_its_outcome(error, outcome):
    assert outcome_of(error) == outcome


def test_any_other_exception_is_a_failure_with_its_traceback():
    outcome = outcome_of(ValueError("broken"))
    assert (outcome.error_kind, outcome.fatal) == ("exception", False)
    assert outcome.error.endswith("ValueError: broken\n")
    assert outcome_of(KeyError("x"), (LookupError,)).fatal


def test_a_long_traceback_is_cut():
    assert len(outcome_of(ValueError("x" * 10 * MAX_ERROR)).error.encode()) <= MAX_ERROR


def test_an_error_with_lone_surrogates_can_be_kept():
    outcome_of(ValueError("\ud800")).error.encode()


@pytest.mark.parametrize(
    ("outcome", "command"),
    [
        (Returned(msgspec.Raw(b"1"), exit_code=0), cmd.Complete(**WHO, result=msgspec.Raw(b"1"), exit_code=0)),
        (
            Raised("e", "exit", fatal=True, retry_after_s=2, exit_code=9),
            cmd.Fail(**WHO, error="e", error_kind="exit", fatal=True, retry_after_s=2, exit_code=9),
        ),
        (Snoozed(4), cmd.Snooze(**WHO, delay_s=4)),
        (GaveUp("why"), cmd.GiveUp(**WHO, reason="why")),
        (Released(begun=True), cmd.Release(**WHO, begun=True)),
        (Released(begun=False), cmd.Release(**WHO, begun=False)),
    ],
)
def test_an_outcome_is_one_command_and_survives_the_way_from_a_process(outcome, command):
    assert command_of(GRANT, outcome) == command
    assert msgspec.json.decode(msgspec.json.encode(outcome), type=Outcome) == outcome
