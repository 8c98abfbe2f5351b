"""A process killed at any point of a commit: what it was told is there, nothing is there twice, the others go on."""

from pathlib import Path

import msgspec
import pytest
from sqlite_child import enqueue

from holdfast.engine import Engine
from holdfast.model.commands import Complete, Enqueue, Lease, NewJob
from holdfast.model.events import decode_event
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, JobStatus, Run
from holdfast.model.outcomes import Leased
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import killed_at

pytestmark = pytest.mark.disk

POINTS = ["sqlite.begun", "sqlite.settled", "sqlite.committing", "sqlite.committed"]
#: Each commit of the child's round, and one later on: enqueue, lease, complete, …
TIMES = [1, 2, 3, 8]


def killed(path: Path, point: str, nth: int) -> list[str]:
    """Work in a process until it is killed; give what it was told."""
    told = path.with_suffix(".told")
    told.touch()
    killed_at(point, lambda: work(path, told), nth=nth)
    return told.read_text().splitlines()


def work(path: Path, told: Path) -> None:
    """Create jobs, lease and complete them, and write down what was acknowledged."""
    engine = Engine(SqliteStore.open(path))
    with told.open("w", buffering=1) as lines:
        for number in range(20):
            enqueue(engine, f"job-{number}")
            print(f"created job-{number}", file=lines)
            outcome = engine.submit(Lease(worker_id="w"))
            assert isinstance(outcome, Leased)
            for grant in outcome.grants:
                print(f"leased {grant.job.job_id} {grant.token}", file=lines)
                engine.ask(Complete(job_id=grant.job.job_id, token=grant.token))
                print(f"completed {grant.job.job_id}", file=lines)


def demand_kept(store: SqliteStore, told: list[str]) -> None:
    """Demand that all the child was told is there, that at most one more thing is, and that nothing is there twice."""
    assert store.check() == []
    with store.read() as view:
        jobs = {job.job_id: job for job in view.all(Job)}
        runs = list(view.all(Run))
        seq = view.seq
    events = [decode_event(entry.event, seq=entry.seq, file="feed") for entry in store.feed(0)]
    assert len(events) == seq
    assert len(told) <= seq <= len(told) + 1
    for line in told:
        verb, job_id, *rest = line.split()
        match verb:
            case "created":
                assert job_id in jobs
            case "leased":
                assert [run.job_id for run in runs if run.token == int(rest[0])] == [job_id]
            case "completed":
                assert jobs[job_id].status is JobStatus.COMPLETED
    created = [event.job.job_id for event in events if type(event).__name__ == "JobCreated"]
    assert sorted(created) == sorted(jobs)
    assert len({run.token for run in runs}) == len(runs)


@pytest.mark.parametrize("nth", TIMES)
@pytest.mark.parametrize("point", POINTS)
def test_a_process_killed_in_a_commit_loses_nothing_it_was_told(tmp_path, point, nth):
    path = tmp_path / "jobs.db"
    told = killed(path, point, nth)
    for _ in range(2):
        store = SqliteStore.open(path)
        demand_kept(store, told)
        store.close()
    engine = Engine(SqliteStore.open(path))
    engine.ask(Enqueue(jobs=(NewJob(job_id=JobId("next"), job_type="work", params=msgspec.Raw(b"{}")),)))
    assert engine.store.check() == []
    engine.close()


@pytest.mark.parametrize("point", POINTS)
def test_others_go_on_when_a_process_is_killed_in_its_commit(tmp_path, point):
    path = tmp_path / "jobs.db"
    engine = Engine(SqliteStore.open(path))
    told = killed(path, point, 2)
    demand_kept(engine.store, told)
    engine.ask(Enqueue(jobs=(NewJob(job_id=JobId("mine"), job_type="work", params=msgspec.Raw(b"{}")),)))
    grants = engine.ask(Lease(worker_id="w", n=10)).grants
    for grant in grants:
        engine.ask(Complete(job_id=grant.job.job_id, token=grant.token))
    assert {grant.job.job_id for grant in grants} >= {"mine"}
    assert engine.store.check() == []
    engine.close()


def test_a_process_killed_while_it_makes_the_store_leaves_none(tmp_path):
    path = tmp_path / "jobs.db"
    assert killed(path, "sqlite.built", 1) == []
    assert not path.exists()
    store = SqliteStore.open(path)
    assert store.check() == []
    store.close()
