"""`holdfast status` and `holdfast explain`: what is going on, and why."""

from __future__ import annotations

import re
import shlex

import msgspec
import pytest

from holdfast.cli.store_access.target import now
from holdfast.model.commands import Cancel, EndSessions, Fail, Lease
from holdfast.model.jobs import RetryMode
from holdfast.model.times import later


def test_a_status_counts_everything_and_says_how_durable_an_answer_is(holdfast, rows, filled, opened):
    filled("a", "b", "c")
    filled("d", namespace="x", queue="far")
    with opened() as engine:
        engine.ask(Lease(worker_id="w"))
    status = rows("status")
    assert (status["running"], status["counts"]["QUEUED"], status["durability"]) == (1, 3, "sync")
    assert [(row["namespace"], row["name"]) for row in status["queues"]] == [("", "default"), ("x", "far")]
    assert [row["name"] for row in rows("status", "--namespace", "x")["queues"]] == ["far"]
    with opened() as engine, engine.read() as view:
        assert status["seq"] <= view.seq
    assert status["seq"] >= 5
    page = holdfast("status").stdout
    assert "dispatch    on\n" in page
    assert "x/far" in page


def test_a_status_tells_who_works_and_how_long_the_oldest_due_job_has_waited(holdfast, rows, filled, opened, hire):
    filled("a", "b")
    filled("later", delay_s=3600)
    nobody = rows("status")
    assert nobody["workers"] == {"ready": 0, "draining": 0, "lost": 0}
    with opened() as engine:
        assert nobody["oldest_due"] == engine.job("a").created_at
    assert "workers     none\n" in holdfast("status").stdout
    hire("w-1")
    hire("w-2", state="draining")
    hire("w-3", last_seen=later(now(), -600))
    assert rows("status")["workers"] == {"ready": 1, "draining": 1, "lost": 1}
    page = holdfast("status").stdout
    assert "workers     1 ready, 1 draining, 1 lost\n" in page
    assert re.search(r"waiting     3, oldest due for \d+s\n", page)
    with opened() as engine:
        for job_id in ("a", "b"):
            engine.ask(Cancel(job_id=job_id))
    assert rows("status")["oldest_due"] is None, "what is delayed is not due"


def test_a_status_tells_what_was_taken_back_from_a_process_that_ended(holdfast, rows, filled, opened):
    filled("a", "b")
    with opened() as engine:
        engine.ask(Lease(worker_id="w", n=2, session_id="an earlier one"))
        assert rows("status")["taken_back"] is None
    with opened() as engine:
        engine.ask(EndSessions(session_id=engine.session_id, limit=10))
    assert rows("status")["taken_back"]["leases"] == 2
    assert "s ago, 2 leases of an ended process taken back\n" in holdfast("status").stdout


def test_relaxed_durability_is_named(rows, filled, place):
    filled("a")
    if place.startswith("wal:"):
        assert rows("status", "--store", f"{place}?durability=relaxed")["durability"] == "relaxed"
    else:
        assert rows("status")["durability"] == "sync"


def test_a_job_is_explained_with_the_chain_behind_it(rows, holdfast, filled, opened):
    filled("a", retry_mode=RetryMode.CHAIN, max_attempts=2)
    with opened() as engine:
        (grant,) = engine.ask(Lease(worker_id="w")).grants
        engine.ask(Fail(job_id=grant.job.job_id, token=grant.token, error="no", retry_after_s=3600))
    old = rows("explain", "a")
    (link,) = old["chain"]
    assert (link["role"], link["status"], old["reason"]["holder"]) == ("retried by", "QUEUED", link["job_id"])
    new = rows("explain", link["job_id"])
    assert (new["reason"]["code"], new["reason"]["until"] is not None) == ("delayed", True)
    assert [(other["role"], other["job_id"]) for other in new["chain"]] == [("retry of", "a")]
    page = holdfast("explain", link["job_id"]).stdout
    assert all(part in page for part in ("until", "retry of", "what would change it", "--at now"))


def test_who_is_first_in_line_is_named(rows, filled, hire):
    filled("a", "b")
    hire()
    (link,) = rows("explain", "b")["chain"]
    assert (link["role"], link["job_id"]) == ("first in line", "a")


@pytest.mark.parametrize("state", ["paused", "stopped", "delayed", "behind", "running", "asked", "ended", "ready"])
def test_every_command_that_explain_names_works_as_printed(rows, holdfast, filled, opened, hire, state):
    filled("first")
    hire()
    filled("my job; rm -rf x", delay_s=60 if state == "delayed" else None)
    if state != "behind":
        holdfast("jobs", "cancel", "first")
    if state in ("paused", "stopped"):
        holdfast(*(["queues", "pause", "default"] if state == "paused" else ["dispatch", "pause"]))
    if state in ("running", "asked"):
        with opened() as engine:
            engine.ask(Lease(worker_id="w"))
    if state in ("asked", "ended"):
        holdfast("jobs", "cancel", "my job; rm -rf x")
    told = rows("explain", "my job; rm -rf x")
    assert told["ways_on"]
    for way in told["ways_on"]:
        words = shlex.split(way["command"])
        assert words[0] == "holdfast"
        done = holdfast(*words[1:])
        assert done.exit_code == 0, (way, done.stderr)


def test_a_queue_in_a_namespace_is_resumed_there(rows, holdfast, filled, hire):
    filled("a", namespace="x", queue="far")
    hire(namespace="x", queues=("far",))
    holdfast("queues", "pause", "far", "--namespace", "x")
    (command, *_) = [way["command"] for way in rows("explain", "a")["ways_on"]]
    assert holdfast(*shlex.split(command)[1:]).exit_code == 0
    assert rows("explain", "a")["reason"]["code"] == "ready"


def test_a_job_that_nobody_takes_says_so_and_how_to_start_a_worker(rows, holdfast, filled, hire):
    filled("a", queue="far", task="shop.send")
    for known in ({}, {"queues": ("far",), "job_types": ("shop.other",)}, {"state": "draining"}):
        hire(**known)
        told = rows("explain", "a")
        assert (told["reason"]["code"], told["reason"]["holder"]) == ("no_worker", "shop.send")
        assert told["ways_on"][0]["command"] == "holdfast worker APP --queues far"
    assert "⚠ QUEUED" in holdfast("explain", "a").stdout
    hire(queues=("far",), job_types=("shop.send",))
    assert rows("explain", "a")["reason"]["code"] == "ready"


def test_explaining_nothing_exits_3(holdfast, filled):
    filled("a")
    told = holdfast("explain", "zz", "-o", "json")
    assert (told.exit_code, msgspec.json.decode(told.stderr)["code"]) == (3, "job_not_found")
