"""A database written by schema version 1 opens with every record and event it had."""

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.engine import Engine
from holdfast.model.commands import Enqueue, NewJob
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, JobStatus
from holdfast.model.records import TABLES
from holdfast.stores.sqlite import SqliteStore

GOLDEN = Path(__file__).parents[1] / "golden" / "sqlite-v1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(shutil.copy(GOLDEN / "jobs.db", tmp_path / "jobs.db"))


@pytest.fixture
def expected() -> dict[str, Any]:
    return msgspec.json.decode((GOLDEN / "expected.json").read_bytes())


@pytest.mark.parametrize("readonly", [True, False])
def test_every_record_and_event_of_version_1_is_read(path, expected, readonly):
    store = SqliteStore.open(path, readonly=readonly)
    with store.read() as view:
        found = {name: list(view.all(kind)) for name, kind in TABLES.items()}
        assert view.seq == expected["seq"]
    assert {name: len(records) for name, records in found.items()} == {
        name: len(records) for name, records in expected["tables"].items()
    }
    for name, kind in TABLES.items():
        assert found[name] == msgspec.convert(_raws(expected["tables"][name]), list[kind])
    feed = [[entry.seq, entry.ts, msgspec.json.decode(entry.event)] for entry in store.feed(expected["trimmed"])]
    assert feed == expected["feed"]
    assert store.check() == []
    store.close()


def _raws(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give payloads back as the JSON text they were."""
    payloads = ("params", "params_snapshot", "result", "artifacts", "details", "progress", "outcome")
    return [
        {name: msgspec.Raw(msgspec.json.encode(value)) if name in payloads else value for name, value in record.items()}
        for record in records
    ]


def test_a_store_of_version_1_goes_on(path, expected):
    engine = Engine(SqliteStore.open(path))
    engine.ask(Enqueue(jobs=(NewJob(job_id=JobId("new"), job_type="send", params=msgspec.Raw(b"{}")),)))
    with engine.read() as view:
        assert view.seq == expected["seq"] + 1
        assert view.get(Job, "new").status is JobStatus.QUEUED
    assert engine.store.check() == []
    engine.close()


def test_the_golden_store_shows_every_status(expected):
    assert {job.get("status", "QUEUED") for job in expected["tables"]["jobs"]} == {status.value for status in JobStatus}
