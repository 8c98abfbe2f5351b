"""`holdfast doctor`: silent when all is well, one line and one remedy for what is not."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from conftest import worker
from holdfast import Engine, open_store
from holdfast.clock import SystemClock
from holdfast.model.commands import Enqueue, Lease, NewJob
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.history import Event, ExecutionMetadata
from holdfast.model.workflows.work_items import StartOrchestration
from holdfast.testing.clock import START, ManualClock
from holdfast.workflows.provider import Provider


@pytest.fixture(params=["wal", "sqlite", "dir"])
def place(request, tmp_path):
    """The URL of a store that does not exist yet, of every kind that others can look at."""
    return f"{request.param}:{tmp_path / 'jobs'}"


@pytest.fixture
def long_ago(place):
    """Put an instance and a job into the store, by a clock of long ago."""

    def write(instance="user-42", version="2.0.0", queue="mail"):
        engine = Engine(open_store(place, clock=ManualClock()), clock=ManualClock())
        provider = Provider(engine)
        provider.enqueue_for_orchestrator(StartOrchestration(instance=instance, orchestration="onboard", input="{}"))
        _, token, _ = provider.fetch_orchestration_item(30)
        kind = event_kinds.OrchestrationStarted(name="onboard", version=version, input="{}")
        begun = Event(event_id=1, instance=instance, execution_id=1, timestamp_ms=1, kind=kind)
        provider.ack_orchestration_item(token, 1, (begun,), metadata=ExecutionMetadata(status="Running"))
        job = NewJob(job_id="j", job_type="send", params=msgspec.Raw(b"{}"), queue=queue)
        engine.ask(Enqueue(jobs=(job,)))
        engine.close()

    return write


def test_it_is_silent_when_all_is_well(holdfast, filled):
    filled("a")
    told = holdfast("doctor")
    assert (told.exit_code, told.stdout, told.stderr) == (0, "", "")
    assert holdfast("doctor", "-o", "json").stdout == "[]\n"


def test_it_says_what_it_looked_at_when_asked(holdfast, filled):
    filled("a")
    told = holdfast("doctor", "-v")
    assert (told.exit_code, told.stdout) == (0, "")
    for title in ("holdfast", "python", "place", "space", "sync", "files", "held by", "format", "opening", "workers"):
        assert f"\n{title} " in f"\n{told.stderr}"


def test_instances_without_code_are_listed(holdfast, long_ago, hire):
    long_ago()
    hire("w", queues=("mail",), workflows=("onboard 1.0.0",), started_at=START.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
    told = holdfast("doctor")
    assert told.exit_code == 1
    (line, remedy) = told.stdout.splitlines()
    assert line.startswith("workflow_code_missing  1 instance waits of onboard 2.0.0, which no live worker has")
    assert line.endswith("live workers have onboard 1.0.0: user-42")
    assert "Start a worker whose code has onboard 2.0.0" in remedy


def test_findings_are_objects_for_programs(holdfast, long_ago):
    long_ago()
    told = holdfast("doctor", "-o", "json")
    assert told.exit_code == 1
    (found,) = msgspec.json.decode(told.stdout)
    assert (found["code"], found["id"]) == ("queue_unserved", "mail")
    lines = holdfast("doctor", "-o", "jsonl").stdout.splitlines()
    assert [msgspec.json.decode(line)["code"] for line in lines] == ["queue_unserved"]


def test_lease_further_off_than_its_length_is_named(holdfast, place):
    ahead = ManualClock(SystemClock().now() + timedelta(hours=2))
    engine = Engine(open_store(place, clock=ahead), clock=ahead)
    engine.ask(Enqueue(jobs=(NewJob(job_id="j", job_type="send", params=msgspec.Raw(b"{}")),)))
    engine.ask(Lease(worker_id="gone", lease_s=5))
    engine.close()
    told = holdfast("doctor", "-o", "json")
    assert told.exit_code == 1
    assert [(one["code"], one.get("id")) for one in msgspec.json.decode(told.stdout)] == [
        ("clock_behind", None),
        ("expiry_far", "j"),
    ]


def test_long_lease_of_a_job_with_short_ones_is_well(holdfast, opened, filled):
    filled("j", lease_s=5)
    with opened() as engine:
        engine.ask(Lease(worker_id="remote", lease_s=300))
    assert holdfast("doctor").exit_code == 0


def test_it_works_while_another_process_works_on_the_store(holdfast, opened, filled):
    filled("a")
    with opened() as engine:
        before = engine.store.workers.all()
        told = holdfast("doctor")
        assert (told.exit_code, told.stdout) == (0, "")
        engine.store.workers.note(worker("w"))
        assert holdfast("doctor", "-v").stderr.count("1 ready") == 1
        assert before == []


def test_it_changes_nothing(holdfast, filled, opened):
    filled("a")
    with opened() as engine, engine.read() as view:
        seq = view.seq
    holdfast("doctor")
    holdfast("doctor", "-v")
    with opened() as engine, engine.read() as view:
        assert [entry.seq for entry in engine.store.feed(seq)] in ([], [seq + 1])  # a `wal:` notes its own opening


def test_a_store_that_refuses_to_open_is_a_finding(tmp_path, holdfast):
    url = f"wal:{tmp_path / 'broken'}"
    open_store(url).close()
    (tmp_path / "broken" / "journal.json").write_text("{")
    told = holdfast("doctor", "--store", url, "-o", "json")
    assert told.exit_code == 1
    assert [one["code"] for one in msgspec.json.decode(told.stdout)] == ["journal_damaged"]


def test_where_there_is_no_store_it_exits_3(holdfast):
    assert holdfast("doctor").exit_code == 3
