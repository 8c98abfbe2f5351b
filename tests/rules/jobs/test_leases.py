"""Leases: granted in order, valid until the very microsecond, extended sparingly, ended by an explicit event."""

import msgspec
import pytest
from world import START, World, content, new

from holdfast.model import commands as c
from holdfast.model import events as ev
from holdfast.model.jobs import Job, JobStatus, RunStatus
from holdfast.model.times import later, seconds_between
from holdfast.model.workflows.instances import owner_of

MICRO = 1e-6


def ids(grants):
    return [grant.job.job_id for grant in grants]


# --- grant ------------------------------------------------------------------------------------------------------------


def test_a_grant_carries_the_job_as_the_worker_gets_it():
    world = World()
    world.enqueue("j", timeout_s=60)
    (grant,) = world.lease(cmd="l", session_id="s")
    job, run = world.job(), world.run()
    assert msgspec.structs.replace(grant.job, seq=job.seq) == job
    assert (job.status, job.worker_id, job.token, job.session_id, job.grant_cmd) == ("RUNNING", "w", 1, "s", "l")
    assert (job.executions, job.deliveries, job.started_at) == (1, 1, START)
    assert job.lease_expires_at == later(START, 30)
    assert job.deadline_at == later(START, 70)  # ten seconds after the handler's own timeout
    assert (grant.run_id, grant.token, grant.lease_s) == (run.run_id, run.token, 30)
    assert (run.run_no, run.started_at, run.params_snapshot, run.worker_id) == (1, START, job.params, "w")
    assert run.status is None


def test_tokens_grow_over_all_jobs_and_runs():
    world = World()
    tokens = []
    for number in range(5):
        world.enqueue(f"j{number}")
    for _ in range(3):
        grants = world.lease(5)
        tokens += [grant.token for grant in grants]
        world.wait(30)
        world.do(c.Expire())
    assert tokens == list(range(1, 16))


def test_priority_then_position_then_time_then_id_decide_the_order():
    world = World()
    for number, priority in enumerate([1, 10, 5, 5, 10], start=1):
        world.enqueue(str(number), priority=priority)
    assert ids(world.lease(5)) == ["2", "5", "3", "4", "1"]


def test_several_queues_are_merged_by_the_same_order():
    world = World()
    world.enqueue("a1", queue="a")
    world.enqueue("b1", queue="b", priority=1)
    world.enqueue("b2", queue="b")
    world.enqueue("a2", queue="a")
    world.enqueue("other", queue="c")
    world.enqueue("elsewhere", queue="a", namespace="n")
    assert ids(world.lease(9, queues=("a", "b", "a"))) == ["b1", "a1", "b2", "a2"]
    assert ids(world.lease(9, queues=("a",), namespace="n")) == ["elsewhere"]


def test_a_worker_gets_only_the_tasks_it_knows_and_nothing_blocks_the_job_behind():
    world = World()
    world.enqueue("unknown", job_type="x", priority=9)
    world.enqueue("mine")
    assert ids(world.lease(9, job_types=("t",))) == ["mine"]
    assert ids(world.lease(9, job_types=())) == []


def test_a_direct_job_is_left_out_even_where_damage_has_queued_it():
    world = World()
    world.enqueue("direct")
    world.enqueue("mine")
    world.tables.put(Job, "direct", msgspec.structs.replace(world.job("direct"), direct=True))
    decision = world.decide(c.Lease(worker_id="w", n=9))
    assert ids(decision.outcome.grants) == ["mine"]


def test_no_more_than_asked_for_is_granted():
    world = World()
    for number in range(5):
        world.enqueue(str(number))
    assert len(world.lease(3)) == 3
    assert len(world.lease(3)) == 2
    assert world.lease(3) == ()


def test_a_lease_length_can_be_chosen_and_never_passes_the_deadline():
    world = World()
    world.enqueue("long", lease_s=100)
    world.enqueue("short", timeout_s=5)
    long, short = world.lease(2, lease_s=60)
    assert (long.lease_s, short.lease_s) == (60, 15)
    assert world.job("short").deadline_at == world.job("short").lease_expires_at


def test_a_job_is_not_leased_before_its_time_and_is_at_its_time():
    world = World()
    world.enqueue("j", delay_s=10)
    world.wait(10 - MICRO)
    assert world.lease() == ()
    world.wait(MICRO)
    assert ids(world.lease()) == ["j"]


def test_a_job_is_not_leased_before_its_time_although_the_clock_was_set_back():
    world = World()
    world.enqueue("j", delay_s=10)
    world.wait(10)
    world.tables.promote(world.now, 500)
    world.wait(-60)
    assert world.lease() == ()
    world.wait(60)
    assert ids(world.lease()) == ["j"]


def test_paused_queues_and_paused_dispatch_give_nothing():
    world = World()
    world.enqueue("a", queue="a")
    world.enqueue("b", queue="b")
    world.do(c.PauseQueue(queue="a", reason="r"))
    assert ids(world.lease(9, queues=("a", "b"))) == ["b"]
    assert world.lease(9, queues=("a",)) == ()
    world.do(c.ResumeQueue(queue="a"))
    world.do(c.PauseDispatch(reason="r"))
    assert world.lease(9, queues=("a",)) == ()
    world.do(c.ResumeDispatch())
    assert ids(world.lease(9, queues=("a",))) == ["a"]


def test_a_pause_leaves_running_jobs_alone():
    world = World()
    token = world.start("j")
    world.do(c.PauseQueue(queue="default"))
    world.wait(20)
    world.do(c.Extend(job_id="j", token=token))
    world.do(c.Complete(job_id="j", token=token))


def test_a_job_past_its_latest_start_is_skipped_on_the_way():
    world = World()
    world.enqueue("stale", ttl_s=5)
    world.enqueue("fresh", ttl_s=5 + MICRO)
    world.wait(5)
    assert ids(world.lease(2)) == ["fresh"]
    job, run = world.job("stale"), world.run("stale")
    assert (job.status, job.cancel_reason, job.finished_at) == ("CANCELLED", "expired", world.now)
    assert (run.status, run.reason, run.token, run.run_no) == ("SKIPPED", "expired", None, 0)
    assert run.started_at == run.finished_at == world.now


def test_one_lease_skips_at_most_a_hundred_stale_jobs_and_grants_none_of_them():
    world = World()
    world.do(c.Enqueue(jobs=tuple(new(f"s{number:03}", ttl_s=1) for number in range(150))))
    world.enqueue("fresh")
    world.wait(1)
    assert ids(world.lease(5)) == ["fresh"]
    assert len(world.last) == 101
    world.lease(5)
    assert len(world.last) == 50


def test_the_same_lease_command_gets_its_still_current_leases():
    world = World()
    for number in range(4):
        world.enqueue(str(number))
    first = world.lease(3, cmd="l")
    world.do(c.Complete(job_id="0", token=first[0].token))
    world.wait(10)
    world.do(c.Extend(job_id="1", token=first[1].token))
    before = content(world.tables)
    again = world.lease(3, cmd="l")
    assert [(grant.job.job_id, grant.run_id, grant.token, grant.lease_s) for grant in again] == [
        ("1", first[1].run_id, first[1].token, 30),
        ("2", first[2].run_id, first[2].token, 20),
    ]
    world.wait(20)
    assert ids(world.lease(3, cmd="l")) == ["1"]  # the other has lapsed
    assert content(world.tables) == before


def test_a_lease_that_got_nothing_is_not_remembered():
    world = World()
    assert world.lease(cmd="l") == ()
    assert world.groups == []
    world.enqueue("j")
    assert ids(world.lease(cmd="l")) == ["j"]


# --- extend -----------------------------------------------------------------------------------------------------------


def test_an_extension_lasts_from_now_on():
    world = World()
    token = world.start("j")
    world.wait(10)
    reply = world.do(c.Extend(job_id="j", token=token))
    assert (reply.lease_s, reply.cancel) == (30, False)
    assert world.job().lease_expires_at == later(world.now, 30)
    assert world.do(c.Extend(job_id="j", token=token, lease_s=100)).lease_s == 100


@pytest.mark.parametrize(("waited", "written"), [(0, False), (5 - MICRO, False), (5, True), (29.9, True)])
def test_a_gain_of_less_than_a_sixth_writes_nothing(waited, written):
    world = World()
    token = world.start("j")
    length = len(world.groups)
    world.wait(waited)
    reply = world.do(c.Extend(job_id="j", token=token))
    assert (len(world.groups) > length) == written
    assert reply.lease_s == pytest.approx(30 if written else 30 - waited)


def test_a_shorter_lease_never_takes_time_away():
    world = World()
    token = world.start("j")
    length = len(world.groups)
    assert world.do(c.Extend(job_id="j", token=token, lease_s=1)).lease_s == 30
    assert len(world.groups) == length


def test_no_lease_is_extended_beyond_the_deadline():
    world = World()
    token = world.start("j", timeout_s=40)
    world.wait(25)
    assert world.do(c.Extend(job_id="j", token=token)).lease_s == 25
    assert world.job().lease_expires_at == world.job().deadline_at == later(START, 50)
    length = len(world.groups)
    world.wait(20)
    assert world.do(c.Extend(job_id="j", token=token)).lease_s == 5
    assert len(world.groups) == length


def test_the_holder_learns_of_a_cancel_request_with_its_next_extension():
    world = World()
    token = world.start("j")
    world.do(c.Cancel(job_id="j", reason="enough"))
    assert world.do(c.Extend(job_id="j", token=token)).cancel
    world.wait(10)
    assert world.do(c.Extend(job_id="j", token=token)).cancel


# --- the end of a lease, to the microsecond ---------------------------------------------------------------------------

REPORTS = {
    "complete": c.Complete,
    "fail": lambda **held: c.Fail(**held, error="e"),
    "snooze": lambda **held: c.Snooze(**held, delay_s=1),
    "give_up": c.GiveUp,
    "extend": c.Extend,
}


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("offset", [-MICRO, 0, MICRO])
def test_a_report_is_taken_until_one_microsecond_before_expiry(name, offset):
    world = World()
    token = world.start("j")
    world.wait(30 + offset)
    outcome = world.tell(REPORTS[name](job_id="j", token=token, cmd="c"))
    expired = [event for event in world.events() if isinstance(event, ev.LeaseExpired)]
    if offset < 0:
        assert not hasattr(outcome, "code")
        assert expired == []
    else:
        assert outcome.code == "lease_lost"
        assert [(event.reason, event.counted, event.to, event.cmd) for event in expired] == [
            ("timeout", True, "QUEUED", "c")
        ]
        assert world.run().status is RunStatus.LOST


@pytest.mark.parametrize(("offset", "count"), [(-MICRO, 0), (0, 1), (MICRO, 1)])
def test_the_tick_ends_a_lease_from_its_expiry_on(offset, count):
    world = World()
    world.start("j")
    world.wait(30 + offset)
    assert world.do(c.Expire()).count == count


@pytest.mark.parametrize("offset", [-MICRO, 0, MICRO, 3600])
def test_giving_a_job_back_is_safe_at_any_time(offset):
    world = World()
    token = world.start("j")
    world.wait(30 + offset)
    world.do(c.Release(job_id="j", token=token, begun=True))
    assert (world.job().status, world.run().status, world.run().reason) == ("QUEUED", "CANCELLED", "released")


def test_a_late_worker_cannot_complete_a_job_it_lost():
    world = World()
    first = world.start("j")
    world.wait(31)
    world.do(c.Expire())
    (second,) = world.lease(worker_id="w2")
    world.do(c.Complete(job_id="j", token=second.token, result=msgspec.Raw(b'"second"')))
    assert world.refused(c.Complete(job_id="j", token=first, result=msgspec.Raw(b'"first"'))) == "lease_lost"
    assert bytes(world.job().result) == b'"second"'


# --- expiry -----------------------------------------------------------------------------------------------------------


def test_a_lost_job_keeps_its_place_uses_no_attempt_and_may_start_at_once():
    world = World()
    world.enqueue("j")
    world.enqueue("behind")
    world.lease()
    world.wait(30)
    world.do(c.Expire())
    job, run = world.job(), world.run()
    assert (job.status, job.position, job.not_before) == ("QUEUED", 100, None)
    assert (job.attempts, job.expiries, job.executions, job.error) == (0, 1, 1, "worker did not report")
    assert (run.status, run.error, run.error_kind, run.reason) == ("LOST", "worker did not report", "lost", "timeout")
    assert (job.token, job.worker_id, job.lease_expires_at, job.deadline_at) == (None, None, None, None)
    assert ids(world.lease(2)) == ["j", "behind"]


@pytest.mark.parametrize("mode", ["requeue", "chain"])
def test_the_last_permitted_expiry_is_death(mode):
    world = World()
    job_id = "j"
    world.enqueue(job_id, max_expiries=3, retry_mode=mode)
    for lost in (1, 2, 3):
        (grant,) = world.lease()
        job_id = grant.job.job_id
        world.wait(30)
        world.do(c.Expire())
        assert world.last[0].to == ("DEAD" if lost == 3 else "QUEUED" if mode == "requeue" else "FAILED")
        assert world.job(job_id).expiries == lost
    assert world.job(job_id).status is JobStatus.DEAD
    assert world.lease() == ()


def test_expiries_between_failures_use_up_no_attempt():
    world = World()
    world.enqueue("j", max_attempts=2)
    for how in ("lose", "fail", "lose", "lose", "fail"):
        world.wait(60)
        (grant,) = world.lease()
        if how == "lose":
            world.wait(30)
            world.do(c.Expire())
        else:
            world.do(c.Fail(job_id="j", token=grant.token, error="e"))
    job = world.job()
    assert (job.status, job.attempts, job.expiries, job.executions) == ("FAILED", 2, 3, 5)


def test_without_a_limit_a_job_is_lost_for_ever_and_never_dead():
    world = World()
    world.enqueue("j", max_expiries=None, owner=owner_of("i", 1, 2))
    for _ in range(120):
        world.lease()
        world.wait(30)
        world.do(c.Expire())
    assert (world.job().status, world.job().expiries) == ("QUEUED", 120)


def test_a_lease_ended_by_its_deadline_says_so():
    world = World()
    world.start("j", timeout_s=5)
    world.wait(15)
    world.do(c.Expire())
    assert (world.run().reason, world.job().expiries) == ("deadline", 1)


def test_an_expired_job_that_was_asked_to_stop_is_cancelled():
    for mode in ("requeue", "chain"):
        world = World()
        world.start("j", retry_mode=mode, max_expiries=1)
        world.do(c.Cancel(job_id="j"))
        world.wait(30)
        world.do(c.Expire())
        assert world.job().status is JobStatus.CANCELLED
        assert world.tables.successors("j") == []


def test_a_lost_link_of_a_chain_is_followed_at_its_own_place():
    world = World()
    world.enqueue("j", retry_mode="chain", key="k")
    world.enqueue("behind")
    world.lease()
    world.wait(30)
    world.do(c.Expire())
    (heir,) = world.tables.successors("j")
    assert (world.job().status, world.run().status) == ("FAILED", "LOST")
    assert (heir.status, heir.position, heir.not_before, heir.expiries, heir.attempts) == ("QUEUED", 100, None, 1, 0)
    assert (heir.retry_of, heir.retry_kind, heir.executions, heir.error) == ("j", "auto", 0, "worker did not report")
    assert heir.created_at == world.now
    assert ids(world.lease(2)) == [heir.job_id, "behind"]


@pytest.mark.parametrize("mode", ["requeue", "chain"])
def test_a_job_lost_after_its_latest_start_is_skipped_in_the_same_commit(mode):
    world = World()
    world.start("j", ttl_s=10, retry_mode=mode)
    world.wait(30)
    assert world.do(c.Expire()).count == 1
    waits = world.tables.successors("j")[0] if mode == "chain" else world.job()
    assert (waits.status, waits.cancel_reason) == ("CANCELLED", "expired")
    assert (world.run("j").status, world.tables.runs("j")[0].status) == (
        "LOST" if mode == "chain" else "SKIPPED",
        "LOST",
    )
    assert world.do(c.Expire()).count == 0


@pytest.mark.parametrize(
    ("lapsed", "reason"),
    [(-MICRO, "timeout"), (0, "timeout"), (MICRO, "clock_jump"), (3600, "clock_jump")],
)
def test_a_lease_that_lapsed_within_a_jump_of_the_clock_is_not_counted(lapsed, reason):
    world = World()
    world.start("j", max_expiries=1)
    expiry = world.job().lease_expires_at
    jump = c.ClockJump(later(expiry, -lapsed), later(expiry, 3600 - lapsed))
    world.now = jump.until
    world.do(c.Expire(jump=jump))
    counted = reason != "clock_jump"
    assert (world.run().reason, world.job().expiries) == (reason, int(counted))
    assert world.job().status == ("DEAD" if counted else "QUEUED")


def test_a_lease_that_lapsed_after_the_jump_is_counted():
    world = World()
    world.start("j")
    expiry = world.job().lease_expires_at
    world.now = expiry
    world.do(c.Expire(jump=c.ClockJump(later(expiry, -3600), later(expiry, -MICRO))))
    assert (world.run().reason, world.job().expiries) == ("timeout", 1)


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_after_a_jump_of_the_clock_is_not_held_against_the_job(name):
    world = World()
    token = world.start("j", max_expiries=1)
    world.wait(3600)
    world.jump = c.ClockJump(later(START, 10), world.now)
    assert world.tell(REPORTS[name](job_id="j", token=token)).code == "lease_lost"
    assert (world.job().status, world.job().expiries, world.run().reason) == ("QUEUED", 0, "clock_jump")


def test_a_lease_overdue_by_the_monotonic_clock_ends_although_the_wall_was_set_back():
    world = World()
    token = world.start("j")
    other = world.start("k")
    world.wait(-3600)
    late = (c.Overdue("j", token), c.Overdue("j", token), c.Overdue("k", other + 9), c.Overdue("gone", 1))
    assert world.do(c.Expire(overdue=late)).count == 1
    assert (world.job("j").status, world.run("j").reason) == ("QUEUED", "timeout")
    assert world.job("k").status is JobStatus.RUNNING


def test_a_lease_both_overdue_and_lapsed_ends_once():
    world = World()
    token = world.start("j")
    world.wait(30)
    assert world.do(c.Expire(overdue=(c.Overdue("j", token),))).count == 1
    assert len(world.last) == 1


def test_a_sweep_takes_no_more_than_its_limit_and_says_that_there_is_more():
    world = World()
    for number in range(5):
        world.start(f"r{number}")
        world.enqueue(f"q{number}", ttl_s=1, queue="other")
    world.wait(30)
    seen = [world.do(c.Expire(limit=3)) for _ in range(5)]
    assert [(swept.count, swept.more) for swept in seen] == [(3, True), (3, True), (3, True), (1, False), (0, False)]


def test_overdue_leases_beyond_the_limit_wait():
    world = World()
    late = tuple(c.Overdue(f"r{number}", world.start(f"r{number}")) for number in range(3))
    assert world.do(c.Expire(limit=2, overdue=late)).count == 2


# --- restart ----------------------------------------------------------------------------------------------------------


def test_the_next_opening_ends_local_leases_and_lets_remote_ones_live():
    world = World()
    for job_id, session in (("old", "before"), ("mine", "now"), ("remote", None)):
        world.enqueue(job_id)
        world.lease(session_id=session)
    assert world.do(c.EndSessions(session_id="now")).count == 1
    assert (world.job("old").status, world.run("old").reason, world.job("old").expiries) == ("QUEUED", "restart", 1)
    assert world.job("mine").status == world.job("remote").status == "RUNNING"
    length = len(world.groups)
    assert world.do(c.EndSessions(session_id="now")).count == 0
    assert len(world.groups) == length


def test_the_end_of_one_opening_leaves_all_others_alone():
    world = World()
    for job_id, session in (("dead", "gone"), ("mine", "now"), ("other", "alive"), ("remote", None)):
        world.enqueue(job_id)
        world.lease(session_id=session)
    assert world.do(c.EndSession(session_id="gone")).count == 1
    assert (world.job("dead").status, world.run("dead").reason, world.job("dead").expiries) == ("QUEUED", "restart", 1)
    assert {world.job(job_id).status for job_id in ("mine", "other", "remote")} == {"RUNNING"}
    length = len(world.groups)
    assert world.do(c.EndSession(session_id="gone")).count == 0
    assert len(world.groups) == length


def test_the_leases_of_one_opening_end_in_bounded_steps():
    world = World()
    for number in range(5):
        world.enqueue(str(number))
        world.lease(session_id="gone")
    seen = [world.do(c.EndSession(session_id="gone", limit=2)) for _ in range(4)]
    assert [(swept.count, swept.more) for swept in seen] == [(2, True), (2, True), (1, False), (0, False)]


def test_many_sessions_end_in_bounded_steps():
    world = World()
    for number in range(5):
        world.enqueue(str(number))
        world.lease(session_id="before")
    seen = [world.do(c.EndSessions(session_id="now", limit=2)) for _ in range(4)]
    assert [(swept.count, swept.more) for swept in seen] == [(2, True), (2, True), (1, False), (0, False)]


# --- release ----------------------------------------------------------------------------------------------------------


def test_a_released_job_keeps_its_place_and_counts_nothing():
    world = World()
    world.enqueue("j")
    world.enqueue("behind")
    (token,) = (grant.token for grant in world.lease())
    world.do(c.Release(job_id="j", token=token, begun=True, delay_s=5))
    job = world.job()
    assert (job.status, job.position, job.not_before) == ("QUEUED", 100, later(START, 5))
    assert (job.attempts, job.expiries, job.snoozes, job.executions, job.deliveries) == (0, 0, 0, 1, 1)


def test_a_delivery_given_back_does_not_count():
    world = World()
    token = world.start("j")
    world.do(c.Release(job_id="j", token=token, begun=False, given_back=True))
    assert (world.job().executions, world.job().deliveries) == (1, 0)


def test_a_chain_not_begun_runs_again_under_its_id_and_a_begun_one_is_followed():
    world = World()
    token = world.start("j", retry_mode="chain")
    assert world.do(c.Release(job_id="j", token=token, begun=False)).job_status == "QUEUED"
    (grant,) = world.lease()
    reply = world.do(c.Release(job_id="j", token=grant.token, begun=True, delay_s=2, given_back=True))
    (heir,) = world.tables.successors("j")
    assert (reply.job_status, reply.successor) == ("CANCELLED", heir.job_id)
    assert (heir.status, heir.position, heir.not_before) == ("QUEUED", 100, later(START, 2))
    assert heir.deliveries == world.job().deliveries == 1
    again = world.do(c.Release(job_id="j", token=grant.token, begun=True))
    assert (again.duplicate, again.successor) == (True, heir.job_id)


@pytest.mark.parametrize("mode", ["requeue", "chain"])
def test_a_released_job_that_was_asked_to_stop_is_cancelled(mode):
    world = World()
    token = world.start("j", retry_mode=mode)
    world.do(c.Cancel(job_id="j"))
    reply = world.do(c.Release(job_id="j", token=token, begun=True))
    assert (reply.job_status, reply.successor, world.tables.successors("j")) == ("CANCELLED", None, [])


def test_seconds_left_are_measured_by_the_authority():
    world = World()
    world.start("j")
    world.wait(12.5)
    assert seconds_between(world.now, world.job().lease_expires_at) == 17.5
