"""Journals of every version ever released, kept as files: each must open with this one, and say what it said then."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from journal_kit import NOW

from holdfast.journal import Journal
from holdfast.journal.migrations import FORMAT

GOLDEN = Path(__file__).parent.parent / "golden"


def test_every_version_has_its_golden_files():
    for version in range(1, FORMAT + 1):
        assert (GOLDEN / f"journal-v{version}" / "expected.json").is_file()


def said(journal: Journal) -> dict:
    loaded = journal.load()
    return {
        "id": journal.id,
        "snapshot": {
            "seq": loaded.seq,
            "v": loaded.header.v,
            "created_at": loaded.header.created_at,
            "sum": loaded.header.sum,
            "rows": [[table, json.loads(row)] for table, row in loaded.records],
        },
        "first_seq": journal.first_seq,
        "records": [
            {
                "seq": record.seq,
                "ts": record.ts.isoformat(),
                "v": record.v,
                "more": record.more,
                "event": json.loads(record.event),
            }
            for record in journal.read(journal.first_seq - 1)
        ],
    }


@pytest.mark.parametrize("version", range(1, FORMAT + 1))
def test_an_old_journal_says_what_it_said_then(version, tmp_path):
    place = GOLDEN / f"journal-v{version}"
    expected = json.loads((place / "expected.json").read_text(encoding="utf-8"))
    shutil.copytree(place / "store", tmp_path / "store")
    with Journal.open(tmp_path / "store", readonly=True) as reader:
        assert said(reader) == expected
    with Journal.open(tmp_path / "store") as journal:
        assert said(journal) == expected
        last = expected["records"][-1]["seq"]
        assert journal.append([{"type": "t:put"}], ts=NOW).first_seq == last + 1
    assert Journal.check(tmp_path / "store") == []


@pytest.mark.parametrize("version", range(1, FORMAT + 1))
def test_without_its_newest_snapshot_an_old_journal_leads_to_the_same_state(version, tmp_path):
    place = GOLDEN / f"journal-v{version}"
    shutil.copytree(place / "store", tmp_path / "store")

    def state() -> dict[str, str]:
        with Journal.open(tmp_path / "store", readonly=True) as journal:
            loaded = journal.load()
            jobs = {row["id"]: row["status"] for row in (json.loads(raw) for _, raw in loaded.records)}
            for record in journal.read(loaded.seq):
                event = json.loads(record.event)
                if event["type"].startswith("job:"):
                    jobs[event["id"]] = "QUEUED" if event["type"] == "job:created" else "COMPLETED"
            return jobs

    expected = state()
    max((tmp_path / "store" / "snapshots").iterdir()).unlink()
    assert state() == expected
