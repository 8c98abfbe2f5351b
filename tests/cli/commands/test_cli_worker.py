"""`holdfast worker` as it is run in a terminal: takes an application's jobs, stops when told, says what is wrong."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from holdfast import Holdfast

APP = """
from holdfast import Holdfast

hf = Holdfast("sqlite:jobs.db")

@hf.task
def double(n: int) -> int:
    return 2 * n
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "shop.py").write_text(APP)
    return tmp_path


@pytest.fixture
def app(place, monkeypatch):
    """The same application, in the process that enqueues."""
    hf = Holdfast(f"sqlite:{place / 'jobs.db'}")
    task = hf.task(name="shop.double")(lambda n: 2 * n)
    yield hf, task
    hf.close()


def worker(place, *args):
    command = [sys.executable, "-c", "from holdfast.cli import main; main()", "worker", *args]
    return subprocess.Popen(command, cwd=place, stderr=subprocess.PIPE, text=True)


def test_it_runs_what_is_there_and_leaves_when_idle(place, app):
    _, double = app
    jobs = double.enqueue_many([(n,) for n in range(50)])
    hired = worker(place, "shop:hf", "--until-idle")
    _, told = hired.communicate(timeout=60)
    assert hired.returncode == 0, told
    assert [job.result(0) for job in jobs] == [2 * n for n in range(50)]


def test_it_takes_what_another_process_enqueues_and_stops_on_a_signal(place, app):
    _, double = app
    hired = worker(place, "shop:hf", "--concurrency", "2")
    assert "works on sqlite:jobs.db" in hired.stderr.readline()
    assert double.enqueue(21).result(60) == 42
    hired.send_signal(signal.SIGTERM)
    _, told = hired.communicate(timeout=60)
    assert hired.returncode == 0, told
    assert told.endswith("stopped\n")


def test_whoever_was_told_that_it_works_can_stop_it_at_once(place, app):
    hired = worker(place, "shop:hf")
    assert "works on sqlite:jobs.db" in hired.stderr.readline()
    hired.send_signal(signal.SIGTERM)
    _, told = hired.communicate(timeout=60)
    assert hired.returncode == 0, told


@pytest.mark.parametrize("closed", ["2>&-", ">&-", "<&- >&- 2>&-"])
def test_it_works_where_it_was_given_no_standard_streams(place, app, closed):
    _, double = app
    job = double.enqueue(4)
    command = [sys.executable, "-c", "from holdfast.cli import main; main()", "worker", "shop:hf", "--until-idle"]
    left = subprocess.run(["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *command], cwd=place, check=False, timeout=60)
    assert (left.returncode, job.result(0)) == (0, 8)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("shop", "does not name an application"),
        ("nowhere:hf", "there is no module nowhere"),
        ("shop:nothing", "shop.py has no nothing"),
        ("shop:double", "not a Holdfast object"),
        ("broken:hf", "broken.py, line 1: ZeroDivisionError"),
        ("needs:hf", "cannot be imported: needs.py, line 1: No module named"),
    ],
)
def test_an_application_that_cannot_be_loaded_exits_2_and_says_why(place, name, said):
    (place / "broken.py").write_text("1 / 0\n")
    (place / "needs.py").write_text("import no_such_thing_here\n")
    hired = worker(place, name)
    _, told = hired.communicate(timeout=60)
    assert hired.returncode == 2
    assert said in told


def test_importing_an_application_makes_nothing_on_disk(place):
    code = "import shop; print(shop.double(4))"
    told = subprocess.run([sys.executable, "-B", "-c", code], cwd=place, capture_output=True, text=True, check=True)
    assert told.stdout == "8\n"
    assert sorted(path.name for path in place.iterdir()) == ["shop.py"]


def test_what_a_script_enqueued_a_worker_that_imports_it_finds(place):
    (place / "shop.py").write_text(APP + 'if __name__ == "__main__":\n    print(double.enqueue(8).id)\n')
    told = subprocess.run([sys.executable, "shop.py"], cwd=place, capture_output=True, text=True, check=True)
    hired = worker(place, "shop:hf", "--until-idle")
    _, said = hired.communicate(timeout=60)
    assert hired.returncode == 0, said
    hf = Holdfast(f"sqlite:{place / 'jobs.db'}")
    hf.task(name="shop.double")(lambda n: 2 * n)
    assert hf.job(told.stdout.strip()).result(0) == 16
    hf.close()


WAITING = """
import os, signal, sys
from holdfast import Holdfast
from holdfast.errors import StoreFailed

hf = Holdfast("sqlite:jobs.db")

@hf.task
def waits() -> None:
    print("begun", flush=True)
    hf.current.wait_cancelled(60)
    hf.current.wait_cancelled(60)
    while True:
        signal.pause()

@hf.task
def listens() -> None:
    print("begun", flush=True)
    hf.current.wait_cancelled(60)

@hf.task
def breaks() -> None:
    def fails(_commands):
        raise StoreFailed("the disk is gone.")

    hf.engine.submit_many = fails
    os.kill(os.getpid(), signal.SIGTERM)
    hf.current.wait_cancelled(60)  # until the worker stops: it must have heard of it before there is a report

@hf.task
def forgets() -> None:
    def fails(_commands):
        raise StoreFailed("the disk is gone.")

    hf.engine.submit_many = fails
"""


def begun(place, task, grace="60"):
    """Enqueue one job and start a worker with it."""
    (place / "slow.py").write_text(WAITING)
    with Holdfast(f"sqlite:{place / 'jobs.db'}") as hf:
        job = hf.task(name=f"slow.{task}")(lambda: None).enqueue()
    command = [sys.executable, "-c", "from holdfast.cli import main; main()", "worker", "slow:hf", "--grace", grace]
    return job.id, subprocess.Popen(
        command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )


def runs_of(place, job_id):
    with Holdfast(f"sqlite:{place / 'jobs.db'}") as hf:
        return hf.job(job_id).status, [run.reason for run in hf.job(job_id).runs()]


def test_a_second_signal_leaves_at_once_exits_130_and_nothing_stays_leased(place):
    job_id, hired = begun(place, "waits")
    assert hired.stdout.readline() == "begun\n"
    hired.send_signal(signal.SIGTERM)
    hired.stderr.readline()
    assert hired.stderr.readline() == "stopping within 60 s: 1 jobs still run\n"
    hired.send_signal(signal.SIGTERM)
    _, told = hired.communicate(timeout=60)
    assert hired.returncode == 130, told
    assert told.splitlines() == ["leaving now: 1 jobs still run", "stopped; 1 jobs were released unfinished"]
    assert runs_of(place, job_id) == ("QUEUED", ["released"])


def test_it_stops_in_order_when_nobody_reads_what_it_says_any_more(place):
    job_id, hired = begun(place, "listens", grace="0")
    assert hired.stdout.readline() == "begun\n"
    hired.stderr.close()
    hired.send_signal(signal.SIGTERM)
    assert hired.wait(60) == 0
    hired.stdout.close()
    assert runs_of(place, job_id) == ("COMPLETED", [None])


def test_a_stop_that_left_leases_exits_1_and_says_so(place):
    _, hired = begun(place, "breaks", grace="0")
    _, told = hired.communicate(timeout=60)
    assert hired.returncode == 1, told
    assert "the disk is gone." in told
    assert "stopped, but 1 jobs stay leased until their leases lapse" in told


def test_a_store_that_fails_at_work_exits_7(place):
    _, hired = begun(place, "forgets")
    _, told = hired.communicate(timeout=60)
    assert hired.returncode == 7, told
    assert "the disk is gone." in told


FLOWS = """

@hf.workflow(version="{version}")
async def onboard(user: int) -> None:
    await hf.signal("go")
"""


def test_workflow_versions_it_lacks_are_counted_and_with_strict_it_does_not_start(place, app):
    hf, _ = app
    onboard = hf.workflow(name="onboard")(lambda user: hf.signal("go"))
    runs = [onboard.start(user) for user in range(3)]
    hf.work(until_idle=True)
    (place / "shop.py").write_text(APP + FLOWS.format(version="2.0.0"))
    hired = worker(place, "shop:hf", "--strict", "--until-idle")
    _, told = hired.communicate(timeout=60)
    assert hired.returncode == 6
    assert told == "instances need workflows it does not have: onboard 1.0.0 (3)\nnot started: --strict\n"
    hired = worker(place, "shop:hf", "--until-idle")
    _, told = hired.communicate(timeout=60)
    assert (hired.returncode, told.count("onboard 1.0.0 (3)")) == (0, 1)
    (place / "shop.py").write_text(APP + FLOWS.format(version="1.0.0"))
    hired = worker(place, "shop:hf", "--strict", "--until-idle")
    _, told = hired.communicate(timeout=60)
    assert hired.returncode == 0, told
    assert [run.status().status for run in runs] == ["RUNNING"] * 3


def test_tasks_it_does_not_know_are_named_and_with_strict_it_does_not_start(place, app):
    hf, double = app
    renamed = [hf.task(name=name)(lambda: None).enqueue() for name in ("shop.gone", "shop.lost")]
    elsewhere = hf.task(name="shop.other", queue="other")(lambda: None)
    elsewhere.enqueue()
    job = double.enqueue(1)
    hired = worker(place, "shop:hf", "--strict", "--until-idle")
    _, told = hired.communicate(timeout=60)
    assert hired.returncode == 6
    assert told == "jobs wait in its queues for tasks it does not know: shop.gone, shop.lost\nnot started: --strict\n"
    assert job.status == "QUEUED"
    hired = worker(place, "shop:hf", "--until-idle")
    _, told = hired.communicate(timeout=60)
    assert hired.returncode == 0
    assert told.count("shop.gone, shop.lost") == 1
    assert [other.status for other in (job, *renamed)] == ["COMPLETED", "QUEUED", "QUEUED"]
    for other in renamed:
        other.cancel()
    hired = worker(place, "shop:hf", "--strict", "--until-idle")
    _, told = hired.communicate(timeout=60)
    assert hired.returncode == 0, told


def test_a_name_is_shown_and_taken_once(place, app):
    hf, double = app
    first = worker(place, "shop:hf", "--name", "alpha")
    first.stderr.readline()
    double.enqueue(1).result(60)
    (info,) = hf.workers()
    assert (info.name, info.pid) == ("alpha", first.pid)
    second = worker(place, "shop:hf", "--name", "alpha")
    _, told = second.communicate(timeout=60)
    assert second.returncode == 6
    assert f"a worker named 'alpha' is at work on this store, on host {info.host} with pid {first.pid}" in told
    first.kill()
    first.communicate()
    third = worker(place, "shop:hf", "--name", "alpha", "--until-idle")
    _, told = third.communicate(timeout=60)
    assert third.returncode == 0, told
