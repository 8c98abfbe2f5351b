"""A coordinator that goes and comes again is found again, by who used it and by who works for it."""

from __future__ import annotations

import threading

from coordinators import running

from holdfast import Holdfast
from holdfast.failpoints import listening
from holdfast.model.commands import Complete, Enqueue, Lease
from holdfast.model.jobs import Job
from holdfast.stores.http.store import HttpStore
from holdfast.testing.conformance.harness import new_job


def port_of(serving):
    return int(serving.url.rpartition(":")[2])


def test_a_lease_outlives_the_coordinator_that_granted_it(tmp_path):
    url = f"wal:{tmp_path / 'jobs'}"
    with running(url) as serving:
        port = port_of(serving)
        store = HttpStore.open(serving.url)
        _, leased = store.decide([Enqueue(jobs=(new_job("a"),)), Lease(worker_id="w")])
    with running(url, port=port):
        (reported,) = store.decide([Complete(job_id="a", token=leased.grants[0].token)])
        assert reported.job_status == "COMPLETED"
        with store.read() as view:
            assert [run.status for run in view.runs("a")] == ["COMPLETED"]
            assert view.get(Job, "a").executions == 1
    store.close()


def test_a_worker_goes_on_when_its_coordinator_is_back(tmp_path):
    url = f"wal:{tmp_path / 'jobs'}"
    tried = threading.Event()
    with running(url) as serving:
        port = port_of(serving)
        hf = Holdfast(serving.url)

        @hf.task
        def double(number: int) -> int:
            return 2 * number

        worker = hf.worker()
        worker.start()
        assert double.enqueue(1).result(timeout=20) == 2
    with listening("http.again", tried.set):
        assert tried.wait(20)  # somebody has noticed that nobody is there
    with running(url, port=port), hf:
        assert double.enqueue(2).result(timeout=30) == 4
        worker.drain(0)
        worker.join()
