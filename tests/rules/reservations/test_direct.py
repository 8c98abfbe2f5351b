"""Direct execution: created and leased at once, for the holder of an empty queue; tried once, whatever happens."""

import pytest
from world import World, content, new, replay

from holdfast.model import events as ev
from holdfast.model.commands import (
    Bury,
    Cancel,
    ClockJump,
    Complete,
    EndSession,
    Enqueue,
    Expire,
    Extend,
    Fail,
    GiveUp,
    Lease,
    PauseDispatch,
    PauseQueue,
    Release,
    ReleaseReservation,
    Reserve,
    Retry,
    SetQueue,
    Snooze,
    StartDirect,
)
from holdfast.model.jobs import JobStatus, RunStatus
from holdfast.model.times import later
from holdfast.rules.explain import explain


@pytest.fixture
def w():
    world = World()
    world.do(Reserve(reservation_id="r", queue="default", reserved_by="me", session_id="s"))
    return world


def start(job_id="d", params=b"{}", **options):
    command = {"reservation_id": "r", "worker_id": "here", "session_id": "s"}
    command |= {name: options.pop(name) for name in list(options) if name in command}
    return StartDirect(job=new(job_id, params, **options), **command)


def started(w, **options):
    (grant,) = w.do(start(**options)).grants
    return grant


def test_the_job_runs_from_its_first_moment_and_says_that_it_is_direct(w):
    grant = started(w, timeout_s=5)
    assert [type(event) for event in w.last] == [ev.JobCreated, ev.LeaseGranted]
    job = w.job("d")
    assert (job.status, job.direct, job.reservation_id) == (JobStatus.RUNNING, True, "r")
    assert (job.worker_id, job.session_id, job.token) == ("here", "s", grant.token)
    assert (job.deadline_at, grant.lease_s) == (later(w.now, 15), 15)
    assert w.run("d").run_no == 1
    assert content(replay(w.groups)) == content(w.tables)


def test_it_is_tried_once_and_now_whatever_its_task_says(w):
    started(w, max_attempts=9, max_expiries=7, retry_mode="chain", delay_s=60, ttl_s=0, not_before=later(w.now, 9))
    job = w.job("d")
    assert (job.max_attempts, job.max_expiries, job.retry_mode) == (1, 1, "requeue")
    assert (job.not_before, job.expires_at) == (None, None)


def test_nobody_else_can_lease_it_nor_anything_beside_it(w):
    w.enqueue("a")
    started(w)
    w.do(ReleaseReservation(reservation_id="r"))
    assert w.lease(9) == ()
    reason = explain(w.tables, w.job("a"), w.now)
    assert (reason.code, reason.holder, reason.until) == ("reserved", "d", w.job("d").lease_expires_at)


def test_the_same_start_again_gets_the_same_lease(w):
    first = started(w)
    wrote = len(w.groups)
    w.wait(1)
    again = started(w)
    assert (again.token, again.run_id, again.lease_s) == (first.token, first.run_id, 29)
    w.do(Complete(job_id="d", token=first.token))
    assert w.do(start()).grants == ()
    assert len(w.groups) == wrote + 1


def test_the_same_id_for_something_else_is_refused(w):
    w.do(Enqueue(jobs=(new("e", queue="other"),)))
    started(w)
    assert w.refused(start(params=b'{"n":1}')) == "id_reused"
    assert w.refused(start(job_type="other")) == "id_reused"
    assert w.refused(start("e")) == "id_reused"


def test_it_waits_for_what_runs_and_is_told_what_that_is(w):
    w.do(ReleaseReservation(reservation_id="r"))
    w.start("a")
    w.do(Reserve(reservation_id="r2", queue="default", reserved_by="me", session_id="s"))
    refusal = w.tell(start(reservation_id="r2"))
    assert (refusal.code, refusal.facts["job_id"]) == ("reservation_conflict", "a")
    assert w.job("d") is None


def test_only_the_holder_of_this_queue_starts(w):
    assert w.refused(start(queue="other")) == "invalid_operation"
    assert w.refused(start(namespace="x")) == "invalid_operation"
    assert w.refused(start(session_id="t")) == "reservation_conflict"
    assert w.refused(start(reservation_id="r9")) == "reservation_not_found"
    w.do(ReleaseReservation(reservation_id="r"))
    assert w.refused(start()) == "invalid_operation"


def test_a_reservation_whose_time_is_over_starts_nothing_and_is_ended(w):
    w.wait(60)
    assert w.tell(start()).code == "invalid_operation"
    assert [type(event) for event in w.last] == [ev.ReservationExpired]
    assert w.job("d") is None


@pytest.mark.parametrize("command", [PauseQueue(queue="default"), PauseDispatch()])
def test_a_pause_does_not_stop_it(w, command):
    w.do(command)
    assert started(w).token


def test_a_rate_counts_it_but_does_not_hold_it_back(w):
    w.do(SetQueue(queue="default", changes=ev.QueueChanges(rate_count=1, rate_period_s=60)))
    grant = started(w)
    w.do(Complete(job_id="d", token=grant.token))
    assert started(w, job_id="d2").token > grant.token
    w.do(Complete(job_id="d2", token=grant.token + 1))
    w.do(ReleaseReservation(reservation_id="r"))
    w.enqueue("a")
    assert w.lease() == ()
    assert explain(w.tables, w.job("a"), w.now).code == "rate_limit"


def test_it_takes_its_key_if_that_is_free(w):
    w.enqueue("a", queue="other", key="k")
    refusal = w.tell(start(key="k"))
    assert (refusal.code, refusal.facts["job_id"]) == ("duplicate_key", "a")
    grant = started(w, key="free")
    assert not w.do(Enqueue(jobs=(new("b", queue="other", key="free"),))).jobs[0].created
    w.do(Complete(job_id="d", token=grant.token))
    assert w.do(Enqueue(jobs=(new("b", queue="other", key="free"),))).jobs[0].created


# --- its end ----------------------------------------------------------------------------------------------------------


def held(grant):
    return {"job_id": grant.job.job_id, "token": grant.token}


@pytest.mark.parametrize(
    ("ends", "status", "run"),
    [
        (lambda g: Complete(**held(g)), JobStatus.COMPLETED, RunStatus.COMPLETED),
        (lambda g: Fail(**held(g), error="boom"), JobStatus.FAILED, RunStatus.FAILED),
        (lambda g: Fail(**held(g), error="later", retry_after_s=5), JobStatus.FAILED, RunStatus.FAILED),
        (lambda g: Snooze(**held(g), delay_s=5), JobStatus.FAILED, RunStatus.FAILED),
        (lambda g: GiveUp(**held(g), reason="enough"), JobStatus.CANCELLED, RunStatus.CANCELLED),
        (lambda g: Release(**held(g), begun=True), JobStatus.CANCELLED, RunStatus.CANCELLED),
        (lambda g: Release(**held(g), begun=False, delay_s=5), JobStatus.CANCELLED, RunStatus.CANCELLED),
        (lambda _: Cancel(job_id="d", force=True), JobStatus.CANCELLED, RunStatus.CANCELLED),
        (lambda _: Bury(job_id="d"), JobStatus.DEAD, RunStatus.CANCELLED),
        (lambda _: EndSession(session_id="s"), JobStatus.DEAD, RunStatus.LOST),
    ],
)
def test_however_it_ends_it_has_ended_and_a_repeat_says_so_again(w, ends, status, run):
    grant = started(w)
    command = ends(grant)
    first = w.do(command)
    assert (w.job("d").status, w.run("d").status) == (status, run)
    if isinstance(command, Complete | Fail | Snooze | GiveUp | Release):
        assert (first.job_status, first.successor) == (status, None)
        again = w.do(command)
        assert (again.job_status, again.duplicate) == (status, True)
    if status is not JobStatus.COMPLETED:
        assert w.refused(Retry(job_id="d", new_job_id="n")) == "invalid_operation"


@pytest.mark.parametrize("jump", [False, True])
def test_a_lost_one_is_dead_even_if_the_clock_jumped(w, jump):
    started(w)
    since = w.now
    w.wait(3600)
    w.do(Expire(jump=ClockJump(since, w.now) if jump else None))
    assert (w.job("d").status, w.run("d").status) == (JobStatus.DEAD, RunStatus.LOST)
    assert w.job("d").expiries == (0 if jump else 1)
    assert explain(w.tables, w.job("d"), w.now).sentence == (
        "it ran directly, and its caller was lost; it is not run again"
    )
    assert w.do(Expire()).count == 0


def test_a_late_report_of_a_lost_one_makes_it_dead(w):
    grant = started(w)
    w.wait(30)
    assert w.tell(Snooze(**held(grant), delay_s=1)).code == "lease_lost"
    assert w.job("d").status is JobStatus.DEAD


def test_a_cancelled_one_that_is_lost_is_cancelled(w):
    started(w)
    w.do(Cancel(job_id="d"))
    w.wait(30)
    w.do(Expire())
    assert w.job("d").status is JobStatus.CANCELLED


def test_its_lease_is_extended_as_any_other(w):
    grant = started(w)
    w.wait(20)
    assert w.do(Extend(**held(grant))).lease_s == 30


def test_after_it_the_queue_goes_on_where_it_was(w):
    w.enqueue("a")
    w.enqueue("b", priority=1)
    grant = started(w)
    w.do(Complete(job_id="d", token=grant.token))
    w.do(ReleaseReservation(reservation_id="r"))
    assert [given.job.job_id for given in w.do(Lease(worker_id="w", n=9)).grants] == ["b", "a"]
