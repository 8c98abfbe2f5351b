"""`dir:` on the command line: looking while another process has it, adding, and what was set aside."""

from __future__ import annotations

import json

import msgspec
import pytest
from click.testing import CliRunner

from holdfast import Engine, open_store
from holdfast.cli.root import cli
from holdfast.engine.maintenance import recover
from holdfast.model.commands import Complete, Enqueue, Lease, NewJob


@pytest.fixture
def url(tmp_path):
    return f"dir:{tmp_path / 'jobs'}"


@pytest.fixture
def run(url):
    return lambda *args: CliRunner().invoke(cli, args, env={"HOLDFAST_STORE": url})


@pytest.fixture
def holder(url):
    """A program that has the store open, with one job in each state."""
    engine = Engine(open_store(url))
    for name in ("done", "running", "waiting"):
        engine.submit(Enqueue(jobs=(NewJob(job_id=name, job_type="work", params=msgspec.Raw(b"{}")),)))
    done, _ = engine.ask(Lease(worker_id="w", n=2)).grants
    engine.ask(Complete(job_id=done.job.job_id, token=done.token))
    yield engine
    engine.close()


def test_looking_is_possible_while_another_process_has_the_store(run, holder):
    listed = run("jobs", "ls", "-o", "json")
    assert listed.exit_code == 0, listed.stderr
    assert {row["job_id"]: row["status"] for row in json.loads(listed.stdout)} == {
        "done": "COMPLETED",
        "running": "RUNNING",
        "waiting": "QUEUED",
    }
    assert run("jobs", "show", "waiting").exit_code == 0
    assert run("status").exit_code == 0
    assert run("store", "check").exit_code == 0


def test_changing_is_refused_while_another_process_has_the_store(run, holder):
    told = run("jobs", "cancel", "waiting")
    assert told.exit_code == 6
    assert "is in use by pid" in told.stderr


def test_a_job_is_added_and_its_file_is_there(run, tmp_path):
    told = run("jobs", "add", "work", "--params", '{"n": 1}', "--id", "mine")
    assert told.exit_code == 0, told.stderr
    page = json.loads((tmp_path / "jobs" / "data" / "tasks" / "pending" / "mine.json").read_text())
    assert page["payload"] == {"type": "work", "data": {"n": 1}}


def test_what_was_set_aside_is_told_by_status_check_and_repair(run, url, tmp_path):
    engine = Engine(open_store(url))
    (tmp_path / "jobs" / "data" / "tasks" / "pending" / "bad.json").write_text('{"payload": {"type": "no name"}}')
    recover(engine)
    engine.close()
    assert "1 file that could not be used" in run("status").stdout
    assert json.loads(run("status", "-o", "json").stdout)["set_aside"] == 1
    checked = run("store", "check")
    assert checked.exit_code == 1
    assert "quarantined" in checked.stdout
    repaired = run("store", "repair")
    assert "stays until it is edited" in repaired.stdout
    assert repaired.exit_code == 0


def test_adopted_history_is_told_by_the_first_check_and_by_status(run, url, tmp_path, caplog):
    done = tmp_path / "jobs" / "data" / "tasks" / "completed"
    done.mkdir(parents=True)
    (tmp_path / "jobs").chmod(0o700)
    (done / "old.json").write_text('{"taskId": "old", "payload": {"type": "work"}}')
    looked = run("store", "check")
    assert looked.exit_code == 0
    (told,) = [record for record in caplog.records if record.message == "dir.not_adopted"]
    assert told.completed == 1
    open_store(url).close()
    shown = run("status")
    assert "1 completed and 0 failed jobs of another program" in shown.stdout
    assert json.loads(run("status", "-o", "json").stdout)["adopted"]["completed"] == 1
    assert run("store", "check").exit_code == 0
