"""What runs wrote, how far they are and what they left: `jobs logs` and `jobs show`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from hashlib import sha256

import msgspec
import pytest

from holdfast.cli.store_access.target import now
from holdfast.model.artifacts import Artifact
from holdfast.model.commands import Complete, Enqueue, Fail, Lease, NewJob
from holdfast.model.logs import LogLine
from holdfast.model.payloads import ref_in
from holdfast.model.workers import LiveRun, Progress

AT = "2026-01-06T10:15:30.123456Z"


def line(text, stream="log", level="INFO"):
    return LogLine(AT, stream, level if stream == "log" else "", text)


@pytest.fixture
def ran(filled, opened):
    """A job whose first run failed and whose second one goes on."""
    filled("a", max_attempts=2)
    with opened() as engine:
        (first,) = engine.ask(Lease(worker_id="w")).grants
        engine.store.logs.add([(first.run_id, line("begun")), (first.run_id, line("oh \x1b[2J", level="ERROR"))])
        engine.ask(Fail(job_id="a", token=first.token, error="no", retry_after_s=0))
        (second,) = engine.ask(Lease(worker_id="w")).grants
        engine.store.logs.add([(second.run_id, line("printed", "stdout")), (second.run_id, line("told", "stderr"))])
    return first, second


def test_the_lines_of_the_last_run_are_printed(ran, holdfast):
    assert holdfast("jobs", "logs", "a").stdout.splitlines() == [f"{AT}  stdout   printed", f"{AT}  stderr   told"]


def test_another_run_is_named_by_its_number(ran, holdfast):
    shown = holdfast("jobs", "logs", "a", "--run", "1").stdout.splitlines()
    assert shown == [f"{AT}  INFO     begun", f"{AT}  ERROR    oh \\x1b[2J"]


def test_programs_get_every_field(ran, rows, holdfast):
    _, second = ran
    lines = rows("jobs", "logs", "a")
    assert lines[0] == {
        "job_id": "a",
        "run_id": second.run_id,
        "run_no": 2,
        "line_no": 1,
        "at": AT,
        "stream": "stdout",
        "level": "",
        "text": "printed",
    }
    assert [line["line_no"] for line in lines] == [1, 2]
    assert len(holdfast("jobs", "logs", "a", "-o", "jsonl").stdout.splitlines()) == 2


def test_more_lines_than_are_read_at_once_all_come(filled, opened, rows, monkeypatch):
    monkeypatch.setattr("holdfast.engine.log_reader.PAGE", 10)
    filled("a")
    with opened() as engine:
        (grant,) = engine.ask(Lease(worker_id="w")).grants
        engine.store.logs.add([(grant.run_id, line(str(n))) for n in range(35)])
    assert [line["text"] for line in rows("jobs", "logs", "a")] == [str(n) for n in range(35)]


def test_a_job_that_has_not_run_or_said_nothing_is_no_error(filled, opened, holdfast):
    filled("a")
    told = holdfast("jobs", "logs", "a", "-o", "json")
    assert (told.exit_code, told.stdout, "has not run yet" in told.stderr) == (0, "[]\n", True)
    with opened() as engine:
        engine.ask(Lease(worker_id="w"))
    told = holdfast("jobs", "logs", "a")
    assert (told.exit_code, told.stdout, "run 1 of job a wrote nothing" in told.stderr) == (0, "", True)


def test_what_is_not_there_exits_3(ran, holdfast):
    assert holdfast("jobs", "logs", "zz").exit_code == 3
    told = holdfast("jobs", "logs", "a", "--run", "9", "-o", "json")
    assert (told.exit_code, msgspec.json.decode(told.stderr)["code"]) == (3, "run_not_found")


def test_following_goes_through_the_retries_and_ends_with_the_job(ran, place, opened):
    process = subprocess.Popen(
        [sys.executable, "-c", "from holdfast.cli import main; main()", "jobs", "logs", "a", "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOLDFAST_STORE": place},
    )
    try:
        assert process.stdout.readline() == f"{AT}  stdout   printed\n"
        assert process.stdout.readline() == f"{AT}  stderr   told\n"
        _, second = ran
        with opened() as engine:
            engine.store.logs.add([(second.run_id, line("still here"))])
            assert process.stdout.readline() == f"{AT}  INFO     still here\n"
            engine.store.logs.add([(second.run_id, line("the last"))])
            engine.ask(Complete(job_id="a", token=second.token))
            rest, _ = process.communicate(timeout=60)
        assert (rest, process.returncode) == (f"{AT}  INFO     the last\n", 0)
    finally:
        process.kill()
        process.communicate()


def test_following_goes_on_with_the_next_run(filled, place, opened):
    filled("a", max_attempts=3)
    with opened() as engine:
        (first,) = engine.ask(Lease(worker_id="w")).grants
        engine.store.logs.add([(first.run_id, line("one"))])
    process = subprocess.Popen(
        [sys.executable, "-c", "from holdfast.cli import main; main()", "jobs", "logs", "a", "-f", "-o", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOLDFAST_STORE": place},
    )
    try:
        assert msgspec.json.decode(process.stdout.readline())["text"] == "one"
        with opened() as engine:
            engine.ask(Fail(job_id="a", token=first.token, error="no", retry_after_s=0))
            (second,) = engine.ask(Lease(worker_id="w")).grants
            engine.store.logs.add([(second.run_id, line("two"))])
            told = msgspec.json.decode(process.stdout.readline())
            assert (told["text"], told["run_no"]) == ("two", 2)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.communicate()


# --- jobs show --------------------------------------------------------------------------------------------------------


def test_a_running_job_shows_how_far_it_is(ran, hire, holdfast, rows):
    _, second = ran
    hire(runs=(LiveRun("a", second.run_id, "work", now(), Progress(0.25, 5, 20, "resizing\x1b")),))
    page = holdfast("jobs", "show", "a").stdout
    assert "progress      [██████                  ]  25 %  5 of 20  resizing\\x1b" in page
    assert rows("jobs", "show", "a")["progress"]["fraction"] == 0.25


def test_runs_say_how_they_ended_and_what_they_left(filled, opened, holdfast, rows):
    filled("a", max_attempts=1)
    files = [Artifact("small.txt", 10, "ab" * 32, "text/plain"), Artifact("big.iso", 5 << 30, "cd" * 32, "x/y", "/far")]
    with opened() as engine:
        (grant,) = engine.ask(Lease(worker_id="w")).grants
        failure = {"error": "Traceback\nValueError: no", "error_kind": "bad_result"}
        left = {"artifacts": msgspec.Raw(msgspec.json.encode(files)), "progress": msgspec.Raw(b'{"fraction":0.5}')}
        engine.ask(Fail(job_id="a", token=grant.token, **failure, **left))
    page = holdfast("jobs", "show", "a").stdout
    assert "bad_result: ValueError: no" in page
    *_, title, small, big = page.splitlines()
    assert title.split() == ["RUN", "ARTIFACT", "SIZE", "TYPE", "WHERE"]
    assert small.split() == ["1", "small.txt", "10", "B", "text/plain", "ab" * 32]
    assert big.split() == ["1", "big.iso", "5.0", "GiB", "x/y", "/far"]
    (run,) = rows("jobs", "show", "a")["runs"]
    assert [one["name"] for one in run["artifacts"]] == ["small.txt", "big.iso"]


def test_a_large_payload_is_shown_by_its_size_and_printed_when_asked_for(opened, holdfast, rows):
    params = msgspec.json.encode({"text": "x" * 100_000})
    with opened() as engine:
        engine.ask(Enqueue(jobs=(NewJob(job_id="a b", job_type="work", params=msgspec.Raw(params)),)))
        kept = engine.job("a b").params
    assert ref_in(kept) is not None, "it lies beside the record"
    assert "97.7 KiB: holdfast jobs show 'a b' --params" in holdfast("jobs", "show", "a b").stdout
    assert holdfast("jobs", "show", "a b", "--params").stdout.encode() == params + b"\n"
    assert rows("jobs", "show", "a b")["params"] == {"text": "x" * 100_000}
    assert len(rows("jobs", "ls")[0]["preview"]) <= 120


def test_a_payload_alone_is_printed_as_json_a_line_for_each_job(filled, opened, holdfast):
    filled("a", params=msgspec.Raw(b'{"n":1}'))
    filled("b", params=msgspec.Raw(b'{"n":2}'))
    with opened() as engine:
        (grant,) = engine.ask(Lease(worker_id="w")).grants
        engine.ask(Complete(job_id="a", token=grant.token, result=msgspec.Raw(b'"done\\u202e"')))
    assert holdfast("jobs", "show", "a", "b", "--params").stdout == '{"n":1}\n{"n":2}\n'
    assert holdfast("jobs", "show", "a", "b", "--result").stdout == '"done\\u202e"\nnull\n'


def test_a_dry_run_keeps_no_large_payload(filled, opened, holdfast):
    filled("a")
    params = msgspec.json.encode({"text": "x" * 100_000})
    told = holdfast("jobs", "add", "work", "--params", "-", "--dry-run", stdin=params)
    assert told.exit_code == 0, told.stderr
    with opened() as engine:
        assert not engine.store.blobs.has(sha256(params).hexdigest())


def test_nothing_of_a_line_can_steer_a_terminal(ran, opened, holdfast):
    _, second = ran
    with opened() as engine:
        engine.store.logs.add([(second.run_id, LogLine("2026\x1b[31m", "log", "\x1b[2J\u202e", "\x1b[0m"))])
    shown = holdfast("jobs", "logs", "a").stdout
    assert all(one.isprintable() for one in shown.splitlines())
    assert "2026\\x1b[31m  \\x1b[2J\\u202e  \\x1b[0m" in shown
