"""Waiting marks: what a killed process had not begun is known, and whatever is in doubt counts as begun."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.stores.sidecar import waiting_marks as module
from holdfast.stores.sidecar.protocol import NoMarks
from holdfast.stores.sidecar.sessions import LockedSessions
from holdfast.stores.sidecar.waiting_marks import REGION, TOKENS

#: Says what it was granted, begins one of it, and kills itself.
CHILD = """
import os, signal, sys
from holdfast.stores.sidecar.sessions import LockedSessions
held = LockedSessions(sys.argv[1] + "-sessions", sys.argv[1] + "-waiting")
held.hold("dead")
marks = held.marks("dead")
marks.join("w")
marks.receive("w", 4, [3, 4])
marks.clear(3)
os.kill(os.getpid(), signal.SIGKILL)
"""
LEASES = [("w", 2), ("w", 3), ("w", 4), ("w", 5), ("other", 6), (None, 7)]


@pytest.fixture
def sessions(tmp_path):
    made = []

    def make(**options):
        made.append(LockedSessions(f"{tmp_path}/jobs-sessions", f"{tmp_path}/jobs-waiting", **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def marks(sessions):
    held = sessions()
    held.hold("s")
    return held.marks("s")


def test_what_a_killed_process_had_not_begun_is_known(tmp_path, sessions):
    subprocess.run([sys.executable, "-c", CHILD, f"{tmp_path}/jobs"], check=False)
    # 5 was granted, but the worker had not heard of it.
    assert sessions(readonly=True).unbegun("dead", LEASES) == {4, 5}


def test_nothing_granted_to_a_worker_has_begun_before_it_has_received_it(sessions, marks):
    assert sessions().unbegun("s", LEASES) == set()
    marks.join("w")
    assert sessions().unbegun("s", LEASES) == {2, 3, 4, 5}
    marks.receive("w", 5, [])
    assert sessions().unbegun("s", LEASES) == set()


def test_locks_that_name_no_worker_are_known_by_their_tokens(sessions, marks):
    marks.receive(None, 7, [7])
    assert sessions().unbegun("s", LEASES) == {7}
    marks.clear(7)
    marks.clear(7)
    marks.clear(99)
    assert sessions().unbegun("s", LEASES) == set()


def test_nothing_is_known_of_another_boot_of_the_machine(sessions, marks, monkeypatch):
    marks.receive("w", 4, [4])
    assert sessions().unbegun("s", LEASES) == {4}
    monkeypatch.setattr(module, "boot_id", lambda: b"another")
    assert sessions().unbegun("s", LEASES) == set()


def test_nothing_is_marked_where_boots_cannot_be_told_apart(sessions, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "boot_id", lambda: None)
    held = sessions()
    held.hold("s")
    held.marks("s").receive("w", 4, [4])
    assert sessions().unbegun("s", LEASES) == set()
    assert not (tmp_path / "jobs-waiting").exists()


def test_session_that_is_not_held_marks_nothing(sessions, tmp_path):
    assert isinstance(sessions().marks("s"), NoMarks)
    assert isinstance(sessions().marks(None), NoMarks)
    assert isinstance(LockedSessions(f"{tmp_path}/jobs-sessions").marks("s"), NoMarks)
    assert sessions().unbegun("s", LEASES) == set()


def test_region_of_a_session_has_nothing_of_the_one_before(sessions, tmp_path):
    first = sessions()
    first.hold("a")
    first.marks("a").receive("w", 4, [2, 3, 4])
    first.close()
    text = (tmp_path / "jobs-waiting").read_bytes()
    module.MarkedRegion(f"{tmp_path}/jobs-waiting", 0, b"b" * 62).close()
    assert (tmp_path / "jobs-waiting").read_bytes() != text
    assert sessions().unbegun("a", LEASES) == set()
    assert module.unbegun(f"{tmp_path}/jobs-waiting", 0, b"b" * 62, LEASES) == set()


def test_more_than_there_is_room_for_counts_as_begun(sessions, marks, tmp_path):
    tokens = list(range(1, TOKENS + 10))
    marks.receive("w", tokens[-1], tokens)
    assert sessions().unbegun("s", [("w", token) for token in tokens]) == set(tokens[:TOKENS])
    for token in tokens:
        marks.clear(token)
    marks.receive("w", tokens[-1] + 1, [tokens[-1] + 1])
    assert sessions().unbegun("s", [("w", tokens[-1] + 1)]) == {tokens[-1] + 1}
    for number in range(20):
        marks.join(f"worker {number}")
    assert sessions().unbegun("s", [("worker 0", 9), ("worker 19", 9)]) == {9}
    assert (tmp_path / "jobs-waiting").stat().st_size == REGION


@pytest.mark.parametrize("write", [lambda *_: (_ for _ in ()).throw(OSError()), lambda *_: 3])
def test_mark_that_cannot_be_written_takes_all_of_them_away(sessions, marks, monkeypatch, write):
    """A mark that stayed would excuse a job that has begun."""
    marks.receive("w", 4, [3, 4])
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", write)
        marks.clear(4)
    assert sessions().unbegun("s", LEASES) == set()
    marks.receive("w", 5, [5])
    assert sessions().unbegun("s", LEASES) == set()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: Path(path).write_bytes(os.urandom(777))])
def test_what_is_no_such_file_stops_nobody(sessions, tmp_path, make):
    make(f"{tmp_path}/jobs-waiting")
    held = sessions()
    held.hold("s")
    assert sessions().unbegun("s", LEASES) == set()
    held.marks("s").receive("w", 4, [4])
    assert sessions().unbegun("s", LEASES) <= {4}


def test_nothing_is_written_after_the_end(sessions, tmp_path):
    """The number of the descriptor may be another file's by then."""
    held = sessions()
    held.hold("s")
    marks = held.marks("s")
    marks.receive("w", 4, [4])
    held.close()
    text = (tmp_path / "jobs-waiting").read_bytes()
    marks.clear(4)
    marks.receive("w", 5, [5])
    assert (tmp_path / "jobs-waiting").read_bytes() == text
