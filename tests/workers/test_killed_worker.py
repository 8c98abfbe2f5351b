"""A worker that is killed in the middle of its work costs time, never work."""

import os
import signal
import subprocess
import sys

import pytest

from holdfast import Holdfast

LONG = 30
PROGRAM = """
import os, sys
from pathlib import Path
from holdfast import Holdfast

hf = Holdfast("sqlite:" + sys.argv[1])

@hf.task(name="step", lease=float(sys.argv[3]))
def step(n: int) -> int:
    if n == 5:
        Path(sys.argv[2]).write_text("here")
        while True:
            hf.current.wait_cancelled(3600)
    return n

hf.work(concurrency=2)
"""


def program(place, lease):
    return [sys.executable, *(str(place / name) for name in ("program.py", "jobs.db", "reached")), str(lease)]


@pytest.fixture
def place(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    os.mkfifo(tmp_path / "reached")
    return tmp_path


@pytest.mark.parametrize("earlier", [True, False])
def test_another_worker_takes_over_without_waiting_for_the_lease_and_every_job_ends_once(place, earlier):
    """The lease is an hour: only the death of the process explains that its job is taken over."""
    with Holdfast(f"sqlite:{place / 'jobs.db'}") as hf:
        step = hf.task(name="step", lease=3600)(_step)
        jobs = step.enqueue_many([(n,) for n in range(20)])
        second = hf.worker(concurrency=2)
        with subprocess.Popen(program(place, 3600)) as first:
            assert (place / "reached").read_text() == "here"
            if earlier:
                second.start()
            first.kill()
        if not earlier:
            second.start()
        assert [job.result(timeout=LONG) for job in jobs] == list(range(20))
        second.drain(0)
        assert second.join(LONG)
        for job in jobs:
            # Whatever ran more than once is explained by a run that was lost.
            statuses = [run.status for run in job.runs()]
            assert statuses[-1] == "COMPLETED"
            assert set(statuses[:-1]) <= {"LOST"}
        assert next((run.status, run.reason) for run in jobs[5].runs()) == ("LOST", "restart")
        assert hf.engine.store.check() == []


def test_a_worker_told_to_end_releases_its_job_and_exits_with_0(place):
    with Holdfast(f"sqlite:{place / 'jobs.db'}") as hf:
        step = hf.task(name="step", lease=60)(_step)
        job = step.enqueue(5)
        with subprocess.Popen(program(place, 60)) as worker:
            assert (place / "reached").read_text() == "here"
            worker.terminate()
            worker.send_signal(signal.SIGINT)  # another one, as two of a kind may arrive as one
            assert worker.wait(LONG) == 0
        assert (job.status, [run.reason for run in job.runs()]) == ("QUEUED", ["released"])


def _step(n: int) -> int:
    return n


# --- jobs that kill their worker --------------------------------------------------------------------------------------

#: Workers, one after the other, each in a process of its own, until one of them ends with nothing left to do.
POISONED = """
import os, signal, sys
from holdfast import Holdfast

def step(n: int, poison: str) -> int:
    if poison == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if poison == "exit":
        os._exit(3)
    return n

def work() -> None:
    with Holdfast(sys.argv[1]) as hf:
        hf.task(name="step")(step)
        hf.work(concurrency=4, until_idle=True)

ended = []
while 0 not in ended and len(ended) < 12:
    child = os.fork()
    if not child:
        work()
        os._exit(0)
    ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(ended)
"""


@pytest.mark.parametrize(
    ("store", "poison", "code"), [("sqlite:jobs.db", "kill", -signal.SIGKILL), ("wal:jobs", "exit", 3)]
)
def test_jobs_beside_one_that_kills_its_worker_complete_and_only_that_one_is_dead(tmp_path, store, poison, code):
    """Eight times as many jobs are leased as there are slots: those that only wait are not charged."""
    kind, _, name = store.partition(":")
    url = f"{kind}:{tmp_path / name}"
    with Holdfast(url) as hf:
        step = hf.task(name="step")(_poisoned)
        ids = [job.id for job in step.enqueue_many([(n, poison if n == 20 else "") for n in range(51)])]
    workers = subprocess.run([sys.executable, "-c", POISONED, url], stdout=subprocess.PIPE, text=True, check=True)
    assert workers.stdout == f"{[code] * 5 + [0]}\n"
    with Holdfast(url) as hf:
        guilty, *others = (hf.job(one).refresh() for one in (ids.pop(20), *ids))
    assert (guilty.status, guilty.expiries) == ("DEAD", 5)
    assert {job.status for job in others} == {"COMPLETED"}
    assert {job.expiries for job in others} <= {0, 1}


def _poisoned(n: int, poison: str) -> int:
    return n


# --- workflows that kill their worker ---------------------------------------------------------------------------------

POISONED_FLOW = POISONED.replace(
    """        hf.task(name="step")(step)
""",
    """
        @hf.workflow(name="flow", max_turn_attempts=4)
        async def flow(n: int, poison: str) -> int:
            return await hf.step(step, n, poison)

""",
)


@pytest.mark.parametrize(
    ("store", "poison", "code"), [("sqlite:jobs.db", "kill", -signal.SIGKILL), ("wal:jobs", "exit", 3)]
)
def test_instances_beside_one_that_kills_its_worker_complete_and_only_that_one_fails(tmp_path, store, poison, code):
    kind, _, name = store.partition(":")
    url = f"{kind}:{tmp_path / name}"
    with Holdfast(url) as hf:
        flow = hf.workflow(name="flow", max_turn_attempts=4)(_poisoned_flow)
        for n in range(51):
            flow.start(n, poison if n == 20 else "", id=f"i{n}")
    workers = subprocess.run([sys.executable, "-c", POISONED_FLOW, url], stdout=subprocess.PIPE, text=True, check=True)
    assert workers.stdout == f"{[code] * 4 + [0]}\n"
    with Holdfast(url) as hf:
        statuses = {run.id: run.status().status for run in hf.instances(limit=100)}
    assert statuses.pop("i20") == "FAILED"
    assert set(statuses.values()) == {"COMPLETED"}
    assert len(statuses) == 50


async def _poisoned_flow(n: int, poison: str) -> int:
    return n
