"""Callers that die: the queue goes on, what they ran directly is DEAD, and nothing of it is tried again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.model.commands import Complete, Lease
from holdfast.model.reservations import Reservation, ReservationStatus

CHILD = str(Path(__file__).with_name("direct_child.py"))
Start = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture(params=["wal", "sqlite"])
def url(request, tmp_path):
    return {"wal": f"wal:{tmp_path / 'journal'}", "sqlite": f"sqlite:{tmp_path / 'jobs.db'}"}[request.param]


@pytest.fixture
def start(url) -> Iterator[Start]:
    """Start a child on the store; whatever becomes of the test, none is left."""
    children: list[subprocess.Popen[str]] = []

    def run(verb: str) -> subprocess.Popen[str]:
        command = [sys.executable, CHILD, verb, url]
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1
        )
        children.append(child)
        return child

    yield run
    for child in children:
        child.kill()
        child.communicate()


def make(url: str) -> Holdfast:
    hf = Holdfast(url)
    hf.task(queue="mail", name="send")(lambda: "sent")
    return hf


def kill(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.wait()


def goes_on(hf: Holdfast) -> None:
    """Enqueue a job into the queue, and demand that a worker gets to it; it would time out at a held queue."""
    job = hf.task(queue="mail", name="next")(lambda: "done").enqueue()
    worker = hf.worker(["mail"], 1)
    worker.start()
    try:
        assert job.result(timeout=50) == "done"  # below the ttl of a reservation
    finally:
        worker.drain(0)
        worker.join()


def reservations(hf: Holdfast) -> list[Reservation]:
    with hf.engine.read() as view:
        return list(view.all(Reservation))


def test_a_caller_killed_at_work_is_dead_and_the_queue_goes_on(url, start):
    child = start("works")
    word, job_id = child.stdout.readline().split()
    assert word == "working"
    if url.startswith("sqlite"):
        with make(url) as hf:
            queued = hf.task(queue="mail", name="late")(lambda: None).enqueue()
            assert queued.explain().code == "reserved"
            queued.cancel()
    kill(child)
    with make(url) as hf:
        goes_on(hf)
        job = hf.job(job_id)
        assert (job.status, job.refresh().direct) == ("DEAD", True)
        assert [run.status for run in job.runs()] == ["LOST"]
        (reservation,) = reservations(hf)
        assert reservation.status is ReservationStatus.EXPIRED
        assert "not run again" in job.explain().sentence
    with make(url) as hf:
        goes_on(hf)
        assert len(hf.job(job_id).runs()) == 1


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)  # of a `wal:` nobody else can wait for a queue
def test_a_caller_killed_while_it_waits_leaves_nothing_behind(url, start):
    with make(url) as hf:
        running = hf.task(queue="mail", name="long")(lambda: None).enqueue()
        (grant,) = hf.engine.ask(Lease(worker_id="w", queues=("mail",), session_id=hf.engine.session_id)).grants
        child = start("waits")
        assert child.stdout.readline() == "waiting\n"
        kill(child)
        hf.engine.ask(Complete(job_id=grant.job.job_id, token=grant.token))
        goes_on(hf)
        assert running.status == "COMPLETED"
        assert [one.status for one in reservations(hf)] == [ReservationStatus.EXPIRED]
        assert not any(job.refresh().direct for job in hf.jobs())


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ("leave", ReservationStatus.RELEASED),
        ("raise", ReservationStatus.RELEASED),
        ("vanish", ReservationStatus.EXPIRED),
        ("kill", ReservationStatus.EXPIRED),
    ],
)
def test_a_program_that_never_releases_holds_nobody_up(url, start, how, status):
    child = start("forgets")
    word, reservation_id = child.stdout.readline().split()
    assert word == "reserved"
    if how == "kill":
        kill(child)
    else:
        child.communicate(f"{how}\n", timeout=60)
    with make(url) as hf:
        goes_on(hf)
        (reservation,) = reservations(hf)
        assert (reservation.reservation_id, reservation.status) == (reservation_id, status)
        assert reservation.reserved_by == "a forgetful program"
