"""A worker that is killed in the middle of its work costs time, never work."""

import os
import signal
import subprocess
import sys

import pytest

from holdfast import Holdfast

LONG = 30
PROGRAM = """
import os, sys
from pathlib import Path
from holdfast import Holdfast

hf = Holdfast("sqlite:" + sys.argv[1])

@hf.task(name="step", lease=1)
def step(n: int) -> int:
    if n == 5:
        Path(sys.argv[2]).write_text("here")
        while True:
            hf.current.wait_cancelled(3600)
    return n

hf.work(concurrency=2)
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    os.mkfifo(tmp_path / "reached")
    return tmp_path


def test_another_worker_takes_over_and_every_job_ends_once(place):
    with Holdfast(f"sqlite:{place / 'jobs.db'}") as hf:

        @hf.task(name="step", lease=1)
        def step(n: int) -> int:
            return n

        jobs = step.enqueue_many([(n,) for n in range(20)])
        program = [sys.executable, str(place / "program.py"), str(place / "jobs.db"), str(place / "reached")]
        with subprocess.Popen(program) as first:
            assert (place / "reached").read_text() == "here"
            first.kill()
        second = hf.worker(concurrency=2)
        second.start()
        assert [job.result(timeout=LONG) for job in jobs] == list(range(20))
        second.drain(0)
        assert second.join(LONG)
        for job in jobs:
            # Whatever ran more than once is explained by a run that was lost.
            statuses = [run.status for run in job.runs()]
            assert statuses[-1] == "COMPLETED"
            assert set(statuses[:-1]) <= {"LOST"}
        assert "LOST" in [run.status for run in jobs[5].runs()]
        assert hf.engine.store.check() == []


def test_a_worker_told_to_end_releases_its_job_and_exits_with_0(place):
    with Holdfast(f"sqlite:{place / 'jobs.db'}") as hf:
        step = hf.task(name="step", lease=60)(_step)
        job = step.enqueue(5)
        program = [sys.executable, str(place / "program.py"), str(place / "jobs.db"), str(place / "reached")]
        with subprocess.Popen(program) as worker:
            assert (place / "reached").read_text() == "here"
            worker.terminate()
            worker.send_signal(signal.SIGINT)  # another one, as two of a kind may arrive as one
            assert worker.wait(LONG) == 0
        assert (job.status, [run.reason for run in job.runs()]) == ("QUEUED", ["released"])


def _step(n: int) -> int:
    return n
