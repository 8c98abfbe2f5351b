"""A coordinator is used from elsewhere as a store of one's own is."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx2
import pytest
from coordinators import running

from holdfast import Holdfast
from holdfast.errors import InvalidOperation, InvalidValue, StoreBusy, StoreFailed
from holdfast.failpoints import listening
from holdfast.model.commands import Enqueue, Lease
from holdfast.model.jobs import Job
from holdfast.stores.http.store import HttpStore
from holdfast.stores.protocol import JobQuery
from holdfast.testing.conformance.harness import new_job
from holdfast.web.server.serving import Listening, Serving


def once(problem):
    """Raise once, then let everything pass."""
    raised = []

    def listener():
        if not raised:
            raised.append(problem)
            raise problem

    return listener


def test_a_job_enqueued_over_http_is_run_by_a_worker_over_http(coordinator):
    with Holdfast(coordinator.url) as hf:

        @hf.task
        def double(number: int) -> int:
            return 2 * number

        job = double.enqueue(21)
        assert job.refresh().status == "QUEUED"
        hf.worker(until_idle=True).run()
        assert job.result(timeout=5) == 42
        assert [run.status for run in job.runs()] == ["COMPLETED"]


def test_a_result_is_waited_for_by_long_poll_while_another_worker_finds_it(coordinator):
    with Holdfast(coordinator.url) as mine, Holdfast(coordinator.url) as theirs:

        @mine.task(name="big")
        def ask(size: int) -> str: ...

        @theirs.task(name="big")
        def big(size: int) -> str:
            return "x" * size

        worker = theirs.worker()
        worker.start()
        # Larger than a record may be: it travels as a blob.
        assert len(ask.enqueue(200_000).result(timeout=20)) == 200_000
        worker.drain(0)
        worker.join()


def test_a_workflow_is_run_against_a_coordinator(coordinator):
    with Holdfast(coordinator.url) as hf:

        @hf.task
        def one() -> int:
            return 1

        @hf.workflow
        async def total() -> int:
            return await one.call() + await one.call()

        worker = hf.worker()
        worker.start()
        assert total.start(id="sum").result(timeout=20) == 2
        worker.drain(0)
        worker.join()


def test_leases_of_others_belong_to_no_opening_of_the_store(coordinator):
    store = HttpStore.open(coordinator.url)
    store.decide([Enqueue(jobs=(new_job("a"),)), Lease(worker_id="w", session_id="forged")])
    with store.read() as view:
        assert view.get(Job, "a").session_id is None
        assert list(view.local_leases()) == []
    store.close()


def test_what_needs_several_requests_comes_back_in_order_and_whole(coordinator):
    store = HttpStore.open(coordinator.url)
    outcomes = store.decide([Enqueue(jobs=(new_job(f"{n:04}"),)) for n in range(600)])
    assert [outcome.jobs[0].job_id for outcome in outcomes] == [f"{n:04}" for n in range(600)]
    with store.read() as view:
        assert [job.job_id for job in view.all(Job)] == [f"{n:04}" for n in range(600)]
        assert len(view.jobs(JobQuery(limit=50))) == 50
    assert len(list(store.feed(0))) >= 600
    store.close()


@pytest.mark.parametrize(
    "lost", [httpx2.ReadError("cut"), httpx2.ReadTimeout("late"), httpx2.RemoteProtocolError("gone")]
)
def test_a_lost_answer_is_repaired_by_the_same_command(coordinator, lost):
    store = HttpStore.open(coordinator.url)
    store.decide([Enqueue(jobs=(new_job("a"), new_job("b")))])
    with listening("http.answered", once(lost)):
        (leased,) = store.decide([Lease(worker_id="w", n=1)])
    assert len(leased.grants) == 1
    with store.read() as view:
        assert [job.job_id for job in view.granted_by(view.get(Job, leased.grants[0].job.job_id).grant_cmd)] == ["a"]
        assert view.get(Job, "b").status == "QUEUED"
    store.close()


def test_nobody_at_the_port_is_a_store_that_is_busy():
    with pytest.raises(StoreBusy, match="holdfast serve"):
        HttpStore.open("http://127.0.0.1:1", patience_s=0)


def test_an_enqueue_whose_answer_never_comes_is_of_unknown_outcome(coordinator):
    store = HttpStore.open(coordinator.url, patience_s=0)

    def lose():
        raise httpx2.ReadError("cut")

    with listening("http.answered", lose), pytest.raises(StoreFailed, match="not known"):
        store.decide([Enqueue(jobs=(new_job("a"),))])
    (again,) = store.decide([Enqueue(jobs=(new_job("a"),))])
    assert not again.jobs[0].created
    store.close()


def test_an_address_beyond_this_machine_needs_access_tokens_and_tls(tmp_path):
    with pytest.raises(InvalidOperation, match="no access token"):
        Serving(f"wal:{tmp_path / 'jobs'}", Listening(host="0.0.0.0", port=0))
    assert list(tmp_path.iterdir()) == []


def test_answers_wait_for_no_acknowledgement_of_their_head(coordinator):
    assert coordinator._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_coordinator_of_a_coordinator_is_refused():
    with pytest.raises(InvalidValue):
        Serving("http://127.0.0.1:1", Listening(port=0))


def test_a_port_that_is_taken_leaves_the_store_unlocked(coordinator, tmp_path):
    port = int(coordinator.url.rpartition(":")[2])
    with pytest.raises(InvalidValue, match="listened"):
        Serving(f"wal:{tmp_path / 'other'}", Listening(port=port))
    with running(f"wal:{tmp_path / 'other'}"):
        pass


def test_stopping_lets_long_polls_go_at_once(tmp_path):
    answered = []
    with running(f"wal:{tmp_path / 'jobs'}") as serving:
        store = HttpStore.open(serving.url)
        with store.read() as view:
            after = view.seq + 1_000
        waiting = threading.Thread(target=lambda: answered.append(store._changes(after, 30.0)))
        arrived = threading.Event()

        def hear():
            # The line of leases waits there, too, in the same loop: only who came after all events counts.
            if waiting.ident is not None:
                arrived.set()

        with listening("bell.waiting", hear):
            waiting.start()
            assert arrived.wait(20)
            with httpx2.stream("GET", f"{serving.url}/api/v1/feed?after={after - 1_000}") as stream:
                assert stream.status_code == 200
                serving.stop()
                assert b"".join(stream.iter_bytes()) == b""
        waiting.join()
    assert len(answered) == 1
    store.close()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("reservations", {"queue": "q", "wait_s": 30}),
        ("direct", {"reservation_id": "r", "worker_id": "w", "job": {"job_type": "t", "queue": "q"}, "wait_s": 30}),
    ],
)
def test_whoever_waits_for_a_queue_when_it_stops_is_told_to_ask_again(path, body):
    answers, patient = [], threading.Event()
    with running("memory:") as serving, httpx2.Client(base_url=f"{serving.url}/api/v1", trust_env=False) as http:
        http.post("/jobs", json={"job_type": "t", "queue": "q"}).raise_for_status()
        lease = {"command": "lease", "cmd": "l", "worker_id": "w", "queues": ["q"]}
        http.post("/lease", json={"lease": lease}).raise_for_status()
        http.post("/reservations", json={"queue": "q", "reservation_id": "r", "ttl_s": 300}).raise_for_status()
        waiting = threading.Thread(
            target=lambda: answers.append(httpx2.post(f"{serving.url}/api/v1/{path}", json=body, timeout=60))
        )
        with listening("reservation.waiting", patient.set):
            waiting.start()
            assert patient.wait(20)
        serving.stop()
        waiting.join()
    (answer,) = answers
    assert (answer.status_code, answer.json()["code"]) == (503, "shutting_down"), answer.text
    assert answer.headers["retry-after"] == "1"


def test_serve_as_a_process_keeps_what_it_acknowledged_and_ends_cleanly(tmp_path):
    command = [
        Path(sys.executable).with_name("holdfast"),
        "serve",
        "--store",
        f"wal:{tmp_path / 'jobs'}",
        "--port",
        "0",
    ]
    env = {**os.environ, "HOLDFAST_STATE_DIR": str(tmp_path / "state")}
    for expected in (True, False):
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
            url = process.stderr.readline().split()[0]
            store = HttpStore.open(url)
            (enqueued,) = store.decide([Enqueue(jobs=(new_job("a"),))])
            assert enqueued.jobs[0].created is expected
            store.close()
            process.send_signal(signal.SIGTERM)
            assert process.stderr.read() == "stopped\n"
        assert process.returncode == 0
    assert Path(tmp_path / "jobs").is_dir()
