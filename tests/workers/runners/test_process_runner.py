"""A handler in a process of its own can do what it likes: its run ends, the worker lives, and nobody is left behind."""

import dataclasses
import os
import signal
import subprocess
import sys
from multiprocessing.connection import wait
from pathlib import Path

import msgspec
import process_app as app
import pytest

from holdfast.model.commands import Enqueue, NewJob
from holdfast.model.ids import JobId
from holdfast.workers.worker import Worker

LONG = 30


@pytest.fixture
def w():
    worker = Worker(app.hf.engine, app.hf.tasks, ("default",), concurrency=1, kill_after_s=0.2)
    yield worker
    worker.slots.close()
    app.hf.close()  # the store is in memory: the next test has a new one


def drive(w):
    while w.pump.cycle():
        pass


def run(w, *jobs):
    """Drive until these have reported."""
    w.pump.look()
    drive(w)
    while w.pump.reported < len(jobs):
        w.slots.wait(LONG)
        drive(w)
    return [(run.status, run.error_kind, run.exit_code) for job in jobs for run in job.runs()]


def is_gone(pid):
    """Wait until a process, of whomever, is over."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(wait([fd], LONG))
    finally:
        os.close(fd)


@pytest.fixture
def fifo(tmp_path):
    path = tmp_path / "started"
    os.mkfifo(path)
    return path


def told(fifo):
    """Wait for the numbers a handler tells."""
    return [int(word) for word in fifo.read_text().split()]


def test_a_handler_returns_from_its_process(w):
    jobs = [app.double.enqueue(4), app.double_later.enqueue(5)]
    run(w, *jobs)
    assert [job.result(timeout=0) for job in jobs] == [8, 10]


def test_a_process_is_used_again(w):
    jobs = [app.pid.enqueue(), app.pid.enqueue()]
    run(w, *jobs)
    first, second = (job.result(timeout=0) for job in jobs)
    assert first == second != os.getpid()


def test_a_handler_knows_its_own_execution_there_too(w):
    job = app.me.enqueue()
    run(w, job)
    assert job.result(timeout=0) == [job.id, 1, job.runs()[0].token, False]


@pytest.mark.parametrize(
    ("name", "args", "code", "words"),
    [
        ("segfault", (), -signal.SIGSEGV, "killed by SIGSEGV (signal 11)"),
        ("aborts", (), -signal.SIGABRT, "killed by SIGABRT (signal 6)"),
        ("exit_with", (3,), 3, "exited with code 3 before it gave a result"),
        ("exit_with", (0,), 0, "exited with code 0 before it gave a result"),
        ("dies_before_its_fork", (), 7, "exited with code 7"),
    ],
)
def test_a_process_that_dies_fails_its_run_and_the_next_job_gets_another(w, name, args, code, words):
    dead, alive = getattr(app, name).enqueue(*args), app.double.enqueue(1)
    assert run(w, dead, alive) == [("FAILED", "exit", code), ("COMPLETED", None, None)]
    assert words in dead.refresh().error


@pytest.mark.parametrize(
    "task", [app.closes_everything, app.scribbles, app.scribbles_other_letters, app.scribbles_deeply]
)
def test_a_handler_that_spoils_its_pipes_fails_alone(w, task):
    spoilt, alive = task.enqueue(), app.double.enqueue(1)
    (status, kind, _), other = run(w, spoilt, alive)
    assert (status, kind) == ("FAILED", "exit")
    assert other == ("COMPLETED", None, None)


def test_a_process_that_died_between_two_jobs_is_replaced(w):
    first = app.pid.enqueue()
    run(w, first)
    os.kill(first.result(timeout=0), signal.SIGKILL)
    second = app.double.enqueue(2)
    assert is_gone(first.result(timeout=0))
    run(w, first, second)
    assert second.status == "COMPLETED"


def test_memory_beyond_the_limit_fails_the_run_and_says_so(w):
    job, other = app.leaks.enqueue(), app.double.enqueue(1)
    run(w, job, other)
    assert (job.status, other.status) == ("FAILED", "COMPLETED")
    assert "MemoryError" in job.refresh().error
    assert "memory limit is 419,430,400 bytes" in job.refresh().error


def test_returned_value_that_cannot_be_encoded_fails_the_job_at_once(w, tmp_path):
    job = app.odd_result_inside.enqueue(str(tmp_path / "calls"))
    assert run(w, job) == [("FAILED", "bad_result", None)]
    assert "result.rows[1].when: object of type object cannot be encoded as JSON" in job.refresh().error
    assert (tmp_path / "calls").read_text() == "called\n"


def test_outcomes_are_the_same_as_in_a_thread(w):
    jobs = [app.wants.enqueue(what) for what in ("error", "fatal", "exit")] + [app.odd_result.enqueue()]
    kinds = [kind for _, kind, _ in run(w, *jobs)]
    assert kinds == ["exception", "fatal", "exception", "bad_result"]
    assert "ValueError: broken" in jobs[0].refresh().error
    snoozed = app.wants.enqueue("snooze")
    run(w, *jobs, snoozed)
    assert (snoozed.status, snoozed.refresh().snoozes) == ("QUEUED", 1)


def test_arguments_that_do_not_fit_fail_the_run_there_too(w):
    params = msgspec.Raw(b'{"n":"many"}')
    app.hf.engine.ask(Enqueue(jobs=(NewJob(job_id=JobId("j"), job_type=app.double.name, params=params),)))
    job = app.hf.job("j")
    assert run(w, job) == [("FAILED", "bad_params", None)]


def test_a_task_the_child_cannot_find_is_named(w, monkeypatch):
    # Registered here, but by nothing that importing its module again would do.
    spec = dataclasses.replace(app.pid.spec, name="hidden")
    monkeypatch.setitem(app.hf.tasks._specs, "hidden", spec)
    new = NewJob(job_id=JobId("h"), job_type="hidden", params=msgspec.Raw(b"{}"), max_attempts=1)
    app.hf.engine.ask(Enqueue(jobs=(new,)))
    job = app.hf.job("h")
    run(w, job)
    assert "process_app was imported in a child process, and defines no task 'hidden'" in job.refresh().error


def test_a_handler_that_ran_too_long_may_clean_up(w, fifo, tmp_path):
    job = app.waits.enqueue(str(fifo), str(tmp_path / "note"))
    drive(w)
    (pid,) = told(fifo)
    app.clock.advance(5)
    assert run(w, job) == [("FAILED", "timeout", None)]
    assert (tmp_path / "note").read_text() == "cleaned up"
    assert is_gone(pid)


def test_a_handler_that_ignores_sigterm_is_killed_with_all_its_children(w, fifo):
    job, other = app.deaf.enqueue(str(fifo)), app.double.enqueue(1)
    drive(w)
    pids = told(fifo)
    app.clock.advance(5)
    assert run(w, job, other) == [("FAILED", "timeout", None), ("COMPLETED", None, None)]
    assert len(pids) == 2
    assert all(is_gone(pid) for pid in pids)


def test_a_cancelled_job_ends_its_process(w, fifo, tmp_path):
    job = app.waits.enqueue(str(fifo), str(tmp_path / "note"))
    drive(w)
    (pid,) = told(fifo)
    job.cancel("not needed")
    app.clock.advance(1)
    w.pump.look()
    run(w, job)
    assert (job.status, job.refresh().cancel_reason) == ("CANCELLED", "not needed")
    assert (tmp_path / "note").exists()
    assert is_gone(pid)


@pytest.mark.parametrize("task", [app.leaves_a_program, app.leaves_a_fork])
def test_what_a_handler_leaves_running_is_killed_and_its_result_counts(w, task):
    job = task.enqueue()
    run(w, job)
    assert job.status == "COMPLETED"
    assert is_gone(job.result(timeout=0))


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        ("return", ("COMPLETED", None, None)),
        ("crash", ("FAILED", "exit", -signal.SIGABRT)),
        ("hang", ("FAILED", "timeout", None)),
    ],
)
def test_a_daemon_that_left_the_group_is_killed_however_the_handler_ended(w, fifo, tmp_path, end, outcome):
    os.mkfifo(tmp_path / "go")
    job = app.leaves_a_daemon.enqueue(str(fifo), str(tmp_path / "go"), end)
    drive(w)
    (daemon,) = told(fifo)
    (tmp_path / "go").write_text("go")
    if end == "hang":
        assert told(fifo) == [0]
        app.clock.advance(5)
    other = app.double.enqueue(1)
    assert run(w, job, other) == [outcome, ("COMPLETED", None, None)]
    assert is_gone(daemon)


def said(job):
    found = app.hf.engine.store.logs.read(job.runs()[0].run_id, limit=10_000)
    return [(kept.line.stream, kept.line.level, kept.line.text) for kept in found]


def test_what_a_handler_says_there_is_kept_with_its_run(w, tmp_path, capsys):
    job = app.talks.enqueue(str(tmp_path / "file"))
    assert run(w, job) == [("COMPLETED", None, None)]
    lines = said(job)
    assert [line for line in lines if line[0] == "log"] == [("log", "WARNING", "logged 7"), ("log", "INFO", "told")]
    assert [text for stream, _, text in lines if stream == "stdout"] == ["printed", "by a program", "InvalidValue"]
    assert [text for stream, _, text in lines if stream == "stderr"] == ["written", "logged 7"]
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("printed\nby a program\nInvalidValue", "written\nlogged 7\n")
    (record,) = job.runs()
    assert msgspec.json.decode(record.progress) == {"fraction": 0.5, "done": 1.0, "total": 2.0, "message": "half"}
    (artifact,) = msgspec.json.decode(record.artifacts)
    assert (artifact["name"], artifact["media_type"]) == ("file", "text/x-thing")
    assert app.hf.engine.store.blobs.get(artifact["sha256"]) == b"content"


def test_a_crash_leaves_its_last_words(w, capsys):
    job = app.says_where_it_crashed.enqueue()
    assert run(w, job) == [("FAILED", "exit", -signal.SIGSEGV)]
    lines = said(job)
    assert ("stdout", "", "before") in lines
    assert any("Segmentation fault" in text for _, _, text in lines)
    assert any("says_where_it_crashed" in text for _, _, text in lines)


def test_a_flood_of_lines_is_cut_and_the_run_ends(w, capsys):
    job, other = app.floods.enqueue(), app.double.enqueue(1)
    assert run(w, job, other) == [("COMPLETED", None, None)] * 2
    lines = said(job)
    assert sum(len(text) for _, _, text in lines) <= (1 << 20) + 8192
    assert lines[-1][2].startswith("… 1,048,576 bytes are kept")


def test_lines_of_a_thread_that_outlived_its_handler_go_to_no_other_run(w):
    first, second = app.late_words.enqueue(), app.pid.enqueue()
    run(w, first, second)
    assert said(second) == []


def test_a_fork_that_returns_from_the_handler_gives_no_second_result(w):
    job, other = app.fork_returns.enqueue(), app.double.enqueue(3)
    run(w, job, other)
    assert (job.result(timeout=0), other.result(timeout=0)) == (1, 6)


def test_a_stopped_worker_kills_its_processes_and_releases_their_jobs(w, fifo):
    job = app.deaf.enqueue(str(fifo))
    w.start()
    pids = told(fifo)
    w.stop()
    assert w.join(LONG)
    assert (job.status, [run.reason for run in job.runs()]) == ("QUEUED", ["released"])
    assert all(is_gone(pid) for pid in pids)


SCRIPT = """
import os, signal, sys
from pathlib import Path
from holdfast import Holdfast

hf = Holdfast("sqlite:" + sys.argv[1] if __name__ == "__main__" else "memory:")

@hf.task(isolation="process")
def forever(started: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = os.fork()
    if child:
        Path(started).write_text(f"{os.getpid()} {child}")
    while True:
        signal.pause()

@hf.task(isolation="process", max_attempts=1)
def simple() -> str:
    return __name__

if __name__ == "__main__":
    if len(sys.argv) == 3:
        forever.enqueue(sys.argv[2])
        hf.work()
    else:
        job = simple.enqueue()
        hf.work(until_idle=True)
        print(job.result(timeout=0))
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(SCRIPT)
    return str(path)


def test_a_worker_that_is_killed_leaves_no_process_behind(script, fifo, tmp_path):
    with subprocess.Popen([sys.executable, script, str(tmp_path / "jobs.db"), str(fifo)]) as worker:
        pids = told(fifo)
        worker.kill()
    assert len(pids) == 2
    assert all(is_gone(pid) for pid in pids)


@pytest.mark.parametrize("how", ["file", "module"])
def test_tasks_of_the_main_program_are_found(script, tmp_path, how):
    program = [script] if how == "file" else ["-m", Path(script).stem]
    done = subprocess.run(
        [sys.executable, *program, str(tmp_path / "jobs.db")], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "__mp_main__\n"


LOGS = """
import logging, logging.config, sys
from holdfast import Holdfast

logging.basicConfig(level=logging.INFO, format="%(message)s, as told", stream=sys.stdout)
hf = Holdfast("memory:")

@hf.task(isolation="process")
def talks(again: bool) -> None:
    logging.getLogger("app").info("heard")
    hf.current.log.info("told")
    if again:
        logging.config.dictConfig({"version": 1, "root": {"level": "INFO", "handlers": []}})

if __name__ == "__main__":
    for again in (True, False):
        job = talks.enqueue(again)
        hf.work(concurrency=1, until_idle=True)
        print([line.text for line in job.log() if line.stream == "log"])
"""


def test_an_application_sets_up_logging_there_as_it_does_elsewhere(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(LOGS)
    done = subprocess.run([sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "heard, as told",
        "told, as told",
        "['heard', 'told']",
        "heard, as told",
        "told, as told",
        "['heard', 'told']",
    ]


def test_a_program_that_works_unguarded_is_told_so(tmp_path):
    path = tmp_path / "unguarded.py"
    path.write_text(SCRIPT.replace('if __name__ == "__main__":\n', "if True:\n"))
    failed = subprocess.run(
        [sys.executable, str(path), str(tmp_path / "jobs.db")], capture_output=True, text=True, check=False
    )
    assert "a child process of a worker cannot be a worker" in failed.stderr
    assert "JobFailed" in failed.stderr
