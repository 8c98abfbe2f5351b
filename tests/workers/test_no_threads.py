"""When the system has no thread left, a job that needs one fails; the worker goes on, and the next one runs."""

import threading

import process_app
import pytest

from holdfast import Holdfast

LONG = 20


@pytest.fixture
def hf():
    with Holdfast("memory:", clock=process_app.clock) as app:
        yield app


@pytest.fixture
def tasks(hf):
    @hf.task(name="thread", max_attempts=1)
    def in_thread() -> int:
        return 1

    @hf.task(name="loop", max_attempts=1)
    async def in_loop() -> int:
        return 1

    @hf.task(name="shell", max_attempts=1, isolation="shell")
    def in_shell() -> list[str]:
        return ["true"]

    @hf.task(name="process", max_attempts=1, isolation="process")
    def in_process() -> int:
        return 1

    return {"thread": in_thread, "loop": in_loop, "shell": in_shell, "process": in_process}


def drive(w, count):
    w.pump.look()
    while w.pump.reported < count:
        while w.pump.cycle():
            pass
        if w.pump.reported < count:
            w.slots.wait(LONG)


@pytest.mark.parametrize("kind", ["thread", "loop", "shell", "process"])
def test_a_run_that_gets_no_thread_fails_alone_and_the_next_one_runs(hf, tasks, kind, monkeypatch):
    w = hf.worker(concurrency=1)
    jobs = [tasks[kind].enqueue() for _ in range(3)]

    def refuse(_thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    drive(w, 3)
    assert [job.runs()[0].error for job in jobs] == ["the handler could not be started: can't start new thread"] * 3
    monkeypatch.undo()
    last = tasks[kind].enqueue()
    drive(w, 4)
    assert "could not be started" not in (last.runs()[0].error or "")  # a process cannot import what a test defines
    w.slots.close()
    assert w.slots.room() == 1
