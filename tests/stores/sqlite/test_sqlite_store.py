"""`sqlite:` as a store: many processes, readers that see one state, failures that are named, forks that are refused."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import msgspec
import pytest

from holdfast.engine import Engine
from holdfast.errors import (
    CorruptState,
    InvalidValue,
    StoreBusy,
    StoreClosed,
    StoreDamaged,
    StoreFailed,
    StoreFull,
    StoreReadOnly,
)
from holdfast.failpoints import listening
from holdfast.model.commands import CreateGroup, Enqueue, Lease, NewJob
from holdfast.model.groups import Group
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, JobStatus
from holdfast.stores.sqlite import SqliteStore, lookups
from holdfast.stores.sqlite import store as sqlite_store
from holdfast.stores.sqlite.connections import translated

CHILD = str(Path(__file__).with_name("sqlite_child.py"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore.open(path)
    yield opened
    opened.close()


@pytest.fixture
def engine(store: SqliteStore) -> Engine:
    return Engine(store)


def enqueue(*names: str, params: bytes = b"{}") -> Enqueue:
    return Enqueue(
        jobs=tuple(NewJob(job_id=JobId(name), job_type="work", params=msgspec.Raw(params)) for name in names)
    )


def names(store: SqliteStore) -> list[str]:
    with store.read() as view:
        return [job.job_id for job in view.all(Job)]


def sqlite_error(code: int, kind: type[sqlite3.Error] = sqlite3.OperationalError) -> sqlite3.Error:
    error = kind("said SQLite")
    error.sqlite_errorcode = code
    return error


def failing(error: BaseException):
    def fail() -> None:
        raise error

    return fail


# --- readers ----------------------------------------------------------------------------------------------------------


def test_a_view_stays_as_it_was_while_others_write(store, engine):
    engine.ask(enqueue("a"))
    with store.read() as before:
        engine.ask(enqueue("b"))
        with store.read() as after:
            assert [job.job_id for job in before.all(Job)] == ["a"]
            assert [job.job_id for job in after.all(Job)] == ["a", "b"]
            assert (before.seq, after.seq) == (1, 2)


def test_a_reader_does_not_see_an_open_batch(store, engine):
    seen: list[list[str]] = []
    with listening("sqlite.committing", lambda: seen.append(names(store))):
        engine.ask(enqueue("a"))
    assert (seen, names(store)) == ([[]], ["a"])


def test_a_walk_left_half_way_does_not_hold_its_view(store, engine):
    engine.ask(enqueue(*"abc"))
    with store.read() as view:
        walk = view.all(Job)
        next(walk)
    engine.ask(enqueue("d"))
    with store.read() as again:
        assert again.seq == 4
    with pytest.raises(sqlite3.ProgrammingError):
        next(walk)


def test_a_walk_left_half_way_does_not_hold_a_batch(store, engine, path):
    engine.ask(enqueue(*"abc"))
    with store.write() as batch:
        walk = batch.all(Job)
        next(walk)
    other = SqliteStore.open(path, patience_s=0)
    Engine(other).ask(enqueue("d"))
    other.close()


def test_a_walk_that_outlives_its_connection_ends_without_a_complaint(path):
    opened = SqliteStore.open(path)
    Engine(opened).ask(enqueue(*"abc"))
    with opened.read() as view:
        walk = view.all(Job)
        next(walk)
    opened.close()
    walk.close()


# --- many writers -----------------------------------------------------------------------------------------------------


def test_two_openings_write_one_store(path, store, engine):
    other = SqliteStore.open(path)
    for number in range(5):
        engine.ask(enqueue(f"a{number}"))
        Engine(other).ask(enqueue(f"b{number}"))
    assert names(store) == names(other) == sorted(f"{who}{number}" for who in "ab" for number in range(5))
    assert [entry.seq for entry in store.feed(0)] == list(range(1, 11))
    assert store.check() == []
    other.close()


def test_what_another_process_did_is_known_before_deciding(path, engine):
    other = Engine(SqliteStore.open(path))
    engine.ask(enqueue("a"))
    grant = engine.ask(Lease(worker_id="w")).grants[0]
    assert other.ask(Lease(worker_id="v")).grants == ()
    other.ask(enqueue("b"))
    second = engine.ask(Lease(worker_id="w")).grants[0]
    assert (second.job.job_id, second.token) == ("b", grant.token + 1)
    other.close()


def test_processes_share_the_work_and_none_does_it_twice(path):
    def start(*args: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, CHILD, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(children: list[subprocess.Popen[str]]) -> list[list[str]]:
        for child in children:
            assert child.stdout.readline() == "open\n"
        for child in children:
            child.stdin.write("go\n")
            child.stdin.flush()
        said = [child.communicate(timeout=120)[0].splitlines() for child in children]
        assert [child.returncode for child in children] == [0] * len(children)
        return said

    made = run([start("enqueues", str(path), name, "25") for name in ("a", "b", "c")])
    done = run([start("works", str(path), name) for name in ("x", "y", "z")])
    pairs = [line.split() for lines in done for line in lines]
    assert sorted(job for job, _ in pairs) == sorted(job for lines in made for job in lines)
    assert sorted(int(token) for _, token in pairs) == list(range(1, 76))
    opened = SqliteStore.open(path)
    assert opened.check() == []
    opened.close()


def test_a_writer_waits_for_another_and_then_gives_up_by_name(path, store):
    impatient = SqliteStore.open(path, patience_s=0)
    with store.write(), pytest.raises(StoreBusy, match=r"jobs\.db.*Nothing was written"), impatient.write():
        pytest.fail("two batches at once")
    Engine(impatient).ask(enqueue("a"))
    assert names(store) == ["a"]
    impatient.close()


def test_a_writer_goes_on_as_soon_as_the_other_has_finished(path, store):
    other = Engine(SqliteStore.open(path))
    waiting = Event()
    thread = Thread(target=lambda: (waiting.set(), other.ask(enqueue("b"))))
    with store.write():
        thread.start()
        waiting.wait()
    thread.join(30)
    assert names(store) == ["b"]
    other.close()


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["sqlite.begun", "sqlite.settled", "sqlite.committing"])
def test_a_full_disk_changes_nothing_and_passes(store, engine, point):
    engine.ask(enqueue("a"))
    error = sqlite_error(sqlite3.SQLITE_FULL)
    with listening(point, failing(error)), pytest.raises(StoreFull, match="until there is space"):
        engine.ask(enqueue("b"))
    assert names(store) == ["a"]
    engine.ask(enqueue("b"))
    assert names(store) == ["a", "b"]
    assert store.check() == []


def test_a_disk_that_is_really_full_is_named_and_the_store_goes_on(store, engine):
    engine.ask(enqueue("a"))
    pages = store._writer.execute("PRAGMA page_count").fetchone()[0]
    store._writer.execute(f"PRAGMA max_page_count = {pages + 2}")
    big = b'{"x":"' + b"x" * 100_000 + b'"}'
    with pytest.raises(StoreFull):
        engine.ask(enqueue("b", params=big))
    assert names(store) == ["a"]
    store._writer.execute("PRAGMA max_page_count = 1073741823")
    engine.ask(enqueue("b", params=big))
    assert names(store) == ["a", "b"]
    assert store.check() == []


def test_after_a_failed_commit_nothing_is_taken_until_reopened(path, store, engine):
    engine.ask(enqueue("a"))
    error = sqlite_error(sqlite3.SQLITE_IOERR_FSYNC)
    with listening("sqlite.committing", failing(error)), pytest.raises(StoreFailed, match=r"outcome .* unknown"):
        engine.ask(enqueue("b"))
    with pytest.raises(StoreFailed, match="takes no more"):
        engine.ask(enqueue("c"))
    with pytest.raises(StoreFailed, match="takes no more"):
        store.snapshot()
    assert names(store) == ["a"]
    store.close()
    again = SqliteStore.open(path)
    Engine(again).ask(enqueue("b"))
    assert names(again) == ["a", "b"]
    assert again.check() == []
    again.close()


def test_a_commit_that_was_done_although_it_failed_is_found_by_sending_again(path, store, engine):
    error = sqlite_error(sqlite3.SQLITE_IOERR_FSYNC)
    with listening("sqlite.committed", failing(error)), pytest.raises(StoreFailed):
        engine.ask(enqueue("a"))
    store.close()
    again = Engine(SqliteStore.open(path))
    assert again.ask(enqueue("a")).jobs[0].created is False
    again.close()


def test_an_interrupted_batch_leaves_nothing(store, engine):
    with listening("sqlite.committing", failing(KeyboardInterrupt())), pytest.raises(KeyboardInterrupt):
        engine.ask(enqueue("a"))
    assert names(store) == []
    engine.ask(enqueue("b"))
    assert names(store) == ["b"]
    assert store.check() == []


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_BUSY, StoreBusy),
        (sqlite3.SQLITE_BUSY_RECOVERY, StoreBusy),
        (sqlite3.SQLITE_LOCKED, StoreBusy),
        (sqlite3.SQLITE_FULL, StoreFull),
        (sqlite3.SQLITE_CORRUPT, StoreDamaged),
        (sqlite3.SQLITE_CORRUPT_INDEX, StoreDamaged),
        (sqlite3.SQLITE_NOTADB, StoreDamaged),
        (sqlite3.SQLITE_READONLY, StoreReadOnly),
        (sqlite3.SQLITE_READONLY_DBMOVED, StoreReadOnly),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, CorruptState),
        (sqlite3.SQLITE_IOERR, StoreFailed),
        (sqlite3.SQLITE_IOERR_FSYNC, StoreFailed),
        (sqlite3.SQLITE_CANTOPEN, StoreFailed),
        (0, StoreFailed),
    ],
)
def test_every_error_of_sqlite_has_a_name_of_ours(code, kind):
    error = translated(sqlite_error(code), "jobs.db")
    assert type(error) is kind
    assert error.facts == {"file": "jobs.db"}
    assert "jobs.db" in str(error)


def test_a_damaged_page_met_while_reading_is_named(path):
    engine = Engine(SqliteStore.open(path))
    engine.ask(enqueue(*(f"job{number}" for number in range(200))))
    engine.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    with pytest.raises(StoreDamaged, match=r"jobs\.db"):
        names(SqliteStore.open(path))


# --- life -------------------------------------------------------------------------------------------------------------


def test_a_store_opened_for_reading_reads_and_refuses_to_write(path, store, engine):
    engine.ask(enqueue("a"))
    reader = SqliteStore.open(path, readonly=True)
    assert names(reader) == ["a"]
    assert [entry.seq for entry in reader.feed(0)] == [1]
    assert reader.wait(0, 0) is True
    assert reader.check() == []
    with pytest.raises(StoreReadOnly), reader.write():
        pytest.fail("a batch of a reader")
    with pytest.raises(StoreReadOnly):
        reader.trim("2030", 1)
    with pytest.raises(StoreReadOnly):
        reader.snapshot()
    engine.ask(enqueue("b"))
    assert names(reader) == ["a", "b"]
    reader.close()


def test_a_closed_store_says_so(store, engine):
    engine.ask(enqueue("a"))
    store.close()
    store.close()
    for use in (store.read().__enter__, store.write().__enter__, store.check, store.snapshot):
        with pytest.raises(StoreClosed, match=r"jobs\.db"):
            use()
    with pytest.raises(StoreClosed):
        store.feed(0)
    with pytest.raises(StoreClosed):
        store.wait(0, 0)


def test_closing_leaves_one_file_with_everything_in_it_beside_the_sessions(path, store, engine):
    engine.ask(enqueue("a"))
    store.close()
    assert sorted(file.name for file in path.parent.iterdir()) == ["jobs.db", "jobs.db-seq", "jobs.db-sessions"]
    again = SqliteStore.open(path)
    assert names(again) == ["a"]
    again.close()


def test_a_snapshot_cuts_the_log(path, store, engine):
    engine.ask(enqueue(*(f"job{number}" for number in range(50))))
    log = path.with_name("jobs.db-wal")
    assert log.stat().st_size > 0
    store.snapshot()
    assert log.stat().st_size == 0
    assert len(names(store)) == 50


def test_a_long_reader_does_not_keep_a_snapshot_from_returning(store, engine, monkeypatch):
    engine.ask(enqueue("a"))
    monkeypatch.setattr(sqlite_store, "BUSY_MS", 0)
    with store.read() as view:
        engine.ask(enqueue("b"))
        store.snapshot()
        assert [job.job_id for job in view.all(Job)] == ["a"]


def test_a_log_that_a_reader_keeps_from_being_cut_is_reported(store, engine, monkeypatch, caplog):
    monkeypatch.setattr("holdfast.stores.sqlite.store.COPY_AT", 4096)
    monkeypatch.setattr("holdfast.stores.sqlite.store.LONG_LOG", 50_000)
    engine.ask(enqueue("a"))
    with store.read() as view:
        for number in range(20):
            engine.ask(enqueue(f"job{number}"))
        assert [job.job_id for job in view.all(Job)] == ["a"]
    sizes = [record.bytes for record in caplog.records if record.message == "store.log_growing"]
    assert sizes
    assert sizes == sorted(sizes)
    caplog.clear()
    for number in range(20, 40):
        engine.ask(enqueue(f"job{number}"))
    assert [record for record in caplog.records if record.message == "store.log_growing"] == []


@pytest.mark.parametrize("lost", ["jobs.db", "jobs.db-wal"])
@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_acknowledged_into_a_file_that_is_gone(path, store, engine, lost, replaced):
    engine.ask(enqueue("a"))
    file = path.with_name(lost)
    aside = path.with_name("aside")
    file.rename(aside)
    if replaced:
        file.write_bytes(aside.read_bytes())
    with pytest.raises(StoreFailed, match="removed or replaced"):
        engine.submit(enqueue("b"))
    with pytest.raises(StoreFailed, match="takes no more"):
        engine.submit(enqueue("c"))


def test_what_was_acknowledged_is_saved_when_only_the_log_was_removed(path, store, engine):
    engine.ask(enqueue("a"))
    path.with_name("jobs.db-wal").unlink()
    with pytest.raises(StoreFailed):
        engine.submit(enqueue("b"))
    store.close()
    again = SqliteStore.open(path)
    assert "a" in names(again)
    assert again.check() == []
    again.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")  # newer Pythons warn; that is the point
def test_a_forked_child_is_refused_and_does_the_parent_no_harm(path, store, engine):
    engine.ask(enqueue("a"))
    store.wait(0, 0)
    with store.read() as view:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            _in_child(store, write)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            said = pipe.read().decode()
        assert os.waitpid(child, 0)[1] == 0
        assert said == "StoreClosed StoreClosed StoreClosed closed"
        assert [job.job_id for job in view.all(Job)] == ["a"]
    engine.ask(enqueue("b"))
    assert names(store) == ["a", "b"]
    other = SqliteStore.open(path)
    assert other.check() == []
    other.close()


def _in_child(store: SqliteStore, write: int) -> None:
    """Use the parent's store in every way; nothing but refusals may come of it."""
    said = []
    for use in (store.write().__enter__, store.read().__enter__, lambda: store.wait(0, 1)):
        try:
            use()
        except StoreClosed as error:
            said.append(type(error).__name__ if "parent" in str(error) else str(error))
    store.close()
    os.write(write, " ".join([*said, "closed"]).encode())
    os._exit(0)


# --- the feed ---------------------------------------------------------------------------------------------------------


def test_the_feed_is_read_in_pages_and_misses_nothing(store, engine, monkeypatch):
    monkeypatch.setattr("holdfast.stores.sqlite.store.PAGE", 7)
    engine.ask(enqueue(*(f"job{number:03}" for number in range(30))))
    for after in (0, 6, 7, 8, 29, 30, 99):
        assert [entry.seq for entry in store.feed(after)] == list(range(after + 1, 31))


def test_a_feed_trimmed_while_it_is_read_says_so(store, engine, monkeypatch):
    monkeypatch.setattr("holdfast.stores.sqlite.store.PAGE", 5)
    engine.ask(enqueue(*(f"job{number:03}" for number in range(20))))
    feed = store.feed(0)
    assert next(feed).seq == 1
    assert store.trim("9999", 15) == 15
    with pytest.raises(InvalidValue, match="up to 15"):
        list(feed)
    assert [entry.seq for entry in store.feed(15)] == [16, 17, 18, 19, 20]
    assert store.check() == []


def test_numbers_go_on_after_everything_was_trimmed_and_reopened(path, store, engine):
    engine.ask(enqueue("a", "b"))
    assert store.trim("9999", 100) == 2
    assert store.check() == []
    store.close()
    again = SqliteStore.open(path)
    Engine(again).ask(enqueue("c"))
    assert [entry.seq for entry in again.feed(2)] == [3]
    assert again.check() == []
    again.close()


def test_nothing_is_written_when_nothing_changes(path, store, engine):
    engine.ask(enqueue("a"))
    grant = engine.ask(Lease(worker_id="w")).grants[0]
    assert grant.job.status is JobStatus.RUNNING
    log = path.with_name("jobs.db-wal")
    before = log.read_bytes()
    engine.ask(Lease(worker_id="v"))
    engine.ask(enqueue("a"))
    store.trim("2000", 10)
    assert store.wait(99, 0) is False
    assert log.read_bytes() == before


@pytest.mark.parametrize("looked_at", [1, 3, 4, 1000])
def test_ids_of_some_namespaces_are_the_same_however_they_are_looked_for(store, engine, monkeypatch, looked_at):
    monkeypatch.setattr(lookups, "LOOKED_AT", looked_at)
    spaces = {"a1": "x", "a2": "other", "a3": "other", "a4": "x", "a5": "y", "b": "x"}
    for name, space in spaces.items():
        new = NewJob(job_id=JobId(name), job_type="t", params=msgspec.Raw(b"{}"), namespace=space)
        engine.ask(CreateGroup(group_id=f"of-{name}", namespace=space, members=(new,)))
    with store.read() as view:
        assert view.ids_with_prefix("a", 10, Job, ["x", "y"]) == ["a1", "a4", "a5"]
        assert view.ids_with_prefix("a", 1, Job, ["y", "x"]) == ["a1"]
        assert view.ids_with_prefix("", 10, Job, ["x"]) == ["a1", "a4", "b"]
        assert view.ids_with_prefix("of-a", 10, Group, ["x", "y"]) == ["of-a1", "of-a4", "of-a5"]


def test_ids_of_a_namespace_are_found_without_passing_those_of_others(store, engine):
    jobs = tuple(
        NewJob(job_id=JobId(f"a{at:03}"), job_type="t", params=msgspec.Raw(b"{}"), namespace="other")
        for at in range(1000)
    )
    for batch in (jobs, [msgspec.structs.replace(job, job_id=JobId(f"b{job.job_id}")) for job in jobs]):
        engine.ask(Enqueue(jobs=tuple(batch)))
    engine.ask(Enqueue(jobs=(msgspec.structs.replace(jobs[0], job_id=JobId("z"), namespace="x"),)))
    with store.read() as view:
        rows = []
        asked = view._db.execute

        def counted(*given):
            found = asked(*given).fetchall()
            rows.append(len(found))
            return _Rows(found)

        class _Rows(list):
            fetchall = list.copy

        class _Db:
            execute = staticmethod(counted)

        view._db, db = _Db(), view._db
        try:
            assert view.ids_with_prefix("", 10, Job, ["x"]) == ["z"]
        finally:
            view._db = db
        assert sum(rows) <= lookups.LOOKED_AT + 10
