from __future__ import annotations

import json

from click.testing import CliRunner

from holdfast.cli.root import cli
from holdfast.testing.bench import workflows


def test_every_workflow_of_a_measurement_ends(tmp_path):
    for party, kind in (("sqlite", "steps"), ("wal-waiting", "activities")):
        assert workflows.rate(tmp_path / party, party, kind, 2, 10) > 0
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"


def test_ours_stand_beside_the_peer_if_there_is_one(tmp_path, monkeypatch):
    asked = []

    def rate(_place, party, kind, size, count):
        asked.append((party, kind, size))
        return 10.0 if party == "dbos" else float(count)

    monkeypatch.setattr(workflows, "rate", rate)
    monkeypatch.setattr(workflows, "peer", lambda: "DBOS 0")
    answer = CliRunner().invoke(cli, ["bench", "workflows", "--dir", str(tmp_path), "--turns", "1", "-o", "json"])
    assert answer.exit_code == 0, answer.output
    rows = {row["name"]: row for row in json.loads(answer.stdout)["rows"]}
    assert len(rows) == 12
    assert rows["sqlite: 1 step, started before"]["ratio"] == 300
    assert rows["wal: 10 activities, from start to end"]["bare"] is None
    assert ("dbos", "steps", 10) in asked


def test_without_a_peer_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(workflows, "rate", lambda *_asked: 1.0)
    monkeypatch.setattr(workflows, "find_spec", lambda _name: None)
    answer = CliRunner().invoke(cli, ["bench", "workflows", "--dir", str(tmp_path), "--turns", "1"])
    assert answer.exit_code == 0, answer.output
    assert "DBOS is not installed" in answer.stdout
    assert "MISSED" in answer.stdout
