"""Cost: a turn costs its new events. Counted in calls of Python functions, which no load on the machine changes."""

import asyncio
import sys

import pytest
from flowskit import SOAK

from holdfast.model.workflows.history import OrchestrationItem
from holdfast.model.workflows.work_items import ActivityCompleted, StartOrchestration
from holdfast.workflows.api import context as hf
from holdfast.workflows.runtime.execution import Execution
from holdfast.workflows.runtime.turn import run_turn
from support.flows import START_MS, World

#: Steps and activities of the long runs.
MANY = 10_000 if SOAK else 2_000


def item(messages, history=()):
    return OrchestrationItem(
        instance="i",
        orchestration_name="main",
        execution_id=1,
        version="1.0.0",
        history=tuple(history),
        messages=tuple(messages),
    )


def start(count):
    return StartOrchestration(instance="i", orchestration="main", input=f'{{"n":{count}}}')


def calls_of(function, count):
    calls = 0

    def look(_frame, event, _found):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(look)
    try:
        function(count)
    finally:
        sys.setprofile(None)
    return calls


def run_steps(count):
    world = World()

    async def main(n: int) -> int:
        for k in range(n):
            await hf.step(abs, k)
        return n

    world.workflow(main)
    turn = run_turn(world.definitions, item([start(count)]), now_ms=START_MS)
    while not turn.is_idle:
        if turn.must_commit:
            turn.commit(hold_until_ms=START_MS)
        for call in turn.take_steps():
            turn.finish_step(call.step_no, call.outcome(call.function(*call.args)), START_MS)
    assert turn.commit().metadata.output == str(count)


def run_activities(count, *, parallel):
    """Complete them one by one, a turn each, the instance resident. Give the history and its world."""
    world = World()

    def work(x: int) -> int:
        return x

    work = world.activity(work)

    async def main(n: int) -> int:
        if parallel:
            return sum(await asyncio.gather(*(work.call(k) for k in range(n))))
        return sum([await work.call(k) for k in range(n)])

    world.workflow(main)
    turn = run_turn(world.definitions, item([start(count)]), now_ms=START_MS)
    commit = turn.commit()
    events, jobs, execution = list(commit.history_delta), list(commit.worker_items), turn.execution
    for job in jobs:  # grows while it is read, if one leads to the next
        done = ActivityCompleted(instance="i", execution_id=1, id=job.id, result="1")
        turn = run_turn(world.definitions, item([done], events[-1:]), now_ms=START_MS, resident=execution)
        commit = turn.commit()
        events.extend(commit.history_delta)
        jobs.extend(commit.worker_items)
    assert commit.metadata.output == str(count)
    return events, world


def test_a_step_costs_the_same_after_many_as_after_few():
    few, many = calls_of(run_steps, 100) / 100, calls_of(run_steps, MANY) / MANY
    assert many < 1.5 * few


@pytest.mark.parametrize("parallel", [False, True], ids=["in sequence", "at once"])
def test_an_activity_costs_the_same_after_many_as_after_few(parallel):
    def run(count):
        run_activities(count, parallel=parallel)

    few, many = calls_of(run, 100) / 100, calls_of(run, MANY) / MANY
    assert many < 1.5 * few


@pytest.mark.parametrize("parallel", [False, True], ids=["in sequence", "at once"])
def test_replay_is_linear(parallel):
    def replay(recorded):
        events, world = recorded
        execution = Execution(world.definitions.get("main"), world.definitions, "i", 1, {})
        execution.replay(events)
        assert execution.blocked is None
        assert execution.terminal is not None

    small, large = run_activities(100, parallel=parallel), run_activities(MANY, parallel=parallel)
    few, many = calls_of(replay, small) / 100, calls_of(replay, large) / MANY
    assert many < 1.5 * few


def test_a_history_of_a_hundred_thousand_events_opens():
    count = 50_000 if SOAK else 5_000
    events, world = run_activities(count, parallel=False)
    assert len(events) == 2 * count + 2
    execution = Execution(world.definitions.get("main"), world.definitions, "i", 1, {})
    execution.replay(events)
    assert execution.blocked is None
