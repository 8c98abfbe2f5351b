"""Expiries that lie further off than the hold is long."""

import msgspec
import pytest

from holdfast.model.jobs import Job, JobStatus
from holdfast.model.reservations import Reservation
from holdfast.model.times import Timestamp, later
from holdfast.model.workflows.instances import Affinity, Turn
from holdfast.rules.far_expiries import far_expiries
from holdfast.rules.state import Lane

NOW = Timestamp("2026-01-01T00:00:00.000000Z")


def job(until_s):
    return Job(
        job_id="a",
        job_type="t",
        params=msgspec.Raw(b"{}"),
        position=100,
        rank=0,
        created_at=NOW,
        seq=1,
        status=JobStatus.RUNNING,
        token=7,
        lease_expires_at=later(NOW, until_s),
    )


def turn(until_s):
    return Turn("i", 1, token=8, locked_at=later(NOW, until_s - 30), locked_until=later(NOW, until_s))


def reservation(until_s):
    return Reservation("r", "default", "me", later(NOW, until_s - 30), later(NOW, until_s))


def session(until_s):
    return Affinity("s", "w", later(NOW, until_s), later(NOW, until_s - 30))


KINDS = {Lane.LEASE: job, Lane.TURN: turn, Lane.RESERVATION: reservation, Lane.AFFINITY: session}


class Held:
    """A state in which one record is held."""

    def __init__(self, lane, record):
        self.lane, self.record = lane, record

    def due(self, lane, until):
        assert until >= NOW
        return iter([self.record] if lane is self.lane else [])


@pytest.mark.parametrize("lane", KINDS)
def test_hold_within_its_own_length_is_left_to_the_wall_clock(lane):
    for until_s in (-1, 0, 30):
        assert list(far_expiries(Held(lane, KINDS[lane](until_s)), NOW)) == []


@pytest.mark.parametrize("lane", KINDS)
def test_hold_further_off_than_its_own_length_is_found(lane):
    (hold,) = far_expiries(Held(lane, KINDS[lane](30.000001)), NOW)
    assert (hold.length_s, hold.until) == (30, later(NOW, 30.000001))


@pytest.mark.parametrize("lane", KINDS)
def test_length_of_a_grant_counts_while_its_expiry_is_the_present_one(lane):
    record = KINDS[lane](31)
    (hold,) = far_expiries(Held(lane, record), NOW)
    assert list(far_expiries(Held(lane, record), NOW, {hold.key: (hold.until, 31.0)})) == []
    (short,) = far_expiries(Held(lane, KINDS[lane](20)), NOW, {hold.key: (later(NOW, 20), 5.0)})
    assert short.length_s == 5
    assert list(far_expiries(Held(lane, record), NOW, {hold.key: (later(NOW, 30), 99.0)})) == [hold]


@pytest.mark.parametrize("lane", [Lane.TURN, Lane.RESERVATION, Lane.AFFINITY])
def test_hold_granted_while_the_times_of_events_stood_still_is_left_to_the_wall_clock(lane):
    ahead = {
        Lane.TURN: Turn("i", 1, token=8, locked_at=later(NOW, 7200), locked_until=later(NOW, 30)),
        Lane.RESERVATION: Reservation("r", "default", "me", later(NOW, 7200), later(NOW, 30)),
        Lane.AFFINITY: Affinity("s", "w", later(NOW, 30), later(NOW, 7200)),
    }
    assert list(far_expiries(Held(lane, ahead[lane]), NOW)) == []
