"""A log that was deleted is noticed: the database alone would open in an older state, without a word."""

import os
import shutil
from contextlib import closing, suppress
from pathlib import Path

import pytest

from holdfast.engine import Engine
from holdfast.errors import LogMissing
from holdfast.model.commands import Enqueue, NewJob
from holdfast.model.payloads import pack
from holdfast.stores.check_and_repair import check
from holdfast.stores.opening import open_store
from holdfast.stores.sqlite.commit_marker import CommitMarker, claimed


def put(engine: Engine, *job_ids: str) -> None:
    for job_id in job_ids:
        engine.ask(Enqueue(jobs=(NewJob(job_id=job_id, job_type="work", params=pack({})),)))


def die_after_putting(url: str, *job_ids: str) -> None:
    child = os.fork()
    if not child:
        with suppress(BaseException):
            put(Engine(open_store(url)), *job_ids)
        os._exit(0)
    os.waitpid(child, 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:{path}"


def test_log_deleted_after_a_crash_is_named_and_the_store_refused(path, url):
    with closing(Engine(open_store(url))) as engine:
        put(engine, "a")
    die_after_putting(url, "b", "c")
    log = path.with_name("jobs.db-wal")
    kept = log.rename(path.with_name("kept"))
    with pytest.raises(LogMissing, match=r"ends with event 1, but 3 were durable.*Events 2 to 3 are missing"):
        open_store(url)
    (found,) = check(url)
    assert (found.code, found.file) == ("log_missing", str(path))
    assert "Put the log back" in found.remedy
    log.unlink(missing_ok=True)
    path.with_name("jobs.db-shm").unlink(missing_ok=True)
    kept.rename(log)
    assert check(url) == []
    with closing(open_store(url)) as store, store.read() as view:
        assert view.seq == 3


def test_loss_of_the_log_can_be_accepted(path, url):
    die_after_putting(url, "a")
    path.with_name("jobs.db-wal").unlink()
    with pytest.raises(LogMissing, match=r"remove .*jobs\.db-seq: that accepts the loss"):
        open_store(url)
    path.with_name("jobs.db-seq").unlink()
    with closing(Engine(open_store(url))) as engine:
        put(engine, "b")
    assert check(url) == []


def test_log_that_was_copied_and_removed_in_order_is_not_missed(path, url):
    for job_id in ("a", "b"):
        with closing(Engine(open_store(url))) as engine:
            put(engine, job_id)
        assert not path.with_name("jobs.db-wal").exists()
    assert check(url) == []
    assert claimed(str(path))[1] == 2


def test_marker_of_another_store_says_nothing(path, url, tmp_path):
    with closing(Engine(open_store(f"sqlite:{tmp_path / 'other.db'}"))) as engine:
        put(engine, "a", "b")
    shutil.copy(tmp_path / "other.db-seq", tmp_path / "jobs.db-seq")
    with closing(Engine(open_store(url))) as engine:
        put(engine, "c")
    assert check(url) == []


@pytest.mark.parametrize("text", [b"", b"\0" * 70, b"holdfast-seq 1 " + b"0" * 32 + b" " + b"9" * 20 + b" 00000000\n"])
def test_damaged_marker_says_nothing(path, url, text):
    with closing(Engine(open_store(url))) as engine:
        put(engine, "a")
    path.with_name("jobs.db-seq").write_bytes(text)
    assert claimed(str(path)) is None
    assert check(url) == []
    open_store(url).close()


def test_marker_that_cannot_be_written_stops_nobody(path, url):
    path.with_name("jobs.db-seq").mkdir()
    with closing(Engine(open_store(url))) as engine:
        put(engine, "a")
    assert check(url) == []


def test_marker_never_claims_what_is_not_durable(path, url, monkeypatch):
    noted = []
    monkeypatch.setattr(CommitMarker, "note", lambda _self, _id, seq: noted.append(seq))
    with closing(Engine(open_store(url))) as engine:
        put(engine, "a")

        def refuse() -> None:
            raise LookupError

        with pytest.raises(LookupError), engine.store.write():
            refuse()
        put(engine, "b")
    assert noted == [1, 2]
