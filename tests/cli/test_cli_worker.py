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
