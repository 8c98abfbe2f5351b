"""`holdfast dev` as it is used: it works, starts anew on a change, waits for what is broken, leaves nobody behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import types
from multiprocessing.connection import wait
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.cli.dev import files
from holdfast.errors import WorkflowCodeError

APP = """
from holdfast import Holdfast
import parts

hf = Holdfast("sqlite:jobs.db")

@hf.task(max_attempts=2)
def multiply(n: int) -> int:
    if n == 13:
        raise ValueError("unlucky")
    return parts.multiply(hf, n)
"""
#: A handler that says that it runs, and never stops by itself.
STUBBORN = """
import threading
def multiply(hf, n):
    open("bell", "w").close()
    threading.Event().wait()
"""


def by(factor):
    return f"def multiply(hf, n):\n    return {factor} * n\n"


class Dev:
    """A `holdfast dev` and what it says."""

    def __init__(self, place, *args):
        command = [sys.executable, "-c", "from holdfast.cli import main; main()", "dev", *args]
        env = {**os.environ, "TMPDIR": str(place), "PYTHONUTF8": "1"}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # as users have it
        self.process = subprocess.Popen(command, cwd=place, stderr=subprocess.PIPE, env=env, process_group=0)
        self.text = ""

    def until(self, pattern):
        """Read until it has said this, after what was waited for before."""
        while not (found := re.search(pattern, self.text)):
            ready = wait([self.process.stderr], 60)
            assert ready, f"nothing more after: {self.text}"
            more = os.read(self.process.stderr.fileno(), 65536)
            assert more, f"it ended after: {self.text}"
            self.text += more.decode()
        self.text = self.text[found.end() :]
        return found

    def worker(self):
        """Give the process that works."""
        (child,) = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return os.pidfd_open(int(child))

    def end(self, number=signal.SIGINT):
        self.process.send_signal(number)
        code = self.process.wait(60)
        self.text += self.process.stderr.read().decode()
        self.process.stderr.close()
        return code


@pytest.fixture
def place(tmp_path):
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "parts.py").write_text(by(2))
    return tmp_path


@pytest.fixture
def dev(place):
    started = []

    def start(*args):
        started.append(Dev(place, "shop:hf", *args))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()
        one.process.stderr.close()


@pytest.fixture
def multiply(place):
    """The same task, in the process that enqueues."""
    with Holdfast(f"sqlite:{place / 'jobs.db'}") as hf:
        yield hf.task(name="shop.multiply", max_attempts=2)(lambda n: n)


def is_over(process):
    return bool(wait([process], 60))


@pytest.fixture
def bell(place):
    """Wait until the application has rung; a pipe is opened by both sides at once."""
    os.mkfifo(place / "bell")
    return (place / "bell").read_bytes


# --- working ----------------------------------------------------------------------------------------------------------


def test_it_names_the_store_that_is_kept_tells_how_jobs_ended_and_stops_cleanly(dev, place, multiply):
    running = dev()
    running.until(r"▶ shop:hf works; Ctrl-C stops it\n  store  sqlite:jobs.db, kept\n  tasks  shop.multiply\n")
    worker = running.worker()
    assert multiply.enqueue(21).result(60) == 42
    running.until(r"✓ shop.multiply [0-9a-f-]{13} \d+ ms\n")
    multiply.enqueue(13)
    running.until(r"↻ shop.multiply .*ValueError: unlucky; again at ")
    assert running.end() == 0
    assert "stopping" in running.text
    assert is_over(worker)
    assert (place / "jobs.db").exists()


def test_a_workflow_that_reads_a_clock_is_told_its_line_and_what_to_use_instead(dev, place):
    flow = """
import time

@hf.workflow(name="hasty")
async def hasty() -> float:
    return time.time()
"""
    (place / "shop.py").write_text(APP + flow)
    with Holdfast(f"sqlite:{place / 'jobs.db'}") as hf:
        hf.workflow(name="hasty")(_hasty).start()
    running = dev()
    running.until(r"a workflow may not read a clock \(shop\.py:\d+ in hasty\).*hf\.now\(\)")
    assert running.end() == 0


def test_workflow_that_blocks_its_turn_is_refused_with_its_line(dev, place):
    flow = """
import time

@hf.workflow(name="hasty")
async def hasty() -> float:
    time.sleep(0)
    return 0.0
"""
    (place / "shop.py").write_text(APP + flow)
    with Holdfast(f"sqlite:{place / 'jobs.db'}") as hf:
        run = hf.workflow(name="hasty")(_hasty).start()
        running = dev()
        with pytest.raises(WorkflowCodeError, match=r"block its turn with time\.sleep \(shop\.py:\d+ in hasty\)"):
            run.result(60)
    assert running.end() == 0


async def _hasty() -> float:
    return 0.0


def test_a_temporary_store_is_named_and_gone_afterwards(dev, place):
    running = dev("--temp")
    url = running.until(r"store  (sqlite:\S+), thrown away at the end\n")[1]
    assert Path(url.removeprefix("sqlite:")).is_relative_to(place)
    with Holdfast(url) as hf:
        assert hf.task(name="shop.multiply")(lambda n: n).enqueue(4).result(60) == 8
    assert running.end(signal.SIGTERM) == 0
    assert sorted(path.name for path in place.iterdir() if path.suffix == ".py") == ["parts.py", "shop.py"]
    assert not list(place.glob("holdfast-dev-*"))
    assert not (place / "jobs.db").exists()


def test_an_application_that_is_nowhere_exits_2(place):
    running = Dev(place, "nowhere:hf")
    assert running.process.wait(60) == 2
    assert "there is no module nowhere" in running.process.stderr.read().decode()
    running.process.stderr.close()


def test_a_store_that_another_process_has_exits_6(dev, place):
    (place / "shop.py").write_text(APP.replace("sqlite:jobs.db", "wal:jobs"))
    with Holdfast(f"wal:{place / 'jobs'}") as hf:
        hf.open()
        running = dev()
        assert running.process.wait(60) == 6
    assert "holdfast: " in running.process.stderr.read().decode()


# --- changes ----------------------------------------------------------------------------------------------------------


def test_a_change_in_an_imported_file_starts_the_new_code(dev, place, multiply):
    running = dev()
    running.until("shop:hf works")
    assert multiply.enqueue(4).result(60) == 8
    (place / "parts.py").write_text(by(100))
    running.until(r"↻ parts.py changed\n")
    running.until(r"▶ works again: 1 task\n")
    assert multiply.enqueue(4).result(60) == 400


def test_a_change_within_the_same_second_and_of_the_same_size_is_not_missed(dev, place, multiply):
    """By these two Python judges whether its compiled copy of a file is still good."""
    second = 1_700_000_000 * 10**9
    os.utime(place / "parts.py", ns=(second, second))
    running = dev()
    running.until("shop:hf works")
    assert multiply.enqueue(4).result(60) == 8
    (place / "parts.new").write_text(by(3))
    os.utime(place / "parts.new", ns=(second + 1, second + 1))
    (place / "parts.new").replace(place / "parts.py")
    running.until("works again")
    assert multiply.enqueue(4).result(60) == 12


def test_what_is_broken_is_shown_and_the_next_good_save_starts_it(dev, place, multiply):
    running = dev()
    running.until("shop:hf works")
    (place / "parts.py").write_text("def multiply(hf, n:\n")
    running.until(r'File ".*parts.py", line 1\n(.*\n)+ +SyntaxError: .*\n✕ shop:hf cannot be used')
    (place / "parts.py").write_text(by(10))
    running.until("works again")
    assert multiply.enqueue(4).result(60) == 40
    (place / "shop.py").write_text(APP + "1 / 0\n")
    running.until("ZeroDivisionError: division by zero\n")
    (place / "shop.py").unlink()
    running.until("there is no module shop")
    (place / "shop.py").write_text(APP)
    running.until("works again")


def test_it_waits_for_an_application_that_is_broken_from_the_start(dev, place):
    (place / "parts.py").write_text("import\n")
    running = dev()
    running.until("✕ shop:hf cannot be used")
    (place / "parts.py").write_text(by(3))
    running.until("shop:hf works")
    assert running.end() == 0


def test_a_job_that_runs_at_a_change_is_released_and_run_by_the_new_code(dev, place, multiply, bell):
    (place / "parts.py").write_text(STUBBORN)
    running = dev("--grace", "0")
    running.until("shop:hf works")
    job = multiply.enqueue(4)
    bell()
    (place / "parts.py").write_text(by(5))
    assert job.result(60) == 20
    assert job.refresh().attempts == 1


# --- the end ----------------------------------------------------------------------------------------------------------


def test_a_second_signal_leaves_at_once(dev, place, multiply, bell):
    (place / "parts.py").write_text(STUBBORN)
    running = dev("--grace", "600")
    running.until("shop:hf works")
    multiply.enqueue(4)
    bell()
    worker = running.worker()
    running.process.send_signal(signal.SIGINT)
    running.until("stopping; running jobs have 600 s to end")
    assert running.end() == 130
    assert is_over(worker)


@pytest.mark.parametrize("parts", [STUBBORN, "import threading\nopen('bell', 'w').close()\nthreading.Event().wait()\n"])
def test_a_worker_does_not_outlive_a_parent_that_was_killed(dev, place, multiply, bell, parts):
    """Neither one that runs a job nor one that still imports the application."""
    (place / "parts.py").write_text(parts)
    multiply.enqueue(4)
    running = dev("--grace", "600")
    bell()
    worker = running.worker()
    running.process.kill()
    assert is_over(worker)


# --- which files ------------------------------------------------------------------------------------------------------


def test_only_the_applications_own_files_are_watched(tmp_path):
    own = types.ModuleType("own")
    own.__file__ = str(tmp_path / "own.py")
    built_in = types.ModuleType("built_in")
    modules = {"own": own, "built_in": built_in, "os": os, "pytest": pytest, "holdfast": sys.modules["holdfast"]}
    assert files.imported(modules) == {str(tmp_path / "own.py")}


def test_the_file_at_fault_is_watched_although_it_is_not_imported(tmp_path):
    wrong = tmp_path / "wrong.py"
    with pytest.raises(SyntaxError) as caught:
        compile("def (", str(wrong), "exec")
    assert str(wrong) in files.blamed(caught.value)


def test_a_change_is_seen_by_time_size_and_existence(tmp_path):
    kept, gone, new, touched = (str(tmp_path / name) for name in ("kept", "gone", "new", "touched"))
    for path in (kept, gone, touched):
        Path(path).write_text("x")
    before = files.prints([kept, gone, new, touched])
    assert files.changed(before, files.prints(before)) == []
    os.utime(touched, ns=(1, 1))
    Path(gone).unlink()
    Path(new).write_text("y")
    assert files.changed(before, files.prints(before)) == sorted([gone, new, touched])
