"""What a command does to groups beyond what it was sent for."""

import msgspec
from world import World, new

from holdfast.model import commands as c
from holdfast.model import events as ev
from holdfast.model.groups import Group, GroupMode, GroupStatus
from holdfast.model.jobs import Job, JobStatus
from holdfast.model.times import later
from holdfast.rules.groups.effects import callback_of, group_effects
from holdfast.rules.random_source import Draws


def world_with(*members, **options):
    world = World()
    world.do(c.CreateGroup(group_id="g", members=members, **options))
    return world


def test_events_of_jobs_without_a_group_have_no_effect():
    world = World()
    token = world.start()
    completed = ev.JobCompleted(job_id="j", token=token)
    assert group_effects(world.tables, [completed], world.now, Draws(world.now, 1)) == []


def test_effects_carry_the_id_of_the_command_that_caused_them():
    world = world_with(new("a", max_attempts=1), new("b"), callback=new("z"))
    (grant,) = world.lease()
    world.do(c.Fail(cmd="why", job_id="a", token=grant.token, error="boom"))
    assert [(type(event), event.cmd) for event in world.last] == [
        (ev.JobFailed, "why"),
        (ev.JobSkipped, "why"),
        (ev.GroupChanged, "why"),
        (ev.JobCreated, "why"),
    ]


def test_a_report_that_comes_too_late_has_the_effects_of_the_expiry_it_writes():
    world = world_with(new("a", max_expiries=1), new("b"))
    (grant,) = world.lease()
    world.wait(31)
    assert world.tell(c.Complete(job_id="a", token=grant.token)).code == "lease_lost"
    assert world.tables.get(Group, "g").status is GroupStatus.FAILED
    assert world.job("b").cancel_reason == "the group was stopped by the failure of job a"


def test_a_failure_from_before_is_named_when_a_retry_is_skipped():
    world = world_with(new("a", max_attempts=1), new("b"), mode=GroupMode.CONCURRENT)
    first, second = world.lease(2)
    world.do(c.Fail(job_id="a", token=first.token, error="boom"))
    world.do(c.Fail(job_id="b", token=second.token, error="boom"))
    assert world.job("b").cancel_reason == "the group was stopped by the failure of job a"
    assert world.tables.get(Group, "g").status is GroupStatus.FAILED


def test_several_groups_that_end_by_one_command_call_back_in_places_of_their_own():
    world = World()
    for name in "gh":
        members = (new(f"{name}1", max_expiries=1),)
        world.do(c.CreateGroup(group_id=name, members=members, callback=new(f"{name}-end", delay_s=5)))
    world.lease(2)
    world.wait(31)
    world.do(c.Expire())
    called = [world.job(f"{name}-end") for name in "gh"]
    assert called[0].position < called[1].position
    assert {job.not_before for job in called} == {later(world.now, 5)}


def test_a_group_that_lacks_its_effects_is_mended_once():
    world = world_with(new("a", max_attempts=1), new("b"), callback=new("z"))
    (grant,) = world.lease()
    # As if the commit had been cut in two: the failure alone.
    failed = ev.JobFailed(job_id="a", token=grant.token, error="boom", error_kind="exception", to=JobStatus.FAILED)
    world.tables.add([failed], world.now)
    assert world.do(c.MendGroups()).count == 1
    assert [type(event) for event in world.last] == [ev.JobSkipped, ev.GroupChanged, ev.JobCreated]
    assert world.do(c.MendGroups()).count == 0
    assert world.tables.get(Job, "z") is not None


def test_the_callback_is_kept_as_it_was_given():
    callback = new("z", params=b'{"n":1}', queue="end", delay_s=5.0)
    world = world_with(new("a"), callback=callback)
    assert callback_of(world.tables.get(Group, "g")) == callback
    assert callback_of(Group("h", world.now)) is None
    assert msgspec.json.decode(world.tables.get(Group, "g").callback)["job_id"] == "z"
