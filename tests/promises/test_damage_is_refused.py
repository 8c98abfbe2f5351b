"""Damage is named, never dropped or skipped.

`wal:` refuses to open, `dir:` sets one bad record aside, in `sqlite:` rows `store check` finds it.
"""

from __future__ import annotations

import os
import shutil
import sqlite3

import pytest

from holdfast.engine import Engine
from holdfast.engine.maintenance import recover
from holdfast.errors import StoreDamaged
from holdfast.model.commands import Complete, Enqueue, Lease
from holdfast.model.jobs import Job
from holdfast.stores.opening import open_store
from holdfast.testing import ManualClock
from holdfast.testing.conformance.harness import new_job, tables_of


def fill(url: str) -> None:
    """Keep a few jobs, one of them done."""
    engine = Engine(open_store(url, clock=ManualClock()), clock=ManualClock())
    for name in "abcde":
        engine.ask(Enqueue(jobs=(new_job(name, params={"text": "hold fast"}),)))
    (grant,) = engine.ask(Lease(worker_id="w")).grants
    engine.ask(Complete(job_id=grant.job.job_id, token=grant.token))
    engine.close()


def shown(url: str):
    store = open_store(url, clock=ManualClock())
    try:
        with store.read() as view:
            return tables_of(view)
    finally:
        store.close()


@pytest.fixture
def log(tmp_path):
    fill(f"wal:{tmp_path / 'jobs'}")
    (segment,) = (tmp_path / "jobs" / "log").glob("*.jsonl")
    return segment


def test_a_flipped_bit_in_an_acknowledged_record_is_refused_and_named(tmp_path, log):
    url, good = f"wal:{tmp_path / 'jobs'}", log.read_bytes()
    # Every byte of the third line, in the middle of what was acknowledged.
    start = good.index(b"\n", good.index(b"\n") + 1) + 1
    for at in range(start, good.index(b"\n", start) + 1):
        flipped = bytearray(good)
        flipped[at] ^= 0x01
        log.write_bytes(flipped)
        with pytest.raises(StoreDamaged) as refusal:
            open_store(url, clock=ManualClock())
        assert refusal.value.facts["line"] in (3, 4)
        assert str(refusal.value.facts["file"]).endswith(log.name)
        assert start <= refusal.value.facts["offset"] <= at + 1
        assert "repair" in refusal.value.hint
        assert log.read_bytes() == bytes(flipped), "refusing must change no byte"
    log.write_bytes(good)
    assert [job.job_id for job in shown(url)["jobs"]] == ["a", "b", "c", "d", "e"]


def test_a_lost_log_is_no_empty_store(tmp_path, log):
    log.unlink()
    with pytest.raises(StoreDamaged):
        open_store(f"wal:{tmp_path / 'jobs'}", clock=ManualClock())


def test_a_changed_row_is_found(tmp_path):
    path = tmp_path / "jobs.db"
    fill(f"sqlite:{path}")
    whole = path.read_bytes()
    assert whole.count(b'{"text":"hold fast"}') >= 5
    path.write_bytes(whole.replace(b'{"text":"hold fast"}', b'{"text":"hold last"}', 1))
    store = open_store(f"sqlite:{path}")
    findings = store.check()
    assert findings
    assert all(finding.message for finding in findings)
    store.close()


def test_a_removed_row_is_found(tmp_path):
    path = tmp_path / "jobs.db"
    fill(f"sqlite:{path}")
    with sqlite3.connect(path) as raw:
        raw.execute("PRAGMA foreign_keys = OFF")
        raw.execute("DELETE FROM events WHERE seq = 3")
    raw.close()
    store = open_store(f"sqlite:{path}")
    assert store.check()
    store.close()


@pytest.mark.parametrize("content", [b"", b"not a database, but somebody's file\n" * 100])
def test_what_is_no_database_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "jobs.db"
    path.write_bytes(content)
    with pytest.raises(StoreDamaged):
        open_store(f"sqlite:{path}")
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\x00", b'{"taskId": 7}', b"[]"])
def test_a_damaged_file_among_good_ones_is_set_aside_named_and_the_others_go_on(tmp_path, content):
    url, pending = f"dir:{tmp_path / 'jobs'}", tmp_path / "jobs" / "data" / "tasks" / "pending"
    fill(url)
    (pending / "c.json").write_bytes(content)
    os.utime(pending / "c.json", (0, 0))  # one that was just written may be half of what is still to come
    engine = Engine(open_store(url))
    assert any("c.json" in str(finding.file) for finding in engine.store.check())
    recover(engine)
    with engine.read() as view:
        assert {"a", "b", "d", "e"} <= {job.job_id for job in view.all(Job)}
    engine.close()
    aside = [path for path in (tmp_path / "jobs" / "data" / "quarantine").iterdir() if path.suffix == ".json"]
    assert [path.read_bytes() for path in aside] == [content], "not a byte of it is lost"


def test_what_is_whole_is_not_complained_about(tmp_path):
    for url in (f"dir:{tmp_path / 'files'}", f"wal:{tmp_path / 'jobs'}", f"sqlite:{tmp_path / 'jobs.db'}"):
        fill(url)
        store = open_store(url)
        assert store.check() == []
        with store.read() as view:
            assert len(list(view.all(Job))) == 5
        store.close()


def test_a_record_cut_short_was_never_acknowledged_and_is_cut_off(tmp_path):
    engine = Engine(open_store(f"wal:{tmp_path / 'jobs'}", clock=ManualClock()), clock=ManualClock())
    for name in "abc":
        engine.ask(Enqueue(jobs=(new_job(name),)))
    shutil.copytree(tmp_path / "jobs", tmp_path / "crashed")
    engine.close()
    (log,) = (tmp_path / "crashed" / "log").glob("*.jsonl")
    start = log.read_bytes().rindex(b"\n", 0, -1) + 1
    size = log.stat().st_size
    for cut in [*range(start, size - 3, 9), size - 3, size - 2, size - 1]:
        place = tmp_path / f"cut{cut}"
        shutil.copytree(tmp_path / "crashed", place)
        torn = place / "log" / log.name
        torn.write_bytes(torn.read_bytes()[:cut])
        # Only the newline is missing when nothing else is: the record is whole.
        kept = ["a", "b", "c"] if cut == size - 1 else ["a", "b"]
        url = f"wal:{place}"
        engine = Engine(open_store(url, clock=ManualClock()), clock=ManualClock())
        engine.ask(Enqueue(jobs=(new_job("z"),)))
        engine.close()
        assert [job.job_id for job in shown(url)["jobs"]] == [*kept, "z"]
        shutil.rmtree(place)
