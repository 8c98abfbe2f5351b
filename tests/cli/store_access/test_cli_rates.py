"""Rates come from the feed, each event once; what is old or trimmed away does not count."""

from __future__ import annotations

import msgspec
import pytest

from holdfast import Engine, open_store
from holdfast.cli.store_access.rates import LOST_S, RATE_S, Pulse
from holdfast.engine.maintenance import tick
from holdfast.errors import InvalidValue
from holdfast.model.commands import Complete, EndSessions, Enqueue, Fail, Lease, NewJob
from holdfast.testing import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def engine(clock):
    engine = Engine(open_store("memory:"), clock=clock)
    yield engine
    engine.close()


def add(engine, count):
    jobs = [NewJob(job_id=engine.new_id(), job_type="work", params=msgspec.Raw(b"{}")) for _ in range(count)]
    engine.ask(Enqueue(jobs=tuple(jobs)))


def follow(engine, pulse):
    with engine.read() as view:
        pulse.follow(engine.store, view.seq)
    return pulse.rates(engine.look().now)


def test_each_event_counts_once_however_often_one_looks(engine, clock):
    pulse = Pulse()
    add(engine, 1)
    clock.advance(RATE_S * 2)  # watched for longer than rates are taken over
    add(engine, 20)
    assert follow(engine, pulse).enqueued == 2.0
    assert follow(engine, pulse).enqueued == 2.0
    done, failed = engine.ask(Lease(worker_id="w", n=2)).grants
    engine.ask(Complete(job_id=done.job.job_id, token=done.token))
    engine.ask(Fail(job_id=failed.job.job_id, token=failed.token, error="no"))
    rates = follow(engine, pulse)
    assert (rates.enqueued, rates.completed, rates.failed) == (2.0, 0.1, 0.1)


def test_what_is_older_than_the_window_no_longer_counts(engine, clock):
    pulse = Pulse()
    add(engine, 20)
    follow(engine, pulse)
    clock.advance(RATE_S + 1)
    assert follow(engine, pulse).enqueued == 0


def test_a_store_younger_than_the_window_is_measured_over_its_age(engine, clock):
    add(engine, 20)
    clock.advance(4)
    assert follow(engine, Pulse()).enqueued == 5.0


def test_lost_leases_are_counted_for_a_minute(engine, clock):
    pulse = Pulse()
    add(engine, 2)
    engine.ask(Lease(worker_id="w", n=2))
    clock.advance(31)
    tick(engine)
    assert follow(engine, pulse).lost_leases == 2
    clock.advance(RATE_S + 1)
    assert follow(engine, pulse).lost_leases == 2
    clock.advance(LOST_S)
    assert follow(engine, pulse).lost_leases == 0


def test_leases_taken_back_from_an_ended_process_are_the_last_recovery(engine, clock):
    pulse = Pulse()
    add(engine, 3)
    grants = engine.ask(Lease(worker_id="w", n=2, session_id="earlier")).grants
    clock.advance(5)
    # One of them had not begun.
    engine.ask(EndSessions(session_id=engine.session_id, limit=100, unbegun=(grants[1].token,)))
    follow(engine, pulse)
    assert (pulse.recovery.leases, pulse.recovery.at) == (2, engine.look().now)


class Trimmed:
    """A store whose first events are gone."""

    def __init__(self, store, first):
        self._store = store
        self._first = first

    def feed(self, after):
        if after < self._first:
            raise InvalidValue("gone", field="after")
        return self._store.feed(after)


def test_where_the_feed_was_trimmed_less_is_looked_back_at(engine, clock, monkeypatch):
    monkeypatch.setattr("holdfast.cli.store_access.rates.BACK", 100)
    add(engine, 50)
    with engine.read() as view:
        seq = view.seq
    clock.advance(2)
    now = engine.look().now
    for first, rate in ((0, 25.0), (seq - 10, 5.0), (seq - 5, 0.0)):
        pulse = Pulse()
        pulse.follow(Trimmed(engine.store, first), seq)
        assert pulse.rates(now).enqueued == rate
