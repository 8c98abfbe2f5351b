"""`holdfast feed tail`: every event once, in order, also while it happens."""

import os
import signal
import subprocess
import sys

import msgspec
import pytest

from holdfast.model.commands import Cancel, Enqueue, NewJob
from holdfast.model.times import Timestamp


def entries(told):
    assert told.exit_code == 0, told.stderr
    return [msgspec.json.decode(line) for line in told.stdout.splitlines()]


def test_the_last_events_are_printed_with_what_they_are_about(holdfast, filled):
    filled("a", "b", "c")
    lines = holdfast("feed", "tail", "-n", "2").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["2", "3"]
    assert [line.split()[2:] for line in lines] == [["job:created", "b"], ["job:created", "c"]]


def test_json_lines_are_whole_events_and_go_on_behind_a_number(holdfast, filled):
    filled("a", "b", "c")
    found = entries(holdfast("feed", "tail", "--after", "1", "-o", "jsonl"))
    assert [entry["seq"] for entry in found] == [2, 3]
    assert [entry["event"]["job"]["job_id"] for entry in found] == ["b", "c"]


def test_who_did_it_is_told(holdfast, filled, opened):
    filled("a")
    with opened() as engine:
        engine.ask(Cancel(job_id="a", reason="enough", actor="eve"))
    assert holdfast("feed", "tail", "-n", "1").stdout.endswith("a  by eve\n")


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_pruned_events_are_left_out_of_the_last_and_refused_behind_a_number(holdfast, filled, opened):
    filled("a", "b", "c")
    with opened() as engine:
        assert engine.store.trim(Timestamp("9999-01-01T00:00:00.000000Z"), 2) == 2
    assert [entry["seq"] for entry in entries(holdfast("feed", "tail", "-o", "jsonl"))] == [3]
    told = holdfast("feed", "tail", "--after", "0")
    assert told.exit_code == 2
    assert "forgotten" in told.stderr


def test_a_store_without_events_says_nothing(holdfast, filled):
    filled()
    assert holdfast("feed", "tail").stdout == ""


def test_following_tells_what_happens_until_it_is_interrupted(filled, place, opened):
    filled("a")
    process = subprocess.Popen(
        [sys.executable, "-c", "from holdfast.cli import main; main()", "feed", "tail", "--follow", "-o", "jsonl"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOLDFAST_STORE": place},
    )
    try:
        assert msgspec.json.decode(process.stdout.readline())["seq"] == 1
        with opened() as engine:
            engine.ask(Enqueue(jobs=(NewJob(job_id="b", job_type="work", params=msgspec.Raw(b"{}")),)))
            assert msgspec.json.decode(process.stdout.readline())["event"]["job"]["job_id"] == "b"
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
        assert (rest, process.returncode) == ("", 130)
    finally:
        process.kill()
        process.communicate()
