"""A worker fires schedules: it wakes when one is due, and at start looks whether the rules of zones have changed."""

from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest

from holdfast.engine import schedule_rounds
from holdfast.model.jobs import JobStatus
from holdfast.rules.schedules import next_fire
from holdfast.workers.main_loop import NAP_S


def drive(w):
    """Let the pump do all it has to do now."""
    while w.pump.cycle():
        pass


@pytest.fixture
def note(hf):
    @hf.task(name="note")
    def note() -> None: ...

    return note


def test_a_worker_sleeps_until_a_schedule_is_due_and_fires_it(hf, clock, note):
    made = hf.schedule("s", note, every=60, overlap="allow", queue="elsewhere")
    w = hf.worker(["default"], concurrency=1)
    drive(w)
    w.pump.look()
    assert w.pump._outlook.tick_at == pytest.approx(clock.monotonic() + 60)
    assert w.pump._wake_at(1) <= w.pump._outlook.tick_at
    clock.advance(59.9)
    drive(w)
    assert made.record().fires == 0
    clock.advance(0.1)
    drive(w)
    assert made.record().fires == 1
    w.pump.look()
    assert w.pump._outlook.tick_at == pytest.approx(clock.monotonic() + 60)
    w.slots.close()


@pytest.mark.parametrize("hours", [1, -1])
def test_a_worker_that_sleeps_until_a_schedule_is_due_notices_that_the_clock_leapt(hf, clock, note, hours):
    made = hf.schedule("s", note, cron="0 0 * * *", queue="elsewhere")
    w = hf.worker(["default"], concurrency=1)
    drive(w)
    w.pump.look()
    assert w.pump._outlook.tick_at == pytest.approx(clock.monotonic() + 86_400)
    # It would sleep for a day, and not hear that the clock was set: so it naps.
    assert w.pump._wake_at(1) <= clock.monotonic() + NAP_S
    clock.set_wall(clock.now() + timedelta(hours=hours))
    clock.advance(NAP_S)
    drive(w)
    assert not w.pump._outlook.is_fresh
    w.pump.look()
    assert w.pump._outlook.tick_at == pytest.approx(clock.monotonic() + 86_400 - 3600 * hours - NAP_S)
    clock.set_wall(clock.now() + timedelta(hours=24 - hours))
    drive(w)
    w.pump.look()
    clock.advance(1)
    drive(w)
    assert made.record().fires == 1
    w.slots.close()


def test_what_is_made_up_for_is_made_at_once_and_other_work_is_sent_in_between(hf, clock, note, monkeypatch):
    made = hf.schedule("s", note, every=60, catch_up="all", overlap="allow", queue="elsewhere")
    w = hf.worker(["default"], concurrency=1)
    clock.advance(86_400)
    monkeypatch.setattr(schedule_rounds, "ROUND_S", 0.0)  # each round has one commit
    assert w.pump.cycle()
    assert made.record().fires == 100
    job = note.enqueue()
    assert w.pump.cycle()
    assert (job.refresh().status is not JobStatus.QUEUED, made.record().fires) == (True, 200)
    for _ in range(20):
        w.pump.cycle()
    assert made.record().fires == 1440
    w.slots.close()


def test_a_worker_on_its_way_out_fires_nothing_and_the_next_one_does(hf, clock, note):
    made = hf.schedule("s", note, every=60, overlap="allow", queue="elsewhere")
    w = hf.worker(["default"], concurrency=1)
    drive(w)
    w.pump.look()
    w.pump.drain(30)
    clock.advance(60)
    drive(w)
    assert made.record().fires == 0
    w.slots.close()
    following = hf.worker(["default"], concurrency=1)
    drive(following)
    assert made.record().fires == 1
    following.slots.close()


def test_a_worker_without_schedules_wakes_for_none(hf, clock, note):
    w = hf.worker(concurrency=1)
    drive(w)
    w.pump.look()
    assert w.pump._outlook.tick_at == float("inf")
    w.slots.close()


def test_a_fire_by_old_rules_of_its_zone_is_corrected_when_a_worker_starts(hf, note, monkeypatch):
    with monkeypatch.context() as once:
        once.setattr(next_fire, "parse_zone", lambda _name: ZoneInfo("Europe/London"))
        made = hf.schedule("s", note, cron="0 9 * * *", timezone="Europe/Berlin")
    assert made.record().next_fire_at == "2026-01-01T09:00:00.000000Z"
    w = hf.worker(concurrency=1)
    drive(w)
    assert made.record().next_fire_at == "2026-01-01T08:00:00.000000Z"
    assert made.record().version == 1
    w.slots.close()
