from __future__ import annotations

import json
import os
from functools import partial

import pytest
from click.testing import CliRunner

from benchmarks import jobs
from benchmarks.commands import benchmarks


def test_every_party_of_the_benchmark_finishes_all_its_jobs(tmp_path):
    answer = CliRunner().invoke(
        benchmarks, ["jobs", "--dir", str(tmp_path), "--jobs", "50", "--turns", "1", "--idle", "0.1", "-o", "json"]
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


def test_without_a_peer_ours_is_measured_alone_and_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "find_spec", lambda _name: None)
    asked = []
    monkeypatch.setattr(jobs, "_idle_of", lambda kind, _place, _seconds: asked.append(kind) or (0.0, 0.0))
    monkeypatch.setattr(jobs, "Stage", partial(Quick, asked))
    answer = CliRunner().invoke(benchmarks, ["jobs", "--dir", str(tmp_path), "--jobs", "50", "--turns", "1"])
    assert answer.exit_code == 0, answer.output
    assert "Huey is not installed" in answer.stdout
    assert asked == ["sqlite", "sqlite", "wal", "sqlite", "wal", "sqlite"]


class Quick:
    """A stage on which nothing is played."""

    def __init__(self, asked, kind, _place):
        asked.append(kind)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def rate(self, _verb, count):
        return float(count)

    def latencies(self, count):
        return [1.0] * count


def test_a_worker_that_fails_ends_the_benchmark(tmp_path, capfd):
    (tmp_path / "jobs").write_text("no database\n" * 1000)
    ticks = os.pipe()
    with jobs.Process("sqlite", tmp_path / "jobs", ticks) as process, pytest.raises(RuntimeError, match="ended"):
        process.ask("work")
    assert "not a" in capfd.readouterr().err
    for end in ticks:
        os.close(end)
