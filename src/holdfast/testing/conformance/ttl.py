"""Latest start: a job still queued then will not run."""

from __future__ import annotations

from holdfast.model.commands import Retry
from holdfast.model.ids import JobId
from holdfast.model.jobs import Backoff, JobStatus, RunStatus
from holdfast.testing.conformance.commands import A
from holdfast.testing.conformance.harness import Harness, Topic, new_job


class LatestStart(Topic):
    """Skipped on tick and at dispatch, by an event and with a run that says so."""

    def test_a_job_past_its_latest_start_is_skipped_by_the_tick(self, harness: Harness) -> None:
        harness.enqueue("a", ttl_s=10)
        harness.advance(10 - 0.000001)
        assert harness.tick().expired == 0
        harness.advance(0.000001)
        seq = harness.seq
        assert harness.tick().expired == 1
        assert harness.kinds(seq) == ["job:skipped"]
        job, (run,) = harness.job("a"), harness.runs("a")
        assert (job.status, job.cancel_reason, job.finished_at) == (JobStatus.CANCELLED, "expired", harness.after(10))
        assert (run.status, run.reason, run.run_no, run.token) == (RunStatus.SKIPPED, "expired", 0, None)
        assert run.started_at == run.finished_at == harness.after(10)

    def test_a_job_past_its_latest_start_is_skipped_at_dispatch(self, harness: Harness) -> None:
        harness.enqueue_many(new_job("a", ttl_s=10), new_job("b"))
        harness.advance(10)
        assert harness.order() == ["b"]
        assert (harness.status("a"), harness.job("a").executions) == (JobStatus.CANCELLED, 0)

    def test_a_job_started_in_time_is_not_skipped(self, harness: Harness) -> None:
        harness.enqueue("a", ttl_s=10)
        grant = harness.take()
        harness.advance(20)
        assert harness.tick().expired == 0
        assert harness.complete(grant).job_status is JobStatus.COMPLETED

    def test_a_retry_that_waits_past_the_latest_start_is_skipped(self, harness: Harness) -> None:
        harness.enqueue("a", ttl_s=10, backoff=Backoff(base_s=60, jitter=0))
        harness.fail(harness.take())
        harness.advance(10)
        harness.tick()
        assert harness.status("a") is JobStatus.CANCELLED
        assert [run.status for run in harness.runs("a")] == [RunStatus.FAILED, RunStatus.SKIPPED]

    def test_the_earlier_of_ttl_and_latest_start_counts(self, harness: Harness) -> None:
        harness.enqueue("a", ttl_s=10, expires_at=harness.after(5))
        harness.enqueue("b", ttl_s=10, expires_at=harness.after(50))
        assert [harness.job(name).expires_at for name in "ab"] == [harness.after(5), harness.after(10)]

    def test_skipped_jobs_do_not_use_up_the_grants_asked_for(self, harness: Harness) -> None:
        harness.enqueue_many(*(new_job(f"old{number}", ttl_s=1) for number in range(5)), new_job("a"), new_job("b"))
        harness.advance(1)
        assert harness.order(2) == ["a", "b"]

    def test_a_skipped_job_can_be_retried_by_hand_and_has_no_latest_start_then(self, harness: Harness) -> None:
        harness.enqueue("a", ttl_s=1)
        harness.advance(1)
        harness.tick()
        harness.ask(Retry(job_id=A, new_job_id=JobId("b")))
        assert harness.job("b").expires_at is None
        assert harness.order() == ["b"]
