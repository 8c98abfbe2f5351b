"""Retention: whole chains, never live ones, at most so much at a time."""

import pytest
from world import World, new

from holdfast.model import commands as c
from holdfast.model import events as ev
from holdfast.model.jobs import Job
from holdfast.model.records import DoneCommand
from holdfast.rules.jobs import retention
from holdfast.rules.jobs.retention import chain_of

NOW = c.Retention(done_s=0, failed_s=0)


def finish(world, job_id, how="complete", **options):
    token = world.start(job_id, **options)
    match how:
        case "complete":
            world.do(c.Complete(job_id=job_id, token=token))
        case "fail":
            world.do(c.Fail(job_id=job_id, token=token, error="e", fatal=True))
        case "cancel":
            world.do(c.GiveUp(job_id=job_id, token=token))
        case "bury":
            world.do(c.Bury(job_id=job_id))


def left(world):
    return [job.job_id for job in world.tables.all(Job)]


@pytest.mark.parametrize(("how", "kept_s"), [("complete", 10), ("cancel", 10), ("fail", 20), ("bury", 20)])
def test_an_ended_job_is_kept_for_as_long_as_its_status_asks(how, kept_s):
    world = World()
    finish(world, "j", how)
    kept = c.Retention(done_s=10, failed_s=20)
    world.wait(kept_s - 1e-6)
    assert world.do(c.Prune(retention=kept)).count == 0
    world.wait(1e-6)
    swept = world.do(c.Prune(retention=kept))
    assert (swept.count, swept.more, left(world), world.tables.runs("j")) == (1, False, [], ())
    assert world.do(c.Prune(retention=kept)).count == 0


def test_a_live_job_is_never_removed():
    world = World()
    world.enqueue("queued")
    world.start("running", queue="q")
    world.wait(1e9)
    world.do(c.Prune(retention=NOW))
    assert left(world) == ["queued", "running"]


def test_a_job_retried_by_hand_stays_until_its_retry_is_over():
    world = World()
    finish(world, "j", "fail")
    world.do(c.Retry(job_id="j", new_job_id="again"))
    world.do(c.Retry(job_id="j", new_job_id="twice"))
    world.wait(100)
    assert world.do(c.Prune(retention=NOW)).count == 0
    world.do(c.Cancel(job_id="again"))
    assert world.do(c.Prune(retention=NOW)).count == 0
    world.do(c.Cancel(job_id="twice"))
    assert [job.job_id for job in chain_of(world.tables, world.job("twice"))] == ["j", "again", "twice"]
    assert world.do(c.Prune(retention=NOW)).count == 3
    assert left(world) == []


def test_a_sweep_stops_at_its_limit_but_never_within_a_chain():
    world = World()
    for number in range(3):
        finish(world, f"j{number}")
        world.wait(1)
    finish(world, "root", "fail")
    world.do(c.Retry(job_id="root", new_job_id="leaf"))
    world.do(c.Cancel(job_id="leaf"))
    world.do(c.PauseDispatch(cmd="p"))
    world.enqueue("k", key="k", key_hold="window", key_window_s=1)
    world.wait(3600)
    seen = []
    while (swept := world.do(c.Prune(retention=NOW, limit=4))).count:
        seen.append((swept.count, swept.more))
    # Two jobs with their runs; one more, and a chain of two that is not parted; what is remembered.
    assert seen == [(2, True), (3, True), (2, False)]
    assert (left(world), list(world.tables.all(DoneCommand))) == (["k"], [])


def test_commands_and_keys_wait_their_turn_when_the_limit_is_used_up():
    world = World()
    world.do(c.PauseDispatch(cmd="p"))
    world.do(c.ResumeDispatch(cmd="r"))
    world.enqueue("k", key="k", key_hold="window", key_window_s=1)
    world.wait(3600)
    assert [world.do(c.Prune(limit=1)).count for _ in range(4)] == [1, 1, 1, 0]


def test_chains_that_must_wait_do_not_make_a_sweep_endless(monkeypatch):
    monkeypatch.setattr(retention, "LOOKED_AT", 3)
    world = World()
    for number in range(5):
        finish(world, f"j{number}", "fail", queue="q")
        world.do(c.Retry(job_id=f"j{number}", new_job_id=f"again{number}"))
        world.do(c.Update(job_id=f"again{number}", changes=ev.JobChanges(queue="elsewhere")))
    finish(world, "last", "fail", queue="q")
    world.wait(100)
    assert world.do(c.Prune(retention=NOW)).count == 0  # it gave up before it came to the last one


def test_chains_that_must_wait_in_one_lane_do_not_keep_the_other_from_being_swept(monkeypatch):
    monkeypatch.setattr(retention, "LOOKED_AT", 3)
    world = World()
    for number in range(5):
        finish(world, f"j{number}", "cancel", queue=f"q{number}")
        world.do(c.Retry(job_id=f"j{number}", new_job_id=f"again{number}"))
    finish(world, "failed", "fail", queue="q")
    world.wait(100)
    assert world.do(c.Prune(retention=NOW)).count == 1
    assert "failed" not in left(world)


def test_an_empty_store_has_nothing_to_remove():
    world = World()
    assert world.do(c.Prune()).count == 0
    world.do(c.Enqueue(jobs=(new("j"),)))
    assert world.do(c.Prune()).count == 0
