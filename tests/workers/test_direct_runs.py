"""A granted job run by whoever asked for it: in a process of its own, too; and seen by others if it takes long."""

import os
from concurrent.futures import ThreadPoolExecutor

import process_app as app
import pytest

from holdfast import Holdfast
from holdfast.errors import JobCancelled, JobFailed
from holdfast.workers import registration


@pytest.fixture
def processes():
    """The application whose tasks run in processes; its store is in memory, so the next test has a new one."""
    yield app
    app.hf.close()


def test_a_task_in_a_process_of_its_own_gives_its_value(processes):
    assert processes.double.direct(21) == 42
    assert processes.double_later.direct(4) == 8
    assert processes.pid.direct() != os.getpid()
    assert {job.refresh().direct for job in processes.hf.jobs()} == {True}


def test_a_process_that_dies_is_a_failure_and_no_queue_stays_held(processes):
    @processes.hf.task(name="nowhere", isolation="process")
    def nowhere() -> None: ...

    with pytest.raises(JobFailed):  # its process finds no such task
        nowhere.direct()
    with pytest.raises(JobFailed, match="asked to be called again"):
        processes.hf.task(name="later")(lambda: (_ for _ in ()).throw(app.Snooze(5))).direct()
    with processes.hf.reserve("default", wait=0):
        pass


def test_a_long_one_is_seen_in_the_roster_with_its_progress_and_gone_after(hf, monkeypatch):
    monkeypatch.setattr(registration, "CHANGED_S", 0.0)
    seen = []

    @hf.task
    def long() -> None:
        context = hf.current
        context.progress(0.5, message="half")
        with hf.engine.read() as view:
            after = view.seq
        while not (workers := hf.workers()):
            hf.engine.store.wait(after, 0.01)
        seen.extend(workers)
        job = hf.job(context.job_id)
        assert job.progress.message == "half"

    long.direct()
    (worker,) = seen
    assert (worker.worker_id.split(":")[0], worker.state, worker.pid) == ("direct", "draining", os.getpid())
    assert hf.workers() == []


def test_a_short_one_is_not_written_into_the_roster(hf, monkeypatch):
    notes = []
    task = hf.task(name="short")(lambda: None)
    monkeypatch.setattr(type(hf.engine.store.workers), "note", lambda _self, info: notes.append(info))
    task.direct()
    assert notes == []


def test_a_command_whose_job_is_cancelled_is_ended_and_its_caller_is_told(tmp_path):
    with Holdfast(f"sqlite:{tmp_path / 'jobs.db'}") as hf, ThreadPoolExecutor(1) as pool:
        task = hf.task(name="sleeps", isolation="shell")(lambda: ["sleep", "3600"])

        def cancel() -> None:
            while True:
                with hf.engine.read() as view:
                    seen = view.seq
                for job in hf.jobs(task="sleeps"):
                    job.cancel("enough")
                    return
                hf.engine.store.wait(seen, 10)

        cancelled = pool.submit(cancel)
        with pytest.raises(JobCancelled, match="enough"):
            task.direct()
        cancelled.result(60)
