"""A coordinator is used from elsewhere as a store of one's own is."""

from __future__ import annotations

from holdfast import Holdfast


def test_a_job_enqueued_over_http_is_run_by_a_worker_over_http(coordinator):
    with Holdfast(coordinator.url) as hf:

        @hf.task
        def double(number: int) -> int:
            return 2 * number

        job = double.enqueue(21)
        assert job.refresh().status == "QUEUED"
        hf.worker(until_idle=True).run()
        assert job.result(timeout=5) == 42
        assert [run.status for run in job.runs()] == ["COMPLETED"]
