"""Firing: which jobs a schedule makes, what they say, and that a nominal time makes one."""

import uuid

import msgspec
import pytest
from world import START, World

from holdfast.model import commands as c
from holdfast.model.ids import uuid5
from holdfast.model.jobs import JobStatus
from holdfast.model.outcomes import Fired
from holdfast.model.schedules import CatchUp, NewSchedule, Overlap, Schedule, ScheduleChanges
from holdfast.model.templates import JobOptions, NewTemplate
from holdfast.model.times import later
from holdfast.rules.schedules import fire_times, next_fire
from holdfast.rules.schedules.overlaps import fire_id


@pytest.fixture
def world():
    return World()


def put(world, **fields):
    new = NewSchedule(**{"name": "s", "job_type": "t", "interval_s": 60} | fields)
    world.do(c.PutSchedule(schedule_id="s", schedule=new))


def fire(world):
    return world.do(c.Fire(schedule_id="s", expected=world.tables.get(Schedule, "s").next_fire_at))


def test_the_id_of_a_fire_is_a_uuid_made_from_its_parts():
    made = uuid5("s", START, "")
    assert uuid.UUID(made).version == 5
    assert made == uuid5("s", START, "") == fire_id("s", START)
    assert len({made, uuid5("s", START, "b"), uuid5("t", START, ""), uuid5("s", later(START, 1), "")}) == 4
    assert uuid5("a", "bc") != uuid5("ab", "c")


def test_a_fire_before_its_time_does_nothing(world):
    put(world)
    assert fire(world) == Fired()
    world.wait(60)
    assert len(fire(world).jobs) == 1


def test_a_paused_schedule_does_not_fire_for_a_scheduler_that_has_not_heard_of_it(world):
    put(world)
    world.do(c.PauseSchedule(schedule_id="s"))
    world.wait(60)
    assert world.do(c.Fire(schedule_id="s", expected=later(START, 60))) == Fired()


def test_jobs_of_one_round_stand_in_order(world):
    put(world, catch_up=CatchUp.ALL, overlap=Overlap.ALLOW)
    world.wait(600)
    jobs = [world.job(job.job_id) for job in fire(world).jobs]
    assert [job.fire_at for job in jobs] == [later(START, 60 * n) for n in range(1, 11)]
    assert [job.position for job in jobs] == [100 * n for n in range(1, 11)]


def test_after_a_reset_a_time_that_made_its_job_makes_no_other(world):
    put(world, overlap=Overlap.ALLOW)
    world.wait(60)
    (first,) = fire(world).jobs
    world.wait(-30)
    world.do(c.ResetSchedule(schedule_id="s"))
    world.wait(30)
    (again,) = fire(world).jobs
    assert (again.job_id, again.created) == (first.job_id, False)


def test_what_the_schedule_says_comes_before_what_the_template_says(world):
    options = JobOptions(queue="a", priority=1, max_attempts=2, ttl_s=600, tags={"k": "v"})
    template = NewTemplate(name="t", job_type="t", options=options, default_params=msgspec.Raw(b'{"x":1,"y":1}'))
    world.do(c.PutTemplate(template_id="t", template=template))
    put(
        world,
        job_type=None,
        template_id="t",
        options=JobOptions(priority=2, max_attempts=3),
        priority=4,
        param_overrides=msgspec.Raw(b'{"y":null}'),
    )
    world.wait(60)
    job = world.job(fire(world).jobs[0].job_id)
    assert (job.queue, job.priority, job.rank, job.max_attempts) == ("a", 4, -4, 3)
    assert (bytes(job.params), job.template_id, job.tags) == (b'{"x":1,"y":null}', "t", {"k": "v"})
    assert job.expires_at == later(START, 660)


def test_a_one_off_that_nobody_was_there_for_is_over_too(world):
    put(world, interval_s=None, run_at=later(START, 60), catch_up=CatchUp.NONE)
    world.wait(7200)
    assert fire(world) == Fired(missed=1)
    over = world.tables.get(Schedule, "s")
    assert (over.enabled, over.next_fire_at, over.missed) == (False, None, 1)


def test_a_backfill_keeps_to_start_and_end(world):
    put(world, interval_s=None, cron_expression="0 * * * *", start_at=later(START, -7200), end_at=later(START, 86_400))
    outcome = world.do(c.Backfill(schedule_id="s", backfill_id="b", since=later(START, -86_400), until=later(START, 0)))
    assert (outcome.count, outcome.next_since) == (2, None)


def test_a_paused_schedule_can_be_triggered_and_backfilled(world):
    put(world, interval_s=None, cron_expression="0 * * * *")
    world.do(c.PauseSchedule(schedule_id="s"))
    world.do(c.Trigger(schedule_id="s", job_id="now"))
    assert world.job("now").status is JobStatus.QUEUED
    span = {"since": later(START, -7200), "until": START}
    assert world.do(c.Backfill(schedule_id="s", backfill_id="b", **span)).count == 2


def test_an_edit_between_two_fires_counts_for_the_second_only(world):
    put(world, overlap=Overlap.ALLOW)
    world.wait(60)
    first = world.job(fire(world).jobs[0].job_id)
    world.do(c.UpdateSchedule(schedule_id="s", changes=ScheduleChanges(queue="slow")))
    assert world.job(first.job_id) == first
    world.wait(60)
    assert world.job(fire(world).jobs[0].job_id).queue == "slow"


def test_a_schedule_that_can_no_longer_be_planned_is_set_aside_and_says_why(world, monkeypatch):
    put(world, interval_s=None, cron_expression="0 * * * *", timezone="Europe/Paris")
    world.wait(3600)
    with monkeypatch.context() as old:
        # The zones of this machine do not have it any more.
        old.setattr(next_fire, "parse_zone", lambda name: fire_times.parse_zone(f"{name}/Lost"))
        assert fire(world) == Fired()
    found = world.tables.get(Schedule, "s")
    assert (found.enabled, found.next_fire_at, found.version) == (False, None, 2)
    assert "'Europe/Paris/Lost' is not a time zone" in found.pause_reason
    world.do(c.ResumeSchedule(schedule_id="s"))
    assert world.tables.get(Schedule, "s").next_fire_at == later(START, 7200)


def test_an_archived_template_makes_no_job_by_a_wish_either(world):
    world.do(c.PutTemplate(template_id="t", template=NewTemplate(name="t", job_type="work")))
    put(world, job_type=None, template_id="t")
    world.wait(600)
    world.do(c.Trigger(schedule_id="s", job_id="before"))
    world.do(c.ArchiveTemplate(template_id="t"))
    assert world.refused(c.Trigger(schedule_id="s", job_id="after")) == "invalid_operation"
    backfill = c.Backfill(schedule_id="s", backfill_id="b", since=START, until=later(START, 300))
    assert world.refused(backfill) == "invalid_operation"
    # What was asked for before is answered as it was then.
    assert not world.do(c.Trigger(schedule_id="s", job_id="before")).jobs[0].created
