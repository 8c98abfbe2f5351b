from __future__ import annotations

import json

from click.testing import CliRunner

from benchmarks import flowscale, workflows
from benchmarks.commands import benchmarks
from benchmarks.flowparty import Measured


def test_every_workflow_of_a_measurement_ends(tmp_path):
    for party, kind in (("sqlite", "steps"), ("wal-waiting", "activities")):
        measured = workflows.measure(tmp_path / party, party, kind, 2, 10)
        assert measured.rate > 0
        assert measured.cpu_us > 0
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"


def test_ours_stand_beside_the_peer_if_there_is_one(tmp_path, monkeypatch):
    asked = []

    def measure(_place, party, kind, size, count):
        asked.append((party, kind, size))
        if party == "dbos":
            return Measured(10.0, 500.0)
        return Measured(float(count) if "waiting" in party else 99.0, 50.0)

    monkeypatch.setattr(workflows, "measure", measure)
    monkeypatch.setattr(workflows, "peer", lambda: "DBOS 0")
    answer = CliRunner().invoke(benchmarks, ["workflows", "--dir", str(tmp_path), "--turns", "1", "-o", "json"])
    assert answer.exit_code == 0, answer.output
    rows = {row["name"]: row for row in json.loads(answer.stdout)["rows"]}
    assert len(rows) == 18
    assert rows["sqlite: 1 step, processor time"]["ratio"] == 0.1
    assert rows["sqlite: 1 step, started before"]["ratio"] == 300
    assert rows["sqlite: 1 step, started before"]["holds"]
    assert not rows["sqlite: 1 step, from start to end"]["holds"], "it is asked for ten times as many"
    assert rows["wal: 10 activities, from start to end"]["bare"] is None
    assert ("dbos", "steps", 10) in asked


def test_without_a_peer_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(workflows, "measure", lambda *_asked: Measured(1.0, 1.0))
    monkeypatch.setattr(workflows, "find_spec", lambda _name: None)
    answer = CliRunner().invoke(benchmarks, ["workflows", "--dir", str(tmp_path), "--turns", "1"])
    assert answer.exit_code == 0, answer.output
    assert "DBOS is not installed" in answer.stdout
    assert "MISSED" not in answer.stdout, "there is nothing it could have missed"


def test_size_is_measured_on_every_store_and_every_measurement_ends(tmp_path):
    sizes = flowscale.Sizes(small=2, steps=30, activities=15, events=100)
    rows = list(flowscale.run(tmp_path, sizes, ("wal",)))
    assert [row.name for row in rows] == [
        "30 days, daily timer and cron, virtual",
        "wal: one of 30 steps",
        "wal: one of 15 activities",
        "wal: replay of 100 events",
    ]
    assert all(row.ours > 0 for row in rows)


def test_what_grows_with_size_is_called_missed(tmp_path, monkeypatch):
    monkeypatch.setattr(flowscale, "month", lambda: 0.5)
    monkeypatch.setattr(flowscale, "reopened", lambda _url, _events: 1.0)
    monkeypatch.setattr(flowscale, "each_s", lambda _url, kind, size, _count: size if kind == "steps" else 1.0)
    answer = CliRunner().invoke(benchmarks, ["workflows", "--scale", "--dir", str(tmp_path), "-o", "json"])
    assert answer.exit_code == 0, answer.output
    held = {row["name"]: row["holds"] for row in json.loads(answer.stdout)["rows"]}
    assert held["sqlite: one of 10,000 steps"] is False
    assert held["dir: one of 5,000 activities"] is True
    assert "MISSED" in CliRunner().invoke(benchmarks, ["workflows", "--scale", "--dir", str(tmp_path)]).stdout
