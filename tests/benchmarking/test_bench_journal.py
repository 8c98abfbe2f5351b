from __future__ import annotations

from benchmarks import Row, journal


def test_the_log_adds_no_more_than_the_contract_allows_to_a_record(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "ROUNDS", 1)
    rows = {row.name: row for row in journal._appends(tmp_path)}
    assert rows["log overhead"].holds
    assert 50 < rows["log overhead"].ours <= 75
    speed = rows["append x100, flush; one thread"]
    assert speed.ours > 0
    assert speed.bare > 0


def test_a_replay_and_a_checkpoint_need_bounded_memory(tmp_path):
    for row in journal._memory(tmp_path):
        assert row.holds, row.line()


def test_a_snapshot_is_a_fraction_of_its_json(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "ROUNDS", 1)
    rows = {row.name: row for row in journal._snapshots(tmp_path)}
    assert rows["snapshot size"].holds


def test_every_row_can_be_printed():
    assert "MISSED" in Row("x", 1.0, "records/s", 2.0, ">= 60 %", holds=False).line()
