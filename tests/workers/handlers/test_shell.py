"""A task that is a command: its words stay words, its exit code decides, and nothing it started is left behind."""

import os
import signal
import subprocess
import sys
import threading
from multiprocessing.connection import wait
from pathlib import Path

import pytest

from holdfast import Holdfast, Shell
from holdfast.errors import InvalidValue, JobFailed
from holdfast.workers.handlers.shell import MAX_STDOUT, ShellResult
from holdfast.workers.worker import Worker

LONG = 30


@pytest.fixture(params=["memory", "sqlite"])
def url(request, tmp_path):
    return "memory:" if request.param == "memory" else f"sqlite:{tmp_path / 'jobs.db'}"


@pytest.fixture
def shell(hf):
    """One task that runs whatever it is told."""

    @hf.task(name="run", isolation="shell", max_attempts=1, timeout=60)
    def run(words: list[str], stdin: str | None = None, cwd: str | None = None) -> Shell:
        return Shell(words, stdin=stdin, cwd=cwd, env={"GREETING": "hello $HOME"})

    return run


@pytest.fixture
def w(hf):
    worker = Worker(hf.engine, hf.tasks, ("default",), concurrency=2, kill_after_s=0.2)
    yield worker
    worker.slots.close()


def drive(w):
    while w.pump.cycle():
        pass


def finish(w, count=1):
    w.pump.look()
    drive(w)
    while w.pump.reported + w.pump.lost < count:
        w.slots.wait(LONG)
        drive(w)


def work(hf):
    hf.work(until_idle=True)


def lines(hf, job):
    found = hf.engine.store.logs.read(job.runs()[0].run_id)
    return [(kept.line.stream, kept.line.text) for kept in found]


def is_gone(pid):
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
    os.mkfifo(tmp_path / "fifo")
    return tmp_path / "fifo"


def test_words_reach_the_program_as_they_are(hf, shell):
    job = shell.enqueue(["printf", "%s|", "$HOME", "; rm -rf /", "a b", "*", "ü"])
    work(hf)
    assert job.result(0) == ShellResult(0, "$HOME|; rm -rf /|a b|*|ü|")
    (run,) = job.runs()
    assert (run.status, run.exit_code) == ("COMPLETED", 0)
    assert lines(hf, job) == [("stdout", "$HOME|; rm -rf /|a b|*|ü|")]


def test_a_task_may_return_just_the_words_and_called_here_it_gives_them(hf):
    @hf.task(isolation="shell")
    def greet(name: str) -> list[str | Path]:
        return [Path("/bin/echo"), name]

    assert greet("x") == [Path("/bin/echo"), "x"]
    job = greet.enqueue("world")
    work(hf)
    assert job.result(0).stdout == "world\n"


def test_a_text_needs_to_say_that_a_shell_reads_it(hf):
    @hf.task(isolation="shell", max_attempts=1)
    def text(explicit: bool) -> Shell | str:
        return Shell("echo $((6 * 7)) | cat", shell=True) if explicit else "echo 42"

    explicit, bare = text.enqueue(True), text.enqueue(False)
    work(hf)
    assert explicit.result(0).stdout == "42\n"
    assert [run.error_kind for run in bare.runs()] == ["bad_result"]
    assert "shell=True" in bare.refresh().error


@pytest.mark.parametrize("argv", [[], [""], ["a\0b"], [1], ["a", b"b"], "text"])
def test_what_is_no_command_is_refused(argv):
    with pytest.raises(InvalidValue):
        Shell(argv)


def test_variables_input_and_place_are_given_and_the_job_is_known(hf, shell, tmp_path):
    script = 'cat; pwd; echo "$GREETING $HOLDFAST_JOB_ID $HOLDFAST_RUN_ID $HOLDFAST_TOKEN"'
    job = shell.enqueue(["sh", "-c", script], "from stdin\n", str(tmp_path))
    work(hf)
    (run,) = job.runs()
    assert job.result(0).stdout == (
        f"from stdin\n{os.path.realpath(tmp_path)}\nhello $HOME {job.id} {run.run_id} {run.token}\n"
    )


def test_a_command_without_input_reads_nothing(hf, shell):
    job = shell.enqueue(["cat"])
    work(hf)
    assert job.result(0).stdout == ""


def test_a_failing_command_fails_its_run_with_the_end_of_its_stderr(hf, shell):
    script = "for n in $(seq 100); do echo line $n >&2; done; exit 3"
    job = shell.enqueue(["sh", "-c", script])
    work(hf)
    (run,) = job.runs()
    assert (run.status, run.error_kind, run.exit_code) == ("FAILED", "exit", 3)
    told = run.error.splitlines()
    assert told[0] == "sh exited with code 3"
    assert told[1:] == [f"line {n}" for n in range(81, 101)]
    assert len(lines(hf, job)) == 100
    with pytest.raises(JobFailed, match="exited with code 3"):
        job.result(0)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["/nowhere/at/all"], 127, "/nowhere/at/all: No such file or directory"),
        (["/etc/passwd"], 126, "/etc/passwd: Permission denied"),
        (["sh", "-c", "kill -SEGV $$"], -11, "sh was killed by SIGSEGV (signal 11)"),
    ],
)
def test_a_command_that_cannot_be_run_or_dies_says_so(hf, shell, words, code, said):
    job = shell.enqueue(words)
    work(hf)
    (run,) = job.runs()
    assert (run.status, run.error_kind, run.exit_code) == ("FAILED", "exit", code)
    assert said in run.error


def test_a_place_that_is_not_there_fails_the_run(hf, shell, tmp_path):
    job = shell.enqueue(["true"], None, str(tmp_path / "missing"))
    work(hf)
    assert "could not be started" in job.refresh().error


def test_a_function_that_fails_runs_nothing(hf):
    @hf.task(isolation="shell", max_attempts=1)
    def broken() -> list[str]:
        raise ValueError("no such host")

    @hf.task(isolation="shell", max_attempts=1)
    def odd() -> list[str]:
        return 5

    jobs = [broken.enqueue(), odd.enqueue()]
    work(hf)
    assert [job.runs()[0].error_kind for job in jobs] == ["exception", "bad_result"]
    assert "not a int" in jobs[1].refresh().error


def test_a_coroutine_function_gives_no_command(hf):
    with pytest.raises(InvalidValue, match="plain function"):

        @hf.task(isolation="shell")
        async def later() -> list[str]:
            return ["true"]


def test_the_end_of_a_long_output_is_the_result(hf, shell, capsys):
    job = shell.enqueue(["sh", "-c", "head -c 200000 /dev/zero | tr '\\0' x; echo end"])
    work(hf)
    found = job.result(0).stdout
    assert (len(found), found[-4:]) == (MAX_STDOUT, "end\n")
    assert len(capsys.readouterr().out) == 200_004


def test_output_that_is_no_text_is_kept_as_far_as_it_is(hf, shell):
    job = shell.enqueue(["printf", "\\377ok\\n"])
    work(hf)
    assert job.result(0).stdout == "\ufffdok\n"
    assert lines(hf, job) == [("stdout", "\ufffdok")]


def test_a_pipe_whose_reader_left_ends_as_everywhere(hf, shell):
    job = shell.enqueue(["sh", "-c", "yes | head -n 1"])
    work(hf)
    assert job.result(0).stdout == "y\n"


STUBBORN = "trap '' TERM; sleep 1000 & echo $$ $! > \"$0\"; wait; sleep 1000"


def test_a_command_that_ran_too_long_is_killed_with_its_children_even_if_it_will_not_listen(hf, w, shell, clock, fifo):
    job, other = shell.options(timeout=5).enqueue(["sh", "-c", STUBBORN, str(fifo)]), shell.enqueue(["true"])
    drive(w)
    pids = [int(word) for word in fifo.read_text().split()]
    clock.advance(5)
    finish(w, 2)
    (run,) = job.runs()
    assert (run.status, run.error_kind) == ("FAILED", "timeout")
    assert len(pids) == 2
    assert all(is_gone(pid) for pid in pids)
    assert other.status == "COMPLETED"


def test_a_cancelled_command_may_clean_up(hf, w, shell, clock, fifo, tmp_path):
    script = 'trap \'echo bye > "$1"; exit 1\' TERM; echo $$ > "$0"; while :; do sleep 0.01; done'
    job = shell.enqueue(["sh", "-c", script, str(fifo), str(tmp_path / "note")])
    w2 = Worker(hf.engine, hf.tasks, ("default",), concurrency=1, kill_after_s=LONG)
    drive(w2)
    (pid,) = (int(word) for word in fifo.read_text().split())
    job.cancel("not needed")
    clock.advance(1)
    finish(w2)
    w2.slots.close()
    assert job.status == "CANCELLED"
    assert (tmp_path / "note").read_text() == "bye\n"
    assert is_gone(pid)


def test_a_function_that_never_gives_its_command_is_reported_in_time(hf, w, clock):
    begun, go = threading.Event(), threading.Event()

    @hf.task(isolation="shell", max_attempts=1, timeout=5)
    def stuck() -> list[str]:
        begun.set()
        assert go.wait(LONG)
        return ["touch", "/nowhere/at/all"]

    job = stuck.enqueue()
    drive(w)
    assert begun.wait(LONG)
    clock.advance(5)
    finish(w)
    assert [(run.status, run.error_kind) for run in job.runs()] == [("FAILED", "timeout")]
    go.set()


def test_a_stopped_worker_kills_its_commands_and_releases_their_jobs(hf, w, shell, fifo):
    job = shell.enqueue(["sh", "-c", STUBBORN, str(fifo)])
    w.start()
    pids = [int(word) for word in fifo.read_text().split()]
    w.stop()
    assert w.join(LONG)
    assert (job.status, [run.reason for run in job.runs()]) == ("QUEUED", ["released"])
    assert all(is_gone(pid) for pid in pids)


@pytest.mark.parametrize(
    "leave",
    [
        'sleep 1000 >/dev/null 2>&1 & echo $! > "$0"',
        # Twice removed: a session of its own, and its parent gone.
        """(setsid sh -c 'echo $$ > "$0"; exec sleep 1000' "$0" >/dev/null 2>&1 &)""",
    ],
)
def test_what_a_command_leaves_running_is_killed_and_its_result_counts(hf, shell, tmp_path, fifo, leave):
    os.mkfifo(tmp_path / "go")
    job = shell.enqueue(["sh", "-c", f'{leave}; cat "$1"', str(fifo), str(tmp_path / "go")])
    w = hf.worker(concurrency=1, until_idle=True)
    w.start()
    pid = int(fifo.read_text())
    (tmp_path / "go").write_text("go on")
    assert w.join(LONG)
    assert job.result(0).stdout == "go on"
    assert is_gone(pid)


SCRIPT = """
import sys
from holdfast import Holdfast

hf = Holdfast("sqlite:" + sys.argv[1])

@hf.task(isolation="shell")
def forever(fifo: str) -> list[str]:
    return ["sh", "-c", "trap '' TERM; sleep 1000 & echo $$ $! > \\"$0\\"; wait", fifo]

forever.enqueue(sys.argv[2])
hf.work()
"""


def test_a_worker_that_is_killed_leaves_no_command_behind(tmp_path, fifo):
    (tmp_path / "program.py").write_text(SCRIPT)
    program = [sys.executable, str(tmp_path / "program.py"), str(tmp_path / "other.db"), str(fifo)]
    with subprocess.Popen(program) as worker:
        pids = [int(word) for word in fifo.read_text().split()]
        worker.send_signal(signal.SIGKILL)
    assert len(pids) == 2
    assert all(is_gone(pid) for pid in pids)


def test_a_job_and_its_result_are_typed_for_who_only_enqueues(tmp_path):
    with Holdfast(f"sqlite:{tmp_path / 'jobs.db'}") as app:

        @app.task(isolation="shell", name="hi")
        def hi() -> list[str]:
            return ["echo", "hi"]

        job = hi.enqueue()
        app.work(until_idle=True)
        assert app.job(job.id).result(0) == ShellResult(0, "hi\n")
