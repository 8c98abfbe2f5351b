"""Rounds of firing: what is on time first, a portion a commit, for a moment; and no schedule stops another."""

import logging
from itertools import pairwise

import pytest

from holdfast.engine import Engine
from holdfast.engine.maintenance import tick
from holdfast.engine.schedule_rounds import FEW, ROUND_S, fire_due, replan
from holdfast.errors import StoreBusy
from holdfast.failpoints import listening
from holdfast.model import commands as c
from holdfast.model.jobs import Job
from holdfast.model.schedules import CatchUp, NewSchedule, Overlap, Schedule
from holdfast.rules.schedules import fire, fire_times, next_fire
from holdfast.rules.schedules.next_fire import AT_ONCE
from holdfast.stores.memory.store import MemoryStore
from holdfast.testing.clock import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def engine(clock):
    return Engine(MemoryStore(), clock=clock)


def put(engine, name, **fields):
    new = NewSchedule(**{"name": name, "job_type": "t", "cron_expression": "0 * * * *"} | fields)
    engine.ask(c.PutSchedule(schedule_id=name, schedule=new))


def schedule(engine, name):
    with engine.read() as view:
        return view.get(Schedule, name)


def made(engine):
    """Name the schedules of the jobs there are, in the order they were made."""
    with engine.read() as view:
        return [job.schedule_id for job in sorted(view.all(Job), key=lambda job: job.seq)]


def lose_paris(monkeypatch):
    """Have zones that do not know Paris any more."""
    found = fire_times.parse_zone
    monkeypatch.setattr(next_fire, "parse_zone", lambda name: found(name.replace("Paris", "Lost")))


def test_a_schedule_whose_zone_is_gone_stops_no_other(engine, clock, monkeypatch):
    put(engine, "a", timezone="Europe/Paris")
    put(engine, "b", timezone="Europe/Berlin")
    clock.advance(3600)
    lose_paris(monkeypatch)
    report = tick(engine)
    assert (report.fired, made(engine)) == (1, ["b"])
    assert "is not a time zone" in schedule(engine, "a").pause_reason


def test_zones_are_compared_although_one_of_them_is_gone(engine, monkeypatch, caplog):
    put(engine, "a", timezone="Europe/Paris")
    put(engine, "b", cron_expression="0 9 * * *", timezone="Europe/Berlin")
    lose_paris(monkeypatch)
    with caplog.at_level(logging.WARNING, "holdfast.engine.schedule_rounds"):
        assert replan(engine) == 0
    assert [(record.message, record.schedule) for record in caplog.records] == [("schedule.not_planned", "a")]


def test_a_fault_of_ours_in_one_schedule_stops_no_other(engine, clock, monkeypatch, caplog):
    for name in "abc":
        put(engine, name)
    clock.advance(3600)

    def broken(schedule, now):
        if schedule.schedule_id == "b":
            raise ZeroDivisionError
        return next_fire.due(schedule, now)

    monkeypatch.setattr(fire, "due", broken)
    found = fire_due(engine)
    assert (found.fired, found.more, made(engine)) == (2, False, ["a", "c"])
    assert {(record.message, record.schedule) for record in caplog.records} == {("schedule.not_fired", "b")}


def test_a_busy_store_is_not_taken_for_a_fault_of_a_schedule(engine, clock):
    put(engine, "a")
    clock.advance(3600)

    def refuse():
        raise StoreBusy("later")

    with listening("engine.decided", refuse), pytest.raises(StoreBusy):
        fire_due(engine)
    assert fire_due(engine).fired == 1


def test_what_is_on_time_goes_before_what_is_made_up_for(engine, clock):
    for number in range(3):
        put(engine, f"late{number}", catch_up=CatchUp.ALL, overlap=Overlap.ALLOW, interval_s=60, cron_expression=None)
    clock.advance(7170)
    put(engine, "now", interval_s=30, cron_expression=None)
    clock.advance(30)
    fire_due(engine)
    assert made(engine)[0] == "now"


def test_a_commit_makes_up_for_a_few_schedules_at_once(engine, clock):
    for number in range(2 * FEW):
        put(engine, f"s{number}", catch_up=CatchUp.ALL, overlap=Overlap.ALLOW, interval_s=60, cron_expression=None)
    clock.advance(86_400)
    sizes = []
    with listening("engine.committed", lambda: sizes.append(len(made(engine)))):
        fire_due(engine)
    assert sizes[0] == FEW * AT_ONCE
    assert sizes[-1] == 2 * FEW * 1440
    assert max(after - before for before, after in pairwise(sizes)) == FEW * AT_ONCE


def test_a_round_lasts_a_moment_and_says_that_there_is_more(engine, clock):
    for number in range(2 * FEW):
        put(engine, f"s{number}", catch_up=CatchUp.ALL, overlap=Overlap.ALLOW, interval_s=60, cron_expression=None)
    clock.advance(7200)
    with listening("engine.committed", lambda: clock.advance(ROUND_S)):
        first = tick(engine)
    assert (first.fired, first.more) == (FEW * AT_ONCE, True)
    rest = tick(engine)
    assert (first.fired + rest.fired, rest.more) == (2 * FEW * 120, False)
