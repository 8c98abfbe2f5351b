"""A database written by an earlier schema opens with every record and event it had."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.engine import Engine
from holdfast.engine.blob_content import fetch
from holdfast.errors import StoreReadOnly
from holdfast.failpoints import reach
from holdfast.model.commands import Enqueue, NewJob
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, JobStatus
from holdfast.model.logs import NumberedLine
from holdfast.model.records import TABLES
from holdfast.model.times import moment
from holdfast.stores.sqlite import SqliteStore, connections, schema
from holdfast.stores.sqlite.schema import VERSION
from holdfast.stores.sqlite.statements import read_sql, split
from holdfast.testing import ManualClock, killed_at

GOLDEN = Path(__file__).parents[2] / "golden" / "sqlite-v1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(shutil.copy(GOLDEN / "jobs.db", tmp_path / "jobs.db"))


@pytest.fixture
def expected() -> dict[str, Any]:
    return msgspec.json.decode((GOLDEN / "expected.json").read_bytes())


def test_every_record_and_event_of_version_1_is_read(path, expected):
    demand(path, expected)


@pytest.mark.parametrize("version", [2, 3, 4, 5, 6, 7])
def test_every_record_and_event_of_a_version_is_read_and_all_that_lies_beside(tmp_path, version):
    golden = GOLDEN.with_name(f"sqlite-v{version}")
    path = Path(shutil.copy(golden / "jobs.db", tmp_path / "jobs.db"))
    expected = msgspec.json.decode((golden / "expected.json").read_bytes())
    for readonly in (False, True):
        demand(path, expected, readonly=readonly)
        with closing(SqliteStore.open(path, readonly=readonly, clock=ManualClock(moment(expected["at"])))) as store:
            for digest, text in expected["blobs"].items():
                assert store.blobs.get(digest) == text.encode()
            with store.read() as view:
                large = view.get(Job, "large")
            assert msgspec.json.decode(fetch(store, large.params)) == {"pad": "x" * 70_000}
            assert msgspec.json.decode(fetch(store, large.result)) == ["y" * 70_000]
            for run_id, lines in expected["lines"].items():
                assert store.logs.read(run_id) == msgspec.convert(lines, list[NumberedLine])
            assert msgspec.json.decode(msgspec.json.encode(store.workers.all())) == expected["workers"]


def test_the_kept_files_lie_as_they_were_kept():
    """Who opens one in place leaves files beside it, and may migrate it: open a copy."""
    for golden in sorted(GOLDEN.parent.glob("sqlite-v*")):
        assert sorted(found.name for found in golden.iterdir()) == ["README.md", "expected.json", "jobs.db"], golden


def demand(path, expected, *, readonly=False):
    store = SqliteStore.open(path, readonly=readonly)
    with store.read() as view:
        found = {name: list(view.all(kind)) for name, kind in TABLES.items()}
        assert view.seq == expected["seq"]
    assert {name: len(records) for name, records in found.items()} == {
        name: len(expected["tables"].get(name, [])) for name in TABLES
    }
    for name, kind in TABLES.items():
        # Through JSON: payloads come back as the text they were.
        rows = msgspec.json.encode(expected["tables"].get(name, []))
        assert found[name] == msgspec.json.decode(rows, type=list[kind])
    feed = [[entry.seq, entry.ts, msgspec.json.decode(entry.event)] for entry in store.feed(expected["trimmed"])]
    assert feed == expected["feed"]
    assert store.check() == []
    store.close()


def test_opening_for_reading_migrates_nothing_and_says_what_to_do(path):
    before = path.read_bytes()
    with pytest.raises(StoreReadOnly, match=r"version 1, this program reads 7.*store snapshot"):
        SqliteStore.open(path, readonly=True)
    assert path.read_bytes() == before
    SqliteStore.open(path).close()
    SqliteStore.open(path, readonly=True).close()


def test_a_migrated_file_and_a_new_one_have_the_same_schema(path, tmp_path):
    SqliteStore.open(path).close()
    SqliteStore.open(tmp_path / "new.db").close()
    assert _schema(path) == _schema(tmp_path / "new.db")


def test_the_newest_of_the_kept_files_has_the_schema_of_a_new_one(tmp_path):
    SqliteStore.open(tmp_path / "new.db").close()
    newest = Path(shutil.copy(GOLDEN.with_name(f"sqlite-v{VERSION}") / "jobs.db", tmp_path / "kept.db"))
    assert _schema(newest) == _schema(tmp_path / "new.db")


def _schema(path: Path) -> set[tuple[str, str, str]]:
    with closing(sqlite3.connect(path)) as db:
        return set(db.execute("SELECT type, name, sql FROM sqlite_schema"))


STATEMENTS = sum(len(split(read_sql(f"schema_v{version}.sql"))) for version in (2, 3, 4)) + 3


@pytest.mark.parametrize("statement", range(STATEMENTS))
def test_a_process_killed_within_the_migration_has_changed_nothing(path, expected, statement):
    killed_at("test.statement", lambda: migrate(path), nth=statement + 1)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (1,)
    test_every_record_and_event_of_version_1_is_read(path, expected)


class Reaching:
    """A connection that comes to a point before each statement."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def execute(self, *args: Any) -> sqlite3.Cursor:
        reach("test.statement")
        return self._db.execute(*args)


def migrate(path: Path) -> None:
    db = connections.open_writer(str(path))
    steps = {number: lambda _, step=step: step(Reaching(db)) for number, step in schema.MIGRATIONS.items()}
    schema.migrate(db, str(path), 1, migrations=steps)


def test_a_store_of_version_1_goes_on(path, expected):
    engine = Engine(SqliteStore.open(path))
    engine.ask(Enqueue(jobs=(NewJob(job_id=JobId("new"), job_type="send", params=msgspec.Raw(b"{}")),)))
    with engine.read() as view:
        assert view.seq == expected["seq"] + 1
        assert view.get(Job, "new").status is JobStatus.QUEUED
    assert engine.store.check() == []
    engine.close()


def test_a_row_that_was_damaged_before_a_migration_is_found_after_it(tmp_path):
    """Rows get another sum with a field more; what does not fit its old one must not fit the new one either."""
    path = Path(shutil.copy(GOLDEN.with_name("sqlite-v5") / "jobs.db", tmp_path / "jobs.db"))
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE instances SET orchestration_name = 'another' WHERE instance_id = 'done'")
        db.commit()
    with closing(SqliteStore.open(path)) as store:
        assert [(found.code, found.id) for found in store.check()] == [("row_sum", "done")]


def test_the_golden_store_shows_every_status(expected):
    assert {job.get("status", "QUEUED") for job in expected["tables"]["jobs"]} == {status.value for status in JobStatus}
