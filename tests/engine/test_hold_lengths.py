"""How long holds were granted for, as the feed tells."""

from datetime import timedelta

import msgspec
import pytest

from holdfast.engine import Engine
from holdfast.engine.hold_lengths import granted_lengths, last_event_at, was_set_back
from holdfast.model import commands as c
from holdfast.model.jobs import Job
from holdfast.model.reservations import Reservation
from holdfast.model.times import later, stamp
from holdfast.stores.memory.store import MemoryStore
from holdfast.testing.clock import START, ManualClock

NOW = stamp(START)


@pytest.fixture
def engine():
    return Engine(MemoryStore(), clock=ManualClock())


def test_store_without_events_tells_nothing(engine):
    assert (last_event_at(engine.store), was_set_back(engine.store, NOW), granted_lengths(engine.store)) == (
        None,
        False,
        {},
    )


def test_clock_was_set_back_when_the_last_event_is_ahead_of_it(engine):
    engine.ask(c.PauseDispatch())
    assert last_event_at(engine.store) == NOW
    assert [was_set_back(engine.store, later(NOW, -back)) for back in (0, 5, 5.000001, 7200)] == [
        False,
        False,
        True,
        True,
    ]


def test_last_grant_or_renewal_counts(engine):
    clock = engine.time.clock
    engine.ask(c.Enqueue(jobs=(c.NewJob(job_id="a", job_type="t", params=msgspec.Raw(b"{}")),)))
    (grant,) = engine.ask(c.Lease(worker_id="w", lease_s=100)).grants
    engine.ask(c.Reserve(reservation_id="r", queue="q", reserved_by="me", ttl_s=60))
    clock.advance(50)
    engine.ask(c.Extend(job_id="a", token=grant.token, lease_s=200))
    assert granted_lengths(engine.store) == {
        (Job, "a"): (later(NOW, 250), 200),
        (Reservation, "r"): (later(NOW, 60), 60),
    }


def test_events_that_were_trimmed_away_are_done_without(engine):
    clock = engine.time.clock
    for number in range(12):
        clock.advance(1)
        engine.ask(c.Reserve(reservation_id=f"r{number}", queue=f"q{number}", reserved_by="me", ttl_s=60))
    engine.store.trim(later(NOW, 11), 500)
    assert len(granted_lengths(engine.store)) == 1
    clock.set_wall(START - timedelta(hours=1))
    assert was_set_back(engine.store, engine.look().now)
