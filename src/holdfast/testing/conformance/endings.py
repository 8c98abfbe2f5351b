"""Cancel and bury: jobs that end by wish."""

from __future__ import annotations

from holdfast.errors import InvalidOperation, JobNotFound, LeaseLost
from holdfast.model.commands import Bury, Cancel, Complete, Extend
from holdfast.model.ids import JobId
from holdfast.model.jobs import JobStatus, RunStatus
from holdfast.model.outcomes import CancelAnswer, Changed
from holdfast.testing.conformance.commands import A
from holdfast.testing.conformance.harness import Harness, Topic
from holdfast.testing.conformance.marks import counts_writes

CANCELLED, REQUESTED = CancelAnswer(outcome="cancelled"), CancelAnswer(outcome="requested")


class Endings(Topic):
    """Ends by wish, of the waiting and of the running."""

    def test_a_queued_job_is_cancelled_at_once_without_a_run(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.advance(5)
        assert harness.ask(Cancel(job_id=A, reason="not wanted")) == CANCELLED
        job = harness.job("a")
        assert (job.status, job.finished_at, job.cancel_reason) == (
            JobStatus.CANCELLED,
            harness.after(5),
            "not wanted",
        )
        assert harness.runs("a") == ()
        assert harness.lease() == ()

    def test_a_running_job_is_asked_and_goes_on(self, harness: Harness) -> None:
        harness.enqueue("a")
        grant = harness.take()
        harness.advance(5)
        assert harness.ask(Cancel(job_id=A, reason="stop")) == REQUESTED
        job = harness.job("a")
        assert (job.status, job.token) == (JobStatus.RUNNING, grant.token)
        assert (job.cancel_requested_at, job.cancel_reason) == (harness.after(5), "stop")

    @counts_writes
    def test_asking_a_second_time_writes_nothing(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.take()
        harness.ask(Cancel(job_id=A, reason="first"))
        with harness.unchanged():
            assert harness.ask(Cancel(job_id=A, reason="second")) == REQUESTED

    def test_force_revokes_the_lease_at_once(self, harness: Harness) -> None:
        harness.enqueue("a")
        grant = harness.take()
        assert harness.ask(Cancel(job_id=A, force=True)) == CANCELLED
        job, (run,) = harness.job("a"), harness.runs("a")
        assert (job.status, job.token, job.attempts) == (JobStatus.CANCELLED, None, 0)
        assert (run.status, run.reason, run.token) == (RunStatus.CANCELLED, "cancelled", grant.token)
        harness.refused(LeaseLost, Extend(job_id=A, token=grant.token), job_id="a")

    def test_force_follows_a_request(self, harness: Harness) -> None:
        harness.enqueue("a")
        harness.take()
        harness.ask(Cancel(job_id=A, reason="please"))
        assert harness.ask(Cancel(job_id=A, force=True)) == CANCELLED
        assert harness.job("a").cancel_reason == "please"

    def test_a_lost_lease_of_a_job_asked_to_stop_cancels_it(self, harness: Harness) -> None:
        harness.enqueue("a", retry_mode="chain")
        harness.take()
        harness.ask(Cancel(job_id=A))
        harness.advance(30)
        harness.tick()
        (run,) = harness.runs("a")
        assert (harness.status("a"), run.status) == (JobStatus.CANCELLED, RunStatus.LOST)
        assert harness.heirs("a") == []

    def test_a_queued_job_is_buried_without_a_run(self, harness: Harness) -> None:
        harness.enqueue("a")
        assert harness.ask(Bury(job_id=A, reason="poison")) == Changed(job_id=A)
        job = harness.job("a")
        assert (job.status, job.error, job.finished_at) == (JobStatus.DEAD, "poison", harness.now)
        assert harness.runs("a") == ()

    def test_a_running_job_is_buried_and_its_worker_refused(self, harness: Harness) -> None:
        harness.enqueue("a")
        grant = harness.take()
        harness.ask(Bury(job_id=A))
        (run,) = harness.runs("a")
        assert (harness.status("a"), run.status, run.reason) == (JobStatus.DEAD, RunStatus.CANCELLED, "buried")
        harness.refused(LeaseLost, Complete(job_id=A, token=grant.token), job_id="a")

    def test_what_is_unknown_or_over_cannot_end_again(self, harness: Harness) -> None:
        for ending in (Cancel, Bury):
            harness.refused(JobNotFound, ending(job_id=JobId("z")), job_id="z")
        harness.enqueue("a")
        harness.complete(harness.take())
        for ending in (Cancel, Bury):
            harness.refused(InvalidOperation, ending(job_id=A), job_id="a", status="COMPLETED")

    def test_a_delayed_job_can_be_cancelled(self, harness: Harness) -> None:
        harness.enqueue("a", delay_s=60)
        harness.ask(Cancel(job_id=A))
        harness.advance(60)
        assert harness.lease() == ()
        assert harness.job("a").not_before is None
