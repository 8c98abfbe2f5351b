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

@hf.task(name="step", lease=float(sys.argv[3]))
def step(n: int) -> int:
    if n == 5:
        Path(sys.argv[2]).write_text("here")
        while True:
            hf.current.wait_cancelled(3600)
    return n

hf.work(concurrency=2)
"""


def program(place, lease):
    return [sys.executable, *(str(place / name) for name in ("program.py", "jobs.db", "reached")), str(lease)]


@pytest.fixture
def place(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    os.mkfifo(tmp_path / "reached")
    return tmp_path


@pytest.mark.parametrize("earlier", [True, False])
def test_another_worker_takes_over_without_waiting_for_the_lease_and_every_job_ends_once(place, earlier):
    """The lease is an hour: only the death of the process explains that its job is taken over."""
    with Holdfast(f"sqlite:{place / 'jobs.db'}") as hf:
        step = hf.task(name="step", lease=3600)(_step)
        jobs = step.enqueue_many([(n,) for n in range(20)])
        second = hf.worker(concurrency=2)
        with subprocess.Popen(program(place, 3600)) as first:
            assert (place / "reached").read_text() == "here"
            if earlier:
                second.start()
            first.kill()
        if not earlier:
            second.start()
        assert [job.result(timeout=LONG) for job in jobs] == list(range(20))
        second.drain(0)
        assert second.join(LONG)
        for job in jobs:
            # Whatever ran more than once is explained by a run that was lost.
            statuses = [run.status for run in job.runs()]
            assert statuses[-1] == "COMPLETED"
            assert set(statuses[:-1]) <= {"LOST"}
        assert next((run.status, run.reason) for run in jobs[5].runs()) == ("LOST", "restart")
        assert hf.engine.store.check() == []


def test_a_worker_told_to_end_releases_its_job_and_exits_with_0(place):
    with Holdfast(f"sqlite:{place / 'jobs.db'}") as hf:
        step = hf.task(name="step", lease=60)(_step)
        job = step.enqueue(5)
        with subprocess.Popen(program(place, 60)) as worker:
            assert (place / "reached").read_text() == "here"
            worker.terminate()
            worker.send_signal(signal.SIGINT)  # another one, as two of a kind may arrive as one
            assert worker.wait(LONG) == 0
        assert (job.status, [run.reason for run in job.runs()]) == ("QUEUED", ["released"])


def _step(n: int) -> int:
    return n
