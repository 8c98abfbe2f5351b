"""A fork finds nobody inside SQLite, so that the child can use the database as if it were a process of its own."""

import os
import sqlite3
import threading
from contextlib import closing

import msgspec
import pytest

from holdfast.engine import Engine
from holdfast.failpoints import listening
from holdfast.model.commands import Enqueue, NewJob
from holdfast.model.jobs import Job
from holdfast.stores.sqlite import SqliteStore, fork_guard

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "jobs.db"


@pytest.fixture
def engine(path):
    made = Engine(SqliteStore.open(path))
    yield made
    made.close()


def enqueue(engine, job_id):
    engine.ask(Enqueue(jobs=(NewJob(job_id=job_id, job_type="work", params=msgspec.Raw(b"{}")),)))


def forked(action):
    """Run something in a child; give its exit code."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            code = action()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Reading:
    """A thread that reads until it is told to leave."""

    def __init__(self, engine, last=lambda: None):
        self.inside, self.leave = threading.Event(), threading.Event()
        self._engine, self._last = engine, last
        self._thread = threading.Thread(target=self._read)

    def _read(self):
        with self._engine.read() as view:
            assert view.get(Job, "a") is not None
            self.inside.set()
            assert self.leave.wait(20)
            self._last()

    def __enter__(self):
        self._thread.start()
        assert self.inside.wait(20)
        return self

    def __exit__(self, *_):
        self.leave.set()
        self._thread.join(20)
        assert not self._thread.is_alive()


def test_a_child_finds_no_reader_in_the_way_that_only_its_parent_has(path, engine):
    enqueue(engine, "a")

    def use():
        other = Engine(SqliteStore.open(path))
        enqueue(other, "b")
        with closing(sqlite3.connect(path)) as db:
            busy, frames, copied = db.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        return busy or frames != copied

    with Reading(engine) as reader, listening("sqlite.forking", reader.leave.set):
        assert forked(use) == 0
    assert engine.job("b").job_id == "b"
    assert engine.store.check() == []


def test_a_reader_that_writes_before_it_leaves_is_let_through(engine):
    enqueue(engine, "a")
    reader = Reading(engine, lambda: enqueue(engine, "b"))
    with reader, listening("sqlite.forking", reader.leave.set):
        assert forked(lambda: 0) == 0
    assert engine.job("b").job_id == "b"


def test_a_fork_does_not_wait_for_ever_nor_for_its_own_thread(engine, monkeypatch):
    enqueue(engine, "a")
    with engine.read():
        assert forked(lambda: 0) == 0
    monkeypatch.setattr(fork_guard, "FORK_S", 0.01)
    with Reading(engine):
        assert forked(lambda: 0) == 0
    enqueue(engine, "b")


def test_whoever_comes_while_a_fork_is_under_way_goes_on_after_it(engine):
    enqueue(engine, "a")
    fork_guard._gate.hold()
    late = threading.Thread(target=enqueue, args=(engine, "b"))
    late.start()
    fork_guard._gate.go_on()
    late.join(20)
    assert engine.job("b").job_id == "b"
