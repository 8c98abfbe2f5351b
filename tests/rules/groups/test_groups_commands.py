"""Groups made and cancelled by command; what stores prove of them is in the conformance suite."""

import pytest
from world import World, new

from holdfast.model import commands as c
from holdfast.model.groups import Group, GroupMode, GroupStatus
from holdfast.model.jobs import JobStatus
from holdfast.rules.explain import explain


def test_members_stand_in_the_queue_in_the_order_they_were_given():
    world = World()
    world.enqueue("first")
    world.do(c.CreateGroup(group_id="g", members=(new("a"), new("b", priority=5), new("c"))))
    assert [world.job(name).position for name in ("first", "a", "b", "c")] == [100, 200, 100, 300]


def test_a_job_that_ran_before_it_joined_makes_the_group_run():
    world = World()
    token = world.start("a")
    world.do(c.Release(job_id="a", token=token, begun=True))
    world.do(c.CreateGroup(group_id="g", members=("a", new("b"))))
    found = world.tables.get(Group, "g")
    assert (found.status, found.started_at) == (GroupStatus.RUNNING, world.job("a").started_at)


def test_the_same_group_is_found_after_members_were_retried_in_chains():
    world = World()
    command = c.CreateGroup(group_id="g", members=(new("a", retry_mode="chain"), new("b")))
    world.do(command)
    (grant,) = world.lease()
    world.do(c.Fail(job_id="a", token=grant.token, error="boom"))
    assert world.do(command).created is False


def test_a_group_and_its_jobs_are_of_one_namespace():
    world = World()
    members = (new("a", namespace="n"),)
    assert world.refused(c.CreateGroup(group_id="g", members=members)) == "invalid_value"
    assert world.refused(c.CreateGroup(group_id="g", members=members, namespace="not a name")) == "invalid_value"
    called = new("z")
    assert (
        world.refused(c.CreateGroup(group_id="g", members=members, namespace="n", callback=called)) == "invalid_value"
    )
    assert world.do(c.CreateGroup(group_id="g", members=members, namespace="n")).created


def test_members_of_a_concurrent_group_wait_for_nobody():
    world = World()
    world.do(c.CreateGroup(group_id="g", members=(new("a"), new("b")), mode=GroupMode.CONCURRENT))
    assert explain(world.tables, world.job("b"), world.now).code == "behind"


def test_a_member_that_waits_is_not_counted_ahead_of_others():
    world = World()
    world.do(c.CreateGroup(group_id="g", members=(new("a"), new("b"), new("c"))))
    world.enqueue("x")
    assert explain(world.tables, world.job("x"), world.now).sentence == "1 ahead in queue default"


def test_a_stop_by_force_of_all_that_runs_ends_a_cancelled_group():
    world = World()
    world.do(c.CreateGroup(group_id="g", members=(new("a"), new("b"))))
    world.lease()
    world.do(c.CancelGroup(group_id="g", running=True))
    world.do(c.Cancel(job_id="a", force=True))
    assert world.tables.get(Group, "g").status is GroupStatus.CANCELLED


def test_an_empty_group_can_be_cancelled_and_stays_as_it_is():
    world = World()
    world.do(c.CreateGroup(group_id="g"))
    outcome = world.do(c.CancelGroup(group_id="g"))
    assert (outcome.cancelled, outcome.requested) == (0, 0)
    assert world.tables.get(Group, "g").status is GroupStatus.CREATED


@pytest.mark.parametrize("size", [1, 3])
def test_a_group_is_cancelled_whole_whatever_waits_for_its_turn(size):
    world = World()
    world.do(c.CreateGroup(group_id="g", members=tuple(new(f"m{number}") for number in range(size))))
    assert world.do(c.CancelGroup(group_id="g", reason="no")).cancelled == size
    assert {world.job(f"m{number}").status for number in range(size)} == {JobStatus.CANCELLED}
