"""Wake-up of `sqlite:` between processes: rung, not polled; right even where no bell can be hung."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import msgspec
import pytest

from holdfast.engine import Engine
from holdfast.model.commands import Enqueue, NewJob
from holdfast.model.ids import JobId
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite import wakeup as wake
from holdfast.stores.sqlite.wakeup import Bells

CHILD = str(Path(__file__).with_name("sqlite_child.py"))
#: A net for failures, in seconds; nothing waits so long.
NET_S = 60


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore.open(path)
    yield opened
    opened.close()


@pytest.fixture
def no_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the net away: only a ring wakes."""
    monkeypatch.setattr(wake, "WITH_BELL_S", 10 * NET_S)


def enqueue(store: SqliteStore, name: str) -> None:
    job = NewJob(job_id=JobId(name), job_type="work", params=msgspec.Raw(b"{}"))
    Engine(store).ask(Enqueue(jobs=(job,)))


class Waiter:
    """A thread that waits for an event above `after`, from the moment it sleeps."""

    def __init__(self, store: SqliteStore, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
        asleep = Event()
        bells, sleep = store._bells, store._bells.sleep

        def noted(count: int, timeout: float) -> None:
            asleep.set()
            sleep(count, timeout)

        monkeypatch.setattr(bells, "sleep", noted)
        self.answers: list[bool] = []
        self._thread = Thread(target=lambda: self.answers.append(store.wait(after, NET_S)))
        self._thread.start()
        assert asleep.wait(NET_S)

    def answer(self) -> list[bool]:
        self._thread.join(NET_S)
        return self.answers


@pytest.mark.usefixtures("no_looking")
def test_a_commit_of_another_process_wakes_a_waiter(path, store, monkeypatch):
    child = subprocess.Popen(
        [sys.executable, CHILD, "enqueues", str(path), "a", "1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline() == "open\n"
    waiter = Waiter(store, 0, monkeypatch)
    child.communicate("go\n", timeout=NET_S)
    assert waiter.answer() == [True]


@pytest.mark.usefixtures("no_looking")
def test_a_commit_of_the_same_process_wakes_a_waiter(store, monkeypatch):
    waiter = Waiter(store, 0, monkeypatch)
    enqueue(store, "a")
    assert waiter.answer() == [True]


@pytest.mark.usefixtures("no_looking")
def test_a_waiter_is_let_go_when_the_store_is_closed(store, monkeypatch):
    waiter = Waiter(store, 0, monkeypatch)
    store.close()
    assert waiter.answer() == [False]


def test_a_waiter_that_looks_when_the_store_is_closed_is_let_go_and_opens_nothing(store, monkeypatch):
    count = store._bells.count

    def closes_first() -> int:
        number = count()
        store.close()
        return number

    monkeypatch.setattr(store._bells, "count", closes_first)
    assert store.wait(0, NET_S) is False
    assert store._watch is None


@pytest.mark.usefixtures("no_looking")
def test_a_commit_between_looking_and_sleeping_is_not_missed(path, store, monkeypatch):
    other = SqliteStore.open(path)
    look = store._last_seq

    def looked() -> int:
        found = look()
        if found == 0:
            enqueue(other, "a")
        return found

    monkeypatch.setattr(store, "_last_seq", looked)
    assert store.wait(0, NET_S) is True
    other.close()


@pytest.mark.parametrize("obstacle", ["file", "link", "open to others", "no sockets"])
def test_without_a_bell_waiters_look_by_themselves(path, store, monkeypatch, obstacle, tmp_path_factory):
    place = path.with_name("jobs.db-wake")
    match obstacle:
        case "file":
            place.touch()
        case "link":
            place.symlink_to(tmp_path_factory.mktemp("elsewhere"), target_is_directory=True)
        case "open to others":
            place.mkdir()
            place.chmod(0o777)
        case "no sockets":
            monkeypatch.setattr(wake, "_address", lambda fd, name: f"/no/such/place/{fd}/{name}")
    assert store.wait(0, 0) is False
    assert store._bells.pause_s == wake.WITHOUT_BELL_S
    other = SqliteStore.open(path)
    enqueue(other, "a")
    assert store.wait(0, NET_S) is True
    other.close()


def test_looking_without_a_bell_is_at_most_twenty_times_a_second():
    assert wake.WITHOUT_BELL_S >= 1 / 20


def test_only_a_process_that_waits_hangs_a_bell_and_takes_it_down(path, store):
    place = path.with_name("jobs.db-wake")
    enqueue(store, "a")
    assert not place.exists()
    store.wait(0, 0)
    store.wait(1, 0)
    assert len(list(place.iterdir())) == 1
    store.close()
    assert list(place.iterdir()) == []
    assert not [thread for thread in threading.enumerate() if thread.name == "holdfast-sqlite-bell" and _alive(thread)]


def _alive(thread: Thread) -> bool:
    thread.join(NET_S)
    return thread.is_alive()


def test_the_bell_of_a_dead_process_is_removed_by_the_next_ring(path, store):
    place = path.with_name("jobs.db-wake")
    store.wait(0, 0)
    fd = os.open(place, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(f"/proc/self/fd/{fd}/dead")
    os.close(fd)
    assert len(list(place.iterdir())) == 2
    enqueue(store, "a")
    assert [file.name for file in place.iterdir()] == [store._bells._name]


def test_what_is_no_bell_is_left_alone(path, store):
    place = path.with_name("jobs.db-wake")
    store.wait(0, 0)
    (place / "notes.txt").write_text("mine")
    (place / "folder").mkdir()
    enqueue(store, "a")
    assert (place / "notes.txt").read_text() == "mine"
    assert (place / "folder").is_dir()


def test_a_waiter_that_does_not_listen_does_not_hold_a_commit_up(path, store):
    place = path.with_name("jobs.db-wake")
    store.wait(0, 0)
    fd = os.open(place, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(f"/proc/self/fd/{fd}/deaf")
        for _ in range(2000):
            store._bells.ring()
    os.close(fd)


def test_a_path_longer_than_an_address_has_a_bell_too(tmp_path):
    deep = tmp_path
    for _ in range(4):
        deep /= "d" * 60
    deep.mkdir(parents=True)
    store = SqliteStore.open(deep / "jobs.db")
    store.wait(0, 0)
    assert store._bells.pause_s == wake.WITH_BELL_S
    store.close()


def test_ringing_where_nobody_waits_does_nothing(tmp_path):
    bells = Bells(str(tmp_path / "jobs.db"))
    bells.ring()
    assert list(tmp_path.iterdir()) == []
    bells.close()
