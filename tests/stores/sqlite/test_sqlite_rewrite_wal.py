"""Opening writes the log once more; what that saves is proven in the crash tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.errors import StoreBusy, StoreFailed
from holdfast.stores.sqlite.connections import open_writer
from holdfast.stores.sqlite.rewrite_wal import write_log_again
from holdfast.stores.sqlite.schema import make_if_missing


@pytest.fixture
def place(tmp_path):
    path = str(tmp_path / "jobs.db")
    make_if_missing(path)
    return path


@pytest.fixture
def db(place):
    db = open_writer(place)
    yield db
    db.close()


def grow(db, to=1):
    db.execute("UPDATE meta SET trimmed_seq = ?", (to,))


def test_every_byte_of_the_log_is_written_again_as_it_was_and_then_synced(place, db, monkeypatch):
    grow(db)
    log = Path(f"{place}-wal")
    before = log.read_bytes()
    written, pwrite, fsync = {}, os.pwrite, os.fsync

    def listed(fd, data, at):
        written[at] = bytes(data[:1000])
        return pwrite(fd, data[:1000], at)  # a short write is gone on with

    monkeypatch.setattr(os, "pwrite", listed)
    monkeypatch.setattr(os, "fsync", lambda fd: (written.setdefault("synced", len(written)), fsync(fd)))
    write_log_again(db, place, 1)
    assert written.pop("synced") == len(written)
    assert b"".join(written[at] for at in sorted(written)) == before == log.read_bytes()
    assert not db.in_transaction


def test_a_writer_is_waited_for(place, db):
    grow(db)
    other = open_writer(place)
    try:
        other.execute("BEGIN IMMEDIATE")
        db.execute("PRAGMA busy_timeout = 0")
        with pytest.raises(StoreBusy):
            write_log_again(db, place, 0)
    finally:
        other.close()
    write_log_again(db, place, 0)


def test_readers_and_writers_go_on_afterwards(place, db):
    grow(db, 1)
    other = open_writer(place)
    try:
        write_log_again(other, place, 1)
        grow(db, 2)
        grow(other, 3)
        assert db.execute("SELECT trimmed_seq FROM meta").fetchone() == (3,)
    finally:
        other.close()


def test_a_log_that_cannot_be_made_durable_is_refused(place, db, monkeypatch):
    grow(db)

    def broken(fd):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(StoreFailed, match="cannot be made durable: Input/output error"):
        write_log_again(db, place, 1)
    assert not db.in_transaction


def test_without_a_log_there_is_nothing_to_do(place, db):
    db.execute("PRAGMA journal_mode = DELETE")
    write_log_again(db, place, 1)
    assert not Path(f"{place}-wal").exists()
