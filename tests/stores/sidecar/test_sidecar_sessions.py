"""Which openings of a store live: the kernel tells at once, whatever ended them, and never of one that lives."""

import errno
import importlib.util
import os
import signal
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import msgspec
import pytest

from holdfast.engine import Engine
from holdfast.engine.maintenance import end_dead_sessions
from holdfast.model.commands import Enqueue, Lease, NewJob
from holdfast.model.jobs import JobStatus
from holdfast.stores.opening import open_store
from holdfast.stores.sidecar import sessions as module
from holdfast.stores.sidecar.sessions import SLOT, LockedSessions
from holdfast.stores.sqlite import SqliteStore

CHILD = str(Path(__file__).with_name("session_child.py"))
#: Asks, as another process, which sessions are gone.
ASK = """
import json, sys
from holdfast.stores.sidecar.sessions import LockedSessions
print(json.dumps(sorted(LockedSessions(sys.argv[1]).gone(sys.argv[2:]))))
"""
#: Holds a session until it is killed.
HOLD = """
import sys
from holdfast.stores.sidecar.sessions import LockedSessions
held = LockedSessions(sys.argv[1])
held.hold("dead")
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "jobs.db-sessions")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path / 'jobs.db'}"


def start(verb: str, url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, CHILD, verb, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def seen_by_another(path: str, *sessions: str) -> set[str]:
    answer = subprocess.run([sys.executable, "-c", ASK, path, *sessions], capture_output=True, text=True, check=True)
    return set(msgspec.json.decode(answer.stdout))


# --- by themselves ----------------------------------------------------------------------------------------------------


def test_a_session_is_gone_when_it_was_held_and_is_held_no_more(path):
    mine, other = LockedSessions(path), LockedSessions(path)
    mine.hold("a")
    other.hold("b")
    assert mine.gone({"a", "b", "c"}) == other.gone({"a", "b", "c"}) == set()
    assert seen_by_another(path, "a", "b", "c") == set()
    mine.close()
    assert other.gone({"a", "b", "c"}) == {"a"}
    assert seen_by_another(path, "a", "b", "c") == {"a"}
    other.close()
    assert LockedSessions(path).gone({"a", "b", "c"}) == {"a", "b"}


def test_asking_again_and_again_lets_go_of_nothing(path):
    mine, asking = LockedSessions(path), LockedSessions(path, readonly=True)
    mine.hold("a")
    for _ in range(3):
        assert asking.gone({"a", "b"}) == mine.gone({"a"}) == set()
    LockedSessions(path).hold("b")  # never closed, and collected
    assert mine.gone({"b"}) == {"b"}
    assert seen_by_another(path, "a", "b") == {"b"}
    mine.close()


def test_reading_makes_no_file_and_holds_nothing(path):
    asking = LockedSessions(path, readonly=True)
    asking.hold("a")
    assert asking.gone({"a"}) == set()
    assert not Path(path).exists()


def test_a_file_that_was_removed_tells_nothing_wrong(path):
    mine = LockedSessions(path)
    mine.hold("a")
    Path(path).unlink()
    other = LockedSessions(path)
    other.hold("b")
    assert other.gone({"a"}) == seen_by_another(path, "a", "b") == set()
    mine.close()
    assert other.gone({"a"}) == set()
    other.close()
    assert LockedSessions(path).gone({"a", "b"}) == {"b"}


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: Path(path).write_bytes(os.urandom(777))])
def test_what_is_no_such_file_tells_nothing_and_stops_nobody(path, make):
    make(path)
    mine = LockedSessions(path)
    mine.hold("a")
    assert mine.gone({"a", "b"}) == set()
    mine.close()


def test_the_file_stays_small_and_forgets_those_first_that_were_closed(path, monkeypatch):
    monkeypatch.setattr(module, "SLOTS", 3)
    living, closed = LockedSessions(path), LockedSessions(path)
    living.hold("living")
    closed.hold("closed")
    dead = subprocess.Popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    dead.stdout.readline()
    dead.kill()
    dead.communicate()
    closed.close()
    assert living.gone({"closed", "dead"}) == {"closed", "dead"}
    late = LockedSessions(path)
    late.hold("late")
    assert living.gone({"closed", "dead", "late", "living"}) == {"dead"}
    later = LockedSessions(path)
    later.hold("later")
    assert living.gone({"closed", "dead", "late", "living", "later"}) == set()
    full = LockedSessions(path)
    full.hold("no room")
    assert Path(path).stat().st_size == 3 * SLOT
    for one in (living, late, later, full):
        one.close()
    assert LockedSessions(path).gone({"no room", "late"}) == {"late"}


def test_held_session_is_durable_with_its_file_before_anything_can_name_it(path, monkeypatch):
    """After a power cut its slot is what tells that it is gone; without one its leases would have to run out."""
    synced = []
    real = os.fsync

    def fsync(fd):
        place = Path(f"/proc/self/fd/{fd}").readlink()
        synced.append((str(place), place.read_bytes() if place.is_file() else b""))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    mine = LockedSessions(path)
    mine.hold("a")
    assert synced == [(path, Path(path).read_bytes()), (str(Path(path).parent), b"")]
    synced.clear()
    mine.hold("b")
    assert synced == [(path, Path(path).read_bytes())]
    mine.close()
    assert LockedSessions(path).gone({"a", "b"}) == {"a", "b"}


def test_session_whose_file_cannot_be_synced_is_held_all_the_same(path, monkeypatch):
    def fails(_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    mine = LockedSessions(path)
    mine.hold("a")
    assert seen_by_another(path, "a") == set()
    mine.close()
    assert seen_by_another(path, "a") == {"a"}


def test_a_forked_child_holds_nothing_and_outlives_the_session(url):
    parent = start("forks", url)
    session_id, child = parent.stdout.readline().split()
    assert parent.wait(60) == -signal.SIGKILL
    with closing(open_store(url)) as store:
        try:
            os.kill(int(child), 0)  # it is still there, with all it inherited
            assert store.sessions.gone({session_id}) == {session_id}
        finally:
            with suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
            parent.communicate()


def test_a_fork_leaves_the_parent_its_sessions(path):
    mine = LockedSessions(path)
    mine.hold("a")
    child = os.fork()
    if not child:
        # All a child could do wrong: ask, hold, close, and go.
        with suppress(BaseException):
            mine.gone({"a"})
            mine.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert seen_by_another(path, "a") == set()
    mine.close()


def test_whoever_else_in_the_process_opens_and_closes_the_file_takes_nothing(path, tmp_path):
    mine = LockedSessions(path)
    mine.hold("a")
    (tmp_path / "copy").write_bytes(Path(path).read_bytes())  # as a job does that makes a backup
    assert seen_by_another(path, "a") == set()
    mine.close()


def test_a_second_library_in_the_process_sees_that_the_first_lives(path):
    """Interpreters of one process, as a web server has them, share no memory: each has a registry of its own."""
    spec = importlib.util.spec_from_file_location("sessions_again", module.__file__)
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    mine, other = LockedSessions(path), again.LockedSessions(path)
    mine.hold("a")
    assert other.gone({"a"}) == set()
    other.hold("b")
    assert mine.gone({"b"}) == seen_by_another(path, "a", "b") == set()
    other.close()
    assert seen_by_another(path, "a", "b") == {"b"}
    mine.close()


def test_a_descriptor_that_was_closed_beneath_us_is_neither_written_nor_closed(path, tmp_path):
    mine = LockedSessions(path)
    mine.hold("a")
    found = Path(path).stat()
    file = module._files[found.st_dev, found.st_ino]
    theirs = os.open(tmp_path / "theirs", os.O_RDWR | os.O_CREAT)
    os.dup2(theirs, file.fd)  # as it comes about in programs that close all they find
    LockedSessions(path).hold("b")
    mine.close()
    assert os.fstat(file.fd).st_size == 0
    os.close(file.fd)
    os.close(theirs)


def test_where_the_kernel_has_no_locks_of_descriptions_the_process_holds_them(path, monkeypatch):
    def too_old(*_):
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(module.fcntl, "fcntl", too_old)
    mine = LockedSessions(path)
    mine.hold("a")
    assert mine.gone({"a"}) == seen_by_another(path, "a") == set()
    mine.close()
    assert seen_by_another(path, "a") == {"a"}


# --- a process that dies ----------------------------------------------------------------------------------------------


def test_the_lease_of_a_killed_process_ends_at_once_and_the_job_runs_elsewhere(url):
    engine = Engine(open_store(url))
    params = msgspec.Raw(b"{}")
    engine.ask(Enqueue(jobs=tuple(NewJob(job_id=j, job_type="work", params=params) for j in ("one", "two"))))
    doomed, healthy = start("holds", url), start("holds", url)
    session_id, job_id = doomed.stdout.readline().split()
    _, other_job = healthy.stdout.readline().split()
    assert end_dead_sessions(engine) == 0
    doomed.kill()
    doomed.communicate()
    assert engine.store.sessions.gone({session_id}) == {session_id}
    # The lease has an hour to go; nobody waits for it.
    assert end_dead_sessions(engine) == 1
    assert (engine.job(job_id).status, engine.job(other_job).status) == (JobStatus.QUEUED, JobStatus.RUNNING)
    assert [run.reason for run in engine.runs(job_id)] == ["restart"]
    (grant,) = engine.ask(Lease(worker_id="w", session_id=engine.session_id)).grants
    assert grant.job.job_id == job_id
    assert end_dead_sessions(engine) == 0
    healthy.communicate("go\n")
    assert healthy.returncode == 0
    assert end_dead_sessions(engine) == 1
    engine.close()


def test_a_stopped_process_is_not_dead(url):
    engine = Engine(open_store(url))
    engine.ask(Enqueue(jobs=(NewJob(job_id="one", job_type="work", params=msgspec.Raw(b"{}")),)))
    child = start("holds", url)
    child.stdout.readline()
    child.send_signal(signal.SIGSTOP)
    assert end_dead_sessions(engine) == 0
    child.kill()
    child.communicate()
    assert end_dead_sessions(engine) == 1
    engine.close()


def test_on_a_network_file_system_nothing_is_held_nor_said(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.stores.sqlite.store.filesystem_kind", lambda _: "nfs4")
    engine = Engine(SqliteStore.open(tmp_path / "jobs.db", network=True))
    assert not (tmp_path / "jobs.db-sessions").exists()
    engine.close()
