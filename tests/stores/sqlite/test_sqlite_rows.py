"""Rows and records: what one process writes, another one reads, changes and sums the same."""

from __future__ import annotations

import msgspec

from holdfast.engine import Engine
from holdfast.model.commands import Complete, Enqueue, Lease, NewJob
from holdfast.model.jobs import Backoff, Job, Run
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.rows import JOBS, RUNS


def test_a_row_changed_by_another_process_keeps_a_true_sum(tmp_path):
    first = Engine(SqliteStore.open(tmp_path / "jobs.db"))
    jobs = (
        NewJob(job_id="a", job_type="work", params=msgspec.Raw(b"{}"), lease_s=30, timeout_s=5, tags={"x": "1"}),
        NewJob(job_id="b", job_type="work", params=msgspec.Raw(b"{}"), backoff=Backoff(base_s=3, cap_s=9)),
    )
    first.ask(Enqueue(jobs=jobs))
    second = Engine(SqliteStore.open(tmp_path / "jobs.db"))
    for grant in second.ask(Lease(worker_id="w", n=2)).grants:
        second.ask(Complete(job_id=grant.job.job_id, token=grant.token))
    assert first.store.check() == []
    first.close()
    second.close()


def test_a_job_and_a_run_without_options_are_written_by_the_narrow_statements():
    now = "2026-01-01T00:00:00.000000Z"
    job = JOBS.write(Job("a", "work", msgspec.Raw(b"{}"), now))
    run = RUNS.write(Run("r", "a", 1, now, msgspec.Raw(b"{}"), worker_id="w", token=1))
    assert JOBS.inserts[0].fits(job)
    assert RUNS.inserts[0].fits(run)
    assert not JOBS.inserts[0].fits(JOBS.write(Job("a", "work", msgspec.Raw(b"{}"), now, key="k")))
    assert all(table.inserts[-1].fits(row) for table, row in ((JOBS, job), (RUNS, run)))
