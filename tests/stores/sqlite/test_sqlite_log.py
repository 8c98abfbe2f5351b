"""The store copies SQLite's log into the database by itself: without waiting, and without hiding that it failed."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from holdfast.engine import Engine
from holdfast.errors import StoreFailed
from holdfast.model.commands import Enqueue
from holdfast.stores.sqlite import SqliteStore, store
from holdfast.stores.sqlite.wal_cycle import cycle_reaching
from holdfast.testing import ManualClock
from holdfast.testing.conformance.harness import new_job
from support.simvfs import SimVfs, available

is_available, reason = available()
pytestmark = pytest.mark.skipif(not is_available, reason=reason)

DATABASE = "jobs.db"


@pytest.fixture
def vfs(tmp_path, monkeypatch):
    """A folder with an empty store."""
    SqliteStore.open(tmp_path / DATABASE).close()
    monkeypatch.setattr(store, "COPY_AT", store.COPY_AT)  # put back in the end
    with SimVfs(tmp_path) as vfs:
        yield vfs


@pytest.fixture
def engine(vfs):
    engine = opened(vfs)
    yield engine
    engine.close()


def opened(vfs):
    return Engine(SqliteStore.open(vfs.folder / DATABASE), clock=ManualClock())


def add(engine, *ids):
    for job_id in ids:
        engine.ask(Enqueue(jobs=(new_job(job_id, params={"pad": "x" * 5000}),)))


def fill(engine):
    """Add jobs, and let the log be as long as it may be."""
    add(engine, "j0", "j1", "j2")
    store.COPY_AT = log(engine) + 1


def log(engine):
    return Path(f"{engine.store.path}-wal").stat().st_size


def used(engine):
    """Give the bytes of the log that belong to its present cycle."""
    sizes = range(4096, log(engine) + 4096, 4096)
    return max((size for size in sizes if cycle_reaching(engine.store.path, size)), default=0)


def has(engine, *ids):
    return all(engine.job(job_id).job_id == job_id for job_id in ids)


def test_a_commit_copies_a_long_log_which_is_then_written_again_from_its_beginning(engine, vfs):
    fill(engine)
    assert not any(call.kind == "write" and call.file == DATABASE for call in vfs.calls)
    add(engine, "last")
    assert any(call.kind == "sync" and call.file == DATABASE for call in vfs.calls)
    size = log(engine)
    assert used(engine) >= store.COPY_AT
    add(engine, "after")
    assert used(engine) < store.COPY_AT
    assert log(engine) == size
    assert has(engine, "j0", "last", "after")


def test_what_is_left_over_in_the_log_is_not_copied_again(engine, vfs):
    fill(engine)
    add(engine, "last", "after")
    copied = sum(call.kind == "write" and call.file == DATABASE for call in vfs.calls)
    add(engine, "one more")
    assert log(engine) > store.COPY_AT
    assert sum(call.kind == "write" and call.file == DATABASE for call in vfs.calls) == copied


def test_a_reader_in_the_way_is_not_waited_for_and_copying_is_tried_again_later(engine, vfs):
    fill(engine)
    with engine.read():
        add(engine, "m1", "m2", "m3")
        assert used(engine) > store.COPY_AT
    add(engine, "n1", "n2", "n3")
    assert used(engine) < store.COPY_AT
    assert engine.store._writer.execute("PRAGMA busy_timeout").fetchone() == (0,)


@pytest.mark.parametrize("kind", ["write", "sync"])
def test_a_failed_copy_takes_nothing_from_the_commit_but_ends_the_writing(engine, vfs, kind):
    fill(engine)
    vfs.fail(kind, file=DATABASE)
    add(engine, "last")
    assert vfs.injected == 1
    with pytest.raises(StoreFailed, match="an earlier write failed"):
        add(engine, "later")
    assert has(engine, "j0", "last")


def test_after_a_failed_copy_closing_leaves_the_log_for_the_next_to_open(engine, vfs):
    fill(engine)
    vfs.fail("sync", file=DATABASE)
    add(engine, "last")
    before = log(engine)
    syncs = sum(call.kind == "sync" for call in vfs.calls)
    with engine.read():
        engine.close()
    assert log(engine) == before > 0
    assert sum(call.kind == "sync" for call in vfs.calls) == syncs, "a failed sync was repeated"
    again = opened(vfs)
    assert has(again, "j0", "last")
    add(again, "later")
    again.close()
    assert not Path(f"{engine.store.path}-wal").exists()


def test_a_disk_too_full_for_the_copy_does_not_end_the_writing(engine, vfs):
    fill(engine)
    vfs.fail("write", 1, sqlite3.SQLITE_FULL, file=DATABASE)
    add(engine, "last")
    assert vfs.injected == 1
    add(engine, "m1", "m2", "m3")
    assert used(engine) < store.COPY_AT
    assert engine.store.check() == []
    assert engine.store._writer.execute("PRAGMA busy_timeout").fetchone() == (0,)
