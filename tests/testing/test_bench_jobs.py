from __future__ import annotations

import json

from click.testing import CliRunner

from holdfast.cli.root import cli
from holdfast.testing.bench import jobs


def test_every_party_of_the_benchmark_finishes_all_its_jobs(tmp_path):
    answer = CliRunner().invoke(
        cli, ["bench", "jobs", "--dir", str(tmp_path), "--jobs", "50", "--turns", "1", "--idle", "0.1", "-o", "json"]
    )
    assert answer.exit_code == 0, answer.output
    found = json.loads(answer.stdout)
    assert found["machine"]
    assert found["filesystem"]
    assert found["beside"].startswith("Huey ")
    rows = {row["name"]: row for row in found["rows"]}
    assert len(rows) == 10
    assert all(row["ours"] > 0 for row in rows.values() if row["unit"] in ("jobs/s", "ms"))
    assert rows["wal: enqueue_many to completed"]["ratio"] > 0
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"


def test_without_a_peer_ours_is_measured_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "find_spec", lambda _name: None)
    assert jobs.peer() is None
    answer = CliRunner().invoke(
        cli, ["bench", "jobs", "--dir", str(tmp_path), "--jobs", "50", "--turns", "1", "--idle", "0.1"]
    )
    assert answer.exit_code == 0, answer.output
    assert "Huey is not installed" in answer.stdout
