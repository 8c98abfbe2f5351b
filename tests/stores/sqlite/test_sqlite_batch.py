"""A batch of `sqlite:`: what it knows is what the tables would say, at any moment and after any mishap."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast.engine import Engine
from holdfast.errors import CorruptState, RecordTooLarge
from holdfast.model.commands import (
    Complete,
    Enqueue,
    Fail,
    Lease,
    Move,
    NewJob,
    Normalize,
    Prune,
    Release,
    Retention,
    Update,
)
from holdfast.model.events import JobCancelled, JobChanges, JobCompleted, JobCreated, JobPruned, LeaseGranted
from holdfast.model.ids import JobId, RunId, Token
from holdfast.model.jobs import Job, RetryKind, Run
from holdfast.model.records import TABLES, Authority
from holdfast.model.times import Timestamp
from holdfast.stores.memory.store import MemoryStore
from holdfast.stores.protocol import Store
from holdfast.stores.sqlite import SqliteStore, batch
from holdfast.testing import ManualClock

NOW = Timestamp("2026-01-01T00:00:00.000000Z")
PARAMS = msgspec.Raw(b'{"a":1}')


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore.open(tmp_path / "jobs.db")
    yield opened
    assert opened.check() == []
    opened.close()


def created(name: str, position: int = 100) -> JobCreated:
    return JobCreated(job=Job(JobId(name), "t", PARAMS, NOW, position=position))


def granted(name: str, token: int, run_no: int = 1) -> LeaseGranted:
    return LeaseGranted(
        job_id=JobId(name),
        run_id=RunId(f"{name}-{run_no}"),
        run_no=run_no,
        token=Token(token),
        worker_id="w",
        lease_expires_at=Timestamp("2026-01-01T00:00:30.000000Z"),
    )


def kept(store: Store) -> dict[str, list[object]]:
    with store.read() as view:
        return {name: list(view.all(kind)) for name, kind in TABLES.items()}


def names(store: Store) -> list[str]:
    with store.read() as view:
        return [job.job_id for job in view.all(Job)]


def test_an_event_that_contradicts_is_taken_back_and_the_batch_goes_on(store):
    with store.write() as open_batch:
        open_batch.add([created("a")], NOW)
        with pytest.raises(CorruptState):
            open_batch.add([created("b", 200), granted("a", 1), created("a")], NOW)
        assert open_batch.get(Job, "b") is None
        assert open_batch.last_run(JobId("a")) is None
        assert open_batch.get(Authority, "") is None
        assert open_batch.edge("", "default", 0, last=True) == 100
        assert open_batch.seq == 1
        open_batch.add([created("c", 200)], NOW)
    assert names(store) == ["a", "c"]
    assert [entry.seq for entry in store.feed(0)] == [1, 2]


def test_a_contradiction_after_rows_were_written_is_taken_back_too(store):
    with store.write() as open_batch:
        open_batch.add([created("a"), granted("a", 1)], NOW)
        assert len(list(open_batch.all(Run))) == 1
        with pytest.raises(CorruptState):
            open_batch.add([JobCompleted(job_id=JobId("a"), token=Token(1)), granted("a", 2, 2)], NOW)
        assert open_batch.get(Job, "a").token == 1
        assert open_batch.last_run(JobId("a")).status is None
        open_batch.add([JobCompleted(job_id=JobId("a"), token=Token(1))], NOW)
    assert [run.status for run in kept(store)["job_runs"]] == ["COMPLETED"]


def test_a_second_successor_is_taken_back_with_all_that_its_command_did(store):
    def heir(name: str) -> JobCreated:
        job = Job(JobId(name), "t", PARAMS, NOW, position=300, retry_of=JobId("a"), retry_kind=RetryKind.AUTO)
        return JobCreated(job=job)

    cancelled = JobCancelled(job_id=JobId("a"))
    with store.write() as open_batch:
        open_batch.add([created("a"), cancelled, heir("b")], NOW)
        with pytest.raises(CorruptState, match="already has the successor"):
            open_batch.add([created("c", 400), heir("d")], NOW)
        assert [job.job_id for job in open_batch.successors(JobId("a"))] == ["b"]
    assert names(store) == ["a", "b"]


def test_an_event_too_large_is_refused_alone(store, monkeypatch):
    monkeypatch.setattr(batch, "MAX_LINE", 500)
    with store.write() as open_batch:
        with pytest.raises(RecordTooLarge):
            open_batch.add([created("a"), JobCreated(job=Job(JobId("b"), "t" * 500, PARAMS, NOW))], NOW)
        open_batch.add([created("c")], NOW)
    assert names(store) == ["c"]


@pytest.mark.parametrize("look", [False, True])
def test_a_job_pruned_and_created_again_in_one_batch_is_new(store, look):
    with store.write() as open_batch:
        done = JobCompleted(job_id=JobId("a"), token=Token(1))
        open_batch.add([created("a"), granted("a", 1), done], NOW)
    with store.write() as open_batch:
        open_batch.add([JobPruned(job_id=JobId("a"))], NOW)
        if look:
            assert list(open_batch.all(Job)) == []
        assert open_batch.get(Job, "a") is None
        assert open_batch.runs(JobId("a")) == ()
        open_batch.add([created("a", 300), granted("a", 2)], NOW)
        assert [run.token for run in open_batch.runs(JobId("a"))] == [2]
    with store.read() as view:
        assert (view.get(Job, "a").position, [run.token for run in view.runs(JobId("a"))]) == (300, [2])


def test_created_and_pruned_in_one_batch_leaves_nothing(store):
    with store.write() as open_batch:
        done = JobCompleted(job_id=JobId("a"), token=Token(1))
        open_batch.add([created("a"), granted("a", 1), done, JobPruned(job_id=JobId("a"))], NOW)
    assert (kept(store)["jobs"], kept(store)["job_runs"]) == ([], [])


def test_times_never_run_backwards_in_the_feed(store):
    with store.write() as open_batch:
        open_batch.add([created("a")], NOW)
    with store.write() as open_batch:
        open_batch.add([created("b")], Timestamp("2025-01-01T00:00:00.000000Z"))
    assert [entry.ts for entry in store.feed(0)] == [NOW, NOW]


def test_a_batch_left_by_an_error_is_forgotten_by_the_next(store):
    def spoil() -> None:
        with store.write() as open_batch:
            open_batch.add([created("a")], NOW)
            assert len(list(open_batch.all(Job))) == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        spoil()
    with store.write() as open_batch:
        assert open_batch.get(Job, "a") is None
        assert open_batch.seq == 0
        open_batch.add([created("a")], NOW)
    assert names(store) == ["a"]


def _job(name: str, **options: object) -> NewJob:
    return NewJob(job_id=JobId(name), job_type="t", params=PARAMS, **options)


def _story(engine: Engine, clock: ManualClock) -> None:
    """Do everything whose row is written by a statement of its own, several things to a batch."""
    ask = engine.submit_many
    ask([Enqueue(jobs=(_job(f"j{number}"),)) for number in range(8)])
    ask([Enqueue(jobs=(_job("k", key="x", tags={"a": "b"}, timeout_s=5, delay_s=9, ttl_s=99),))])
    grants = [ask([Lease(worker_id="w", cmd="l1", n=3)])[0].grants, ask([Lease(worker_id="w", n=2)])[0].grants]
    one, two, three, four, five = [grant for some in grants for grant in some]
    ask(
        [
            Complete(job_id=one.job.job_id, token=one.token, result=msgspec.Raw(b"[1]")),
            Complete(job_id=two.job.job_id, token=two.token),
            Fail(job_id=three.job.job_id, token=three.token, error="boom"),
            Release(job_id=four.job.job_id, token=four.token, begun=True),
            Lease(worker_id="v"),
            Move(job_id=JobId("j7"), to="first"),
            Normalize(queue="default"),
            Update(job_id=JobId("j6"), changes=JobChanges(priority=5, queue="mail", lease_s=7, tags={"c": "d"})),
        ]
    )
    clock.advance(31)
    ask([Lease(worker_id="v", n=9), Enqueue(jobs=(_job("last"),))])
    clock.advance(8 * 86_400)
    ask([Prune(retention=Retention(), limit=500)])
    assert five


@pytest.mark.parametrize("known", [1, 4, 20_000])
def test_what_is_kept_does_not_depend_on_what_is_known(store, tmp_path, monkeypatch, known):
    monkeypatch.setattr(batch, "KNOWN", known)
    draws = iter(range(1, 1 << 30))
    monkeypatch.setattr("holdfast.engine.engine._seed", lambda: next(draws))
    memory = MemoryStore()
    for kept_in in (memory, store):
        draws = iter(range(1, 1 << 30))
        clock = ManualClock()
        _story(Engine(kept_in, clock=clock), clock)
    assert kept(store) == kept(memory)
    assert [(entry.seq, entry.ts, bytes(entry.event)) for entry in store.feed(0)] == [
        (entry.seq, entry.ts, bytes(entry.event)) for entry in memory.feed(0)
    ]


def test_a_hundred_enqueues_ask_once_for_the_back_of_the_queue(store):
    engine = Engine(store)
    engine.ask(Enqueue(jobs=(_job("first"),)))
    asked: list[str] = []
    store._writer.set_trace_callback(asked.append)
    engine.submit_many([Enqueue(jobs=(_job(f"job{number:03}"),)) for number in range(100)])
    store._writer.set_trace_callback(None)
    assert len([sql for sql in asked if sql.startswith("SELECT")]) <= 1


def test_what_is_known_is_bounded(store, monkeypatch):
    monkeypatch.setattr(batch, "KNOWN", 10)
    engine = Engine(store)
    for number in range(50):
        engine.ask(Enqueue(jobs=(_job(f"job{number:03}"),)))
    assert len(store._batch._known[Job]) <= 11
