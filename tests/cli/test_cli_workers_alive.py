"""`holdfast workers` on real workers: seen while they work, asked to stop, and known to be lost at once when killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

APP = """
from holdfast import Holdfast

hf = Holdfast("{url}")

@hf.task(name="shop.sleep")
def sleep() -> str:
    hf.current.progress(1, 4, "dozing")
    hf.current.log.info("begun")
    hf.current.wait_cancelled(600)
    return "woken" if hf.current.cancelled else "slept"
"""


@pytest.fixture
def worker(place, tmp_path):
    """Start a worker with one job that lasts; it is under way when this returns."""
    (tmp_path / "shop.py").write_text(APP.format(url=place))
    process = subprocess.Popen(
        [sys.executable, "-B", "-c", "from holdfast.cli import main; main()", "worker", "shop:hf", "--name", "front"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def asleep(holdfast, rows, worker, place, tmp_path):
    assert "works on" in worker.stderr.readline()
    if place.startswith("wal:"):
        # The worker holds it, and nobody else can add a job.
        assert '"name":"front"' in first_line(place, "workers", "ls", "-w", "0.1")
        return None
    assert holdfast("jobs", "add", "shop.sleep", "--id", "nap").exit_code == 0
    assert first_line(place, "jobs", "logs", "nap", "--follow").endswith("begun\n")
    return "nap"


def first_line(place, *args):
    """Give the first line that a command, which goes on, writes."""
    command = [sys.executable, "-c", "from holdfast.cli import main; main()", *args]
    env = {**os.environ, "HOLDFAST_STORE": place}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as going:
        line = going.stdout.readline()
        going.kill()
    return line


def test_a_worker_is_listed_and_stops_when_it_is_asked_to(asleep, worker, rows, holdfast):
    (found,) = rows("workers", "ls")
    assert (found["name"], found["pid"], found["state"]) == ("front", worker.pid, "ready")
    assert [job["job_id"] for job in found["jobs"]] == [asleep] * bool(asleep)
    if asleep:
        assert holdfast("jobs", "cancel", asleep).exit_code == 0
    assert holdfast("workers", "stop", "front").exit_code == 0
    assert worker.wait(60) == 0
    assert rows("workers", "ls") == [], "it said goodbye"


def test_a_worker_that_was_killed_is_lost_at_once(asleep, worker, rows, holdfast):
    worker.send_signal(signal.SIGKILL)
    worker.wait(60)
    (found,) = rows("workers", "ls")
    assert found["state"] == "lost"
    told = holdfast("workers", "stop", "front")
    assert (told.exit_code, "is lost" in told.stderr) == (6, True)
    assert "lost" in holdfast("workers", "show", found["worker_id"]).stdout
