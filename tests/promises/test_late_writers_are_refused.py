"""A worker that lost its lease cannot finish the job."""

from __future__ import annotations

import pytest

from holdfast.engine import Engine
from holdfast.engine.maintenance import recover
from holdfast.errors import LeaseLost
from holdfast.model.commands import Complete, Enqueue, Extend, Fail, Lease, Snooze
from holdfast.model.ids import JobId
from holdfast.model.jobs import JobStatus
from holdfast.stores.opening import open_store
from holdfast.testing import ManualClock
from holdfast.testing.conformance.harness import dump_of, new_job

A = JobId("a")


@pytest.fixture(params=["memory", "wal", "sqlite"])
def url(request, tmp_path):
    return "memory:" if request.param == "memory" else f"{request.param}:{tmp_path / 'jobs'}"


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def engine(url, clock):
    opened = Engine(open_store(url, clock=clock), clock=clock)
    opened.ask(Enqueue(jobs=(new_job("a"),)))
    yield opened
    opened.close()


def test_a_worker_that_froze_past_its_lease_cannot_complete_what_another_completed(engine, clock):
    (frozen,) = engine.ask(Lease(worker_id="frozen")).grants
    clock.advance(31)
    (awake,) = engine.ask(Lease(worker_id="awake")).grants
    assert awake.token > frozen.token
    assert engine.ask(Complete(job_id=A, token=awake.token)).job_status is JobStatus.COMPLETED
    before = dump_of(engine.store)
    for late in (
        Complete(job_id=A, token=frozen.token),
        Fail(job_id=A, token=frozen.token, error="late"),
        Snooze(job_id=A, token=frozen.token, delay_s=5),
        Extend(job_id=A, token=frozen.token),
    ):
        with pytest.raises(LeaseLost):
            engine.ask(late)
    assert dump_of(engine.store) == before


def test_a_worker_is_refused_even_before_anyone_noticed_that_its_lease_ran_out(engine, clock):
    (grant,) = engine.ask(Lease(worker_id="slow")).grants
    clock.advance(30)
    with pytest.raises(LeaseLost):
        engine.ask(Complete(job_id=A, token=grant.token))
    assert engine.job(A).status is JobStatus.QUEUED


def test_a_worker_of_a_process_that_restarted_is_refused(engine, clock, url):
    if url == "memory:":
        pytest.skip("memory: does not outlive its process")
    (grant,) = engine.ask(Lease(worker_id="local", session_id=engine.session_id)).grants
    engine.close()
    clock.advance(30)
    reopened = Engine(open_store(url, clock=clock), clock=clock)
    recover(reopened)
    with pytest.raises(LeaseLost):
        reopened.ask(Complete(job_id=A, token=grant.token))
    (again,) = reopened.ask(Lease(worker_id="next")).grants
    assert again.token > grant.token
    reopened.close()
