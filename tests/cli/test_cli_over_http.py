"""The command line speaks to a coordinator as to any store; what only a disk can tell is left to where it lies."""

from __future__ import annotations

import hashlib
import threading
from datetime import timedelta

import msgspec
import pytest

from holdfast.cli.store_access import target
from holdfast.clock import SystemClock
from holdfast.model.access import Access, Role
from holdfast.model.commands import Lease
from holdfast.model.times import Timestamp
from holdfast.stores.http import HttpStore
from holdfast.testing.clock import ManualClock
from holdfast.web.server.serving import Listening, Serving


@pytest.fixture
def coordinator(place, filled):
    """A coordinator over a store with two jobs, and the URL by which everybody else knows it."""
    filled("a", "b")
    accesses = [
        Access(name=role.value, roles=(role,), digest=hashlib.sha256(role.encode()).hexdigest()) for role in Role
    ]
    serving = Serving(place, Listening(port=0, accesses=accesses))
    thread = threading.Thread(target=serving.run)
    thread.start()
    serving.ready.wait()
    yield serving.url
    serving.stop()
    thread.join()


def test_jobs_are_seen_made_and_ended_at_a_coordinator(coordinator, holdfast, rows):
    there = {"env": {"HOLDFAST_STORE": coordinator}}
    assert {row["job_id"] for row in rows("jobs", "ls", **there)} == {"a", "b"}
    assert holdfast("jobs", "cancel", "a", **there).exit_code == 0
    assert holdfast("jobs", "add", "other", "--id", "c", **there).exit_code == 0
    assert holdfast("jobs", "cancel", "b", "--dry-run", **there).exit_code == 0
    seen = rows("status", **there)
    assert (seen["store"], seen["durability"]) == (coordinator, "sync")
    assert (seen["counts"]["CANCELLED"], seen["counts"]["QUEUED"]) == (1, 2)
    assert "no live worker knows task other" in holdfast("explain", "c", **there).stdout


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_the_last_events_are_told_by_a_coordinator_though_earlier_ones_were_pruned(coordinator, holdfast, opened):
    there = {"env": {"HOLDFAST_STORE": coordinator}}
    with opened() as engine:
        assert engine.store.trim(Timestamp("9999-01-01T00:00:00.000000Z"), 1) == 1
    told = holdfast("feed", "tail", **there)
    assert (told.exit_code, [line.split()[0] for line in told.stdout.splitlines()]) == (0, ["2"]), told.stderr
    refused = holdfast("feed", "tail", "--after", "0", **there)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "forgotten" in refused.stderr


def test_doctor_names_a_lease_that_a_step_back_has_moved_out_of_reach_at_a_coordinator(place, filled, holdfast):
    filled("a")
    clock = ManualClock(SystemClock().now())
    serving = Serving(place, Listening(port=0), clock=clock)
    thread = threading.Thread(target=serving.run)
    thread.start()
    serving.ready.wait()
    try:
        store = HttpStore.open(serving.url)
        store.decide([Lease(worker_id="gone", lease_s=5)])
        store.close()
        assert holdfast("doctor", env={"HOLDFAST_STORE": serving.url}).exit_code == 0
        clock.set_wall(clock.now() - timedelta(hours=2))
        told = holdfast("doctor", "-o", "json", env={"HOLDFAST_STORE": serving.url})
        assert told.exit_code == 1
        assert [one["code"] for one in msgspec.json.decode(told.stdout)] == ["clock_behind", "expiry_far"]
    finally:
        serving.stop()
        thread.join()


def test_the_doctor_looks_at_the_work_and_at_no_disk_elsewhere(coordinator, holdfast):
    said = holdfast("doctor", "-v", env={"HOLDFAST_STORE": coordinator})
    assert said.exit_code == 0, said.stderr
    assert "2 wait, 0 run" in said.stderr
    assert coordinator in said.stderr
    assert "file system" not in said.stderr


@pytest.mark.parametrize("verb", ["check", "repair", "snapshot"])
def test_a_store_is_looked_after_only_where_it_lies(holdfast, verb):
    """Nobody is asked, so nobody needs to be there."""
    said = holdfast("store", verb, "http://127.0.0.1:1")
    assert said.exit_code == 6
    assert "Run the command on that machine" in said.stderr


def test_nobody_at_a_terminal_waits_long_for_a_coordinator_that_is_not_there(holdfast, monkeypatch):
    monkeypatch.setattr(target, "PATIENCE_S", 0.0)
    said = holdfast("jobs", "ls", env={"HOLDFAST_STORE": "http://127.0.0.1:1"})
    assert said.exit_code == 7
    assert "Is `holdfast serve` running there?" in said.stderr


@pytest.mark.parametrize("place", ["wal", "dir"], indirect=True)
def test_a_change_to_a_store_that_a_coordinator_of_this_machine_has_is_asked_of_it(coordinator, place, holdfast, rows):
    said = holdfast("jobs", "cancel", "a")
    assert said.exit_code == 0, said.stderr
    assert f"{place} is served at {coordinator}" in said.stderr
    assert {row["job_id"]: row["status"] for row in rows("jobs", "ls")} == {"a": "CANCELLED", "b": "QUEUED"}


def test_only_a_coordinator_of_this_machine_is_asked_without_being_named():
    assert target._is_plain_loopback("http://127.0.0.1:8480")
    assert target._is_plain_loopback("http://[::1]:8480")
    assert not target._is_plain_loopback("http://10.0.0.5:8480")
    assert not target._is_plain_loopback("https://127.0.0.1:8480")
    for other in ("", "http://localhost.example.com", "http://[::1", "http://127.0.0.1.example.com:8480", "127.0.0.1"):
        assert not target._is_plain_loopback(other)


APP = """
from holdfast import Holdfast

hf = Holdfast("{url}")


@hf.task(name="work", schedule="0 3 * * *")  # to be made by who may
def work() -> None: ...


@hf.workflow
async def waits() -> None: ...
"""


@pytest.mark.parametrize("place", ["wal"], indirect=True)
def test_the_role_of_a_worker_is_enough_for_the_command_and_for_strict_it_is_told_what_is(
    coordinator, holdfast, rows, tmp_path, monkeypatch, caplog
):
    (tmp_path / "remoteapp.py").write_text(APP.format(url=coordinator))
    monkeypatch.chdir(tmp_path)
    given = {"env": {"HOLDFAST_STORE": coordinator, "HOLDFAST_ACCESS_TOKEN": "worker"}}
    refused = holdfast("worker", "remoteapp:hf", "--until-idle", "--strict", **given)
    assert refused.exit_code == 6
    assert "the role reader or operator or admin" in refused.stderr
    said = holdfast("worker", "remoteapp:hf", "--until-idle", **given)
    assert said.exit_code == 0, said.stderr
    assert "schedule.forbidden" in caplog.messages
    assert {row["status"] for row in rows("jobs", "ls", env={"HOLDFAST_STORE": coordinator})} == {"COMPLETED"}


LOOKS = """
    jobs ls, jobs show a, jobs logs a, explain a, queues ls, queues show default, groups ls, schedules ls,
    schedules show s, schedules preview s, templates ls, webhooks ls, reservations ls, workers ls, workflows ls,
    workflows show i, decisions ls, status, top
"""
CHANGES = """
    jobs update a --priority 3, jobs move a --to last, jobs bury a --yes, jobs retry a, queues pause default,
    queues resume default, queues limit default --max-running 2, dispatch pause, dispatch resume, schedules pause s,
    schedules resume s, schedules trigger s, workflows signal i paid, workflows cancel i, schedules rm s --yes
"""


def lines(text):
    return [one.split() for one in text.replace("\n", " ").split(",")]


@pytest.mark.parametrize("place", ["wal"], indirect=True)
def test_every_verb_that_looks_or_changes_does_so_at_a_coordinator(coordinator, holdfast):
    there = {"env": {"HOLDFAST_STORE": coordinator}}
    for made in ("schedules add s --task work --every 1h", "workflows start order --id i"):
        said = holdfast(*made.split(), **there)
        assert said.exit_code == 0, (made, said.stderr)
    for line in [*lines(LOOKS), *lines(CHANGES)]:
        said = holdfast(*line, **there)
        assert said.exit_code == 0, (line, said.stdout, said.stderr)


@pytest.mark.parametrize("place", ["wal"], indirect=True)
def test_a_wrong_access_token_is_refused_by_name_and_is_not_shown(coordinator, holdfast):
    said = holdfast("jobs", "ls", env={"HOLDFAST_STORE": coordinator, "HOLDFAST_ACCESS_TOKEN": "hf_wrong"})
    assert said.exit_code == 6
    assert "access token" in said.stderr
    assert "hf_wrong" not in said.stderr


@pytest.mark.parametrize("line", ["jobs cancel a", "status", "queues ls", "top"])
def test_without_its_coordinator_a_command_says_so_and_that_trying_again_may_help(holdfast, monkeypatch, line):
    monkeypatch.setattr(target, "PATIENCE_S", 0.0)
    said = holdfast(*line.split(), env={"HOLDFAST_STORE": "http://127.0.0.1:1"})
    assert said.exit_code == 7
    assert "gave no answer" in said.stderr
