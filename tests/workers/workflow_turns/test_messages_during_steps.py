"""Messages that reach an instance while one of its steps ends: each is delivered, whatever commit is under way.

Real threads at their own pace. A message that is lost leaves its instance waiting for ever; the histories say which.
"""

from __future__ import annotations

import asyncio
import threading
from random import Random

import pytest

from holdfast import Holdfast
from holdfast.errors import WorkflowCancelled
from holdfast.model.workflows import event_kinds

INSTANCES = 60
SENDERS = 3
ROUNDS = 6
#: The longest step, and the longest pause of a sender: together they take about as long as the steps. Seconds.
STEP_S, PAUSE_S = 0.06, 0.02
#: What a workflow's own code counts after a step, some milliseconds: messages come between a step and its commit.
COUNTED = 100_000
#: Seconds until what has not ended is taken to wait for ever; all of it takes a few.
PATIENCE_S = 30


@pytest.fixture(params=["memory", "sqlite"])
def hf(request, tmp_path):
    with Holdfast("memory:" if request.param == "memory" else f"sqlite:{tmp_path / 'jobs.db'}") as app:
        yield app


def pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def think() -> None:
    """Be busy for a moment, as workflows may be."""
    sum(range(COUNTED))


def work(n: int, at: int) -> int:
    """Take up to `STEP_S`, another time in each round of each instance."""
    pause(Random(f"{n} {at}").uniform(0, STEP_S))
    return at


def awaiting(hf):
    @hf.workflow(name="flow")
    async def flow(n: int) -> list[int]:
        found = []
        for at in range(ROUNDS):
            await hf.step(work, n, at)
            think()
            found.append(await hf.signal("go", type=int))
        return found

    return flow


def blocking(hf):
    @hf.workflow(name="flow")
    def flow(n: int) -> list[int]:
        found = []
        for at in range(ROUNDS):
            hf.step(work, n, at)
            think()
            found.append(hf.signal("go", type=int))
        return found

    return flow


def stepping_beside(hf, beside):
    """Give a workflow whose steps run beside something else, which ends in each of its rounds."""

    @hf.workflow(name="flow")
    async def flow(n: int) -> int:
        async def steps() -> None:
            for at in range(2 * ROUNDS):
                await hf.step(work, n, at)
                think()

        async def others() -> int:
            return sum([await beside(n, at) for at in range(ROUNDS)])

        _, found = await asyncio.gather(steps(), others())
        return found

    return flow


def send_all(hf) -> None:
    """Send each instance its signals in order, from some threads, while it runs."""

    def send(which: int) -> None:
        dice = Random(which)
        for at in range(ROUNDS):
            for n in range(which, INSTANCES, SENDERS):
                hf.instance(f"w{n}").signal("go", at)
                pause(dice.uniform(0, PAUSE_S))

    senders = [threading.Thread(target=send, args=(which,)) for which in range(SENDERS)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()


def results(hf, *, meanwhile=lambda: None) -> dict[int, object]:
    """Run all instances; give what each came to, and name those that never ended."""
    worker = hf.worker()
    worker.start()
    found: dict[int, object] = {}
    try:
        meanwhile()
        ends = threading.Timer(PATIENCE_S, lambda: None)
        ends.start()
        for n in range(INSTANCES):
            patience_s = PATIENCE_S if ends.is_alive() else 0.1
            try:
                found[n] = hf.instance(f"w{n}").result(timeout=patience_s)
            except TimeoutError:
                found[n] = f"never ended; read {delivered(hf, n)}, waits for {hf.instance(f'w{n}').status().waiting_on}"
            except WorkflowCancelled:
                found[n] = "cancelled"
        ends.cancel()
    finally:
        worker.stop()
        assert worker.join(PATIENCE_S)
    return found


def delivered(hf, n: int) -> list[int]:
    kinds = [event.kind for event in hf.instance(f"w{n}").history()]
    return [int(kind.data) for kind in kinds if isinstance(kind, event_kinds.QueueEventDelivered)]


@pytest.mark.parametrize("shape", [awaiting, blocking])
def test_signals_sent_while_steps_run_are_all_read_once_and_in_order(hf, shape):
    flow = shape(hf)
    for n in range(INSTANCES):
        flow.start(n, id=f"w{n}")
    found = results(hf, meanwhile=lambda: send_all(hf))
    assert found == {n: list(range(ROUNDS)) for n in range(INSTANCES)}
    assert {n: delivered(hf, n) for n in found} == found


def test_timers_that_fire_while_steps_end_are_all_delivered(hf):
    async def beside(n: int, at: int) -> int:
        await asyncio.sleep(Random(f"timer {n} {at}").uniform(0.001, STEP_S))
        return 1

    flow = stepping_beside(hf, beside)
    for n in range(INSTANCES):
        flow.start(n, id=f"w{n}")
    assert results(hf) == dict.fromkeys(range(INSTANCES), ROUNDS)


def test_results_of_activities_that_come_while_steps_end_are_all_delivered(hf):
    @hf.task(name="beside")
    def activity(n: int, at: int) -> int:
        pause(Random(f"activity {n} {at}").uniform(0, STEP_S / 4))
        return 1

    flow = stepping_beside(hf, activity.call)
    for n in range(INSTANCES):
        flow.start(n, id=f"w{n}")
    assert results(hf) == dict.fromkeys(range(INSTANCES), ROUNDS)


def test_results_of_children_that_come_while_steps_end_are_all_delivered(hf):
    @hf.workflow(name="child")
    async def child(n: int, at: int) -> int:
        return await hf.step(lambda: 1)

    flow = stepping_beside(hf, child.call)
    for n in range(INSTANCES):
        flow.start(n, id=f"w{n}")
    assert results(hf) == dict.fromkeys(range(INSTANCES), ROUNDS)


def test_cancels_that_come_while_steps_end_are_all_heeded(hf):
    @hf.workflow(name="flow", cancel_grace=3600)
    async def flow(n: int) -> None:
        at = 0
        while True:
            at = 1 + await hf.step(work, n, at)
            think()

    for n in range(INSTANCES):
        flow.start(n, id=f"w{n}")

    def cancel() -> None:
        dice = Random("cancel")
        for n in range(INSTANCES):
            hf.instance(f"w{n}").cancel("enough")
            pause(dice.uniform(0, PAUSE_S))

    assert results(hf, meanwhile=cancel) == dict.fromkeys(range(INSTANCES), "cancelled")
