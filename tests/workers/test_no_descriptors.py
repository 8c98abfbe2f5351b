"""When the process has no descriptors left, a job that needs some fails; nothing leaks, and the next one runs."""

import errno
import os
from pathlib import Path

import process_app
import pytest

from holdfast import Holdfast
from holdfast.workers.worker import Worker

LONG = 30


@pytest.fixture
def shell_app():
    with Holdfast("memory:", clock=process_app.clock) as hf:

        @hf.task(name="run", isolation="shell", max_attempts=1)
        def run(n: int) -> list[str]:
            return ["echo", str(n)]

        yield hf, run


@pytest.fixture
def process():
    yield process_app.hf, process_app.double
    process_app.hf.close()


def descriptors():
    """Give the open ones; the one that reads them is closed again by then."""
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


def drive(w, count):
    w.pump.look()
    while w.pump.cycle():
        pass
    while w.pump.reported < count:
        w.slots.wait(LONG)
        while w.pump.cycle():
            pass


@pytest.mark.parametrize("kind", ["process", "shell_app"])
def test_a_run_that_gets_no_descriptors_fails_alone_and_leaves_none_open(kind, request, monkeypatch):
    hf, task = request.getfixturevalue(kind)
    w = Worker(hf.engine, hf.tasks, ("default",), concurrency=1, kill_after_s=0.2)
    before = descriptors()
    made, real = [], os.pipe
    errors = []
    for allowed in range(7):

        def some(allowed=allowed):
            if len(made) >= allowed:
                raise OSError(errno.EMFILE, "Too many open files")
            made.append(real())
            return made[-1]

        made.clear()
        job = task.enqueue(allowed)
        with monkeypatch.context() as poor:
            poor.setattr(os, "pipe", some)
            drive(w, allowed + 1)
        errors.append(job.refresh().error)
    failed = [error for error in errors if error is not None]
    assert 3 <= len(failed) < 7
    assert all("could not be started" in error and "Too many open files" in error for error in failed)
    last = task.enqueue(5)
    drive(w, 8)
    assert last.status == "COMPLETED"
    w.slots.close()
    assert descriptors() == before
