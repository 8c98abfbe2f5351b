"""The demo proves what it claims: it passes on a healthy store, and each way to lose or repeat work makes it fail."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from test_cli_terminal import Terminal, bare

from holdfast.cli.demo import scenario as story
from holdfast.cli.demo import verify as proof
from holdfast.cli.demo import worker_processes
from holdfast.cli.demo.record import Said
from holdfast.cli.demo.task import PROGRAM, Line
from holdfast.cli.root import cli
from holdfast.errors import InvalidValue, StoreError
from holdfast.failpoints import listening
from holdfast.model.jobs import JobStatus, RunStatus
from holdfast.model.times import later
from holdfast.stores.protocol import Finding

HOLDFAST = [sys.executable, "-c", "from holdfast.cli import main; main()"]
#: Far below a lease: only who notices the dead process is so fast, on a machine that has other things to do as well.
WITHIN_S = 15.0
SMALL = ("--jobs", "40", "--workers", "2", "--within", str(WITHIN_S))


class Audience:
    """Hears the story and remembers it."""

    def __init__(self):
        self.heard = {}

    def __getattr__(self, verb):
        return lambda *said: self.heard.__setitem__(verb, said)


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    place = tmp_path_factory.mktemp("demo")
    audience = Audience()
    plan = story.Plan(url=f"sqlite:{place / 'jobs.db'}", record=place / "executions.jsonl", jobs=40, workers=2)
    return story.play(plan, audience), audience.heard


@pytest.fixture
def evidence(played):
    return played[0]


# --- on a healthy store -----------------------------------------------------------------------------------------------


def test_a_killed_worker_costs_no_job_and_every_repeat_is_explained(evidence):
    verdict = proof.judge(evidence, WITHIN_S)
    assert verdict.problems == []
    assert evidence.at_end.count(JobStatus.COMPLETED) == 40
    lost = evidence.at_end.lost()
    assert {run.job_id for run in lost} == set(evidence.held)
    assert {run.worker_id for run in lost} == {evidence.dead}
    assert len(evidence.at_end.runs) == 40 + len(lost)
    assert verdict.takeover_s <= WITHIN_S


def test_the_story_is_told_as_it_happened(played):
    evidence, heard = played
    assert heard["acknowledged"] == (40,)
    hand, held = heard["killed"]
    assert hand.worker_id == evidence.dead
    assert hand.process.returncode == -signal.SIGKILL
    assert [job.job_id for job in held] == list(evidence.held)
    taken_s, left_s = heard["taken_over"]
    assert taken_s <= heard["done"][0]
    assert left_s > 0, "no lease ran out: the dead process was noticed"


def test_however_slowly_it_looks_on_there_is_a_worker_to_be_killed_at_work(evidence):
    """The last jobs are not finished before that, so that none can slip away between the look and the kill."""
    ended = [line for line in evidence.at_kill.record if line.said is Said.ENDED]
    assert len(ended) == story.KILL_AT * 40
    assert evidence.held


# --- the check can fail -----------------------------------------------------------------------------------------------


def at_end(evidence, **changes):
    sight = msgspec.structs.replace(evidence.at_end, **changes)
    return proof.judge(msgspec.structs.replace(evidence, at_end=sight), WITHIN_S).problems


def with_job(evidence, job_id, **changes):
    job = msgspec.structs.replace(evidence.at_end.jobs[job_id], **changes)
    return at_end(evidence, jobs={**evidence.at_end.jobs, job_id: job})


@pytest.fixture
def one(evidence):
    """A job that was executed once."""
    return next(job_id for job_id in evidence.acknowledged.values() if job_id not in evidence.held)


def test_a_job_that_is_missing_is_found(evidence, one):
    jobs = {job_id: job for job_id, job in evidence.at_end.jobs.items() if job_id != one}
    assert at_end(evidence, jobs=jobs) == [f"job {one} was acknowledged and is not in the store"]


def test_a_job_that_is_not_done_is_found(evidence, one):
    assert with_job(evidence, one, status=JobStatus.DEAD) == [f"job {one} was acknowledged and is DEAD"]


def test_a_job_with_the_result_of_another_is_found(evidence, one):
    assert with_job(evidence, one, result=msgspec.Raw(b"[1]")) == [f"job {one} has a result that is not its own"]


def test_a_job_that_nobody_acknowledged_is_found(evidence, one):
    (picture,) = [picture for picture, job_id in evidence.acknowledged.items() if job_id == one]
    known = {number: job_id for number, job_id in evidence.acknowledged.items() if number != picture}
    problems = proof.judge(msgspec.structs.replace(evidence, acknowledged=known), WITHIN_S).problems
    assert problems == [f"job {one} is in the store and was never acknowledged"]


def test_a_job_completed_twice_is_found(evidence, one):
    (run,) = [run for run in evidence.at_end.runs if run.job_id == one]
    again = msgspec.structs.replace(run, run_id="other", run_no=2)
    assert at_end(evidence, runs=[*evidence.at_end.runs, again]) == [f"job {one} was completed 2 times"]


def test_a_completion_without_an_execution_is_found(evidence, one):
    record = [line for line in evidence.at_end.record if line.job_id != one]
    (problem,) = at_end(evidence, record=record)
    assert "the record has no execution that did it" in problem


def test_an_execution_without_a_run_is_found(evidence, one):
    record = [*evidence.at_end.record, Line(Said.BEGAN, one, "no-such-run")]
    (problem,) = at_end(evidence, record=record)
    assert "the store knows no such run" in problem


def test_a_run_executed_twice_is_found(evidence):
    first = next(line for line in evidence.at_end.record if line.said is Said.BEGAN)
    (problem,) = at_end(evidence, record=[*evidence.at_end.record, first])
    assert problem.endswith("was executed twice")


def test_a_lost_run_of_a_worker_that_lives_is_found(evidence):
    runs = [
        msgspec.structs.replace(run, worker_id="somebody") if run.status is RunStatus.LOST else run
        for run in evidence.at_end.runs
    ]
    problems = at_end(evidence, runs=runs)
    assert sum("was not killed" in problem for problem in problems) == len(evidence.held)


def test_a_repeat_whose_first_run_was_not_lost_is_found(evidence):
    """An extra execution must not hide behind a run that the store calls failed."""
    job_id = evidence.held[0]
    runs = [
        msgspec.structs.replace(run, status=RunStatus.FAILED)
        if run.job_id == job_id and run.status is RunStatus.LOST
        else run
        for run in evidence.at_end.runs
    ]
    (problem,) = at_end(evidence, runs=runs)
    assert problem.endswith("ended FAILED")


def test_a_late_takeover_or_none_is_found(evidence):
    early = msgspec.structs.replace(evidence, killed_at=later(evidence.killed_at, -60))
    (problem,) = proof.judge(early, WITHIN_S).problems
    assert problem.startswith("others took over after 6")
    never = msgspec.structs.replace(evidence, held=("gone",))
    assert "not every job of the dead worker was taken over" in proof.judge(never, WITHIN_S).problems
    idle = msgspec.structs.replace(evidence, held=())
    assert "held no job" in proof.judge(idle, WITHIN_S).problems[-1]


def test_findings_of_the_store_are_problems(evidence):
    broken = msgspec.structs.replace(evidence, findings=[Finding(code="row_sum", message="row 7 differs")])
    assert proof.judge(broken, WITHIN_S).problems == ["store check: row 7 differs"]


# --- as it is run -----------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Where the demo makes its temporary directory."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_it_exits_1_when_a_job_vanishes_from_the_store_and_an_execution_is_unknown_to_it(place):
    gone = []

    def sabotage():
        (file,) = place.glob("*/jobs.db")
        database = sqlite3.connect(file)
        gone.append(database.execute("SELECT job_id FROM jobs ORDER BY job_id LIMIT 1").fetchone()[0])
        database.execute("DELETE FROM jobs WHERE job_id = ?", gone)
        database.commit()
        database.close()
        with (file.parent / "executions.jsonl").open("ab") as record:
            record.write(msgspec.json.encode(Line(Said.BEGAN, gone[0], "no-such-run")) + b"\n")

    with listening("demo.done", sabotage):
        told = CliRunner().invoke(cli, ["demo", *SMALL])
    assert told.exit_code == 1, told.output
    assert f"job {gone[0]} was acknowledged and is not in the store" in told.stdout
    assert "the store knows no such run" in told.stdout
    assert "Not as promised" in told.stdout
    assert list(place.iterdir()) == []


def test_in_a_pipe_it_tells_the_story_in_lines_and_gives_its_counts_as_json(tmp_path):
    url = f"sqlite:{tmp_path / 'own.db'}"
    command = [*HOLDFAST, "demo", *SMALL, "--store", url, "--keep", "-o", "json"]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    told = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    said = msgspec.json.decode(told.stdout)
    assert said["well"] is True
    assert said["workflow"]["recorded"] == said["workflow"]["steps"]
    counts = said["jobs"]
    assert counts["acknowledged"] == counts["completed"] == 40
    assert counts["executions"] == 40 + counts["repeated"]
    assert counts["runs"] == 40 + counts["lost_runs"]
    assert re.search(r"worker-\d \(pid \d+\) killed with SIGKILL; it held \d jobs?:", told.stderr)
    assert "\x1b" not in told.stderr
    assert (tmp_path / "own.db").exists()
    (kept,) = tmp_path.glob("holdfast-demo-*")
    assert f"kept: {kept}" in told.stderr
    assert (kept / "executions.jsonl").read_bytes().count(b'"began"') == counts["executions"]


def test_on_a_terminal_it_shows_a_bar_the_workers_and_a_table_that_fits(tmp_path):
    text, code = Terminal("", "demo", *SMALL, columns=80, TMPDIR=str(tmp_path)).end()
    assert code == 0, text
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert "40 of 40" in plain
    assert re.search(r"† worker-\d  pid \d+  killed", plain)
    assert re.search(r"jobs acknowledged +40 +40", plain)
    assert "\x1b[32m✓\x1b[0m 40 acknowledged, 40 completed with the right result; nothing was lost" in text
    shown = [part for line in plain.splitlines() for part in line.split("\r") if "on sqlite:" not in line]
    assert max(map(len, shown)) <= 80
    assert list(tmp_path.iterdir()) == []


def test_a_store_for_one_process_is_refused(tmp_path):
    told = CliRunner().invoke(cli, ["demo", "--store", f"wal:{tmp_path / 'jobs'}"])
    assert told.exit_code == InvalidValue.exit_code
    assert "may be written by one process only" in told.stderr


def test_too_few_jobs_to_show_anything_are_refused(tmp_path):
    told = CliRunner().invoke(cli, ["demo", "--jobs", "20", "--workers", "3"])
    assert told.exit_code == InvalidValue.exit_code
    assert "Give at least 24." in told.stderr


def test_no_worker_outlives_a_demo_that_is_interrupted(tmp_path):
    """Not even one that was stopped by surprise: the pipe it holds on to closes with the demo's process."""
    running = Terminal("", "demo", "--jobs", "2000", TMPDIR=str(tmp_path))
    running.until(r"(?s)worker-1.*?pid.*?worker-3.*?pid.*?\d+ jobs? in hand")
    pids = [int(pid) for pid in re.findall(r"pid (\d+)", bare(running.text))[-3:]]
    running.process.send_signal(signal.SIGINT)
    _, code = running.end()
    assert code == 130
    assert not any(alive(pid) for pid in pids)


def test_a_worker_that_cannot_start_is_told(tmp_path):
    with (
        pytest.raises(StoreError, match="could not start"),
        worker_processes.crew(1, PROGRAM, "sqlite:/no/such/place/x", "", str(tmp_path), "0"),
    ):
        pass


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
