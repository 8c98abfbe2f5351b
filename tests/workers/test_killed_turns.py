"""A process that is killed in the middle of many workflows costs time: no step's result, no signal, no instance."""

import os
import subprocess
import sys

import msgspec
import pytest

from holdfast import Holdfast
from holdfast.flows.provider import Provider
from holdfast.model import kinds

LONG = 60
COUNT = 200 if os.environ.get("HOLDFAST_SOAK") else 40
SIGNALS = 5
PROGRAM = """
import sys, threading, uuid
from typing import Any
from pathlib import Path
from holdfast import Holdfast

hf = Holdfast("sqlite:" + sys.argv[1])
told, lock = [], threading.Lock()

def draw(name: str) -> str:
    with lock:
        if len(sys.argv) > 2 and not told:
            told.append(Path(sys.argv[2]).write_text("here"))
    return f"{name} {uuid.uuid4()}"

@hf.task(name="double")
def double(n: int) -> int:
    return 2 * n

@hf.workflow(name="flow")
async def flow(n: int) -> list[Any]:
    draws = [await hf.step(draw, "first")]
    signals = [await hf.signal("n", type=int)]
    draws.append(await hf.step(draw, "second"))
    doubled = await double.call(n)
    for _ in range(4):
        signals.append(await hf.signal("n", type=int))
        draws.append(await hf.step(draw, "later"))
    return [doubled, signals, draws]

hf.work(concurrency=2)
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    os.mkfifo(tmp_path / "reached")
    return tmp_path


def worker(place, *names):
    return subprocess.Popen([sys.executable, *(str(place / name) for name in ("program.py", "flows.db", *names))])


def wait_for_steps(hf, count):
    """Wait until so many events are recorded; by the store's feed."""
    while True:
        with hf.engine.read() as view:
            seq, events = view.seq, view.flow_totals().events
        if events >= count:
            return
        assert hf.engine.store.wait(seq, LONG)


def test_one_of_three_processes_is_killed_and_every_workflow_ends_once_with_what_was_recorded(place):
    with Holdfast(f"sqlite:{place / 'flows.db'}") as hf:
        flow = hf.workflow(name="flow")(_declared)
        runs = [flow.start(number, id=f"w{number}") for number in range(COUNT)]
        for number in range(2):
            for run in runs:
                run.signal("n", number)
        doomed, others = worker(place, "reached"), []
        try:
            assert (place / "reached").read_text() == "here"
            others += [worker(place), worker(place)]
            wait_for_steps(hf, 3 * COUNT)
            doomed.kill()  # wherever it is by now
            for number in range(2, SIGNALS):
                for run in runs:
                    run.signal("n", number)
            ends = [run.result(timeout=LONG) for run in runs]
        finally:
            for process in (doomed, *others):
                process.kill()
                process.wait()
        provider = Provider(hf.engine)
        for number, (doubled, signals, draws) in enumerate(ends):
            assert doubled == 2 * number
            assert signals == list(range(SIGNALS))
            events = [event.kind for event in provider.read(f"w{number}")]
            steps = [kind for kind in events if isinstance(kind, kinds.StepCompleted)]
            assert [step.step_no for step in steps] == [1, 2, 3, 4, 5, 6]
            assert [msgspec.json.decode(step.result) for step in steps] == draws
            assert sum(isinstance(kind, kinds.OrchestrationCompleted) for kind in events) == 1


async def _declared(n: int) -> list:
    """Stand for the workflow of the processes; never run here."""
    raise NotImplementedError(n)
