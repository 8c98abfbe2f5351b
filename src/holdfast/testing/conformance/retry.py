"""Retry: the same job again, a chain of jobs, and a person's wish. How often, how late, and never twice."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.engine.maintenance import Report
from holdfast.errors import IdReused, InvalidOperation, JobNotFound
from holdfast.model.commands import Bury, Cancel, Fail, Retry, Update
from holdfast.model.events import JobChanges
from holdfast.model.ids import JobId
from holdfast.model.jobs import Backoff, JobStatus, RetryKind, RunStatus
from holdfast.model.outcomes import Enqueued, Reported, Submitted
from holdfast.model.times import moment
from holdfast.testing.conformance.commands import A, B
from holdfast.testing.conformance.harness import Harness, Topic, new_job

NO_JITTER = Backoff(jitter=0)
AT_ONCE = Backoff(base_s=0, jitter=0)
each_mode = pytest.mark.parametrize("mode", ["requeue", "chain"])


def _retry(new: str = "b", **options: object) -> Retry:
    return msgspec.structs.replace(Retry(job_id=A, new_job_id=JobId(new)), **options)


class Retries(Topic):
    """Automatic retry by requeue and by chain."""

    @each_mode
    def test_without_jitter_the_delays_are_ten_twenty_and_forty(self, harness: Harness, mode: str) -> None:
        harness.enqueue("a", backoff=NO_JITTER, retry_mode=mode)
        for delay in (10, 20, 40):
            harness.fail(harness.take())
            harness.advance(delay - 0.000001)
            assert harness.lease() == ()
            harness.advance(0.000001)
        harness.take()

    def test_jitter_lengthens_the_delay_by_at_most_its_share(self, harness: Harness) -> None:
        waits = []
        for number in range(50):
            harness.enqueue(f"j{number}", backoff=Backoff(base_s=100, jitter=0.5))
            harness.fail(harness.take())
            not_before = harness.job(f"j{number}").not_before
            assert not_before is not None
            waits.append((moment(not_before) - harness.clock.now()).total_seconds())
        assert all(100 <= wait < 150 for wait in waits)
        assert len(set(waits)) > 40

    def test_the_delay_is_capped(self, harness: Harness) -> None:
        backoff = Backoff(base_s=10, factor=1000, cap_s=15, jitter=0)
        harness.enqueue("a", backoff=backoff, max_attempts=1000)
        harness.fail(harness.take())
        harness.advance(10)
        harness.fail(harness.take())
        assert harness.job("a").not_before == harness.after(25)

    @each_mode
    def test_the_second_attempt_does_not_start_before_its_time_nor_after_a_restart(
        self, harness: Harness, mode: str
    ) -> None:
        harness.enqueue("a", backoff=Backoff(base_s=3600, jitter=0), retry_mode=mode)
        harness.fail(harness.take())
        assert harness.lease() == ()
        harness.restart()
        harness.recover()
        harness.advance(3600 - 0.000001)
        harness.tick()
        assert harness.lease() == ()
        harness.advance(0.000001)
        assert harness.take().job.attempts == 1

    def test_a_handler_may_choose_the_delay(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.fail(harness.take(), retry_after_s=7)
        assert harness.job("a").not_before == harness.after(7)

    @each_mode
    def test_four_attempts_are_exactly_four_executions(self, harness: Harness, mode: str) -> None:
        harness.enqueue("a", backoff=AT_ONCE, max_attempts=4, retry_mode=mode)
        seen = []
        while grants := harness.lease():
            seen.append((grants[0].job.job_id, grants[0].token))
            harness.fail(grants[0])
        assert len(seen) == 4
        assert harness.status(seen[-1][0]) is JobStatus.FAILED
        assert len({job_id for job_id, _ in seen}) == (4 if mode == "chain" else 1)

    @each_mode
    def test_one_attempt_is_one_execution_with_no_retry_from_report_or_recovery(
        self, harness: Harness, mode: str
    ) -> None:
        harness.enqueue("a", max_attempts=1, retry_mode=mode)
        assert harness.fail(harness.take()) == Reported(job_status=JobStatus.FAILED)
        harness.restart()
        assert harness.recover() == Report()
        harness.advance(86_400)
        harness.tick()
        assert harness.lease() == ()
        assert (harness.heirs("a"), len(harness.runs("a"))) == ([], 1)

    @each_mode
    def test_a_fatal_failure_is_not_retried(self, harness: Harness, mode: str) -> None:
        harness.enqueue("a", retry_mode=mode)
        assert harness.fail(harness.take(), fatal=True) == Reported(job_status=JobStatus.FAILED)
        (run,) = harness.runs("a")
        assert run.error_kind == "fatal"
        assert harness.heirs("a") == []

    @each_mode
    def test_a_result_that_cannot_be_encoded_is_not_retried(self, harness: Harness, mode: str) -> None:
        harness.enqueue("a", retry_mode=mode)
        assert harness.fail(harness.take(), error_kind="bad_result") == Reported(job_status=JobStatus.FAILED)
        harness.restart()
        assert harness.recover() == Report()
        (run,) = harness.runs("a")
        assert run.error_kind == "bad_result"
        assert harness.heirs("a") == []

    def test_requeueing_runs_the_same_job_with_the_next_run_and_token(self, harness: Harness) -> None:
        harness.enqueue("a", backoff=AT_ONCE)
        first = harness.take()
        harness.fail(first)
        second = harness.take()
        assert (second.job.job_id, second.job.executions, second.job.attempts) == ("a", 2, 1)
        assert second.token > first.token
        assert [run.run_no for run in harness.runs("a")] == [1, 2]

    def test_a_completed_retry_forgets_the_last_error(self, harness: Harness) -> None:
        harness.enqueue("a", backoff=AT_ONCE)
        harness.fail(harness.take())
        harness.complete(harness.take())
        assert (harness.status("a"), harness.job("a").error) == (JobStatus.COMPLETED, None)
        assert [run.error for run in harness.runs("a")] == ["boom", None]

    # --- chains -----------------------------------------------------------------------------------------------------

    def test_a_successor_is_a_new_job_that_carries_on(self, harness: Harness) -> None:
        harness.enqueue(
            "a", params={"n": 1}, retry_mode="chain", priority=3, queue="q", tags={"x": "y"}, backoff=NO_JITTER
        )
        grant = harness.take(queues=("q",))
        harness.advance(1)
        reply = harness.fail(grant)
        (heir,) = harness.heirs("a")
        assert reply == Reported(job_status=JobStatus.FAILED, successor=heir.job_id)
        assert heir.job_id != "a"
        assert (heir.retry_of, heir.retry_kind) == ("a", RetryKind.AUTO)
        assert (heir.job_type, bytes(heir.params), heir.priority, heir.queue) == ("work", b'{"n":1}', 3, "q")
        assert (heir.tags, heir.backoff, heir.max_attempts) == ({"x": "y"}, NO_JITTER, 4)
        assert (heir.status, heir.attempts, heir.executions) == (JobStatus.QUEUED, 1, 0)
        assert (heir.created_at, heir.not_before) == (harness.after(1), harness.after(11))
        assert (heir.token, heir.started_at, heir.finished_at, heir.worker_id) == (None, None, None, None)

    def test_the_same_failure_reported_twice_makes_one_successor(self, harness: Harness) -> None:
        harness.enqueue("a", retry_mode="chain")
        grant = harness.take()
        first = harness.fail(grant)
        with harness.unchanged():
            again = harness.fail(grant)
        assert again == Reported(job_status=JobStatus.FAILED, successor=first.successor, duplicate=True)
        assert len(harness.heirs("a")) == 1

    def test_the_same_failure_reported_by_two_processes_makes_one_successor(self, harness: Harness) -> None:
        other = harness.second()
        harness.enqueue("a", retry_mode="chain")
        report = Fail(job_id=A, token=harness.take().token, error="boom")
        first, again = harness.ask(report), other.ask(report)
        assert isinstance(first, Reported)
        assert again == msgspec.structs.replace(first, duplicate=True)
        assert len(harness.heirs("a")) == 1

    def test_a_job_of_a_chain_never_runs_twice(self, harness: Harness) -> None:
        harness.enqueue("a", retry_mode="chain", max_attempts=3, backoff=AT_ONCE)
        ran: list[str] = []
        for outcome in ("fail", "lose", "fail", "complete"):
            grant = harness.take()
            ran.append(grant.job.job_id)
            match outcome:
                case "fail":
                    harness.fail(grant)
                case "lose":
                    harness.advance(30)
                    harness.tick()
                case _:
                    harness.complete(grant)
        assert len(set(ran)) == 4
        assert [len(harness.runs(job_id)) for job_id in ran] == [1, 1, 1, 1]
        assert harness.status(ran[-1]) is JobStatus.COMPLETED

    # --- lost leases ------------------------------------------------------------------------------------------------

    @each_mode
    def test_lost_leases_between_failures_use_up_no_attempt(self, harness: Harness, mode: str) -> None:
        harness.enqueue("a", retry_mode=mode, max_attempts=2, backoff=AT_ONCE)
        for _ in range(3):
            harness.take()
            harness.advance(30)
        harness.fail(harness.take())
        harness.take()
        harness.advance(30)
        last = harness.take()
        assert (last.job.attempts, last.job.expiries) == (1, 4)
        assert harness.fail(last) == Reported(job_status=JobStatus.FAILED)

    @each_mode
    def test_a_job_is_dead_at_its_last_permitted_lost_lease(self, harness: Harness, mode: str) -> None:
        harness.enqueue("a", retry_mode=mode, max_expiries=3)
        ids = []
        for _ in range(3):
            ids.append(harness.take().job.job_id)
            harness.advance(30)
            harness.tick()
        assert harness.lease() == ()
        last = harness.job(ids[-1])
        assert (last.status, last.expiries, last.attempts) == (JobStatus.DEAD, 3, 0)
        assert harness.heirs(last.job_id) == []
        assert last.finished_at == harness.after(90)

    def test_a_lost_chain_job_fails_and_its_successor_keeps_its_place(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a", retry_mode="chain"), new_job("b"))
        harness.take()
        harness.advance(30)
        harness.tick()
        (heir,) = harness.heirs("a")
        (run,) = harness.runs("a")
        assert (harness.status("a"), run.status, run.error) == (
            JobStatus.FAILED,
            RunStatus.LOST,
            "worker did not report",
        )
        assert (heir.expiries, heir.attempts, heir.not_before) == (1, 0, None)
        assert harness.waiting() == [heir.job_id, "b"]


class ManualRetries(Topic):
    """Retry asked for by a person."""

    @pytest.mark.parametrize("status", [JobStatus.FAILED, JobStatus.DEAD, JobStatus.CANCELLED])
    def test_an_ended_job_runs_again_as_a_new_job_with_a_full_budget(self, harness: Harness, status: JobStatus) -> None:
        harness.enqueue("a", params={"n": 1}, max_attempts=1, priority=2)
        match status:
            case JobStatus.FAILED:
                harness.fail(harness.take())
            case JobStatus.DEAD:
                harness.ask(Bury(job_id=A))
            case _:
                harness.ask(Cancel(job_id=A))
        before = harness.job("a")
        harness.advance(5)
        assert harness.ask(_retry()) == Enqueued(jobs=(Submitted(B, created=True),))
        job = harness.job("b")
        assert (job.retry_of, job.retry_kind, job.created_at) == ("a", RetryKind.MANUAL, harness.after(5))
        assert (job.status, job.attempts, job.expiries, job.executions) == (JobStatus.QUEUED, 0, 0, 0)
        assert (bytes(job.params), job.priority, job.max_attempts) == (b'{"n":1}', 2, 1)
        assert harness.job("a") == before

    def test_other_params_and_priority_may_be_given(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.ask(Cancel(job_id=A))
        harness.ask(_retry(params=msgspec.Raw(b'{"n": 2}'), priority=7))
        job = harness.job("b")
        assert (bytes(job.params), job.priority, job.rank) == (b'{"n":2}', 7, -7)

    def test_without_other_params_those_of_the_last_run_are_used(self, harness: Harness) -> None:
        harness.enqueue("a", params={"n": 1})
        harness.ask(Update(job_id=A, changes=JobChanges(params=msgspec.Raw(b'{"n":2}'))))
        harness.fail(harness.take(), fatal=True)
        harness.ask(_retry())
        assert bytes(harness.job("b").params) == b'{"n":2}'

    def test_any_number_of_manual_retries(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.ask(Cancel(job_id=A))
        for name in ("x", "y", "z"):
            harness.ask(_retry(name))
        assert [heir.job_id for heir in harness.heirs("a")] == ["x", "y", "z"]

    def test_a_retry_sent_again_finds_its_job(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.ask(Cancel(job_id=A))
        harness.ask(_retry())
        with harness.unchanged():
            assert harness.ask(_retry()) == Enqueued(jobs=(Submitted(B, created=False),))

    def test_a_retry_under_the_id_of_another_job_is_refused(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b"))
        harness.ask(Cancel(job_id=A))
        harness.refused(IdReused, _retry(), job_id="b")

    def test_an_unknown_job_cannot_be_retried(self, harness: Harness) -> None:
        harness.refused(JobNotFound, _retry(), job_id="a")

    def test_what_an_automatic_retry_followed_is_refused_and_the_follower_named(self, harness: Harness) -> None:
        harness.enqueue("a", retry_mode="chain")
        heir = harness.fail(harness.take()).successor
        harness.refused(InvalidOperation, _retry(), job_id=str(heir))

    def test_a_completed_job_cannot_be_retried(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.complete(harness.take())
        harness.refused(InvalidOperation, _retry(), job_id="a", status="COMPLETED")
