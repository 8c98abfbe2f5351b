"""Limits of one database that several real processes dispatch from."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast.engine import Engine
from holdfast.model import events as ev
from holdfast.model.commands import Complete, Enqueue, NewJob, SetQueue
from holdfast.model.events import QueueChanges, decode_event
from holdfast.model.ids import JobId, Token
from holdfast.model.jobs import JobStatus
from holdfast.stores.sqlite import SqliteStore

CHILD = str(Path(__file__).with_name("limits_child.py"))
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    opened = Engine(SqliteStore.open(tmp_path / "jobs.db"))
    yield opened
    opened.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start children on the database; whatever becomes of the test, none is left."""
    children: list[subprocess.Popen[str]] = []

    def run(verb: str, *rest: str) -> subprocess.Popen[str]:
        command = [sys.executable, CHILD, verb, str(tmp_path / "jobs.db"), *rest]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        children.append(child)
        return child

    yield run
    for child in children:
        child.kill()
        child.communicate()


def limit(engine: Engine, **changes: int) -> None:
    engine.ask(SetQueue(queue="default", changes=QueueChanges(**changes)))


def fill(engine: Engine, count: int, keys: int = 0) -> list[str]:
    ids = [f"job-{number:03}" for number in range(count)]
    params = msgspec.Raw(b"{}")
    engine.ask(
        Enqueue(
            jobs=tuple(
                NewJob(
                    job_id=JobId(job_id),
                    job_type="work",
                    params=params,
                    limit_key=f"key-{number % keys}" if keys else None,
                )
                for number, job_id in enumerate(ids)
            )
        )
    )
    return ids


def test_a_second_dispatcher_process_gets_nothing_while_the_one_place_is_taken(engine, start):
    limit(engine, max_running=1)
    fill(engine, 2)
    one, other = (start("asks", name) for name in ("w1", "w2"))

    def ask(child: subprocess.Popen[str]) -> list[str]:
        child.stdin.write("lease\n")
        child.stdin.flush()
        return child.stdout.readline().split()

    for child in (one, other):
        assert child.stdout.readline() == "open\n"
    (first,) = ask(one)
    assert first == "job-000:1"
    assert ask(other) == []
    assert [engine.job(JobId(name)).status for name in ("job-000", "job-001")] == [JobStatus.RUNNING, JobStatus.QUEUED]
    assert ask(one) == []
    engine.ask(Complete(job_id=JobId("job-000"), token=Token(1)))
    assert ask(other) == ["job-001:2"]


def test_several_processes_at_once_never_exceed_the_places_of_a_queue_or_a_key(engine, start, tmp_path):
    limit(engine, max_running=2)
    ids = fill(engine, 60, keys=3)
    marks = tmp_path / "marks"
    marks.mkdir()
    children = [start("crowds", f"w{number}", str(marks), "2") for number in range(4)]
    for child in children:
        assert child.stdout.readline() == "open\n"
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    said = [child.communicate(timeout=120)[0].splitlines() for child in children]
    assert [child.returncode for child in children] == [0] * 4
    done = [line for lines in said for line in lines]
    assert [line for line in done if line.startswith("crowd")] == []
    assert sorted(done) == ids
    assert _most_at_once(engine) == (2, 1)
    assert engine.store.check() == []


def _most_at_once(engine: Engine) -> tuple[int, int]:
    """Read from the feed how many jobs ran at once at most, in all and of one key."""
    running: dict[str, str] = {}
    keys: dict[str, str] = {}
    most, most_of_key = 0, 0
    for entry in engine.store.feed(0):
        match decode_event(entry.event, seq=entry.seq, file="feed"):
            case ev.JobCreated(job=job):
                keys[job.job_id] = job.limit_key or ""
            case ev.LeaseGranted(job_id=job_id):
                running[job_id] = keys[job_id]
                most = max(most, len(running))
                most_of_key = max(most_of_key, list(running.values()).count(keys[job_id]))
            case ev.JobCompleted(job_id=job_id):
                del running[job_id]
    return most, most_of_key
