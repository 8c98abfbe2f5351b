"""How often a store was served is counted beside it."""

from __future__ import annotations

import os

import httpx2
import pytest
from coordinators import running

from holdfast.stores.memory.store import MemoryStore
from holdfast.web.server.restart_count import restarts_of


class OnDisk:
    """As much of a store as is asked."""

    def __init__(self, path):
        self.path = str(path)


@pytest.mark.parametrize("name", ["wal:{}/jobs", "dir:{}/jobs", "sqlite:{}/jobs.db"])
def test_restarts_are_counted_for_as_long_as_there_is_the_store(tmp_path, name):
    told = []
    for _ in range(3):
        with running(name.format(tmp_path)) as serving:
            lines = httpx2.get(f"{serving.url}/metrics").text.splitlines()
            told += [line for line in lines if line.startswith("holdfast_restarts_total")]
    assert told == [f"holdfast_restarts_total {number}" for number in range(3)]


def test_a_store_in_memory_was_never_served_before():
    assert restarts_of(MemoryStore()) == 0


@pytest.mark.parametrize("text", [b"", b"many", b"-1", b"1" * 16, "\N{SUPERSCRIPT TWO}".encode(), b"\xff"])
def test_what_is_no_number_begins_anew(tmp_path, text):
    (tmp_path / "STARTS").write_bytes(text)
    assert [restarts_of(OnDisk(tmp_path)) for _ in range(2)] == [0, 1]


def test_what_cannot_be_kept_is_not_told(tmp_path):
    (tmp_path / "STARTS").mkdir()
    assert restarts_of(OnDisk(tmp_path)) is None


def test_a_crash_in_the_middle_loses_nothing_and_is_in_nobodys_way(tmp_path):
    assert [restarts_of(OnDisk(tmp_path)) for _ in range(2)] == [0, 1]
    (tmp_path / "STARTS.new").write_bytes(b"9")
    assert restarts_of(OnDisk(tmp_path)) == 2
    assert [one.name for one in tmp_path.iterdir()] == ["STARTS"]


def test_a_link_is_not_followed(tmp_path):
    store, secret = tmp_path / "store", tmp_path / "secret"
    store.mkdir()
    secret.write_bytes(b"5")
    (store / "STARTS").symlink_to(secret)
    assert restarts_of(OnDisk(store)) == 0
    assert secret.read_bytes() == b"5"


def test_a_pipe_in_its_place_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "STARTS")
    other = os.open(tmp_path / "STARTS", os.O_RDWR | os.O_NONBLOCK)  # somebody who may write, and does not
    try:
        assert [restarts_of(OnDisk(tmp_path)) for _ in range(2)] == [0, 1]
    finally:
        os.close(other)
