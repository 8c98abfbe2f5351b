"""Content beside the records, on disk: what is damaged is named, what is left over goes, nothing becomes a path."""

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from holdfast.clock import SystemClock
from holdfast.engine import Engine
from holdfast.engine.blob_content import fetch
from holdfast.errors import BlobMissing, StoreBusy, StoreClosed, StoreDamaged, StoreFailed, StoreReadOnly
from holdfast.model.commands import Enqueue, NewJob
from holdfast.model.ids import RunId
from holdfast.model.jobs import Job
from holdfast.model.logs import LogLine
from holdfast.model.times import FOREVER, later, stamp
from holdfast.model.workers import Wish, WorkerInfo
from holdfast.stores.check_and_repair import check
from holdfast.stores.opening import open_store
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.wal import WalStore

CHILD = str(Path(__file__).with_name("session_child.py"))
NOW = stamp(SystemClock().now())
LARGE = b'{"pad":"%s"}' % (b"x" * 100_000)
DIGEST = sha256(LARGE).hexdigest()
LINE = LogLine(NOW, "log", "INFO", "text")


def worker(worker_id: str) -> WorkerInfo:
    return WorkerInfo(worker_id=worker_id, name="n", host="h", pid=1, version="1", started_at=NOW, last_seen=NOW)


@pytest.fixture(params=["wal", "sqlite"])
def url(request, tmp_path: Path) -> str:
    return f"{request.param}:{tmp_path / 'jobs'}"


def enqueue(engine: Engine, job_id: str = "a", params: bytes = LARGE) -> None:
    engine.ask(Enqueue(jobs=(NewJob(job_id=job_id, job_type="work", params=msgspec.Raw(params)),)))


def made(url: str) -> None:
    """Make a store with one job whose parameters are a blob, and another without."""
    engine = Engine(open_store(url))
    enqueue(engine)
    enqueue(engine, "b", b"{}")
    engine.close()


def spoil(url: str, content: bytes | None) -> None:
    """Change the blob, or take it away, behind the store's back."""
    scheme, _, path = url.partition(":")
    if scheme == "wal":
        file = Path(path, "blobs", DIGEST[:2], DIGEST)
        file.unlink() if content is None else file.write_bytes(content)
        return
    with closing(sqlite3.connect(path)) as db, db:
        if content is None:
            db.execute("DELETE FROM blobs")
        else:
            db.execute("UPDATE blobs SET bytes = ?", (content,))


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "code", "kind"),
    [
        (None, "blob_missing", BlobMissing),
        (LARGE[:-1] + b"!", "blob_damaged", StoreDamaged),
        (b"", "blob_damaged", StoreDamaged),
    ],
)
def test_a_blob_that_is_gone_or_changed_is_named_and_the_rest_goes_on(url, content, code, kind):
    made(url)
    assert check(url) == []
    spoil(url, content)
    (found,) = check(url)
    assert (found.code, found.id) == (code, DIGEST)
    engine = Engine(open_store(url))
    with pytest.raises(kind, match=DIGEST):
        fetch(engine.store, engine.job("a").params)
    assert bytes(fetch(engine.store, engine.job("b").params)) == b"{}"
    enqueue(engine, "c", b'{"n":1}')
    engine.close()


def test_a_blob_that_cannot_be_read_is_named_and_the_check_goes_on(tmp_path):
    made(f"wal:{tmp_path / 'jobs'}")
    spoil(f"wal:{tmp_path / 'jobs'}", None)
    (tmp_path / "jobs" / "blobs" / DIGEST[:2] / DIGEST).mkdir()
    (found,) = check(f"wal:{tmp_path / 'jobs'}")
    assert (found.code, found.id) == ("blob_unreadable", DIGEST)


def test_a_damaged_file_is_mended_by_putting_its_content_again(tmp_path):
    made(f"wal:{tmp_path / 'jobs'}")
    spoil(f"wal:{tmp_path / 'jobs'}", b"other")
    with closing(WalStore.open(tmp_path / "jobs")) as store:
        assert store.blobs.put(LARGE) == DIGEST
        assert store.check() == []


def test_content_is_kept_again_if_its_file_was_taken_away_meanwhile(tmp_path):
    engine = Engine(open_store(f"wal:{tmp_path / 'jobs'}"))
    enqueue(engine)
    spoil(f"wal:{tmp_path / 'jobs'}", None)
    enqueue(engine, "again")
    assert bytes(fetch(engine.store, engine.job("again").params)) == LARGE
    engine.close()


# --- left over --------------------------------------------------------------------------------------------------------


def test_a_put_that_was_cut_short_leaves_nothing_for_long(tmp_path):
    made(f"wal:{tmp_path / 'jobs'}")
    folder = tmp_path / "jobs" / "blobs" / DIGEST[:2]
    (folder / f"{DIGEST}.7.tmp").write_bytes(b"half")
    with closing(WalStore.open(tmp_path / "jobs")) as store:
        assert store.blobs.sweep(FOREVER, 10) == 0
        assert [file.name for file in folder.iterdir()] == [DIGEST]


def test_what_others_have_put_among_the_blobs_is_passed_over_and_stays(tmp_path):
    made(f"wal:{tmp_path / 'jobs'}")
    folder = tmp_path / "jobs" / "blobs"
    (folder / ".DS_Store").write_bytes(b"of a file browser")
    (folder / "link").symlink_to(folder)
    (folder / "lost+found").mkdir()
    (folder / "lost+found" / "theirs.tmp").write_bytes(b"theirs")
    (folder / DIGEST[:2] / "folder.tmp").mkdir()
    before = sorted(folder.rglob("*"))
    with closing(WalStore.open(tmp_path / "jobs")) as store:
        assert store.blobs.sweep(FOREVER, 10) == 0
    assert sorted(folder.rglob("*")) == before


def test_an_orphan_of_an_earlier_process_has_the_age_of_its_file(tmp_path):
    with closing(WalStore.open(tmp_path / "jobs")) as store:
        digest = store.blobs.put(b"orphan")
    file = tmp_path / "jobs" / "blobs" / digest[:2] / digest
    with closing(WalStore.open(tmp_path / "jobs")) as store:
        assert store.blobs.sweep(later(NOW, -86_400), 10) == 0
        os.utime(file, (1_000_000_000, 1_000_000_000))
        assert store.blobs.sweep(later(NOW, -86_400), 10) == 1
        assert not file.exists()


@pytest.mark.parametrize("scheme", ["wal", "sqlite"])
def test_a_process_killed_between_content_and_commit_leaves_an_orphan_and_no_job(tmp_path, scheme):
    url = f"{scheme}:{tmp_path / 'jobs'}"
    child = subprocess.run(
        [sys.executable, CHILD, "dies", url], capture_output=True, text=True, timeout=60, check=False
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    assert child.stdout.split() == ["small", "told"]
    with closing(open_store(url)) as store:
        with store.read() as view:
            jobs = {job.job_id: job for job in view.all(Job)}
        assert sorted(jobs) == ["small", "told"]
        assert bytes(fetch(store, jobs["told"].params)) == LARGE
        assert store.check() == []
        cut = sha256(b'{"pad":"%s"}' % (b"x" * 200_000)).hexdigest()
        assert store.blobs.has(cut)
        assert store.blobs.sweep(later(NOW, -86_400), 10) == 0
        assert store.blobs.sweep(FOREVER, 10) == 1
        assert (store.blobs.has(cut), store.blobs.has(DIGEST)) == (False, True)


# --- files ------------------------------------------------------------------------------------------------------------


def test_files_are_for_the_owner_only_and_nothing_from_outside_is_a_path(tmp_path):
    before = os.umask(0)
    try:
        engine = Engine(WalStore.open(tmp_path / "jobs"))
        store = engine.store
        enqueue(engine)
        for run_id in ("../../../evil", "a/b", "..", "x" * 300, "é\u2028"):
            store.logs.add([(RunId(run_id), LINE)])
            assert [line.line for line in store.logs.read(RunId(run_id))] == [LINE]
            assert Path(store.logs.path(RunId(run_id))).is_file()
            store.workers.note(worker(run_id))
        assert len(store.workers.all()) == 5
        engine.close()
    finally:
        os.umask(before)
    assert [file.name for file in tmp_path.iterdir()] == ["jobs"]
    modes = {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "jobs").rglob("*") if file.is_file()}
    assert modes == {0o600}
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "jobs").rglob("*") if file.is_dir()} == {0o700}


def test_a_line_cut_short_by_a_crash_is_closed_off_and_skipped(tmp_path):
    run_id = RunId("0198a1b2-0000-7000-8000-000000000001")
    with closing(WalStore.open(tmp_path / "jobs")) as store:
        store.logs.add([(run_id, LINE)])
        file = Path(store.logs.path(run_id))
        assert file.name == f"{run_id}.jsonl"
        file.write_bytes(file.read_bytes() + b'{"at":"2026')
        store.logs.add([(run_id, LINE)])
        assert [line.line_no for line in store.logs.read(run_id)] == [1, 2]


def test_a_file_that_is_no_worker_is_passed_over(tmp_path):
    with closing(WalStore.open(tmp_path / "jobs")) as store:
        store.workers.note(worker("w"))
        (tmp_path / "jobs" / "workers" / "x.json").write_bytes(b"{")
        (tmp_path / "jobs" / "workers" / "y.json").mkdir()
        assert [found.worker_id for found in store.workers.all()] == ["w"]


# --- reading only -----------------------------------------------------------------------------------------------------


def test_an_opening_for_reading_sees_everything_and_may_leave_a_wish(url):
    engine = Engine(open_store(url))
    enqueue(engine)
    engine.store.workers.note(worker("w"))
    engine.store.logs.add([(RunId("r"), LINE)])
    with closing(open_store(url, readonly=True)) as reader:
        assert reader.blobs.get(DIGEST) == LARGE
        assert [line.line for line in reader.logs.read(RunId("r"))] == [LINE]
        assert [found.worker_id for found in reader.workers.all()] == ["w"]
        assert not reader.workers.ask("nobody", Wish.STOP)
        assert reader.workers.ask("w", Wish.STOP)
        with pytest.raises(StoreReadOnly):
            reader.blobs.put(b"x")
        reader.logs.add([(RunId("r"), LINE)])
        reader.workers.note(worker("x"))
        assert [found.worker_id for found in reader.workers.all()] == ["w"]
    assert engine.store.workers.wish("w") is Wish.STOP
    assert len(engine.store.logs.read(RunId("r"))) == 1
    engine.close()


# --- sqlite's own -----------------------------------------------------------------------------------------------------


def test_commits_are_synced_again_after_every_write_beside_them(tmp_path):
    with closing(SqliteStore.open(tmp_path / "jobs.db")) as store:
        synchronous = lambda: store._writer.execute("PRAGMA synchronous").fetchone()[0]  # noqa: E731 - asked thrice
        store.blobs.put(b"x")
        assert synchronous() == 2
        with pytest.raises(KeyError), store._write_beside():  # noqa: PT012 - both are the point
            assert synchronous() == 1
            raise KeyError
        assert synchronous() == 2
        with pytest.raises(KeyboardInterrupt), store._write_beside():
            raise KeyboardInterrupt
        assert (synchronous(), store._writer.in_transaction) == (2, False)


def test_a_store_that_cannot_sync_again_takes_no_more_commits(tmp_path, monkeypatch):
    engine = Engine(SqliteStore.open(tmp_path / "jobs.db"))

    def refuse(*_):
        raise StoreFailed("no")

    monkeypatch.setattr("holdfast.stores.sqlite.store.demand_setting", refuse)
    with pytest.raises(StoreFailed, match="not synced any more"):
        engine.store.blobs.put(b"x")
    with pytest.raises(StoreFailed, match="an earlier write failed"):
        enqueue(engine)
    engine.close()


def test_a_failed_write_beside_the_records_is_as_final_as_one_of_them(tmp_path):
    engine = Engine(SqliteStore.open(tmp_path / "jobs.db"))
    with pytest.raises(StoreFailed), engine.store._write_beside():
        raise sqlite3.OperationalError("disk I/O error")
    with pytest.raises(StoreFailed, match="an earlier write failed"):
        enqueue(engine)
    engine.close()


def test_what_is_soft_gives_up_where_others_keep_the_database_locked(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.stores.sqlite.store.SOFT_PATIENCE_S", 0)
    with closing(SqliteStore.open(tmp_path / "jobs.db")) as store:
        store._writer.execute("PRAGMA busy_timeout = 0")
        with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            store.logs.add([(RunId("r"), LINE)])
            store.workers.note(worker("w"))
            with pytest.raises(StoreBusy):
                store.blobs.put(b"x")
        assert (store.logs.read(RunId("r")), store.workers.all()) == ([], [])
        store.logs.add([(RunId("r"), LINE)])
        assert len(store.logs.read(RunId("r"))) == 1


def test_a_closed_store_says_so(url):
    store = open_store(url)
    store.close()
    if url.startswith("sqlite"):
        with pytest.raises(StoreClosed):
            store.blobs.put(b"x")
        with pytest.raises(StoreClosed):
            store.workers.all()


def test_a_large_payload_joins_the_transaction_of_its_user(tmp_path):
    engine = Engine(SqliteStore.open(tmp_path / "jobs.db"))
    with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as mine:
        for ending, there in (("ROLLBACK", False), ("COMMIT", True)):
            mine.execute("BEGIN IMMEDIATE")
            new = NewJob(job_id="a", job_type="work", params=msgspec.Raw(LARGE))
            engine.ask_within(mine, Enqueue(jobs=(new,)))
            mine.execute(ending)
            assert engine.store.blobs.has(DIGEST) is there
    assert bytes(fetch(engine.store, engine.job("a").params)) == LARGE
    assert engine.store.check() == []
    engine.close()
