"""`-w` and `jobs wait` in a pipe: JSON lines, woken by what other processes do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import click
import msgspec
import pytest

from holdfast.cli.render.watch import PAUSE_S, WatchCommand, watch_option
from holdfast.model.commands import Cancel, Complete, Enqueue, Lease, NewJob


@pytest.fixture
def start(place):
    """Start a command beside us."""
    started = []

    def start(*args):
        process = subprocess.Popen(
            [sys.executable, "-c", "from holdfast.cli import main; main()", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "HOLDFAST_STORE": place},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_watching_in_a_pipe_writes_a_line_for_each_record_that_changed(start, filled, opened, hire):
    filled("a", "b")
    hire()
    watching = start("jobs", "ls", "-w", "60")

    def told():
        job = msgspec.json.decode(watching.stdout.readline())
        return job["job_id"], job["status"], job["reason"]["code"]

    assert [told(), told()] == [("b", "QUEUED", "behind"), ("a", "QUEUED", "ready")]
    with opened() as engine:
        engine.ask(Cancel(job_id="a"))
        assert sorted([told(), told()]) == [("a", "CANCELLED", "ended"), ("b", "QUEUED", "ready")]
        engine.ask(Enqueue(jobs=(NewJob(job_id="c", job_type="work", params=msgspec.Raw(b"{}")),)))
        assert told() == ("c", "QUEUED", "behind")
    watching.send_signal(signal.SIGINT)
    assert watching.wait(60) == 130


@pytest.mark.parametrize("args", [["status"], ["queues", "ls"], ["queues", "show", "default"], ["explain", "a"]])
def test_every_read_can_be_watched(start, filled, opened, args):
    filled("a", "b")
    watching = start(*args, "-w", "60")
    first = msgspec.json.decode(watching.stdout.readline())
    with opened() as engine:
        engine.ask(Cancel(job_id="a"))
        second = msgspec.json.decode(watching.stdout.readline())
    assert first != second


def test_workers_can_be_watched_as_they_take_jobs(start, filled, opened, hire):
    filled("a")
    hire()
    watching = start("workers", "ls", "-w", "60")
    assert msgspec.json.decode(watching.stdout.readline())["used"] == 0
    with opened() as engine:
        engine.ask(Lease(worker_id="w"))
        assert msgspec.json.decode(watching.stdout.readline())["used"] == 1


def test_waiting_ends_when_another_process_ends_the_job(start, filled, opened):
    filled("a")
    waiting = start("jobs", "wait", "a", "-o", "json")
    watching = start("jobs", "show", "a", "-w", "60")
    watching.stdout.readline()  # it looks; the other one does, or will
    with opened() as engine:
        (grant,) = engine.ask(Lease(worker_id="w")).grants
        engine.ask(Complete(job_id=grant.job.job_id, token=grant.token))
        (job,) = msgspec.json.decode(waiting.stdout.read())
    assert (job["status"], waiting.wait(60)) == ("COMPLETED", 0)


@pytest.mark.parametrize(
    ("args", "watch", "rest"),
    [
        ([], None, ()),
        (["-w"], PAUSE_S, ()),
        (["-w", "5"], 5, ()),
        (["-w", "0.5", "a"], 0.5, ("a",)),
        (["-w", "abc"], PAUSE_S, ("abc",)),
        (["--watch", "01890000"], PAUSE_S, ("01890000",)),
        (["a", "-w"], PAUSE_S, ("a",)),
        (["--watch=7"], 7, ()),
    ],
)
def test_a_number_after_w_is_seconds_and_anything_else_an_id(args, watch, rest):
    @click.command(cls=WatchCommand)
    @click.argument("ids", nargs=-1)
    @watch_option
    def read(ids, watch):
        return ids, watch

    assert read.main(args, standalone_mode=False) == (rest, watch)
