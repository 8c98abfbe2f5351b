"""Suspects: what was lost with its worker runs apart from others of its kind, then alone; nobody waits for ever."""

import pytest
from world import World

from holdfast.model import commands as c
from holdfast.model.jobs import RunStatus
from holdfast.rules.jobs.suspects import ALONE_AFTER, TRIAL_S, is_made_way_for, is_on_trial


def ids(grants):
    return [grant.job.job_id for grant in grants]


def lose(world, *job_ids, times=1):
    """Have these jobs leased together, and their worker die."""
    for _ in range(times):
        tokens = {grant.token for grant in world.lease(9, session_id="dead") if grant.job.job_id in job_ids}
        assert len(tokens) == len(job_ids)
        world.do(c.EndSession(session_id="dead"))


def world_of(*job_ids, **options):
    world = World()
    for job_id in job_ids:
        world.enqueue(job_id, **options)
    return world


def lease(world, holds=0, n=9, **options):
    return world.do(c.Lease(worker_id="w", n=n, holds=holds, **options))


# --- lost once --------------------------------------------------------------------------------------------------------


def test_jobs_lost_once_are_leased_one_at_a_time_among_others():
    world = world_of("a", "b", "c")
    lose(world, "a", "b", "c")
    world.enqueue("fresh")
    first = lease(world)
    assert (ids(first.grants), first.held_back, first.alone_next) == (["a", "fresh"], True, None)
    assert [grant.lost for grant in first.grants] == [1, 0]
    again = lease(world, holds=2, on_trial=True)
    assert (ids(again.grants), again.held_back) == ([], True)
    assert ids(lease(world, holds=2).grants) == ["b"]  # the first has run for a moment


def test_worker_that_does_not_say_what_it_holds_gets_lost_jobs_like_any_other():
    world = world_of("a", "b")
    lose(world, "a", "b", times=3)
    leased = world.do(c.Lease(worker_id="w", n=9))
    assert (ids(leased.grants), leased.held_back) == (["a", "b"], False)


def test_only_work_lost_and_not_yet_alone_is_on_trial_until_it_has_run_for_a_moment():
    assert [is_on_trial(lost, None) for lost in range(4)] == [0 < lost < ALONE_AFTER for lost in range(4)]
    assert is_on_trial(1, 0.0)
    assert not is_on_trial(1, TRIAL_S)


# --- lost again -------------------------------------------------------------------------------------------------------


def test_job_lost_twice_is_leased_alone():
    world = world_of("a", "b", "c")
    lose(world, "a", "b", "c", times=2)
    world.enqueue("fresh")
    leased = lease(world)
    assert (ids(leased.grants), leased.grants[0].lost) == (["a"], 2)


def test_job_lost_twice_is_not_leased_beside_others_and_holds_nobody_up():
    world = world_of("a")
    lose(world, "a", times=2)
    world.enqueue("first", priority=1)
    world.enqueue("later")
    leased = lease(world)
    assert (ids(leased.grants), leased.held_back, leased.alone_next) == (["first", "later"], True, None)
    assert ids(lease(world, holds=1).grants) == []


def test_job_lost_twice_that_waits_long_has_workers_become_empty():
    world = world_of("a")
    lose(world, "a", times=2)
    world.enqueue("first", priority=1)
    world.enqueue("later")
    world.wait(10)
    leased = lease(world)
    assert (ids(leased.grants), leased.alone_next) == (["first"], "a")
    assert lease(world, holds=1).alone_next == "a"
    assert ids(lease(world, holds=0).grants) == ["a"]


def test_time_made_way_for_a_job_is_less_than_half_and_becomes_longer_than_any_handler():
    assert not is_made_way_for(-1)  # the clock was set back
    assert [is_made_way_for(s) for s in (9.9, 10, 14.9, 15, 39.9, 40, 59.9, 60)] == [0, 1, 1, 0, 0, 1, 1, 0]
    made = 0
    for passed in range(1, 100_000):
        made += is_made_way_for(passed)
        assert made < passed / 2
    assert all(is_made_way_for(10 * 4**10 + s) for s in range(0, 86_400, 100))


@pytest.mark.parametrize("report", [c.Fail, c.Snooze])
def test_report_ends_the_suspicion(report):
    world = world_of("a")
    lose(world, "a", times=2)
    (grant,) = lease(world).grants
    said = {"error": "x", "retry_after_s": 0.0} if report is c.Fail else {"delay_s": 0.0}
    world.do(report(job_id="a", token=grant.token, **said))
    world.enqueue("b")
    leased = lease(world)
    assert sorted((g.job.job_id, g.lost) for g in leased.grants) == [("a", 0), ("b", 0)]
    assert world.job("a").expiries == 2


def test_release_does_not_end_the_suspicion():
    world = world_of("a", "b")
    lose(world, "a", "b", times=2)
    (grant,) = lease(world).grants
    world.do(c.Release(job_id="a", token=grant.token, begun=True))
    assert [(grant.job.job_id, grant.lost) for grant in lease(world).grants] == [("a", 2)]


def test_job_of_a_chain_inherits_the_suspicion():
    world = world_of("a", retry_mode="chain")
    world.lease(session_id="dead")
    world.do(c.EndSession(session_id="dead"))
    world.lease(session_id="dead")
    world.do(c.EndSession(session_id="dead"))
    (grant,) = lease(world).grants
    assert (grant.job.job_id != "a", grant.lost) == (True, 2)


def test_lease_sent_again_says_again_how_often_its_jobs_were_lost():
    world = world_of("a")
    lose(world, "a", times=2)
    first = lease(world, cmd="l")
    assert lease(world, cmd="l").grants[0].lost == first.grants[0].lost == 2


# --- not begun --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["one", "all"])
def test_lease_that_had_not_begun_is_not_charged(command):
    world = world_of("a", "b")
    tokens = [grant.token for grant in world.lease(2, session_id="dead")]
    end = c.EndSession(session_id="dead", unbegun=(tokens[1],))
    world.do(end if command == "one" else c.EndSessions(session_id="living", unbegun=(tokens[1],)))
    assert [(world.job(one).expiries, world.run(one).reason) for one in "ab"] == [(1, "restart"), (0, "not_begun")]
    assert world.run("b").status is RunStatus.LOST


def test_job_of_a_chain_that_had_not_begun_goes_back_to_its_queue():
    """No execution of it began, so it may still be the one that its id stands for."""
    world = world_of("a", retry_mode="chain")
    (grant,) = world.lease(session_id="dead")
    world.do(c.EndSession(session_id="dead", unbegun=(grant.token,)))
    assert (world.job("a").status, world.job("a").expiries) == ("QUEUED", 0)


def test_job_that_never_begins_is_never_dead():
    world = world_of("a", max_expiries=1)
    for _ in range(9):
        (grant,) = world.lease(session_id="dead")
        world.do(c.EndSession(session_id="dead", unbegun=(grant.token,)))
    assert world.job("a").status == "QUEUED"
