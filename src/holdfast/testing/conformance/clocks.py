"""Expiry and clocks: what time ends, and what happens when the clock is wrong. Scheduler §7, §12."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.engine.maintenance import next_wake
from holdfast.errors import LeaseLost
from holdfast.model.commands import (
    Complete,
    EndSessions,
    Expire,
    Extend,
    PutSchedule,
    RenewReservation,
    Reserve,
    ResetSchedule,
)
from holdfast.model.jobs import Job, JobStatus, RunStatus
from holdfast.model.outcomes import Extended, Refusal, Swept
from holdfast.model.schedules import CatchUp, NewSchedule, Overlap, Schedule
from holdfast.testing.conformance.commands import A
from holdfast.testing.conformance.harness import Harness, Topic, new_job, told
from holdfast.testing.conformance.marks import counts_writes

HOUR = 3600
DAY = 24 * HOUR
#: Every policy there is: what is made up for, and what a fire does that meets a job. One pair is refused.
POLICIES = [
    (catch_up, overlap)
    for catch_up in CatchUp
    for overlap in Overlap
    if (catch_up, overlap) != (CatchUp.ALL, Overlap.SKIP)
]


def _step(harness: Harness, seconds: float) -> None:
    """Set the wall clock forward or back; the monotonic one stands."""
    harness.clock.set_wall(harness.clock.now() + timedelta(seconds=seconds))


class Expiry(Topic):
    """Leases that time revoked."""

    def test_an_expired_lease_ends_by_an_explicit_event(self, harness: Harness) -> None:
        harness.enqueue("a")
        grant, seq = harness.take(), harness.seq
        harness.advance(30)
        assert harness.kinds(seq) == []
        assert harness.tick().expired == 1
        assert harness.kinds(seq) == ["lease:expired"]
        job, (run,) = harness.job("a"), harness.runs("a")
        assert (job.status, job.expiries, job.error) == (JobStatus.QUEUED, 1, "worker did not report")
        assert (job.token, job.worker_id, job.lease_expires_at, job.grant_cmd) == (None, None, None, None)
        assert (run.status, run.reason, run.token) == (RunStatus.LOST, "timeout", grant.token)
        assert run.finished_at == harness.after(30)

    def test_nothing_lapses_a_microsecond_early(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.take()
        harness.advance(30 - 0.000001)
        with harness.unchanged():
            assert harness.tick().expired == 0

    def test_a_second_tick_at_the_same_time_writes_nothing(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b", ttl_s=30), new_job("c"))
        harness.lease(2)
        harness.advance(30)
        assert harness.tick().expired == 2
        with harness.unchanged():
            assert harness.tick().expired == 0

    def test_a_lapsed_lease_is_cleared_out_of_the_way_of_the_next(self, harness: Harness) -> None:
        harness.enqueue("a")
        first = harness.take("w1")
        harness.advance(30)
        second = harness.take("w2")
        assert (second.job.job_id, second.job.executions, second.job.expiries) == ("a", 2, 1)
        assert second.token > first.token

    def test_only_what_has_lapsed_expires(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b", lease_s=60))
        harness.lease(2)
        harness.advance(30)
        harness.tick()
        assert [harness.status(name) for name in "ab"] == [JobStatus.QUEUED, JobStatus.RUNNING]

    def test_a_commit_of_the_tick_ends_no_more_than_its_limit(self, harness: Harness) -> None:
        harness.enqueue_many(*(new_job(f"j{number}") for number in range(7)))
        harness.lease(7)
        harness.advance(30)
        assert harness.ask(Expire(limit=3)) == Swept(count=3, more=True)
        assert harness.tick().expired == 4

    def test_the_next_wake_is_the_earliest_end(self, harness: Harness) -> None:
        assert next_wake(harness.engine) is None
        harness.enqueue_many(new_job("a", lease_s=60), new_job("b"), new_job("c", ttl_s=40))
        harness.lease(2)
        assert next_wake(harness.engine) == harness.after(30)
        harness.advance(30)
        harness.tick()
        assert next_wake(harness.engine) == harness.after(40)

    def test_beyond_its_deadline_a_lease_ends_for_that_reason(self, harness: Harness) -> None:
        harness.enqueue("a", timeout_s=5)
        harness.take()
        harness.advance(15)
        harness.tick()
        assert [run.reason for run in harness.runs("a")] == ["deadline"]

    # --- openings ---------------------------------------------------------------------------------------------------

    def test_leases_of_an_earlier_opening_end_and_those_of_remote_workers_live_on(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b"), new_job("c"))
        harness.take("local", session_id="earlier")
        remote = harness.take("remote")
        harness.take("own", session_id="this")
        assert harness.ask(EndSessions(session_id="this")) == Swept(count=1)
        assert [harness.status(name) for name in "abc"] == [JobStatus.QUEUED, JobStatus.RUNNING, JobStatus.RUNNING]
        (run,) = harness.runs("a")
        assert (run.status, run.reason, harness.job("a").expiries) == (RunStatus.LOST, "restart", 1)
        harness.complete(remote)

    def test_recovery_ends_leases_of_this_process_once_a_restart_proves_it_gone(self, harness: Harness) -> None:
        if harness.authority.store.promises.many_processes:
            pytest.skip(f"{harness.authority.store.promises.name}: another process may still be at work")
        harness.enqueue("a")
        grant = harness.take(session_id=harness.authority.session_id)
        harness.restart()
        report = harness.recover()
        assert (report.ended_sessions, report.expired) == (1, 0)
        harness.refused(LeaseLost, Complete(job_id=A, token=grant.token), job_id="a")
        assert harness.take().token > grant.token

    def test_a_restart_ends_the_lapsed_remote_lease_and_honours_the_valid_one(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b", lease_s=60))
        lapsed, valid = harness.lease(2)
        harness.advance(40)
        harness.restart()
        report = harness.recover()
        assert (report.ended_sessions, report.expired) == (0, 1)
        harness.refused(LeaseLost, Complete(job_id=A, token=lapsed.token), job_id="a")
        assert harness.complete(valid).job_status is JobStatus.COMPLETED

    def test_after_completion_nothing_is_left_for_three_recoveries(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.complete(harness.take(session_id=harness.authority.session_id))
        with harness.engine.read() as view:
            assert [(count.status, count.count) for count in view.counts()] == [(JobStatus.COMPLETED, 1)]
        harness.restart()
        for _ in range(3):
            report = harness.recover()
            assert (report.ended_sessions, report.expired, report.pruned) == (0, 0, 0)


class Clocks(Topic):
    """Clocks that step."""

    def test_a_small_step_back_is_waited_out(self, harness: Harness) -> None:
        harness.advance(10)
        harness.enqueue("a")
        _step(harness, -5)
        harness.enqueue("b")
        assert harness.job("b").created_at == harness.after(10)
        harness.advance(6)
        harness.enqueue("c")
        assert harness.job("c").created_at == harness.after(11)

    def test_a_large_step_back_is_followed(self, harness: Harness) -> None:
        harness.advance(100)
        harness.enqueue("a")
        _step(harness, -50)
        harness.enqueue("b")
        assert harness.job("b").created_at == harness.after(50)
        assert harness.authority.time.steps == {"forward": 0, "back": 1}

    def test_times_in_the_feed_never_run_backwards(self, harness: Harness) -> None:
        harness.advance(100)
        harness.enqueue("a")
        _step(harness, -50)
        harness.enqueue("b")
        harness.restart()
        harness.enqueue("c")
        assert [entry.ts for entry in told(harness.store)] == [harness.after(100)] * 3

    def test_a_lease_ends_by_its_own_seconds_when_the_clock_was_set_back(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.take()
        _step(harness, -3600)
        harness.tick()
        harness.advance(30)
        assert harness.tick().expired == 1
        assert harness.status("a") is JobStatus.QUEUED

    def test_a_lease_of_another_opening_is_timed_from_first_sight_when_the_clock_was_set_back(
        self, harness: Harness
    ) -> None:
        harness.enqueue("a")
        harness.take("remote")
        harness.restart()
        harness.recover()
        _step(harness, -3600)
        harness.tick()
        harness.advance(30 - 0.001)
        assert harness.tick().expired == 0
        harness.advance(0.001)
        assert harness.tick().expired == 1

    @pytest.mark.parametrize("asked_s", [None, 5.0])
    def test_lease_granted_before_a_step_back_and_a_restart_ends_by_its_own_seconds(
        self, harness: Harness, asked_s: float | None
    ) -> None:
        harness.enqueue("a", lease_s=60)
        harness.take("remote", lease_s=asked_s)
        _step(harness, -2 * HOUR)
        harness.restart()
        assert harness.recover().expired == 0
        harness.advance((asked_s or 60) - 0.001)
        assert harness.tick().expired == 0
        harness.advance(0.001)
        assert harness.tick().expired == 1
        assert (harness.status("a"), harness.runs("a")[0].reason) == (JobStatus.QUEUED, "timeout")

    def test_lease_that_was_extended_before_a_step_back_and_a_restart_ends_by_its_own_seconds(
        self, harness: Harness
    ) -> None:
        harness.enqueue("a", lease_s=60)
        grant = harness.take("remote", lease_s=300)
        for _ in range(30):
            harness.advance(100)
            assert harness.ask(Extend(job_id=A, token=grant.token, lease_s=300)) == Extended(lease_s=300)
        _step(harness, -HOUR / 2)
        harness.restart()
        harness.recover()
        harness.advance(300 - 0.001)
        assert harness.tick().expired == 0
        harness.advance(0.001)
        assert harness.tick().expired == 1

    def test_lease_whose_holder_asks_after_a_step_back_and_a_restart_stays(self, harness: Harness) -> None:
        harness.enqueue("a")
        grant = harness.take("remote")
        _step(harness, -2 * HOUR)
        harness.restart()
        harness.recover()
        for _ in range(5):
            harness.advance(20)
            assert harness.ask(Extend(job_id=A, token=grant.token)) == Extended(lease_s=30)
            assert harness.tick().expired == 0
        harness.complete(grant)

    def test_long_lease_of_a_job_with_short_ones_outlives_a_restart(self, harness: Harness) -> None:
        harness.enqueue("a", lease_s=5)
        grant = harness.take("remote", lease_s=300)
        harness.restart()
        harness.recover()
        harness.advance(299)
        assert harness.tick().expired == 0
        harness.complete(grant)

    def test_lease_granted_after_a_step_back_is_left_to_the_wall_by_a_restart(self, harness: Harness) -> None:
        harness.advance(2 * HOUR)
        harness.enqueue("a")
        _step(harness, -2 * HOUR)
        grant = harness.take("remote")
        harness.restart()
        harness.recover()
        harness.advance(29)
        assert harness.tick().expired == 0
        harness.complete(grant)

    @pytest.mark.parametrize("restarts", [False, True])
    def test_reservation_ends_by_its_own_seconds_when_the_clock_was_set_back(
        self, harness: Harness, *, restarts: bool
    ) -> None:
        harness.ask(Reserve(reservation_id="r", queue="default", reserved_by="somebody", ttl_s=60))
        for _ in range(10):
            harness.advance(20)
            harness.ask(RenewReservation(reservation_id="r", ttl_s=60))
        _step(harness, -2 * HOUR)
        if restarts:
            harness.restart()
            harness.recover()
        harness.enqueue("a")
        harness.advance(60 - 0.001)
        assert (harness.tick().expired, harness.lease()) == (0, ())
        harness.advance(0.001)
        assert harness.tick().expired == 1
        assert harness.take().job.job_id == "a"

    def test_reservation_whose_holder_renews_it_stays_although_the_clock_was_set_back(self, harness: Harness) -> None:
        harness.ask(Reserve(reservation_id="r", queue="default", reserved_by="somebody", ttl_s=60))
        _step(harness, -2 * HOUR)
        for _ in range(10):
            harness.advance(20)
            harness.ask(RenewReservation(reservation_id="r", ttl_s=60))
            assert harness.tick().expired == 0

    @pytest.mark.parametrize("restarts", [False, True])
    def test_session_is_free_after_its_own_seconds_when_the_clock_was_set_back(
        self, harness: Harness, *, restarts: bool
    ) -> None:
        harness.enqueue_many(new_job("a", affinity="s"), new_job("b", affinity="s"))
        first = harness.take("w1")
        harness.complete(first)
        _step(harness, -2 * HOUR)
        if restarts:
            harness.restart()
            harness.recover()
        assert harness.lease(worker="w2") == ()
        harness.advance(30)
        harness.tick()
        assert harness.take("w2").job.job_id == "b"

    def test_leases_that_lapsed_within_a_jump_forward_are_not_held_against_their_jobs(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a", max_expiries=1), new_job("b", max_expiries=1))
        harness.lease(2)
        harness.advance(1)
        harness.tick()
        _step(harness, 7200)
        assert harness.tick().expired == 2
        for name in "ab":
            (run,) = harness.runs(name)
            assert (harness.status(name), harness.job(name).expiries) == (JobStatus.QUEUED, 0)
            assert (run.status, run.reason) == (RunStatus.LOST, "clock_jump")

    def test_lease_of_the_deciding_process_outlives_a_jump_forward(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a", timeout_s=60), new_job("b"))
        own = harness.take(session_id=harness.authority.session_id)
        harness.take("remote")
        _step(harness, 2 * HOUR)
        assert harness.tick().expired == 1
        assert [harness.status(name) for name in "ab"] == [JobStatus.RUNNING, JobStatus.QUEUED]
        harness.advance(20)
        assert harness.ask(Extend(job_id=A, token=own.token)) == Extended(lease_s=30)
        harness.advance(29)
        assert harness.complete(own).job_status is JobStatus.COMPLETED
        assert harness.job("a").executions == 1

    def test_lease_of_another_opening_ends_without_blame_when_the_clock_jumped_before_a_restart(
        self, harness: Harness
    ) -> None:
        harness.enqueue("a")
        grant = harness.take("remote")
        _step(harness, 2 * HOUR)
        harness.restart()
        assert harness.recover().expired == 1
        harness.refused(LeaseLost, Complete(job_id=A, token=grant.token), job_id="a")
        assert harness.take().token > grant.token

    def test_a_grant_after_a_jump_clears_its_way_without_blame(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.take()
        _step(harness, 7200)
        assert harness.take().job.expiries == 0

    @pytest.mark.parametrize("late", ["complete", "extend"])
    def test_a_report_after_a_jump_is_refused_without_blame(self, harness: Harness, late: str) -> None:
        harness.enqueue("a", max_expiries=1)
        grant = harness.take()
        _step(harness, 7200)
        command = (Complete if late == "complete" else Extend)(job_id=A, token=grant.token)
        outcome = harness.engine.submit(command)
        assert isinstance(outcome, Refusal)
        assert outcome.code == LeaseLost.code
        assert (harness.status("a"), harness.job("a").expiries) == (JobStatus.QUEUED, 0)

    def test_what_had_lapsed_before_the_jump_counts(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.take()
        harness.advance(31)
        _step(harness, 7200)
        harness.tick()
        assert harness.job("a").expiries == 1

    def test_a_lease_that_outlives_the_jump_lives(self, harness: Harness) -> None:
        harness.enqueue("a", lease_s=3600)
        grant = harness.take()
        _step(harness, 60)
        assert harness.tick().expired == 0
        assert harness.ask(Extend(job_id=A, token=grant.token)) == Extended(lease_s=3540)


class Leaps(Topic):
    """What schedules do when the clock leaps: the policy's number of jobs, never a burst."""

    @pytest.mark.parametrize("how", ["suspend", "outage"])
    @pytest.mark.parametrize(("catch_up", "overlap"), POLICIES)
    def test_three_days_asleep(self, harness: Harness, catch_up: CatchUp, overlap: Overlap, how: str) -> None:
        made = {CatchUp.NONE: 0, CatchUp.LATEST: 1, CatchUp.ALL: 24}[catch_up]
        _begin(harness, catch_up, overlap)
        if how == "suspend":
            _step(harness, 3 * DAY)
        else:
            harness.advance(3 * DAY)
            harness.restart()
        _demand_policy(harness, overlap, made=made, passed=72)

    @pytest.mark.parametrize(("catch_up", "overlap"), POLICIES)
    def test_a_clock_set_forward_a_year(self, harness: Harness, catch_up: CatchUp, overlap: Overlap) -> None:
        made = {CatchUp.NONE: 0, CatchUp.LATEST: 1, CatchUp.ALL: 24}[catch_up]
        _begin(harness, catch_up, overlap)
        _step(harness, 365 * DAY)
        _demand_policy(harness, overlap, made=made, passed=365 * 24)

    @pytest.mark.parametrize(("catch_up", "overlap"), POLICIES)
    def test_a_clock_set_back_two_hours(self, harness: Harness, catch_up: CatchUp, overlap: Overlap) -> None:
        _begin(harness, catch_up, overlap)
        for _ in range(4):
            harness.advance(HOUR / 2)
            harness.tick()
        before = _fired(harness)
        _step(harness, -2 * HOUR)
        seq = harness.seq
        for _ in range(8):  # the same two hours once more
            assert harness.tick().fired == 0
            harness.advance(HOUR / 4)
        assert harness.seq == seq
        assert harness.tick().fired == 0
        assert _fired(harness) == before == [harness.after(HOUR * n) for n in (1, 2, 3)]
        harness.advance(HOUR / 2)
        assert harness.tick().fired == 1
        assert _fired(harness) == [*before, harness.after(4 * HOUR)]
        assert _schedule(harness).missed == 0

    @counts_writes
    def test_a_year_of_seconds_is_one_decision(self, harness: Harness) -> None:
        new = NewSchedule(name="s", job_type="work", interval_s=1, overlap=Overlap.ALLOW)
        harness.ask(PutSchedule(schedule_id="s", schedule=new))
        _step(harness, 365 * DAY)
        seq = harness.seq
        round_ = harness.tick()
        assert (round_.fired, round_.missed) == (1, 365 * DAY - 1)
        assert harness.kinds(seq) == ["schedule:missed", "schedule:fired", "job:created"]

    @pytest.mark.parametrize(("catch_up", "overlap"), POLICIES)
    def test_a_year_ahead_by_mistake_and_reset(self, harness: Harness, catch_up: CatchUp, overlap: Overlap) -> None:
        _begin(harness, catch_up, overlap)
        _step(harness, 365 * DAY)
        harness.tick()
        _step(harness, -365 * DAY)
        last = _fired(harness)
        is_ahead = catch_up is not CatchUp.NONE  # that one has fired nothing, and still has gone on in its timetable
        for _ in range(6):
            harness.advance(HOUR / 2)
            assert harness.tick().fired == 0
        assert ((_schedule(harness).last_fire_at or "") > harness.now) is is_ahead
        harness.ask(ResetSchedule(schedule_id="s"))
        assert (_schedule(harness).last_fire_at or "") <= harness.now
        for fired in (1, 0, 1):
            harness.advance(HOUR / 2)
            assert harness.tick().fired == fired
        assert _fired(harness) == sorted([*last, harness.after(5 * HOUR), harness.after(6 * HOUR)])


def _begin(harness: Harness, catch_up: CatchUp, overlap: Overlap) -> None:
    """Fire once, at one o'clock, and leave its job waiting; half an hour later the story begins."""
    new = NewSchedule(
        name="s", job_type="work", cron_expression="0 * * * *", catch_up=catch_up, overlap=overlap, grace_s=60
    )
    harness.ask(PutSchedule(schedule_id="s", schedule=new))
    harness.advance(HOUR)
    assert harness.tick().fired == 1
    harness.advance(HOUR / 2)


def _demand_policy(harness: Harness, overlap: Overlap, *, made: int, passed: int) -> None:
    """Demand as many jobs of the hours that passed as the policy says, and what the overlap makes of them."""
    round_ = harness.tick()
    assert (round_.fired, round_.missed) == (made, passed - made)
    seq = harness.seq
    assert harness.tick().fired == 0
    assert harness.seq == seq
    expected = [harness.after(HOUR * n) for n in range(passed + 2 - made, passed + 2)]
    assert _fired(harness) == [harness.after(HOUR), *expected]
    found = _schedule(harness)
    assert (found.fires, found.missed) == (1 + made, passed - made)
    assert found.next_fire_at == harness.after(HOUR * (passed + 2))
    skipped = made if overlap is Overlap.SKIP else 0
    with harness.engine.read() as view:
        statuses = [job.status for job in view.all(Job)]
    assert statuses.count(JobStatus.CANCELLED) == skipped
    assert statuses.count(JobStatus.QUEUED) == 1 + made - skipped
    assert len(harness.lease(100)) == (1 + made if overlap is Overlap.ALLOW else 1)
    harness.advance(HOUR / 2)
    assert harness.tick().fired == 1


def _schedule(harness: Harness) -> Schedule:
    with harness.engine.read() as view:
        found = view.get(Schedule, "s")
    assert found is not None
    return found


def _fired(harness: Harness) -> list[str]:
    """Give the nominal times that have a job, in order."""
    with harness.engine.read() as view:
        return sorted(job.fire_at for job in view.all(Job) if job.fire_at is not None)
