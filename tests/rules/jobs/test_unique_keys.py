"""Unique keys: within which jobs, for how long, and who takes them over."""

import pytest
from world import START, World, new

from holdfast.model import commands as c
from holdfast.model.jobs import KeyScope
from holdfast.model.records import HeldKey
from holdfast.rules.jobs.unique_keys import hold_of, holder, table_key, unique_key


def holders(world):
    return {held.unique_key: held.job_id for held in world.tables.all(HeldKey)}


def finish(world, how, job_id, token):
    held = {"job_id": job_id, "token": token}
    match how:
        case "complete":
            world.do(c.Complete(**held))
        case "fail":
            world.do(c.Fail(**held, error="e", fatal=True))
        case "cancel":
            world.do(c.Cancel(job_id=job_id, force=True))
        case "bury":
            world.do(c.Bury(job_id=job_id))
        case "give up":
            world.do(c.GiveUp(**held))


@pytest.mark.parametrize("scope", KeyScope)
def test_keys_of_different_scopes_do_not_meet(scope):
    world = World()
    others = [other for other in KeyScope if other is not scope]
    world.enqueue("a", key="k", key_scope=scope)
    for other in others:
        assert world.enqueue(f"b-{other}", key="k", key_scope=other).created
    assert not world.enqueue("c", key="k", key_scope=scope).created


def test_a_scope_says_among_which_jobs_a_key_is_unique():
    world = World()
    world.enqueue("task", key="k", key_scope="task")
    assert not world.enqueue("x1", key="k", key_scope="task", queue="q2").created
    assert world.enqueue("x2", key="k", key_scope="task", job_type="t2").created
    world.enqueue("queue", key="k", key_scope="queue")
    assert not world.enqueue("x3", key="k", key_scope="queue", job_type="t2").created
    assert world.enqueue("x4", key="k", key_scope="queue", queue="q2").created
    world.enqueue("namespace", key="k", key_scope="namespace")
    assert not world.enqueue("x5", key="k", key_scope="namespace", job_type="t2", queue="q2").created
    assert world.enqueue("x6", key="k", key_scope="namespace", namespace="n2").created


def test_a_key_cannot_be_written_so_that_it_falls_into_another_scope():
    """Names have no blanks, so the first two words tell scope and name, whatever the key holds."""
    tricky = unique_key(KeyScope.NAMESPACE, "t", "q", "task t x")
    assert tricky not in {unique_key(KeyScope.TASK, "t", "q", "x"), unique_key(KeyScope.QUEUE, "t", "task", "t x")}
    assert unique_key(KeyScope.TASK, "a", "q", "b c") != unique_key(KeyScope.TASK, "b", "q", "a c")


@pytest.mark.parametrize("how", ["complete", "fail", "cancel", "bury", "give up"])
def test_an_active_key_is_held_while_queued_and_running_and_free_after_any_end(how):
    world = World()
    token = world.start("a", key="k")
    assert not world.enqueue("b", key="k").created
    finish(world, how, "a", token)
    assert holders(world) == {}
    assert world.enqueue("b", key="k").created


def test_an_active_key_stays_with_a_job_that_waits_for_its_next_attempt():
    world = World()
    token = world.start("a", key="k")
    world.do(c.Fail(job_id="a", token=token, error="e"))
    assert not world.enqueue("b", key="k").created
    world.do(c.Cancel(job_id="a"))
    assert world.enqueue("b", key="k").created


def test_a_skipped_job_frees_its_key():
    world = World()
    world.enqueue("a", key="k", ttl_s=1)
    world.wait(1)
    world.do(c.Expire())
    assert world.enqueue("b", key="k").created


def test_a_queued_key_is_free_once_leased():
    world = World()
    world.start("a", key="k", key_hold="queued")
    assert holders(world) == {}
    assert world.enqueue("b", key="k", key_hold="queued").created


@pytest.mark.parametrize("how", ["fail", "snooze", "release", "lose"])
def test_a_queued_key_is_taken_again_by_a_requeued_job_if_it_is_free(how):
    for taken in (False, True):
        world = World()
        token = world.start("a", key="k", key_hold="queued")
        if taken:
            world.enqueue("b", key="k", key_hold="queued")
        held = {"job_id": "a", "token": token}
        match how:
            case "fail":
                world.do(c.Fail(**held, error="e"))
            case "snooze":
                world.do(c.Snooze(**held, delay_s=1))
            case "release":
                world.do(c.Release(**held, begun=True))
            case "lose":
                world.wait(30)
                world.do(c.Expire())
        assert holders(world) == {"task t k": "b" if taken else "a"}
        world.do(c.Cancel(job_id="a"))
        assert holders(world) == ({"task t k": "b"} if taken else {})


def test_a_window_is_held_whatever_happens_and_free_at_its_end():
    world = World()
    token = world.start("a", key="k", key_hold="window", key_window_s=100)
    world.do(c.Complete(job_id="a", token=token))
    world.wait(100 - 1e-6)
    assert not world.enqueue("b", key="k", key_hold="window", key_window_s=100).created
    world.wait(1e-6)
    assert world.enqueue("b", key="k", key_hold="window", key_window_s=100).created
    assert holders(world) == {"task t k": "b"}


def test_a_lapsed_window_is_dropped_in_the_commit_that_takes_the_key():
    world = World()
    world.enqueue("a", key="k", key_hold="window", key_window_s=1)
    world.wait(1)
    world.enqueue("b", key="k")
    assert holders(world) == {"task t k": "b"}
    world.do(c.Cancel(job_id="a"))
    assert holders(world) == {"task t k": "b"}


def test_a_lapsed_window_is_swept_away():
    world = World()
    world.enqueue("a", key="k", key_hold="window", key_window_s=1)
    world.wait(1)
    assert world.do(c.Prune()).count == 1
    assert holders(world) == {}
    assert world.do(c.Prune()).count == 0


def test_a_key_held_for_ever_survives_retention():
    world = World()
    token = world.start("a", key="k", key_hold="forever")
    world.do(c.Complete(job_id="a", token=token))
    world.wait(30 * 86_400)
    world.do(c.Prune())
    assert world.job("a") is None
    reply = world.enqueue("b", key="k", key_hold="forever")
    assert (reply.job_id, reply.created) == ("a", False)
    assert world.enqueue("b2", key="k", on_conflict="replace").job_id == "a"
    assert world.refused(c.Enqueue(jobs=(new("b", key="k", on_conflict="reject"),))) == "duplicate_key"


@pytest.mark.parametrize("hold", ["active", "queued", "window", "forever"])
@pytest.mark.parametrize("how", ["fail", "snooze", "release", "lose"])
def test_the_key_moves_along_a_chain(hold, how):
    world = World()
    options = {"key_window_s": 1000} if hold == "window" else {}
    token = world.start("a", key="k", key_hold=hold, retry_mode="chain", **options)
    held = {"job_id": "a", "token": token}
    match how:
        case "fail":
            world.do(c.Fail(**held, error="e"))
        case "snooze":
            world.do(c.Snooze(**held, delay_s=1))
        case "release":
            world.do(c.Release(**held, begun=True))
        case "lose":
            world.wait(30)
            world.do(c.Expire())
    (heir,) = world.tables.successors("a")
    assert holders(world) == {"task t k": heir.job_id}
    assert (heir.key, heir.key_hold, heir.key_until) == ("k", hold, world.job("a").key_until)
    assert not world.enqueue("b", key="k").created


def test_a_successor_leaves_a_key_alone_that_another_took():
    world = World()
    token = world.start("a", key="k", key_hold="queued", retry_mode="chain")
    world.enqueue("b", key="k", key_hold="queued")
    world.do(c.Fail(job_id="a", token=token, error="e"))
    (heir,) = world.tables.successors("a")
    assert holders(world) == {"task t k": "b"}
    world.do(c.Cancel(job_id=heir.job_id))
    assert holders(world) == {"task t k": "b"}


def test_a_successor_does_not_take_a_window_back_that_lapsed_for_another():
    world = World()
    token = world.start("a", key="k", key_hold="window", key_window_s=5, retry_mode="chain")
    world.wait(6)
    world.enqueue("b", key="k", key_hold="window", key_window_s=50)
    world.do(c.Fail(job_id="a", token=token, error="e"))
    assert holders(world) == {"task t k": "b"}


def test_a_job_without_a_key_holds_none():
    world = World()
    world.enqueue("a")
    world.enqueue("b")
    assert holders(world) == {}
    assert (table_key(world.job("a")), hold_of(world.job("a")), holder(world.tables, world.job("a"), START)) == (
        None,
    ) * 3
