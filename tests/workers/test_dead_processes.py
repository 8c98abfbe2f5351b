"""Dead neighbours are looked for once a second while a job runs in another process, and never otherwise."""

import msgspec
import pytest

from holdfast import Engine, Holdfast
from holdfast.model.commands import Complete, Enqueue, Lease, NewJob
from holdfast.model.workflows.commands import FetchTurn
from holdfast.stores.opening import open_store
from holdfast.workers import dead_processes


@pytest.fixture
def looks(monkeypatch):
    """Every look, as it happens."""
    seen, real = [], dead_processes.end_dead_sessions

    def count(engine):
        seen.append(engine)
        return real(engine)

    monkeypatch.setattr(dead_processes, "end_dead_sessions", count)
    return seen


@pytest.fixture
def hf(tmp_path, clock):
    with Holdfast(f"sqlite:{tmp_path / 'jobs.db'}", clock=clock) as app:
        app.task(name="work")(lambda: None)
        yield app


@pytest.fixture
def other(hf, tmp_path, clock):
    """Another opening of the same store."""
    hf.engine  # noqa: B018 - makes the file
    engine = Engine(open_store(f"sqlite:{tmp_path / 'jobs.db'}", clock=clock), clock=clock)
    yield engine
    engine.close()


def drive(w):
    while w.pump.cycle():
        pass


def enqueue(hf):
    hf.engine.ask(Enqueue(jobs=(NewJob(job_id="j", job_type="elsewhere", params=msgspec.Raw(b"{}"), lease_s=3600),)))


def test_nobody_is_looked_for_while_nothing_runs_elsewhere(hf, clock, looks):
    enqueue(hf)
    w = hf.worker(concurrency=1)
    drive(w)
    for _ in range(10):
        w.pump.look()
        clock.advance(1)
        drive(w)
    assert looks == []
    w.slots.close()


def test_while_a_job_runs_elsewhere_there_is_one_look_a_second(hf, other, clock, looks):
    enqueue(hf)
    (grant,) = other.ask(Lease(worker_id="there", session_id=other.session_id)).grants
    w = hf.worker(concurrency=1)
    drive(w)
    w.pump.look()
    for _ in range(50):
        clock.advance(0.2)
        drive(w)
    assert 9 <= len(looks) <= 11  # the first at once
    assert hf.job("j").status == "RUNNING"  # it lives
    other.ask(Complete(job_id=grant.job.job_id, token=grant.token))
    clock.advance(1)
    drive(w)
    looks.clear()
    for _ in range(10):
        clock.advance(1)
        drive(w)
    assert looks == []
    w.slots.close()


def test_while_a_turn_runs_elsewhere_there_is_one_look_a_second(hf, other, clock, looks):
    """A dead process gives up its turns as it gives up its jobs: seen, not waited for."""

    @hf.workflow(name="elsewhere")
    async def elsewhere() -> None: ...

    elsewhere.start(id="i")
    (turn,) = [other.ask(FetchTurn(lock_s=3600, session_id=other.session_id)).turn]
    assert turn.instance_id == "i"
    w = hf.worker(concurrency=1)
    drive(w)
    w.pump.look()
    for _ in range(50):
        clock.advance(0.2)
        drive(w)
    assert 9 <= len(looks) <= 11
    w.slots.close()
