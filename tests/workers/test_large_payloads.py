"""Arguments and results beyond a record's size travel beside it; handlers and callers do not notice."""

import process_app
import pytest

from holdfast.model.payloads import ref_in
from holdfast.workers.worker import Worker

LARGE = "ä" * 200_000


def work(hf):
    hf.work(concurrency=2, until_idle=True)


def test_large_arguments_and_results_come_back_whole(hf):
    @hf.task
    def echo(text: str) -> str:
        assert len(hf.current.job.params) > len(LARGE)
        return text + "!"

    job = echo.enqueue(LARGE)
    assert ref_in(job.refresh().params) is not None
    work(hf)
    assert job.result(0) == LARGE + "!"


def test_a_process_of_its_own_gets_them_too():
    hf = process_app.hf
    job = process_app.echo.enqueue(LARGE)
    w = Worker(hf.engine, hf.tasks, ("default",), concurrency=1, until_idle=True)
    w.start()
    assert w.join(30)
    assert job.result(0) == LARGE
    hf.close()


@pytest.mark.parametrize("url", ["memory:"])
def test_a_job_whose_arguments_are_gone_fails_and_says_so(hf, monkeypatch):
    @hf.task(max_attempts=1)
    def echo(text: str) -> str:
        return text

    job, other = echo.enqueue(LARGE), echo.enqueue("small")
    monkeypatch.setattr(hf.engine.store.blobs, "_blobs", {})
    work(hf)
    (run,) = job.runs()
    assert (run.status, run.error_kind) == ("FAILED", "bad_params")
    assert "no blob" in run.error
    assert other.result(0) == "small"
