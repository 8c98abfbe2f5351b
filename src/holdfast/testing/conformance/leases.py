"""Leases: who may work on a job, and until when."""

from __future__ import annotations

import pytest

from holdfast.errors import IdReused, JobNotFound, LeaseLost, UnknownLease
from holdfast.model.commands import Cancel, Complete, Extend, Lease, Release
from holdfast.model.ids import JobId, Token
from holdfast.model.jobs import JobStatus, RunStatus
from holdfast.model.outcomes import Extended, Grant, Refusal, Reported
from holdfast.testing.conformance.commands import A
from holdfast.testing.conformance.harness import Harness, Topic, new_job
from holdfast.testing.conformance.marks import counts_writes

MICROSECOND = 0.000001


def _extend(grant: Grant, lease_s: float | None = None) -> Extend:
    return Extend(job_id=grant.job.job_id, token=grant.token, lease_s=lease_s)


def _release(grant: Grant, *, begun: bool = True, delay_s: float | None = None, given_back: bool = False) -> Release:
    return Release(
        job_id=grant.job.job_id, token=grant.token, begun=begun, delay_s=delay_s, given_back=given_back, cmd="r"
    )


class Leases(Topic):
    """Grant, extend, release, and what a repeat of each gives."""

    def test_a_grant_is_a_running_job_with_a_lease_and_an_open_run(self, harness: Harness) -> None:
        harness.enqueue("a", params={"n": 1}, timeout_s=60)
        harness.advance(5)
        grant = harness.take("w7", session_id="s", cmd="x")
        job, (run,) = harness.job("a"), harness.runs("a")
        assert grant.lease_s == 30
        assert (job.status, job.worker_id, job.token) == (JobStatus.RUNNING, "w7", grant.token)
        assert (job.lease_expires_at, job.deadline_at) == (harness.after(35), harness.after(75))
        assert (job.session_id, job.grant_cmd, job.executions) == ("s", "x", 1)
        assert (job.started_at, job.finished_at) == (harness.after(5), None)
        assert (run.run_id, run.job_id, run.run_no, run.token) == (grant.run_id, "a", 1, grant.token)
        assert (run.status, run.started_at, run.finished_at) == (None, harness.after(5), None)
        assert (run.worker_id, bytes(run.params_snapshot)) == ("w7", b'{"n":1}')

    def test_the_worker_gets_the_job_as_the_store_keeps_it(self, harness: Harness) -> None:
        harness.enqueue("a", params={"n": 1}, tags={"colour": "red"}, traceparent="00-1-2-03")
        given, kept = harness.take().job, harness.job("a")
        assert (given.params, given.tags, given.traceparent) == (kept.params, kept.tags, kept.traceparent)
        assert (given.status, given.token, given.started_at) == (kept.status, kept.token, kept.started_at)

    def test_nothing_to_do_is_an_empty_answer_that_writes_nothing(self, harness: Harness) -> None:
        with harness.unchanged():
            assert harness.lease(10, queues=("nowhere",), cmd="x") == ()

    def test_no_more_is_granted_than_asked_for(self, harness: Harness) -> None:
        harness.enqueue_many(*(new_job(name) for name in "abcde"))
        assert len(harness.lease(3)) == 3
        assert len(harness.lease(3)) == 2

    def test_a_running_job_is_granted_to_nobody_else(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.take("w1")
        harness.advance(30 - MICROSECOND)
        assert harness.lease(10, "w2") == ()

    def test_tokens_grow_over_all_jobs_and_are_never_used_twice(self, harness: Harness) -> None:
        tokens = []
        for turn in range(3):
            harness.enqueue_many(new_job(f"a{turn}"), new_job(f"b{turn}", queue="other"))
            tokens += [grant.token for grant in harness.lease(5, queues=("default", "other"))]
            harness.advance(30)
            tokens.append(harness.take().token)
        assert tokens == sorted(set(tokens))

    def test_tokens_grow_across_reopening(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b"))
        first = harness.take()
        harness.complete(first)
        harness.reopen()
        assert harness.take().token > first.token

    @counts_writes
    def test_tokens_grow_even_when_everything_else_was_pruned(self, harness: Harness) -> None:
        harness.enqueue("a")
        first = harness.take()
        harness.complete(first)
        harness.advance(8 * 86_400)
        assert harness.tick().pruned == 1
        harness.restart()
        harness.enqueue("b")
        assert harness.take().token > first.token

    def test_the_worker_may_ask_for_another_length(self, harness: Harness) -> None:
        harness.enqueue("a", lease_s=60)
        grant = harness.take(lease_s=5)
        assert (grant.lease_s, harness.job("a").lease_expires_at) == (5, harness.after(5))

    def test_a_lease_never_reaches_beyond_the_deadline(self, harness: Harness) -> None:
        harness.enqueue("a", timeout_s=3)
        grant = harness.take()
        assert (grant.lease_s, harness.job("a").lease_expires_at) == (13, harness.after(13))
        harness.advance(12)
        with harness.unchanged():
            assert harness.ask(_extend(grant)) == Extended(lease_s=1)

    # --- extend -----------------------------------------------------------------------------------------------------

    def test_extending_moves_the_end_to_now_plus_the_length(self, harness: Harness) -> None:
        harness.enqueue("a")
        grant = harness.take()
        harness.advance(10)
        assert harness.ask(_extend(grant)) == Extended(lease_s=30)
        assert harness.job("a").lease_expires_at == harness.after(40)

    def test_an_extension_that_gains_little_writes_nothing(self, harness: Harness) -> None:
        harness.enqueue("a")
        grant = harness.take()
        harness.advance(5 - MICROSECOND)
        with harness.unchanged():
            assert harness.ask(_extend(grant)) == Extended(lease_s=25 + MICROSECOND)
        harness.advance(MICROSECOND)
        assert harness.ask(_extend(grant)) == Extended(lease_s=30)

    def test_an_extension_that_would_shorten_the_lease_writes_nothing(self, harness: Harness) -> None:
        harness.enqueue("a")
        grant = harness.take()
        harness.advance(10)
        with harness.unchanged():
            assert harness.ask(_extend(grant, lease_s=2)) == Extended(lease_s=20)

    def test_a_hundred_heartbeats_leave_the_log_as_it_was(self, harness: Harness) -> None:
        harness.enqueue("a")
        grant = harness.take()
        with harness.unchanged():
            for _ in range(100):
                harness.ask(_extend(grant))

    def test_a_heartbeat_learns_of_a_cancel_request(self, harness: Harness) -> None:
        harness.enqueue("a")
        grant = harness.take()
        assert harness.ask(_extend(grant)) == Extended(lease_s=30)
        harness.ask(Cancel(job_id=A))
        assert harness.ask(_extend(grant)) == Extended(lease_s=30, cancel=True)

    def test_only_the_holder_extends(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b"))
        first, second = harness.lease(2)
        harness.refused(UnknownLease, Extend(job_id=first.job.job_id, token=second.token), job_id="a")
        harness.refused(JobNotFound, Extend(job_id=JobId("z"), token=first.token), job_id="z")

    @pytest.mark.parametrize("past", [0, MICROSECOND, 1000])
    def test_an_expired_lease_is_never_extended(self, harness: Harness, past: float) -> None:
        harness.enqueue("a")
        grant, seq = harness.take(), harness.seq
        harness.advance(30 + past)
        outcome = harness.engine.submit(_extend(grant))
        assert isinstance(outcome, Refusal)
        assert outcome.code == LeaseLost.code
        assert harness.kinds(seq) == ["lease:expired"]
        assert harness.status("a") is JobStatus.QUEUED

    def test_a_lease_lives_until_the_microsecond_before_its_end(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b"))
        first, second = harness.lease(2)
        harness.advance(30 - MICROSECOND)
        assert harness.complete(first).job_status is JobStatus.COMPLETED
        assert harness.ask(_extend(second)) == Extended(lease_s=30)

    @pytest.mark.parametrize("past", [0, MICROSECOND])
    def test_a_report_at_or_after_the_end_writes_the_expiry_and_is_told(self, harness: Harness, past: float) -> None:
        harness.enqueue("a")
        grant, seq = harness.take(), harness.seq
        harness.advance(30 + past)
        outcome = harness.engine.submit(Complete(job_id=A, token=grant.token))
        assert isinstance(outcome, Refusal)
        assert outcome.code == LeaseLost.code
        assert harness.kinds(seq) == ["lease:expired"]
        (run,) = harness.runs("a")
        assert (run.status, run.reason, run.error_kind) == (RunStatus.LOST, "timeout", "lost")
        assert (harness.status("a"), harness.job("a").expiries) == (JobStatus.QUEUED, 1)

    def test_a_late_worker_cannot_complete_a_job_it_lost(self, harness: Harness) -> None:
        harness.enqueue("a")
        first = harness.take("w1")
        harness.advance(31)
        second = harness.take("w2")
        assert second.token > first.token
        harness.complete(second, "by the second")
        harness.refused(LeaseLost, Complete(job_id=A, token=first.token), job_id="a", token=str(first.token))
        assert bytes(harness.job("a").result) == b'"by the second"'
        assert [run.status for run in harness.runs("a")] == [RunStatus.LOST, RunStatus.COMPLETED]
        before = harness.dump()
        harness.restart()
        assert harness.dump() == before

    # --- the same Lease again ---------------------------------------------------------------------------------------

    def test_a_lease_sent_again_gives_the_same_grants_and_nothing_new(self, harness: Harness) -> None:
        harness.enqueue_many(*(new_job(name) for name in "abcd"))
        first = harness.lease(2, cmd="x")
        harness.advance(10)
        with harness.unchanged():
            again = harness.lease(2, cmd="x")
        assert [(grant.job.job_id, grant.run_id, grant.token) for grant in again] == [
            (grant.job.job_id, grant.run_id, grant.token) for grant in first
        ]
        assert [grant.lease_s for grant in again] == [20, 20]

    def test_a_lease_sent_again_leaves_out_what_is_no_longer_held(self, harness: Harness) -> None:
        harness.enqueue_many(*(new_job(name) for name in "abc"))
        first, second = harness.lease(2, cmd="x")
        harness.complete(first)
        assert [grant.token for grant in harness.lease(2, cmd="x")] == [second.token]
        harness.advance(30)
        assert harness.lease(2, cmd="x") == ()

    def test_a_lease_sent_again_after_a_restart_gives_the_same_grants(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b"))
        first = harness.take(cmd="x")
        harness.restart()
        again = harness.take(cmd="x")
        assert (again.job.job_id, again.run_id, again.token) == (first.job.job_id, first.run_id, first.token)

    def test_another_lease_under_the_same_command_id_is_refused(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a"), new_job("b"))
        harness.lease(1, cmd="x")
        harness.refused(IdReused, Lease(cmd="x", worker_id="another", n=1), cmd="x")

    def test_a_lease_that_found_nothing_may_find_something_when_sent_again(self, harness: Harness) -> None:
        assert harness.lease(1, cmd="x") == ()
        harness.enqueue("a")
        assert harness.take(cmd="x").job.job_id == "a"

    # --- release ----------------------------------------------------------------------------------------------------

    def test_a_released_job_is_queued_again_and_uses_up_nothing(self, harness: Harness) -> None:
        harness.enqueue("a")
        assert harness.report(_release(harness.take())) == Reported(job_status=JobStatus.QUEUED)
        job, (run,) = harness.job("a"), harness.runs("a")
        assert (job.status, job.attempts, job.expiries, job.executions) == (JobStatus.QUEUED, 0, 0, 1)
        assert (job.token, job.worker_id, job.lease_expires_at) == (None, None, None)
        assert (run.status, run.reason) == (RunStatus.CANCELLED, "released")

    def test_a_release_is_taken_even_past_the_end_of_the_lease(self, harness: Harness) -> None:
        harness.enqueue("a")
        grant = harness.take()
        harness.advance(100)
        assert harness.report(_release(grant)).job_status is JobStatus.QUEUED
        assert harness.job("a").expiries == 0

    def test_a_release_after_the_expiry_was_written_is_too_late(self, harness: Harness) -> None:
        harness.enqueue("a")
        grant = harness.take()
        harness.advance(30)
        harness.tick()
        harness.refused(LeaseLost, _release(grant), job_id="a")

    def test_a_release_with_delay_waits(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.report(_release(harness.take(), delay_s=10))
        assert harness.job("a").not_before == harness.after(10)
        assert harness.order() == []
        harness.advance(10)
        assert harness.order() == ["a"]

    def test_a_delivery_given_back_does_not_count(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.report(_release(harness.take(), given_back=True))
        assert harness.job("a").deliveries == 0
        harness.report(_release(harness.take()))
        assert harness.job("a").deliveries == 1

    def test_a_chain_job_whose_handler_had_not_begun_goes_back_to_its_queue(self, harness: Harness) -> None:
        harness.enqueue("a", retry_mode="chain")
        assert harness.report(_release(harness.take(), begun=False)) == Reported(job_status=JobStatus.QUEUED)
        assert harness.take().job.job_id == "a"

    def test_a_chain_job_whose_handler_had_begun_ends_with_a_successor(self, harness: Harness) -> None:
        harness.enqueue("a", retry_mode="chain")
        reply = harness.report(_release(harness.take()))
        (heir,) = harness.heirs("a")
        assert reply == Reported(job_status=JobStatus.CANCELLED, successor=heir.job_id)
        assert (heir.retry_of, heir.attempts, heir.position) == ("a", 0, harness.job("a").position)

    def test_a_release_after_a_cancel_request_cancels(self, harness: Harness) -> None:
        harness.enqueue("a")
        grant = harness.take()
        harness.ask(Cancel(job_id=A))
        assert harness.report(_release(grant)) == Reported(job_status=JobStatus.CANCELLED)

    def test_a_token_of_zero_or_less_was_never_granted(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.take()
        for token in (0, -1, 1 << 40):
            harness.refused(UnknownLease, Complete(job_id=A, token=Token(token)), job_id="a")
