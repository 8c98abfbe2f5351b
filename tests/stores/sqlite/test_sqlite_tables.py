"""The tables of `sqlite:` refuse, even for raw SQL, what no rule would decide."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast.engine import Engine
from holdfast.model.commands import Complete, CreateGroup, Enqueue, Lease, NewJob
from holdfast.model.ids import JobId
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import ManualClock

JOB = "018f0000-0000-7000-8000-000000000001"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Give a raw connection to a store with one queued, one running and one completed job, and a group of one."""
    engine = Engine(SqliteStore.open(tmp_path / "jobs.db"), clock=ManualClock())
    jobs = tuple(
        NewJob(job_id=JobId(name), job_type="t", params=msgspec.Raw(b'{"a":1}')) for name in ("done", "busy", "idle")
    )
    engine.ask(Enqueue(jobs=jobs))
    grants = engine.ask(Lease(worker_id="w", n=2)).grants
    engine.ask(Complete(job_id=grants[0].job.job_id, token=grants[0].token, result=msgspec.Raw(b"7")))
    member = NewJob(job_id=JobId("member"), job_type="t", params=msgspec.Raw(b"{}"))
    engine.ask(CreateGroup(group_id="g", members=(member,)))
    engine.close()
    raw = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    raw.execute("PRAGMA foreign_keys = ON")
    yield raw
    raw.close()


def refused(db: sqlite3.Connection, statement: str, words: str) -> None:
    before = list(db.iterdump())
    with pytest.raises(sqlite3.IntegrityError, match=words):
        db.execute(statement)
    assert list(db.iterdump()) == before


def test_raw_sql_cannot_put_a_job_into_a_group_that_is_not_there(db):
    refused(db, "UPDATE jobs SET group_id = 'nowhere' WHERE job_id = 'idle'", "group that is not there")
    columns = [row[1] for row in db.execute("PRAGMA table_info(jobs)") if row[1] not in ("row", "job_id", "group_id")]
    copied = ", ".join(columns)
    copy = f"INSERT INTO jobs (job_id, group_id, {copied}) SELECT 'copy', 'nowhere', {copied} FROM jobs LIMIT 1"
    refused(db, copy, "group that is not there")


def test_raw_sql_cannot_remove_a_group_that_has_jobs(db):
    refused(db, "DELETE FROM job_groups WHERE group_id = 'g'", "a group has jobs")


@pytest.mark.parametrize("status", ["QUEUED", "FAILED", "DEAD", "CANCELLED"])
def test_raw_sql_cannot_revive_or_rewrite_an_ended_job(db, status):
    end = "NULL" if status == "QUEUED" else "finished_at"
    refused(db, f"UPDATE jobs SET status = '{status}', finished_at = {end} WHERE job_id = 'done'", "ended job")


def test_raw_sql_cannot_make_an_ended_job_run(db):
    lease = "token = 9, worker_id = 'w', lease_expires_at = 'x'"
    refused(db, f"UPDATE jobs SET status = 'RUNNING', finished_at = NULL, {lease} WHERE job_id = 'done'", "ended job")


@pytest.mark.parametrize(
    "change",
    ["status = 'FAILED'", "status = NULL, finished_at = NULL", "error = 'x'", "artifacts = '[]'", "finished_at = 'x'"],
)
def test_raw_sql_cannot_change_an_ended_run(db, change):
    refused(db, f"UPDATE job_runs SET {change} WHERE job_id = 'done'", "ended run never changes")


@pytest.mark.parametrize("change", ["run_id = 'x'", "job_id = 'idle'", """params_snapshot = '{"a":2}'"""])
@pytest.mark.parametrize("job", ["done", "busy"])
def test_raw_sql_cannot_change_what_a_run_was_made_of(db, job, change):
    refused(db, f"UPDATE job_runs SET {change} WHERE job_id = '{job}'", "keeps its id, its job and its parameters")


@pytest.mark.parametrize(
    "change",
    [
        "status = 'ASLEEP'",
        "status = 'QUEUED'",
        "token = NULL",
        "worker_id = NULL",
        "lease_expires_at = NULL",
        "status = 'COMPLETED'",
        "finished_at = 'x'",
        "lane = 2",
    ],
)
def test_a_running_job_has_its_whole_lease_and_no_end(db, change):
    refused(db, f"UPDATE jobs SET {change} WHERE job_id = 'busy'", "CHECK")


@pytest.mark.parametrize("change", ["token = 9", "worker_id = 'w'", "lease_expires_at = 'x'", "status = 'DEAD'"])
def test_a_queued_job_has_no_lease_and_no_end(db, change):
    refused(db, f"UPDATE jobs SET {change} WHERE job_id = 'idle'", "CHECK")


@pytest.mark.parametrize("change", ["status = 'GONE', finished_at = 'x'", "status = 'LOST'", "finished_at = 'x'"])
def test_a_run_ends_with_a_known_status_and_a_time(db, change):
    refused(db, f"UPDATE job_runs SET {change} WHERE job_id = 'busy'", "CHECK")


def _copied(table: str, **values: str) -> str:
    """Write an INSERT of a copy of the busy job's row with some values changed."""
    columns = {
        "jobs": "job_id, job_type, params, created_at, namespace, queue, status, priority, position, rank, "
        "lease_s, retry_mode, max_attempts, backoff, attempts, expiries, snoozes, executions, backfill_id, "
        "direct, key_scope, key_hold, key_limit, deliveries, seq, lane, sum, retry_of, retry_kind, schedule_id, "
        "fire_at",
        "job_runs": "run_id, job_id, run_no, started_at, params_snapshot, namespace, queue, token, sum",
    }[table]
    chosen = ", ".join(values.get(name, name) for name in columns.split(", "))
    source = "idle" if table == "jobs" else "busy"
    return f"INSERT INTO {table} ({columns}) SELECT {chosen} FROM {table} WHERE job_id = '{source}'"


def test_a_job_has_one_open_run(db):
    refused(db, _copied("job_runs", run_id="'r2'", token="99"), "job_runs.job_id")


def test_a_token_belongs_to_one_run(db):
    refused(db, _copied("job_runs", run_id="'r2'", job_id="'idle'"), "job_runs.token")


def test_a_run_has_a_job(db):
    refused(db, _copied("job_runs", run_id="'r2'", job_id="'nobody'", token="99"), "FOREIGN KEY")
    refused(db, "DELETE FROM jobs WHERE job_id = 'done'", "FOREIGN KEY")


def test_a_job_has_one_automatic_successor(db):
    heir = {"retry_of": "'done'", "retry_kind": "'auto'"}
    db.execute(_copied("jobs", job_id="'one'", **heir))
    refused(db, _copied("jobs", job_id="'two'", **heir), "jobs.retry_of")
    db.execute(_copied("jobs", job_id="'three'", retry_of="'done'", retry_kind="'manual'"))


def test_a_nominal_fire_makes_one_job(db):
    fire = {"schedule_id": "'s'", "fire_at": "'t'"}
    db.execute(_copied("jobs", job_id="'one'", **fire))
    refused(db, _copied("jobs", job_id="'two'", **fire), "jobs.schedule_id")


def test_a_job_says_when_it_was_queued(db):
    assert db.execute("SELECT DISTINCT queued_at = created_at FROM jobs").fetchall() == [(1,)]
