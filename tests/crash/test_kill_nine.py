"""Processes killed with SIGKILL, again and again: what they were told holds, and everything ends.

Four producers and four workers in each process; on `sqlite:` also three processes on one file. The moment of a kill is
drawn from a seed and counted in acknowledgements, never in time.
"""

from __future__ import annotations

import os
from datetime import timedelta
from random import Random

import pytest

from holdfast.clock import SystemClock
from holdfast.engine import Engine
from holdfast.engine.maintenance import recover, tick
from holdfast.errors import LeaseLost
from holdfast.model.commands import Complete, Lease
from holdfast.model.jobs import ENDED, Job
from holdfast.model.outcomes import Enqueued, Leased, Refusal
from holdfast.stores.opening import open_store
from holdfast.testing.clock import ManualClock
from holdfast.testing.conformance.harness import tables_of
from support.crash import Child, produced
from support.oracle import Oracle, complaints

pytestmark = pytest.mark.disk

SOAK = os.environ.get("HOLDFAST_SOAK") == "1"
KILLS = 100 if SOAK else 7


def later_engine(url: str) -> Engine:
    """Open the store an hour from now, when every lease of the killed has run out."""
    return Engine(open_store(url), clock=ManualClock(SystemClock().now() + timedelta(hours=1)))


def judge(url: str, oracle: Oracle) -> None:
    """Reopen, compare with what was told, and see that opening again shows the same."""
    store = open_store(url)
    assert complaints(oracle, store) == []
    with store.read() as view:
        first = tables_of(view)
    store.close()
    store = open_store(url)
    with store.read() as view:
        assert tables_of(view) == first
    store.close()


def refuse_the_late(engine: Engine, oracle: Oracle) -> int:
    """Send the reports the killed did not live to send: their tokens must be refused."""
    late = oracle.unreported
    outcomes = engine.submit_many([Complete(job_id=job_id, token=token) for job_id, token in late])
    for execution, outcome in zip(late, outcomes, strict=True):
        assert isinstance(outcome, Refusal), f"{execution} was dead and could still report"
        assert outcome.code == LeaseLost.code
    return len(late)


def send_again(engine: Engine, oracle: Oracle) -> None:
    """Settle each maybe by sending the same command: it is created now exactly if it was not there."""
    for job_id in oracle.maybe:
        with engine.read() as view:
            was_there = view.get(Job, job_id) is not None
        for created in (not was_there, False):
            outcome = engine.submit(produced(job_id, oracle.sent[job_id]))
            if isinstance(outcome, Refusal):
                assert outcome.code == "invalid_value"
                assert not was_there
                oracle.no.add(job_id)
                break
            assert isinstance(outcome, Enqueued)
            assert outcome.jobs[0].created is created
            oracle.yes.add(job_id)


def drain(engine: Engine) -> None:
    """Run everything that is left until all of it has ended."""
    while True:
        tick(engine)
        leased = engine.ask(Lease(worker_id="last", n=100, lease_s=3600))
        assert isinstance(leased, Leased)
        if not leased.grants:
            break
        for grant in leased.grants:
            engine.ask(Complete(job_id=grant.job.job_id, token=grant.token))
    with engine.read() as view:
        assert [count for count in view.counts() if count.status not in ENDED] == []


def heal_and_finish(url: str, oracle: Oracle) -> int:
    """After the last kill: the late are refused, the maybes settled, and everything ends."""
    judge(url, oracle)
    engine = later_engine(url)
    recover(engine)
    late = refuse_the_late(engine, oracle)
    send_again(engine, oracle)
    drain(engine)
    assert complaints(oracle, engine.store) == []
    engine.close()
    judge(url, oracle)
    return late


def tokens_rise(oracle: Oracle, names: list[str]) -> None:
    """No process grants a token that one before it may have granted."""
    highest = 0
    for name in names:
        tokens = [execution.token for execution in oracle.begun[name]]
        assert len(set(tokens)) == len(tokens)
        assert min(tokens, default=highest + 1) > highest
        highest = max([highest, *tokens])


@pytest.mark.parametrize("scheme", ["dir", "wal", "sqlite"])
def test_a_process_killed_again_and_again_loses_nothing_it_acknowledged(tmp_path, scheme):
    url, oracle, dice = f"{scheme}:{tmp_path / 'jobs'}", Oracle(), Random(f"alone {scheme}")
    kills = KILLS // 2 if scheme == "dir" else KILLS  # each commit of it waits for the disk several times
    names = [f"c{number}" for number in range(kills)]
    for number, name in enumerate(names):
        if scheme == "wal" and number % 3 == 2:
            Child(url, name, oracle, "half").kill_half_done()
        else:
            Child(url, name, oracle).kill_after(dice.randint(1, 60))
        judge(url, oracle)
        if scheme != "sqlite":
            # Whoever opens it next knows that the holder is gone: no lease has to run out first.
            engine = Engine(open_store(url))
            recover(engine)
            refuse_the_late(engine, oracle)
            engine.close()
    tokens_rise(oracle, names)
    if scheme == "wal":
        # Without torn tails a part of the recovery would not have been tried.
        torn = list((tmp_path / "jobs").rglob("*.bak*"))
        assert torn
    maybe, late = len(oracle.maybe), heal_and_finish(url, oracle)
    begun = sum(map(len, oracle.begun.values()))
    print(
        f"{scheme}: {kills} kills, {len(oracle.sent)} jobs sent, {maybe} never answered, {begun} executions, "
        f"{late} late reports refused, {len(oracle.lost)} leases lost while alive"
    )
    assert begun
    assert late


def test_processes_on_one_file_killed_one_after_the_other_lose_nothing_they_acknowledged(tmp_path):
    url, oracle, dice = f"sqlite:{tmp_path / 'jobs'}", Oracle(), Random("three")
    names = iter(f"c{number}" for number in range(10_000))
    children = [Child(url, next(names), oracle) for _ in range(3)]
    for number in range(KILLS):
        # The others live on while one dies, and go on after it.
        at = number % 3
        children[at].kill_after(dice.randint(1, 40))
        children[at] = Child(url, next(names), oracle)
    for child in children:
        child.kill_after(1)
    maybe, late = len(oracle.maybe), heal_and_finish(url, oracle)
    granted = [execution.token for each in oracle.begun.values() for execution in each]
    print(
        f"sqlite, three processes: {KILLS + 3} kills, {len(oracle.sent)} jobs sent, {maybe} never answered, "
        f"{len(granted)} executions, {late} late reports refused, {len(oracle.lost)} leases lost while alive"
    )
    assert len(set(granted)) == len(granted)
    assert late
