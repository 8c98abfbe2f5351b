"""`holdfast explain` offers only what would be accepted."""

from __future__ import annotations

import msgspec
from click.testing import CliRunner

from holdfast import Engine, open_store
from holdfast.cli.root import cli
from holdfast.model.commands import Complete, Enqueue, Fail, Lease, NewJob
from holdfast.model.jobs import RetryMode


def ways(url, job_id):
    told = CliRunner().invoke(cli, ["explain", job_id, "--store", url, "-o", "json"])
    assert told.exit_code == 0, told.stderr
    return msgspec.json.decode(told.stdout)["ways_on"]


def test_what_is_over_for_good_is_offered_no_retry(tmp_path):
    url = f"sqlite:{tmp_path / 'jobs.db'}"
    engine = Engine(open_store(url))
    for job_id, mode in (("done", RetryMode.REQUEUE), ("link", RetryMode.CHAIN), ("lost", RetryMode.REQUEUE)):
        new = NewJob(job_id=job_id, job_type="work", params=msgspec.Raw(b"{}"), retry_mode=mode)
        engine.ask(Enqueue(jobs=(new,)))
    engine.ask(Lease(worker_id="w", n=3))
    engine.ask(Complete(job_id="done", token=1))
    engine.ask(Fail(job_id="link", token=2, error="no"))
    engine.ask(Fail(job_id="lost", token=3, error="no", fatal=True))
    engine.close()
    assert ways(url, "done") == []
    assert ways(url, "link") == []
    assert [way["command"] for way in ways(url, "lost")] == ["holdfast jobs retry lost"]
