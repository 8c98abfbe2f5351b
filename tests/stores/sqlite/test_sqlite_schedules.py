"""Schedules of one database that several real processes look after."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.engine import Engine
from holdfast.model.commands import PutSchedule
from holdfast.model.jobs import Job
from holdfast.model.schedules import CatchUp, NewSchedule, Overlap
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.clock import ManualClock

CHILD = str(Path(__file__).with_name("schedule_child.py"))
SCHEDULES, HOURS = 200, 5


def put(name: str, **fields: object) -> PutSchedule:
    new = NewSchedule(name=name, job_type="t", cron_expression="0 * * * *", **fields)  # type: ignore[arg-type]  # a test's words
    return PutSchedule(schedule_id=name, schedule=new)


def test_two_schedulers_that_race_a_thousand_fires_make_one_job_each(tmp_path):
    path = tmp_path / "jobs.db"
    engine = Engine(SqliteStore.open(path), clock=ManualClock())
    engine.submit_many([put(f"s{n:03}", catch_up=CatchUp.LATEST, overlap=Overlap.ALLOW) for n in range(SCHEDULES)])
    made: list[list[str]] = [[], []]
    for hour in range(1, HOURS + 1):
        command = [sys.executable, CHILD, str(path), str(hour)]
        children = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
        ]
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "open\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        for number, child in enumerate(children):
            told, _ = child.communicate(timeout=60)
            assert child.returncode == 0
            made[number] += told.split()
    both = made[0] + made[1]
    assert len(both) == len(set(both)) == SCHEDULES * HOURS
    assert all(made), "they took turns"
    with engine.read() as view:
        jobs = list(view.all(Job))
    assert {job.job_id for job in jobs} == set(both)
    assert len({(job.schedule_id, job.fire_at) for job in jobs}) == SCHEDULES * HOURS
    assert engine.store.check() == []
    engine.close()


@pytest.fixture
def db(tmp_path):
    engine = Engine(SqliteStore.open(tmp_path / "jobs.db"), clock=ManualClock())
    engine.submit_many([put("a"), put("b")])
    engine.close()
    raw = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    raw.execute("PRAGMA foreign_keys = ON")
    yield raw
    raw.close()


@pytest.mark.parametrize(
    "change",
    [
        "name = 'b'",
        "job_type = NULL",
        "interval_s = 5",
        "enabled = 0",
        "next_trigger_at = NULL",
        "overlap = 'maybe'",
        "template_id = 'gone', job_type = NULL",
    ],
)
def test_raw_sql_cannot_make_a_schedule_that_is_none(db, change):
    with pytest.raises(sqlite3.IntegrityError):
        db.execute(f"UPDATE schedules SET {change} WHERE name = 'a'")


def test_raw_sql_cannot_make_a_second_job_of_a_fire(db):
    columns = [row[1] for row in db.execute("PRAGMA table_info(jobs)") if row[1] not in ("row", "job_id")]
    needed = {row[1] for row in db.execute("PRAGMA table_info(jobs)") if row[3]}
    values = ", ".join(
        {"status": "'QUEUED'", "schedule_id": "'a'", "fire_at": "'x'", "created_at": "'x'"}.get(
            name, "0" if name in needed else "NULL"
        )
        for name in columns
    )
    insert = f"INSERT INTO jobs (job_id, {', '.join(columns)}) VALUES (?, {values})"
    db.execute(insert, ("one",))
    with pytest.raises(sqlite3.IntegrityError, match="schedule_id"):
        db.execute(insert, ("two",))
