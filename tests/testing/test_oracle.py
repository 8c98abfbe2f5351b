"""The oracle must be able to say no: each kind of contradiction is found."""

from __future__ import annotations

import pytest

from holdfast.engine import Engine
from holdfast.model.commands import Complete, Enqueue, Fail, Lease
from holdfast.model.ids import JobId
from holdfast.stores.memory.store import MemoryStore
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.harness import new_job
from support.oracle import Oracle, complaints


@pytest.fixture
def engine():
    opened = Engine(MemoryStore(), clock=ManualClock())
    opened.ask(Enqueue(jobs=(new_job("a", params={"padding": "xxxx"}), new_job("b"), new_job("c"))))
    first, second = opened.ask(Lease(worker_id="w", n=2)).grants
    opened.ask(Complete(job_id=first.job.job_id, token=first.token))
    opened.ask(Fail(job_id=second.job.job_id, token=second.token, error="x"))
    return opened


def told(*lines: str) -> Oracle:
    oracle = Oracle()
    for line in ("sent a 4", "sent b 0", "sent c 0", *lines):
        oracle.hear("child", line)
    return oracle


def test_what_agrees_is_not_complained_about(engine):
    oracle = told("yes a", "yes b", "no z", "begun a 1", "begun b 2", "completed a 1", "failed b 2")
    assert complaints(oracle, engine.store) == []
    assert (oracle.maybe, oracle.unreported) == (["c"], [])


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("yes z", "z was acknowledged and is not there"),
        ("no a", "a was refused and is there"),
        ("begun a 7", "began, and there is no run of it"),
        ("completed c 3", "was acknowledged as completed, its run is None"),
        ("failed a 1", "was acknowledged as failed, its run is COMPLETED"),
        ("completed b 2", "was acknowledged as completed, its job is QUEUED"),
        ("lost a 1", "was told that its lease is lost, its run is COMPLETED"),
        ("Traceback (most recent call last):", "child: Traceback"),
    ],
)
def test_each_contradiction_is_found(engine, line, complaint):
    assert any(complaint in found for found in complaints(told("sent z 0", line), engine.store))


def test_a_job_nobody_sent_is_found(engine):
    engine.ask(Enqueue(jobs=(new_job("stranger"),)))
    assert complaints(told(), engine.store) == ["stranger is there and nobody sent it"]


def test_params_that_lost_a_part_are_found(engine):
    oracle = told("yes a")
    oracle.sent["a"] = 1000
    assert complaints(oracle, engine.store) == ["a has lost a part of its params"]


def test_a_child_that_ended_is_not_waited_for():
    oracle = told("yes a")
    assert oracle.wait_for("child", 1, 60) is True
    oracle.lose("child")
    assert oracle.wait_for("child", 2, 60) is False


def test_an_execution_nobody_reported_is_late(engine):
    assert told("begun a 1", "begun b 2", "reporting b 2").unreported == [(JobId("a"), 1)]
