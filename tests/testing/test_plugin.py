"""The pytest plugin: there without being asked, silent and light until it is."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from holdfast.failpoints import reach


def pytest_run(where, source):
    (where / "test_user.py").write_text(source)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", where],
        capture_output=True,
        text=True,
        check=False,
        cwd=where,
    )


def test_the_plugin_is_found_by_its_entry_point():
    (found,) = [entry for entry in entry_points(group="pytest11") if entry.name == "holdfast"]
    assert found.value == "holdfast.testing.plugin"


def test_loading_the_plugin_imports_nothing_else_of_ours():
    source = (
        "import sys, pytest; before = set(sys.modules); import holdfast.testing.plugin;"
        "print(*sorted(set(sys.modules) - before))"
    )
    told = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in told if name.startswith("holdfast")] == [
        "holdfast",
        "holdfast.testing",
        "holdfast.testing.plugin",
        "holdfast.version",
    ]
    assert not {"msgspec", "sqlite3", "asyncio", "click"} & set(told)


def test_fixtures_give_each_test_an_application_on_a_clock_of_its_own(tmp_path):
    source = """
from holdfast.testing import drain

def test_one(holdfast_app, holdfast_clock):
    task = holdfast_app.task(name="t")(lambda: "done")
    job = task.options(delay=60).enqueue()
    assert drain(holdfast_app) == []
    holdfast_clock.advance(60)
    assert [run.status for run in drain(holdfast_app)] == ["COMPLETED"]

def test_two(holdfast_app, holdfast_clock):
    assert holdfast_clock.monotonic() == 0
    assert holdfast_app.jobs() == []
"""
    told = pytest_run(tmp_path, source)
    assert told.returncode == 0, told.stdout
    assert "2 passed" in told.stdout


# --- holdfast_crash, as its users use it ------------------------------------------------------------------------------


def test_a_worker_killed_before_it_reports_leaves_the_job_to_the_next(holdfast_crash, tmp_path):
    hf = holdfast_crash.app
    effects = tmp_path / "effects"

    @hf.task(name="charge")
    def charge(amount: int) -> int:
        with effects.open("a") as file:
            file.write(f"{hf.current.token}\n")
        return amount

    job = charge.enqueue(5)
    holdfast_crash.kill("thread.returned")
    assert job.status == "RUNNING"
    (run,) = holdfast_crash.restart()
    assert (run.status, job.result(0)) == ("COMPLETED", 5)
    assert [run.status for run in job.runs()] == ["LOST", "COMPLETED"]
    assert len(set(effects.read_text().split())) == 2


def test_a_point_of_the_users_own_serves_as_well(holdfast_crash):
    hf = holdfast_crash.app

    @hf.task(name="t")
    def t():
        reach("half-way")

    job = t.enqueue()
    holdfast_crash.kill("half-way")
    assert job.status == "RUNNING"


def test_an_enqueue_that_was_killed_after_its_commit_is_there(holdfast_crash):
    hf = holdfast_crash.app
    task = hf.task(name="t")(lambda: None)
    holdfast_crash.kill("engine.committed", task.enqueue, nth=1)
    assert [job.status for job in hf.jobs()] == ["QUEUED"]


def test_an_enqueue_that_was_killed_before_its_commit_is_not(holdfast_crash):
    hf = holdfast_crash.app
    task = hf.task(name="t")(lambda: None)
    holdfast_crash.kill("engine.decided", task.enqueue)
    assert hf.jobs() == []


def test_a_child_that_never_comes_to_the_point_fails_the_test(holdfast_crash, capfd):
    with pytest.raises(AssertionError, match="code 0 without coming to 'nowhere'"):
        holdfast_crash.kill("nowhere", lambda: None)
    with pytest.raises(AssertionError, match="code 1"):
        holdfast_crash.kill("nowhere", lambda: 1 / 0)
    assert "ZeroDivisionError" in capfd.readouterr().err
