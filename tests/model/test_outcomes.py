"""Answers travel as data; a refusal becomes its exception at the last hop."""

import msgspec
import pytest
from flowsamples import ANSWERS

from holdfast.errors import DuplicateKey, HoldfastError, IdReused, LeaseLost, Refused
from holdfast.model.jobs import Job, JobStatus
from holdfast.model.outcomes import (
    Backfilled,
    CancelAnswer,
    Changed,
    Claim,
    Claimed,
    Done,
    Enqueued,
    Extended,
    Fired,
    Grant,
    GroupCancelled,
    Grouped,
    Leased,
    Mended,
    Outcome,
    Refusal,
    Reported,
    Reserved,
    Saved,
    Submitted,
    Swept,
    decode_outcome,
    encode_outcome,
    refuse,
)
from holdfast.model.reservations import ReservationStatus

RAW = msgspec.Raw(b"{}")
JOB = Job("j", "t", msgspec.Raw(b"{}"), "2026-01-01T00:00:00.000000Z")
EVERY = [
    Enqueued(jobs=(Submitted("j", created=True), Submitted("k", created=False))),
    Leased(grants=(Grant(JOB, "r", 1, 30.0),)),
    Extended(lease_s=1.5, cancel=True),
    Reported(job_status=JobStatus.QUEUED, duplicate=True, successor="k"),
    CancelAnswer(outcome="requested"),
    Changed(job_id="j", position=0),
    Done(),
    Reserved(reservation_id="r", status=ReservationStatus.ACTIVE, expires_at="t", left_s=1.5),
    Saved(id="s", version=2, created=True),
    Fired(jobs=(Submitted("j", created=True),), missed=3),
    Backfilled(count=3, next_since="2026-01-01T00:00:00.000000Z"),
    Claimed(claims=(Claim("d", "2026-01-01T00:00:00.000000Z"),)),
    Grouped(group_id="g", members=("j", "k"), created=False),
    GroupCancelled(cancelled=2, requested=1),
    Swept(count=3, more=True),
    *ANSWERS,
    Mended(runs=1, jobs=2, chains=3, more=True),
    refuse(LeaseLost, "gone", job_id="j", token=7),
]


def test_every_kind_of_answer_is_exercised_here():
    assert [type(outcome) for outcome in EVERY] == list(Outcome.__args__)


@pytest.mark.parametrize("outcome", EVERY, ids=lambda outcome: type(outcome).__name__)
def test_an_answer_sent_and_received_is_the_same_answer(outcome):
    assert decode_outcome(encode_outcome(outcome)) == outcome


def test_a_refusal_raises_as_what_it_was_with_its_facts():
    error = refuse(DuplicateKey, "the key is held.", hint="Wait.", job_id="j").error()
    assert type(error) is DuplicateKey
    assert error.facts == {"job_id": "j"}
    assert str(error) == "the key is held. Wait."


def test_a_refusal_without_a_hint_gets_that_of_its_kind():
    assert refuse(IdReused, "used before.").error().hint == IdReused.default_hint


def test_a_refusal_of_an_unknown_code_is_still_a_refusal():
    error = Refusal(code="from_the_future", message="no.").error()
    assert type(error) is Refused
    assert isinstance(error, HoldfastError)
